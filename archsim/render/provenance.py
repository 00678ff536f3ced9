"""What an answer rests on: files and assumptions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from archsim.base.input_file import read_input
from archsim.base.notes import Note
from archsim.render.page import Section, footer, row
from archsim.spec.catalog import BUILT_IN, STDIN, resolve


def inputs(**names: str) -> list[str]:
    """One text a file: its path and the start of its SHA-256. Keys are catalog kinds: `models`, `hw`."""
    from archsim.importers.opening import checkpoint_file  # loads YAML, which lists need not

    found = []
    for kind, name in names.items():
        file = checkpoint_file(name) if kind == "models" and name != "-" else None
        if file is not None:
            found.append(f"{file}@{digest(file)}")
            continue
        resolved = resolve(kind, name)  # type: ignore[arg-type]
        if resolved.origin == "module" and not resolved.path.is_file():
            found.append(name)  # a type of a library, not a file
            continue
        found.append(f"{display_path(resolved.path, resolved.origin)}@{digest(resolved.path)}")
    return found


def basis(text: str, notes: Sequence[Note], files: Sequence[str], verbose: bool) -> list[Section]:
    """The last sections before the commands to try: assumptions in full where `verbose`, else their number; then what
    the figures rest on, and the files: none where the answer was asked for in Python.
    """
    where = "-v lists" if files else "`.assumptions` has"
    known = f"{len(notes)} below" if verbose else f"{where} {len(notes)}"
    rows = tuple(row(note.code, note.text) for note in notes)
    listed = [Section(title="Assumptions (`archsim explain CODE`)", rows=rows)] if verbose else []
    lines = [("Basis", f"{text} ({known})"), *(("" if i else "Inputs", name) for i, name in enumerate(files))]
    return [*listed, footer(lines)]


LARGEST = 4_000_000
"""Bytes of the largest file that is hashed: checkpoints are not, specs always are."""


def digest(path: Path) -> str:
    """The first 8 digits of a file's SHA-256; of a folder or a checkpoint what it is instead."""
    if not path.is_file():
        return "folder"
    size = path.stat().st_size
    return hashlib.sha256(read_input(path, LARGEST)).hexdigest()[:8] if size <= LARGEST else f"{size:,} bytes"


def display_path(path: Path, origin: str) -> str:
    """A path for people: of built-in data from its top folder on, others as they were found."""
    if origin == STDIN:
        return STDIN
    if origin != BUILT_IN:
        return str(path)
    parts = path.resolve().parts
    top = max((i for i, part in enumerate(parts) if part in ("specs", "hardware", "reports")), default=0)
    return "/".join(parts[top:])
