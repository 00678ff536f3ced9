"""The one way from what people type to a model: a name, a spec, or a checkpoint's config.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.spec import load
from archsim.spec.catalog import Resolved

if TYPE_CHECKING:
    from archsim.spec.model import Model

MAX_BYTES = 4 * 2**20
"""A config.json is a few kB; anything much larger is something else."""


def load_model(name: str, changes: Iterable[str] = ()) -> Model:
    """The model of a catalog name or alias, of a spec file, or of a config.json or the folder that holds one.

    changes: `--set` assignments such as ``attention.n_kv_heads=4``, applied before validation.
    Raises UnknownName for a name nobody knows, SpecError for a file that describes no valid model.
    """
    return open_model(name, changes)[0]


def open_model(name: str, changes: Iterable[str] = ()) -> tuple[Model, Resolved]:
    """`load_model`, and how the name was resolved: its file, and the format that a suffix implied."""
    config = _config_file(Path(name))
    if config is None:
        return load.open_model(name, changes)
    from archsim.importers.hf import from_config

    own = config.parent.name if config.name == "config.json" else config.stem
    document = from_config(_read(config), own or None)
    resolved = Resolved(path=config, name=document["name"], format_hint=None, origin="path")
    return load.model_from(document, str(config), changes), resolved


def _config_file(path: Path) -> Path | None:
    """The config.json that a path means, if it means one."""
    try:
        if path.is_dir() and (path / "config.json").is_file():
            return path / "config.json"
        return path if path.suffix.lower() == ".json" and path.is_file() else None
    except (OSError, ValueError):  # no path at all: a name that is too long, or holds a null byte
        return None


def _read(path: Path) -> dict[str, Any]:
    """The mapping in a JSON file. Raises SpecError (E109) for anything else."""
    if path.stat().st_size > MAX_BYTES:
        raise SpecError(f"{quote(str(path))} is larger than {MAX_BYTES:,} bytes", code="E109")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise SpecError(f"{quote(str(path))} cannot be read: {type(error).__name__}", code="E109") from None
    except ValueError as error:
        raise SpecError(f"{quote(str(path))} is no valid JSON: {error}", code="E109") from None
    if not isinstance(document, dict):
        raise SpecError(f"{quote(str(path))} holds no mapping", code="E109")
    if "model_type" not in document and "text_config" not in document:
        hint = "a config.json without a `model_type` does not say what it is: write a spec, or add the type"
        raise SpecError(f"{quote(str(path))} has no `model_type`", code="E109", hints=(hint,))
    return document
