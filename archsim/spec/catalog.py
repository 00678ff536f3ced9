"""Names to files, for models, devices and formats.

Folders are looked up in this order: `./specs` and `./hardware`, the entries of `$ARCHSIM_PATH`,
`$XDG_DATA_HOME/archsim`, the data that archsim comes with, then those of installed packages (`base/plugins.py`). A
folder with an `index.json` is not parsed; in others the file names count first, and only an unresolved name makes the
names inside the files be read. What archsim comes with always has an index: a wheel brings it, a clone makes it at
first use and keeps it in the cache.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.derived import derived
from archsim.base.diagnostics import quote
from archsim.base.errors import NoSuchName, SpecError, UnknownName, UsageError
from archsim.base.input_file import is_file, is_there, parse_json, read_text
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.plugins import data_folders
from archsim.spec.one_look import seen_once
from archsim.spec.spelling import driver_spellings, may_drop_dots, normalise, sees, without_dots, without_suffixes

Kind = Literal["models", "hw", "formats", "engines", "recipes", "stacks"]
BUILT_IN = "built-in"
STDIN = "stdin"
_OF_SPECS = ("models", "formats", "engines", "recipes", "stacks")
_NOUN = {"hw": "device"} | {kind: kind.removesuffix("s") for kind in _OF_SPECS}
_PLACES = {kind: (kind,) for kind in _OF_SPECS} | {"hw": ("devices", "systems")}
_TOP = dict.fromkeys(_OF_SPECS, "specs") | {"hw": "hardware"}
_YAML = (".yaml", ".yml")
_PATHS = (*_YAML, ".json", ".gguf")
_LONGEST_NAME = 200

LARGEST_INDEX = 64 * 2**20
"""Bytes of an index of names."""

LARGEST_PIPED = 4_000_000
"""Bytes of a document on standard input at most."""


class Resolved(NamedTuple):
    """What a name stands for: file, canonical name, and the weight format that the spelling implied. text_of: the name
    asked for, where that is a vision-language model of which the catalog holds the text part.
    """

    path: Path
    name: str
    format_hint: str | None
    origin: str
    text_of: str = ""


class Entry(NamedTuple):
    """One name of a catalog. `path` is None where only a `status` is known (an undisclosed model)."""

    name: str
    path: Path | None
    origin: str
    aliases: tuple[str, ...] = ()
    status: str | None = None


class _Index(NamedTuple):
    """The names inside the files of a folder: normalised spelling -> stem; and names that have no spec."""

    names: Mapping[str, str]
    status: Mapping[str, JsonMapping]


_NO_INDEX = _Index({}, {})


@dataclass(frozen=True, kw_only=True)
class _Shelf:
    """One data folder: its files by stem, and how to get its index, if it has one."""

    origin: str
    files: Mapping[str, str]
    read_index: Callable[[], _Index] | None = None

    @cached_property
    def index(self) -> _Index:
        """The index; empty where there is none."""
        return self.read_index() if self.read_index else _NO_INDEX

    @cached_property
    def stems(self) -> dict[str, str]:
        """Normalised file name -> stem."""
        return {normalise(stem): stem for stem in self.files}

    @cached_property
    def indexed(self) -> dict[str, str]:
        """Normalised spelling -> stem, of file names and of the index."""
        return {s: stem for s, stem in self.index.names.items() if stem in self.files} | self.stems

    def spellings(self, *, inside: bool = False) -> dict[str, str]:
        """Normalised spelling -> stem; `inside` adds the names that files without an index hold."""
        if not inside or self.read_index:
            return self.indexed
        known = dict(self.stems)
        for stem, path in self.files.items():
            for spelling in names_inside(Path(path)):
                known.setdefault(spelling, stem)
        return known


def resolve(kind: Kind, name: str) -> Resolved:
    """The file that `name`, an alias or a path, stands for; as a model `-` is what comes in on standard input.

    Raises UnknownName (E101) with the closest names, or with the status of a name that has no spec, and
    SpecError (E109) for a path where there is no file.
    """
    if kind == "models" and is_module(name):
        return Resolved(path=module_file(name), name=name.rpartition(":")[2], format_hint=None, origin="module")
    if name == "-" and kind == "models":
        return Resolved(path=piped_document(), name=STDIN, format_hint=None, origin=STDIN)
    if name.startswith("~"):
        name = os.path.expanduser(name)
    if _is_path(name):
        return _from_path(name)
    shelves = _shelves(kind)
    asked = normalise(name[: _LONGEST_NAME + 1])
    attempts: list[tuple[str, str | None]] = [(asked, None)]
    if kind == "models":
        attempts += [(normalise(rest), hint) for rest, hint in without_suffixes(name[: _LONGEST_NAME + 1])]
    elif kind == "hw":
        attempts += [(normalise(rest), None) for rest in driver_spellings(name[: _LONGEST_NAME + 1])]
    for spelling, hint in attempts:
        found = _find(shelves, spelling) if len(name) <= _LONGEST_NAME else None
        if found is not None:
            shelf, stem = found
            text_of = name if kind == "models" and sees(name) and not sees(stem) else ""
            return Resolved(Path(shelf.files[stem]), stem, hint, shelf.origin, text_of)
        _refuse_undisclosed(shelves, spelling, name, kind)
    raise _unknown_name(kind, name, asked, shelves)


TRANSFORMERS = "transformers:"
"""What stands before a model type, or a config.json, that transformers' own class is traced for."""


