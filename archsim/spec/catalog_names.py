"""The names that files of a catalog give themselves."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from archsim.base.errors import SpecError
from archsim.spec.spelling import normalise


@cache
def _read_names(path: Path, _stamp: tuple[int, int]) -> tuple[str, ...]:
    from archsim.spec.loader import read

    node = read(path)
    listed = [node.get("name"), node.get("id")]
    for key in ("aliases", "hf_ids"):
        value = node.get(key)
        listed += value if isinstance(value, list) else []
    return tuple(dict.fromkeys(normalise(name) for name in listed if isinstance(name, str) and normalise(name)))


def names_inside(path: Path, strict: bool = False) -> tuple[str, ...]:
    """Normalised names that a file gives itself. An invalid file has none, unless `strict`: it must not keep
    other names from being found."""
    try:
        status = path.stat()
        return _read_names(path, (status.st_mtime_ns, status.st_size))
    except (SpecError, OSError):
        if strict:
            raise
        return ()
