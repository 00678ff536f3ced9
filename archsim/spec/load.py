"""Names and files to typed documents: the one way in for models, devices and formats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError, UnknownName
from archsim.base.json_types import JsonObject
from archsim.spec import loader
from archsim.spec.catalog import Resolved, resolve
from archsim.spec.document_cache import DocumentCache, Reader

if TYPE_CHECKING:
    from pathlib import Path

    from archsim.spec.hardware import Hardware
    from archsim.spec.model import Model

MAX_EXTENDS = 8

_MODELS: DocumentCache[Model] = DocumentCache("model")
_CHANGED: DocumentCache[Model] = DocumentCache()
_DEVICES: DocumentCache[Hardware] = DocumentCache("device")


def load_model(name: str, changes: Iterable[str] = ()) -> Model:
    """The model of a catalog name, alias or path.

    changes: `--set` assignments such as ``attention.n_kv_heads=4``, applied before validation.
    Raises UnknownName for an unknown name, SpecError for a file that is no valid spec.
    """
    return open_model(name, changes)[0]


def open_model(name: str, changes: Iterable[str] = ()) -> tuple[Model, Resolved]:
    """`load_model`, and how the name was resolved: its file, and the format that a suffix implied."""
    resolved, changes = resolve("models", str(name)), tuple(changes)
    documents = _CHANGED if changes else _MODELS
    model = documents.get((resolved.path, changes), lambda reader: _validate(_extend(resolved.path, reader), changes))
    return (model if not resolved.text_of else _text_of(model, resolved.text_of)), resolved


def _text_of(model: Model, name: str) -> Model:
    """The model as the text part of a vision-language model: with a tower of unknown size."""
    from archsim.spec.model import Tower

    if "vision" in model.tower_names:
        return model
    note = f"{name.rsplit('/', 1)[-1]} is counted as {model.name}"
    return model.model_copy(update={"towers": (*model.towers, Tower(name="vision", note=note))})


def model_from(document: JsonObject, name: str = "document", changes: Iterable[str] = ()) -> Model:
    """The model of a plain document in the shape of a spec file (from an importer, or written in Python)."""
    import yaml

    return _validate(loader.parse_text(yaml.safe_dump(document, sort_keys=False), name), changes)


def model_from_bytes(data: bytes, name: str, catalog_name: Callable[[str], str], changes: Iterable[str] = ()) -> Model:
    """The model of a spec that came from outside, as bytes; `name` stands for its file in messages.

    No file is opened but those of the catalog: what the spec extends goes through `catalog_name`, which raises for a
    name that it does not know. Raises SpecError, UnknownName.
    """
    return _validate(_from_bytes(data, name, catalog_name), changes)


def document_from_bytes(
    data: bytes, name: str, catalog_name: Callable[[str], str], changes: Iterable[str] = ()
) -> loader.Node:
    """`whole_document` of such a spec. Raises as `model_from_bytes`."""
    return _completed(_from_bytes(data, name, catalog_name), changes)


def _from_bytes(data: bytes, name: str, catalog_name: Callable[[str], str]) -> loader.Node:
    document = loader.parse_spec(data, name)
    _check_kind(document, name)
    if isinstance(parent := document.get("extends"), str):
        reader = Reader()
        document = _merge_onto(_extend(reader.resolve("models", catalog_name(parent)), reader, 1), document)
    return document


def whole_document(name: str, changes: Iterable[str] = ()) -> loader.Node:
    """The document of a catalog name, alias or path by itself: what it extends and what its layers share merged in.
    Raises as `load_model`.
    """
    return _completed(_extend(resolve("models", str(name)).path, Reader()), changes)


def _completed(document: loader.Node, changes: Iterable[str]) -> loader.Node:
    """The document with what its layers share merged into them, and changed."""
    from archsim.spec.model import merge_layers

    merge_layers(document, loader.merge)
    if changes := tuple(changes):
        from archsim.spec.override import apply

        apply(document, changes)
    document.pop("extends", None)
    return document


def _validate(document: loader.Node, changes: Iterable[str]) -> Model:
    from archsim.spec.model import Model

    _completed(document, changes)
    model = loader.validate(document, Model, document="model")
    _check_formats(document)
    return model


COMPOSED = frozenset("*=@")
"""Signs of a format that is put together from others (`archsim.spec.format.stored_format`)."""


def _check_formats(document: loader.Node) -> None:
    """Refuses a native format that nobody knows, where it stands in the file."""
    named = document.get("weights")
    if not isinstance(named, loader.Node):
        return
    for role, name in named.items():
        try:
            if not COMPOSED & set(str(name)):
                resolve("formats", str(name))
        except UnknownName as error:
            span = named.value_mark(role).span()
            raise SpecError(error.message, code="E101", span=span, hints=error.hints) from None


def _extend(path: Path, reader: Reader, depth: int = 0) -> loader.Node:
    """The document with the one it extends merged underneath."""
    document = reader.read(path)
    _check_kind(document, path)
    parent = document.get("extends")
    if not isinstance(parent, str):
        return document
    if depth >= MAX_EXTENDS:
        raise SpecError(f"`extends` is nested more than {MAX_EXTENDS} deep, or in a circle", code="E111")
    return _merge_onto(_extend(_parent(parent, document, reader), reader, depth + 1), document)


def _merge_onto(base: loader.Node, document: loader.Node) -> loader.Node:
    """The document with what it extends underneath."""
    for own in IDENTITY:
        base.pop(own, None)
    return loader.merge(base, document)


def _parent(name: str, document: loader.Node, reader: Reader) -> Path:
    """The file that `extends` names: a spec in YAML, whatever else could be read as a model."""
    path = None if name == "-" else reader.resolve("models", name)
    if path is None or path.suffix.lower() not in (".yaml", ".yml"):
        message = f"`extends` reads only specs in YAML, not {quote(name)}"
        raise SpecError(message, code="E109", span=document.value_mark("extends").span())
    return path


OTHERS = {
    "archsim.hardware": ("a device", "a device goes to `--hw`"),
    "archsim.system": ("a machine", "a machine goes to `--hw`"),
    "archsim.engine": ("a serving engine", "an engine goes to `--engine`, by its name"),
}
"""Beginning of a document's `schema` -> what it describes, and where it belongs."""