def is_module(name: str) -> bool:
    """Whether a name means a PyTorch module: `file.py:Class`, or `transformers:` and a type or config.json."""
    return name.startswith(TRANSFORMERS) or ".py:" in name


def module_file(name: str) -> Path:
    """The file of a module's name: the Python file, or the config.json; of a model type the bare name."""
    if name.startswith(TRANSFORMERS):
        return Path(os.path.expanduser(name.removeprefix(TRANSFORMERS)))
    return Path(os.path.expanduser(name.rpartition(":")[0]))


_COUNTED = re.compile(
    r"(?P<first>[0-9]{1,6})\s*[x×*]\s*(?P<name>.+)|(?P<named>.+?)\s*(?P<x>[x×*])\s*(?P<last>[0-9]{1,6})"
)


def split_count(name: str) -> tuple[int | None, str]:
    """`8xh100` and `h100x8` as a number of devices and a device; a name that stands for a device by itself is whole."""
    match = _COUNTED.fullmatch(name.strip())
    if match is None or is_known("hw", name):
        return None, name
    rest, count = match["name"] or match["named"], int(match["first"] or match["last"])
    for device in (rest, rest + (match["x"] or "")):
        if count and is_known("hw", device):
            return count, device
    return None, name


def one_count(counts: Iterable[int], stated: Iterable[str] = ()) -> int | None:
    """The number of devices that names state (`8xh100`); None where none does. stated: what `--devices` says.

    Raises UsageError where they differ.
    """
    found = set(counts)
    every = {str(n) for n in found} | set(stated)
    if found and len(every) > 1:
        raise UsageError(
            f"one number of devices at a time, not {' and '.join(sorted(every))}",
            hints=("`--devices N` counts for every device of `--hw`; ask once for each number",),
        )
    return next(iter(found), None)


def is_known(kind: Kind, name: str) -> bool:
    """Whether a name stands for something that can be used."""
    try:
        resolve(kind, name)
    except (UsageError, SpecError):
        return False
    return True


def names(kind: Kind) -> list[Entry]:
    """All entries, sorted by name. Where folders share a name, the entry is the one that `resolve` opens."""
    entries: dict[str, Entry] = {}
    for shelf in _shelves(kind):
        spellings = shelf.spellings(inside=True)
        for stem, path in shelf.files.items():
            own = normalise(stem)
            aliases = tuple(sorted(s for s, target in spellings.items() if target == stem and s != own))
            entries.setdefault(own, Entry(name=stem, path=Path(path), origin=shelf.origin, aliases=aliases))
        for name, status in shelf.index.status.items():
            entry = Entry(name=name, path=None, origin=shelf.origin, status=_status_text(status))
            entries.setdefault(normalise(name), entry)
    return sorted(entries.values(), key=lambda entry: entry.name)


def files(kind: Kind) -> dict[str, Path]:
    """The file of every name, without reading any of them: file names alone, the first folder winning."""
    return seen_once(("files", kind), lambda: _files_by_name(kind))


def _files_by_name(kind: Kind) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for shelf in _shelves(kind):
        for stem, path in shelf.files.items():
            found.setdefault(stem, Path(path))
    return found


