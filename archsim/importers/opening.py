"""The one way from what people type to a model: a name, a spec, or a checkpoint's files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError, UsageError
from archsim.base.input_file import is_file, parse_json, read_text
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.spec import load
from archsim.spec.catalog import Resolved, folder_name, is_known, is_module, resolve

if TYPE_CHECKING:
    from archsim.spec.model import Model

TENSORS = (".safetensors", ".safetensors.index.json")

MAX_BYTES = 4 * 2**20
"""A config.json is a few kB; anything much larger is something else."""


def load_model(name: str | Path | JsonMapping, changes: Iterable[str] = ()) -> Model:
    """The model of a catalog name or alias, of a spec file, of a config.json or the folder that holds one, of a GGUF
    file or the folder of one, or of a safetensors file or index beside its config.json; or of what such a spec or
    config holds, as a dict.

    changes: `--set` assignments such as ``attention.n_kv_heads=4``, applied before validation.
    Raises UnknownName for an unknown name, SpecError for a file that describes no valid model.
    """
    return from_mapping(name, changes) if isinstance(name, Mapping) else open_model(str(name), changes)[0]


def from_mapping(document: JsonMapping, changes: Iterable[str] = ()) -> Model:
    """The model of a spec, or of a config.json (which says its `model_type`), as Python holds it.

    Raises SpecError with the line of its YAML for what is no valid spec.
    """
    described = dict(document)
    if "layers" not in described and described.keys() & {"model_type", "text_config", "architectures"}:
        from archsim.importers.hf.describe import from_config

        described = from_config(described)
    elif "extends" in described:
        hint = "load the other model by its name with `set`, or write the spec to a file"
        raise SpecError("`extends` needs a file: a dict has no folder to look in", code="E109", hints=(hint,))
    return load.model_from(described, "dict", changes)


def open_model(name: str, changes: Iterable[str] = ()) -> tuple[Model, Resolved]:
    """`load_model`, and how the name was resolved: its file, and the format that a suffix implied."""
    if is_module(name):
        return _open_module(name, changes)
    found = import_document(name)
    return load.open_model(name, changes) if found is None else _open_document(*found, changes)


def _open_module(name: str, changes: Iterable[str]) -> tuple[Model, Resolved]:
    """The model traced from a module. Raises UsageError for changes: a module has no document to change."""
    if tuple(changes):
        hint = "change the module, or the values of its config.json"
        raise UsageError(f"`--set` changes a spec, and {quote(name)} is a module", hints=(hint,))
    from archsim.tracing.opening import open_module  # loads torch

    return open_module(name), resolve("models", name)


def import_document(name: str) -> tuple[Path, JsonObject] | None:
    """The file that a path means and its document; None for what is no file of a checkpoint."""
    path = checkpoint_file(name)
    if path is None:
        return None
    if path.suffix.lower() == ".gguf":
        from archsim.importers.gguf.describe import from_gguf

        return path, from_gguf(path)
    if path.name.lower().endswith(TENSORS):
        from archsim.importers.safetensors import from_safetensors

        return path, from_safetensors(path, _config_document)
    from archsim.importers.hf.describe import from_config

    own = folder_name(path) if path.name == "config.json" else path.stem
    held = _read_json(path)
    document = from_config(held, own or None)
    if "read_as" in document:
        from archsim.importers.safetensors import beside_index

        document = beside_index(path, document)
    return path, _as_processed(path, document, str(held.get("model_type")))


def checkpoint_file(name: str) -> Path | None:
    """The file of a checkpoint that a path means, or that is in the folder which it means; None for what is no such
    file. A name without a slash that the catalog knows is the catalog's, whatever folder is called so.
    """
    path = _path(name)
    if path.name == name and os.path.isdir(path) and is_known("models", name):
        return None
    path = _only_gguf(path)
    if path.name.lower().endswith((".gguf", *TENSORS)) and is_file(path):
        return path
    return _config_file(path)


def _only_gguf(path: Path) -> Path:
    """The model's file, or the first of its parts, of a folder of GGUF files without a config.json; else the path.
    Raises SpecError (E109) for a folder of several models.
    """
    try:
        if not path.is_dir() or (path / "config.json").is_file():
            return path
        files = sorted(file for file in path.iterdir() if file.suffix.lower() == ".gguf" and file.is_file())
    except (OSError, ValueError):
        return path
    from archsim.importers.gguf.reader import first_files

    models = first_files(files)
    if len(models) > 1:
        listed = ", ".join(quote(file.name, 100) for file in models[:3])
        raise SpecError(f"{quote(str(path), 200)} holds {len(models)} GGUF models: {listed}", code="E109",
                        hints=("pass one of the files",))  # fmt: skip
    return models[0] if models else path


def _as_processed(config: Path, document: JsonObject, model_type: str) -> JsonObject:
    """The document with the sizes of images that the preprocessor_config.json beside a config.json states."""
    path = config.with_name("preprocessor_config.json")
    if "towers" not in document or config.name != "config.json" or not is_file(path):
        return document
    from archsim.importers.hf.towers.processors import with_processor

    processor = parse_json(path, read_text(path, MAX_BYTES))
    return with_processor(document, processor, model_type) if isinstance(processor, dict) else document


def _path(name: str) -> Path:
    """The path that a name may be: with the home folder written out; of `-` the file of what was piped in."""
    if name == "-":
        return resolve("models", name).path
    return Path(os.path.expanduser(name)) if name.startswith("~") else Path(name)


def _open_document(path: Path, document: JsonObject, changes: Iterable[str]) -> tuple[Model, Resolved]:
    """The model of an imported document."""
    resolved = Resolved(path=path, name=str(document["name"]), format_hint=None, origin="path")
    return load.model_from(document, str(path), changes), resolved


def _config_document(config: Path) -> JsonObject:
    """The document of a config.json."""
    from archsim.importers.hf.describe import from_config

    return from_config(_read_json(config), folder_name(config))


def _config_file(path: Path) -> Path | None:
    """The config.json that a path means, if it means one."""
    try:
        if path.is_dir() and (path / "config.json").is_file():
            return path / "config.json"
        return path if path.suffix.lower() == ".json" and path.is_file() else None
    except (OSError, ValueError):  # no path at all: a name that is too long, or holds a null byte
        return None


def _read_json(path: Path) -> JsonObject:
    """The mapping in a JSON file. Raises SpecError (E109) for anything else."""
    document = parse_json(path, read_text(path, MAX_BYTES))
    if not isinstance(document, dict):
        raise SpecError(f"{quote(str(path))} is not a mapping", code="E109")
    from archsim.importers.hf.describe import says_what_it_is

    if not says_what_it_is(document):
        if "peft_type" in document:
            hint = f"open the model that it is for: {quote(str(document.get('base_model_name_or_path')))}"
            raise SpecError(f"{quote(str(path))} is an adapter, without a model", code="E109", hints=(hint,))
        hint = "a config.json without a `model_type` does not say what it is: write a spec, or add the type"
        raise SpecError(f"{quote(str(path))} has no `model_type`", code="E109", hints=(hint,))
    return document
