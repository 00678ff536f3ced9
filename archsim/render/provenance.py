"""Which files an answer rests on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from archsim.spec.catalog import BUILT_IN, STDIN, resolve


def inputs(**names: str) -> list[str]:
    """One text a file: its path and the start of its SHA-256. Keys are catalog kinds: `models`, `hw`."""
    found = []
    for kind, name in names.items():
        resolved = resolve(kind, name)  # type: ignore[arg-type]
        found.append(f"{display_path(resolved.path, resolved.origin)}@{digest(resolved.path)}")
    return found


LARGEST = 4_000_000
"""Bytes of the largest file that is hashed: checkpoints are not, specs always are."""


def digest(path: Path) -> str:
    """The first 8 digits of a file's SHA-256; of a folder or a checkpoint what it is instead."""
    if not path.is_file():
        return "folder"
    size = path.stat().st_size
    return hashlib.sha256(path.read_bytes()).hexdigest()[:8] if size <= LARGEST else f"{size:,} bytes"


def display_path(path: Path, origin: str) -> str:
    """A path for people: of built-in data from its top folder on, others as they were found."""
    if origin == STDIN:
        return STDIN
    if origin != BUILT_IN:
        return str(path)
    parts = path.resolve().parts
    top = max((i for i, part in enumerate(parts) if part in ("specs", "hardware", "reports")), default=0)
    return "/".join(parts[top:])
