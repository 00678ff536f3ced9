"""`archsim doctor`: what this installation is made of, where data and settings come from, what is wrong."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import archsim
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonObject
from archsim.base.plugins import report
from archsim.render.page import Page, Row, Section, facts, plural, row
from archsim.spec.catalog import Entry, Kind, names

PACKAGES = ("typer", "rich", "pydantic", "pyyaml", "numpy", "plotly", "pyarrow", "torch", "transformers")
SETTINGS = ("ARCHSIM_PATH", "ARCHSIM_DEBUG", "XDG_DATA_HOME", "NO_COLOR", "TERM")
KINDS: tuple[Kind, ...] = ("models", "hw", "formats")


def diagnosis() -> JsonObject:
    """The `archsim.doctor/1` object. Nothing heavy is imported: packages are only looked for."""
    listed = {kind: names(kind) for kind in KINDS}
    return {
        "schema": "archsim.doctor/1",
        "archsim": {"version": archsim.__version__, "folder": str(Path(archsim.__file__).parent)},
        "python": {"version": platform.python_version(), "executable": sys.executable},
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in PACKAGES},
        "torch": {"importable": find_spec("torch") is not None, "cuda_driver": _cuda_driver()},
        "data": [root for kind in KINDS for root in _roots(kind, listed[kind])],
        "plugins": report(),
        "settings": [_setting(name) for name in SETTINGS],
        "lint": lint(listed),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _cuda_driver() -> bool:
    """Whether an NVIDIA driver is loaded."""
    return any(Path(path).exists() for path in ("/dev/nvidiactl", "/proc/driver/nvidia/version", "/dev/dxg"))


def _setting(name: str) -> JsonObject:
    value = os.environ.get(name)
    return {"name": name, "value": value, "origin": "default" if value is None else "environment"}


def _roots(kind: Kind, entries: list[Entry]) -> list[JsonObject]:
    counts: dict[tuple[str, str], int] = {}
    for entry in entries:
        if entry.path is not None:
            key = str(entry.path.parent), entry.origin
            counts[key] = counts.get(key, 0) + 1
    found = [{"kind": kind, "folder": f, "origin": origin, "files": n} for (f, origin), n in counts.items()]
    without = sum(entry.path is None for entry in entries)
    return found + ([{"kind": kind, "folder": None, "origin": "no spec", "files": without}] if without else [])


def lint(listed: dict[Kind, list[Entry]]) -> JsonObject:
    """Every document read and validated: what is refused, and how many warnings devices carry."""
    checked, problems, warnings = 0, [], 0
    for kind, entries in listed.items():
        for entry in entries:
            if entry.path is None:
                continue
            checked += 1
            try:
                warnings += _check(kind, entry.path)
            except ArchsimError as error:
                problems.append({"file": str(entry.path), "code": error.code, "message": error.message})
    return {"checked": checked, "problems": problems, "device_warnings": warnings}


def _check(kind: Kind, path: Path) -> int:
    """Load one document; the number of its warnings."""
    from archsim.importers.opening import load_model
    from archsim.spec.format import load_format
    from archsim.spec.hardware import load_system
    from archsim.spec.load import load_hardware

    loaders: dict[str, Callable[[str], Any]] = {"models": load_model, "formats": load_format, "hw": load_hardware}
    system = kind == "hw" and path.parent.name == "systems"
    document = load_system(path) if system else loaders[kind](str(path))
    return len(getattr(document, "warnings", ()))


def page(d: JsonObject) -> Page:
    """The diagnosis for people."""
    versions = tuple(row(name, version or "not installed") for name, version in d["packages"].items())
    data = tuple(_root_row(root) for root in d["data"])
    settings = tuple(row(s["name"], s["value"] if s["value"] is not None else "-", s["origin"]) for s in d["settings"])
    plugins = tuple(
        row(f"{p['distribution']} {p['version']}", p["group"], p["value"], p["problem"] or "") for p in d["plugins"]
    )
    torch = "importable" if d["torch"]["importable"] else "not installed: needed by on-device checks only"
    installation = {
        "archsim": d["archsim"]["version"],
        "folder": d["archsim"]["folder"],
        "python": f"{d['python']['version']} ({d['python']['executable']})",
        "platform": d["platform"],
        "torch": torch,
        "CUDA driver": "present" if d["torch"]["cuda_driver"] else "not found",
    }
    sections = [
        facts("Installation", installation.items()),
        Section(title="Packages", rows=versions),
        Section(title="Data", rows=data, align="lr"),
        *([Section(title="Plugins", rows=plugins)] if plugins else []),
        Section(title="Settings", rows=settings),
        _lint_section(d["lint"]),
    ]
    return Page(head=(f"archsim {d['archsim']['version']}",), sections=tuple(sections))


def _root_row(root: JsonObject) -> Row:
    entries = f"{root['files']:,} {'entry' if root['files'] == 1 else 'entries'}"
    return row(root["kind"], entries, root["origin"], root["folder"] or "known by name only")


def _lint_section(lint: JsonObject) -> Section:
    problems = tuple(row(p["code"], f"{p['file']}: {p['message']}") for p in lint["problems"])
    counts = [plural(lint["checked"], "document") + " checked", plural(len(problems), "problem")]
    summary = ", ".join([*counts, plural(lint["device_warnings"], "device warning")])
    return Section(title="Catalog", rows=problems, below=(summary,))