def build_index(folder: Path, status: Mapping[str, JsonMapping] | None = None) -> JsonObject:
    """The index of a data folder (`specs/models`, or `hardware` with its sub-folders), from the files in it.

    `status`: names without a spec, else those of `_status.yaml`. Raises SpecError (E105) for a name claimed twice.
    """
    from archsim.spec.loader import read

    status = status or (read(file) if (file := folder / "_status.yaml").is_file() else {})
    owners: dict[str, str] = {}
    for stem, path in _files([folder, *(folder / place for place in _PLACES["hw"])]).items():
        for spelling in (normalise(stem), *names_inside(Path(path), strict=True)):
            _claim(owners, spelling, stem)
    for name in status:
        _claim(owners, normalise(name), name)
    listed = {spelling: stem for spelling, stem in sorted(owners.items()) if stem not in status}
    return {"format": 1, "names": listed, "status": dict(sorted(status.items()))}


def _claim(owners: dict[str, str], spelling: str, stem: str) -> None:
    if (other := owners.setdefault(spelling, stem)) != stem:
        raise SpecError(f"the name {quote(spelling)} is claimed by {quote(other)} and {quote(stem)}", code="E105")


def _is_path(name: str) -> bool:
    separated = os.sep in name or "/" in name
    return name.lower().endswith(_PATHS) or is_file(name) or (separated and is_there(name))


def _from_path(name: str) -> Resolved:
    if not is_there(name):
        raise SpecError(f"cannot use {quote(name, 200)}: no such file", code="E109")
    path = Path(name)
    own = folder_name(path) if path.name == "config.json" else path.stem or path.resolve().name
    return Resolved(path=path, name=own, format_hint=None, origin="path")


def folder_name(path: Path) -> str:
    """What a file of a checkpoint is called by: its folder, and in the cache of huggingface_hub the repository."""
    folder = path.absolute().parent
    repository = folder.parent.parent.name
    if folder.parent.name == "snapshots" and repository.startswith("models--"):
        return repository.rpartition("--")[2]
    return path.parent.resolve().name


def _find(shelves: list[_Shelf], spelling: str) -> tuple[_Shelf, str] | None:
    """The first match: with dots in file names and indexes, then inside files, then both without dots."""
    for exact in (True, False):
        for inside in (False, True):
            for shelf in shelves:
                stems = _matches(shelf, spelling, inside, exact)
                if len(stems) > 1:
                    either = " or ".join(quote(stem) for stem in sorted(stems))
                    raise UnknownName(f"{quote(spelling)} could be {either}", hints=["write the dots of the name"])
                if stems:
                    return shelf, stems.pop()
    return None


def _matches(shelf: _Shelf, spelling: str, inside: bool, exact: bool) -> set[str]:
    if exact and spelling in shelf.stems:
        return {shelf.stems[spelling]}  # without asking for the index
    known = shelf.spellings(inside=inside)
    if exact:
        return {known[spelling]} if spelling in known else set()
    bare = without_dots(spelling)
    return {stem for name, stem in known.items() if without_dots(name) == bare and may_drop_dots(spelling, name)}


def _refuse_undisclosed(shelves: list[_Shelf], spelling: str, name: str, kind: Kind) -> None:
    for shelf in shelves:
        for known, status in shelf.index.status.items():
            own = {normalise(alias) for alias in (known, *status.get("aliases", ()))}
            if spelling in own or without_dots(spelling) in {
                without_dots(s) for s in own if may_drop_dots(spelling, s)
            }:
                raise UnknownName(
                    f"{_NOUN[kind]} {quote(name)} has no spec: {_status_text(status)}",
                    hints=["a path to a YAML file with assumed dimensions works"],
                )


def _status_text(status: JsonMapping) -> str:
    parts = (status.get(key) for key in ("text", "notes", "reason", "status"))
    return next((str(part) for part in parts if part), "not disclosed")


