"""`archsim list` as data and as a page."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import yaml

from archsim.base.errors import SpecError
from archsim.base.input_file import read_input
from archsim.base.json_types import JsonObject
from archsim.render.page import Page, Section, row
from archsim.render.provenance import LARGEST, display_path
from archsim.spec.catalog import BUILT_IN, Entry, Kind, data_roots, names
from archsim.spec.spelling import normalise

AVAILABLE = "available"
NO_SPEC = "no spec"
RUN_FILES = (".yaml", ".csv", ".gz", ".json")


def entries(what: str, grep: str = "") -> list[JsonObject]:
    """Name, aliases, status, note, origin and file of everything of one kind; `grep` looks at the names."""
    listed = _runs() if what == "runs" else _catalog(cast(Kind, what))
    wanted = grep.lower()
    return [e for e in listed if any(wanted in text.lower() for text in (e["name"], *e["aliases"]))]


def page(what: str, found: Sequence[JsonObject]) -> Page:
    """One line an entry: no line is broken, so that other tools can filter them."""
    rows = []
    for e in found:
        file = display_path(Path(e["file"]), e["origin"]) if e["file"] else e["note"] or NO_SPEC
        rows.append(row(e["name"], file, " ".join(e["aliases"])))
    head = () if rows else (f"no {what} found",)
    section = Section(title=what, rows=tuple(rows), header=("file, or why it is missing", "aliases"), wrap=False)
    return Page(head=head, sections=(section,) if rows else ())


def _catalog(kind: Kind) -> list[JsonObject]:
    return [
        {
            "name": e.name,
            "aliases": aliases_text(e),
            "status": AVAILABLE if e.path else NO_SPEC,
            "note": e.status,
            "origin": e.origin,
            "file": str(e.path) if e.path else None,
        }
        for e in names(kind)
    ]


def aliases_text(entry: Entry) -> list[str]:
    """The other names of an entry as its file spells them; normalised where the file does not say."""
    if entry.path is None:
        return [*entry.aliases]
    try:
        text = read_input(entry.path, LARGEST).decode("utf-8", errors="replace")
        fragments = "".join(re.findall(r"^(?:aliases|hf_ids):.*\n(?:[ \t]+.*\n|- .*\n)*", text, re.MULTILINE))
        found = yaml.load(fragments, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)) or {}
    except (SpecError, yaml.YAMLError, RecursionError):  # as a file may be that nobody asked for
        return [*entry.aliases]
    listed = [name for names in found.values() if isinstance(names, list) for name in names if isinstance(name, str)]
    known = {normalise(name) for name in listed}
    return [*listed, *(alias for alias in entry.aliases if alias not in known)]


def _runs() -> list[JsonObject]:
    """Files of measured runs below `runs` of the data folders."""
    found: dict[str, JsonObject] = {}
    for folder, origin in _run_folders():
        for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
            name = path.relative_to(folder).as_posix()
            if path.is_file() and path.suffix in RUN_FILES:
                entry: JsonObject = {"name": name, "aliases": [], "status": AVAILABLE, "note": None, "origin": origin}
                found.setdefault(name, {**entry, "file": str(path)})
    return [found[name] for name in sorted(found)]


def _run_folders() -> list[tuple[Path, str]]:
    folders = [(Path("runs"), "./runs"), (Path("reports/runs"), "./reports/runs")]
    for root in filter(None, os.environ.get("ARCHSIM_PATH", "").split(os.pathsep)):
        folders.append((Path(root) / "runs", "$ARCHSIM_PATH"))
    return [*folders, (data_roots("reports")[-1] / "runs", BUILT_IN)]