def _check_kind(document: loader.Node, path: Path | str) -> None:
    """Refuses a file that describes something else, in one sentence."""
    schema = str(document.get("schema", ""))
    found = next((words for start, words in OTHERS.items() if schema.startswith(start)), None)
    if found is None and "layers" not in document and {"bytes", "mixture"} & document.keys() and "compute" in document:
        found = ("a number format", "a format goes to `--weights`, by its name")
    if found is not None:
        raise SpecError(f"{quote(path, 200)} describes {found[0]}, not a model", code="E109", hints=(found[1],))


IDENTITY = ("aliases", "hf_ids", "lineage", "notes", "unused", "read_as", "sources", "published", "title",
            "confidence")  # fmt: skip
"""Fields that belong to one checkpoint and are not taken over by `extends`."""


def load_hardware(name: str) -> Hardware:
    """The device of a catalog name, alias or path; of a system, its device with the machine's links.

    Raises UnknownName, SpecError.
    """
    path = resolve("hw", str(name)).path
    return _DEVICES.get(path, lambda reader: _hardware(path, reader))


def _hardware(path: Path, reader: Reader) -> Hardware:
    from archsim.spec.hardware import load, load_system

    start = loader.content(path)[:4096]
    if re.search(rb"^(d_model|layers|extends|vocab_size):", start, re.MULTILINE):
        hint = "a model is the command's first argument"
        raise SpecError(f"{quote(path, 200)} describes a model, not a device", code="E109", hints=(hint,))
    if b"\nschema: archsim.system/" in start:
        system = load_system(path, reader.read)
        return _hardware(reader.resolve("hw", system.device), reader).in_system(system)
    return load(path, lambda base: reader.resolve("hw", base), reader.read)