def _unknown_name(kind: Kind, name: str, asked: str, shelves: list[_Shelf]) -> UsageError:
    stems: dict[str, str] = {}
    for shelf in shelves:
        for spelling, stem in shelf.spellings(inside=True).items():
            stems.setdefault(spelling, stem)
    close: list[str] = []
    for spelling in difflib.get_close_matches(asked[:100], stems, n=12, cutoff=0.6):
        if stems[spelling] not in close:
            close.append(stems[spelling])
    hint = f"`archsim list {kind}` shows all {len(set(stems.values())):,}; a path to a YAML file works too"
    if not name.strip():
        return UnknownName(f"the {_NOUN[kind]} name is empty", hints=(hint,))
    if kind == "hw" and (size := _MEMORY_SIZE.fullmatch(name.strip())):
        return NoSuchName(f"no device named {quote(name)}", hints=(_size_hint(size), hint))
    if kind == "models" and HUB_ID.fullmatch(name):
        return NoSuchName(f"no {_NOUN[kind]} named {quote(name)}", close=close[:3], hints=(*_hub_hints(name), hint))
    folder = (f"{quote(f'./{name}')} is the folder here",) if kind == "models" and os.path.isdir(name) else ()
    return NoSuchName(f"no {_NOUN[kind]} named {quote(name)}", close=close[:3], hints=(*folder, hint))


_MEMORY_SIZE = re.compile(r"(?:[0-9]{1,6} ?[x*×] ?)?([0-9]{1,6}(?:\.[0-9]{1,3})?)[ _-]?([gt])(i?)b?", re.IGNORECASE)
"""`24gb`, `24 GiB`, `1.5TB`, `2x80gb`: how much memory a device has, where its name is asked for."""


def _size_hint(size: re.Match[str]) -> str:
    """Devices of this memory or more, the smallest first: those of the size itself come before all others."""
    amount, unit, binary = size.groups()
    least = f"{amount}{unit.upper()}{binary.lower()}B"
    return f"by memory, the smallest first: `archsim list hw --where 'memory >= {least}' --sort memory --reverse`"


HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
"""`org/name`, as models are called on the Hugging Face Hub."""


def _hub_hints(name: str) -> tuple[str, str]:
    """What opens a model of the Hub that the catalog does not have."""
    return (
        f"download its config.json and pass the path: `hf download {name} config.json` prints that path",
        "`--hub` fetches that one file",
    )


def _shelves(kind: Kind) -> list[_Shelf]:
    """The data folders of `kind` that exist, the first one winning; each real folder once."""
    return seen_once(("shelves", kind), lambda: _existing_shelves(kind))


def _existing_shelves(kind: Kind) -> list[_Shelf]:
    result: list[_Shelf] = []
    seen: set[str] = set()
    top = _TOP[kind]
    built_in = _built_in_roots(top)
    own = {os.path.realpath(folder) for folder, _ in built_in}
    for folder, origin in [*_user_roots(top), *built_in, *data_folders(top)]:
        if not os.path.isdir(folder) or (real := os.path.realpath(folder)) in seen:
            continue
        seen.add(real)
        shelf = _built_in_shelf(kind, folder) if real in own else _shelf(kind, folder, origin)
        result += [shelf] if shelf.files or shelf.index.status else []
    return result


def data_roots(top: str) -> list[Path]:
    """The folders in which data of one kind may lie, in the order in which they are looked up."""
    return [folder for folder, _ in (*_user_roots(top), *_built_in_roots(top))]


def _user_roots(top: str) -> tuple[tuple[Path, str], ...]:
    home = os.environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share")
    return _roots(top, os.environ.get("ARCHSIM_PATH", ""), home)


@lru_cache(maxsize=64)
def _roots(top: str, entries: str, home: str) -> tuple[tuple[Path, str], ...]:
    """The folders of a user, from the settings that name them."""
    listed = [Path(entry) for entry in filter(None, entries.split(os.pathsep))]
    named = [(place, "$ARCHSIM_PATH") for entry in listed for place in (entry / top, entry)]
    return (Path(top), f"./{top}"), *named, (Path(home) / "archsim" / top, "$XDG_DATA_HOME")


@cache
def _package_data() -> Path:
    """The data inside an installed wheel, or the top folder of a source checkout."""
    package = Path(__file__).resolve().parent.parent
    inside = package / "_data"
    return inside if inside.is_dir() else package.parent


def is_built_in(path: str | os.PathLike[str]) -> bool:
    """Whether a file belongs to the catalog that archsim brings along."""
    return _package_data() in Path(os.path.abspath(path)).parents


def _built_in_roots(top: str) -> list[tuple[Path, str]]:
    return [(_package_data() / top, BUILT_IN)]


