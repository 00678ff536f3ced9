"""model_type to the function that reads its config."""

from __future__ import annotations

from collections.abc import Callable

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config

Reader = Callable[[Config], JsonObject]

READERS: dict[str, Reader] = {}
DEFAULTS: dict[str, JsonMapping] = {}


def family(*model_types: str, **defaults: object) -> Callable[[Reader], Reader]:
    """Register a reader. `defaults`: those of the first type's config class, for keys that a file lacks."""

    def register(reader: Reader) -> Reader:
        for model_type in model_types:
            if model_type in READERS:
                raise ValueError(f"two readers for model_type {model_type}")
            READERS[model_type] = reader
            DEFAULTS[model_type] = defaults
        return reader

    return register
