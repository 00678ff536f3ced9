"""The names of modules: `file.py:Class`, and `transformers:` with a model type or a config.json."""

from __future__ import annotations

from functools import lru_cache

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError, UsageError
from archsim.base.input_file import parse_json, read_text
from archsim.spec.catalog import TRANSFORMERS, folder_name, module_file
from archsim.tracing.model import TracedModel

MAX_BYTES = 4 * 2**20
"""A config.json is a few kB; anything much larger is something else."""


def open_module(name: str) -> TracedModel:
    """The model traced from the module of a name.

    Running a Python file is running its code: only the spelling `file.py:Class` does. Raises SpecError, UsageError,
    UnknownName.
    """
    path = module_file(name)
    stamp = path.stat().st_mtime_ns if path.is_file() else 0
    return _traced(name, stamp)


@lru_cache(maxsize=8)
def _traced(name: str, _stamp: int) -> TracedModel:
    try:
        from archsim.tracing import build
        from archsim.tracing.trace import trace
    except ImportError:
        raise UsageError("a module can only be traced with torch", hints=("pip install 'archsim[torch]'",)) from None
    path = module_file(name)
    if not name.startswith(TRANSFORMERS):
        if not path.is_file():
            raise SpecError(f"there is no file {quote(str(path))}", code="E109")
        return trace(build.from_file(path, name.rpartition(":")[2]))
    path = path / "config.json" if path.is_dir() else path
    if path.suffix.lower() != ".json":
        return trace(build.from_transformers(name.removeprefix(TRANSFORMERS)))
    config = parse_json(path, read_text(path, MAX_BYTES))
    if not isinstance(config, dict):
        raise SpecError(f"{quote(str(path))} is not a mapping", code="E109")
    own = folder_name(path) if path.name == "config.json" else path.stem
    return trace(build.from_transformers(config, own or None))