def _shelf(kind: Kind, folder: Path, origin: str) -> _Shelf:
    """A folder of the user's: as it is now, with the index that lies in it."""
    path = _index_file(kind, folder)
    index = _index(path) if is_file(path) else None
    files = _files(folder / place for place in _PLACES[kind])
    return _Shelf(origin=origin, files=files, read_index=(lambda: index) if index else None)


def _built_in_shelf(kind: Kind, folder: Path) -> _Shelf:
    """A folder that archsim comes with, listed once while no file is added or removed."""
    places = ("index.json", *_PLACES[kind]) if kind == "hw" else (_PLACES[kind][0] + "/index.json", *_PLACES[kind])
    top = os.fspath(folder)
    return _listed_once(kind, folder, tuple(_changed(f"{top}/{place}") for place in places))


def _changed(path: str) -> int:
    """When a file or folder was changed last; -1 where there is none."""
    try:
        return os.stat(path).st_mtime_ns
    except OSError:
        return -1


@lru_cache(maxsize=64)
def _listed_once(kind: Kind, folder: Path, _changed: tuple[int, ...]) -> _Shelf:
    files = _files(folder / place for place in _PLACES[kind])
    path = _index_file(kind, folder)
    if path.is_file():
        return _Shelf(origin=BUILT_IN, files=files, read_index=lambda: _index(path))
    sources = [*files.values(), str(path.with_name("_status.yaml")), __file__]
    return _Shelf(
        origin=BUILT_IN,
        files=files,
        read_index=lambda: _checked(derived(path.parent, sources, lambda: build_index(path.parent)), path),
    )


def _index_file(kind: Kind, folder: Path) -> Path:
    return (folder if kind == "hw" else folder / _PLACES[kind][0]) / "index.json"


def _files(places: Iterable[Path]) -> dict[str, str]:
    """YAML files by stem, sorted; of two files with one stem the first place wins."""
    found: dict[str, str] = {}
    for place in places:
        try:
            entries = sorted(os.listdir(place))
        except OSError:
            continue
        folder = os.path.join(place, "")
        for entry in entries:
            stem, suffix = os.path.splitext(entry)
            if suffix in _YAML and not stem.startswith((".", "_")):
                found.setdefault(stem, folder + entry)
    return found


def _index(path: Path) -> _Index:
    return _checked(parse_json(path, read_text(path, LARGEST_INDEX)), path)


def _checked(data: Any, path: Path) -> _Index:
    """The index that a document holds. Raises SpecError (E109)."""
    try:
        spellings, status = {str(k): str(v) for k, v in data["names"].items()}, data.get("status", {})
        if data["format"] == 1 and all(isinstance(entry, dict) for entry in status.values()):
            return _Index(spellings, status)
    except (TypeError, KeyError, AttributeError):
        raise _broken(path, "not a valid index") from None
    raise _broken(path, "of another format")


def _broken(path: Path, reason: str) -> SpecError:
    return SpecError(f"cannot use {quote(path, 200)}: {reason}", code="E109", hints=["rebuild it, or remove it"])


# ---------------------------------------------------------------------- names inside files, and piped documents
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


def with_stdin_named(text: str) -> str:
    """A message with the file that holds what was piped in called `stdin`."""
    if not piped_document.cache_info().currsize:
        return text
    return text.replace(str(piped_document()), STDIN)


@cache
def piped_document() -> Path:
    """The file with what came in on standard input: `stdin.json` for a config.json, `stdin.yaml` for a spec.

    Raises SpecError (E109) where nothing is piped in, or more than a document can be.
    """
    import atexit
    import shutil
    import sys
    import tempfile

    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.isatty():
        empty = "`-` reads a spec or a config.json from standard input, which is empty"
        raise SpecError(empty, code="E109", hints=("such as `cat config.json | archsim count -`",))
    try:
        data = stream.read(LARGEST_PIPED + 1)
    except OSError as error:
        raise SpecError(f"cannot read standard input: {error}", code="E109") from error
    if len(data) > LARGEST_PIPED:
        raise SpecError(f"standard input is larger than {LARGEST_PIPED:,} bytes", code="E109")
    if not data.strip():
        raise SpecError("standard input is empty", code="E109")
    folder = Path(tempfile.mkdtemp(prefix="archsim-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = folder / ("stdin.json" if data.lstrip().startswith(b"{") else "stdin.yaml")
    path.write_bytes(data)
    return path
