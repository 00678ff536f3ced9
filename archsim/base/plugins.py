"""What installed packages add: folders of data and importers, by the entry points that they declare.

A package's `pyproject.toml` says `[project.entry-points."archsim.data"]` with `mine = "my_package"` for a package that
holds `specs/` and `hardware/`, and `[project.entry-points."archsim.importers"]` with `mine = "my_package.reader"` for a
module that registers readers when it is imported. Packages are searched once, and again after one is installed or
removed: looking through all of them at every start would take longer than an estimate.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

from archsim.base.derived import derived
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject

Group = Literal["archsim.data", "archsim.importers"]
GROUPS: tuple[Group, ...] = ("archsim.data", "archsim.importers")


class Plugin(NamedTuple):
    """An entry point. value: the package or module that it names; folder: where a package of data lies, empty where it
    cannot be found.
    """

    group: str
    value: str
    distribution: str
    version: str
    folder: str


def plugins(group: Group) -> list[Plugin]:
    """The entry points of a group, sorted by distribution and value."""
    return [one for one in _installed(tuple(sys.path)) if one.group == group]


def data_folders(top: str) -> list[tuple[Path, str]]:
    """The folders `specs` or `hardware` of installed packages, each with the name of its distribution."""
    found = [(Path(one.folder) / top, one.distribution) for one in plugins("archsim.data") if one.folder]
    return [(folder, distribution) for folder, distribution in found if folder.is_dir()]


def import_plugins(group: Group) -> None:
    """Imports every module of a group, which registers what it brings.

    Raises UsageError for a module that fails, with its package: what it would have brought is missing.
    """
    from importlib import import_module

    for one in plugins(group):
        try:
            import_module(one.value)
        except Exception as error:
            raise UsageError(
                f"the package {one.distribution} {one.version} cannot be used: importing {one.value} failed: "
                f"{type(error).__name__}: {error}"[:400],
                hints=(f"update it, or remove it: `pip uninstall {one.distribution}`",),
            ) from error


@lru_cache(maxsize=4)
def _installed(places: tuple[str, ...]) -> list[Plugin]:
    """All entry points, from the cache while no folder of packages has changed."""
    here = os.getcwd()  # which changes all the time, and where nothing is installed
    folders = [place for place in places if os.path.isdir(place) and os.path.abspath(place) != here]
    kept = derived(Path(sys.prefix) / "archsim-plugins", [*folders, __file__], lambda: {"plugins": _search()})
    return [Plugin(*map(str, one)) for one in kept["plugins"]]


def _search() -> list[Plugin]:
    from importlib.metadata import entry_points

    found = set()
    for group in GROUPS:
        for point in entry_points(group=group):
            about = point.dist
            folder = _folder(point.value) if group == "archsim.data" else ""
            found.add(Plugin(group, point.value, about.name if about else "", about.version if about else "", folder))
    return sorted(found)


def _folder(package: str) -> str:
    """Where a package lies, without importing it; empty where it is not there."""
    from importlib.util import find_spec

    try:
        spec = find_spec(package)
    except (ImportError, ValueError):
        return ""
    places = list(spec.submodule_search_locations or ()) if spec else []
    return places[0] if places else ""


def report() -> list[JsonObject]:
    """What `archsim doctor` says of plugins."""
    found = [one for group in GROUPS for one in plugins(group)]
    return [
        one._asdict() | {"problem": "no such package" if one.group == "archsim.data" and not one.folder else None}
        for one in found
    ]
