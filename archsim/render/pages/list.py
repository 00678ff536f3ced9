"""`archsim list` as data and as a page."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import yaml

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError, UsageError
from archsim.base.expression import evaluate
from archsim.base.input_file import read_input
from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_rate
from archsim.ledger.catalog_facts import catalog_facts
from archsim.render.page import Page, Section, row
from archsim.render.provenance import LARGEST, display_path
from archsim.render.signed import scaled_count
from archsim.spec.catalog import BUILT_IN, Entry, Kind, data_roots, is_built_in, names
from archsim.spec.spelling import normalise

AVAILABLE = "available"
NO_SPEC = "no spec"
ANNOUNCED = "announced"
RUN_FILES = (".yaml", ".csv", ".gz", ".json")


SHORT = {
    "kv": "kv_bytes_per_token", "memory": "memory_bytes", "bandwidth": "bandwidth_bytes_per_s", "peak": "peak_flops",
    "price": "usd_per_hour_low", "usd": "usd_per_device_hour", "bits": "bits_per_weight",
}  # fmt: skip
"""Short names of figures in `--sort` and `--where`."""

SUFFIXES = {"k": 1024, "M": 10**6, "B": 10**9, "T": 10**12}
BYTES = {"mb": 10**6, "gb": 10**9, "tb": 10**12, "mib": 2**20, "gib": 2**30, "tib": 2**40}
"""What may stand behind a number in `--where`: 32k tokens, 7B parameters, 24GB or 24gb."""


class Capacity(float):
    """Bytes of a memory. It equals its size as sold, which says GB and means 10^9 or 2^30 bytes each; so no more than
    24 GB are the 25.77 GB of a card with 24 GiB, and more than 24 GB they are not. Comparing with a number too small
    for the bytes of a memory raises UsageError.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (int, float)):
            return False
        if 0 < other < BYTES["mb"]:
            raise UsageError(f"`memory` is in bytes, not {other:g}", hints=(f"for gigabytes write {other:g}GB",))
        return 0.99 * other <= float(self) <= 1.01 * other * 2**30 / 1e9

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __le__(self, other: float) -> bool:
        return self == other or float(self) <= other

    def __ge__(self, other: float) -> bool:
        return self == other or float(self) >= other

    def __lt__(self, other: float) -> bool:
        return not self >= other

    def __gt__(self, other: float) -> bool:
        return not self <= other

    __hash__ = float.__hash__


def entries(
    what: str, grep: str = "", where: str | None = None, sort: str | None = None, reverse: bool = False
) -> list[JsonObject]:
    """Name, aliases, status, note, origin, file and figures of everything of one kind.

    grep: text in a name. where: a condition on figures, such as `params < 10B and context >= 32k`; entries without
    the figure are left out. sort: a figure, or `name`; the largest first, entries without it last. reverse: the
    smallest first. Raises UsageError for a condition or a figure that there is not.
    """
    own = OTHERS.get(what)
    listed = own() if own else _catalog(cast(Kind, what))
    wanted = grep.lower()
    found = [e for e in listed if any(wanted in text.lower() for text in (e["name"], *e["aliases"]))]
    known = list(dict.fromkeys(name for e in listed for name in e if name not in PLACE))
    if where:
        found = [e for e in found if _satisfies(where, e, known)]
    if sort and sort != "name":
        key = _figure(sort, known)
        there = sorted((e for e in found if e.get(key) is not None), key=lambda e: e[key], reverse=not reverse)
        return [*there, *(e for e in found if e.get(key) is None)]
    return found[::-1] if reverse else found


PLACE = ("name", "aliases", "status", "note", "origin", "file")
"""Keys of an entry that are no figures."""


def _figure(name: str, known: Sequence[str]) -> str:
    full = SHORT.get(name, name)
    if full not in known:
        short = {long: word for word, long in SHORT.items()}
        names = ", ".join(short.get(each, each) for each in known) or "none"
        raise UsageError(f"no figure named {quote(name)} in this list", hints=(f"figures: {names}",))
    return full


def _multiplied(number: re.Match[str]) -> str:
    """A number with a suffix as a product."""
    return f"({number[1]}*{SUFFIXES.get(number[2]) or BYTES[number[2].lower()]})"


def _satisfies(where: str, entry: JsonObject, known: Sequence[str]) -> bool:
    """Whether an entry satisfies a condition; not if it lacks a figure of it."""
    text = re.sub(r"(?<![\w.])([0-9.]+)\s*([kMBT]|(?i:[MGT]i?B))\b", _multiplied, where)
    text = re.sub(r"(?<![<>=!])=(?!=)", "==", text)
    words = {name: _figure(name, known) for name in re.findall(r"(?<![\w.\"'])[A-Za-z_]\w*(?![\w\"'])", text)
             if name not in ("and", "or", "not", "in")}  # fmt: skip
    values = {name: entry.get(full) for name, full in words.items()}
    if any(value is None for value in values.values()):
        return False
    values |= {name: Capacity(entry[full]) for name, full in words.items() if full == "memory_bytes"}
    try:
        return bool(evaluate(text, values))
    except SpecError as error:
        example = "for example `--where 'params < 10B and context >= 32k'`"
        raise UsageError(f"no condition: {quote(where)}", hints=(error.message, example)) from None


# ---------------------------------------------------------------------- the page
def page(what: str, found: Sequence[JsonObject], verbose: bool = False) -> Page:
    """One line an entry; in files and pipes none is broken, so that other tools can filter them.

    verbose: the file and the other names too.
    """
    shown = COLUMNS.get(what, {})
    rows = [
        row(e["name"], *(_cell(show, e) for show in shown.values()), *_place(e, verbose or not shown)) for e in found
    ]
    head = () if rows else (f"no {what} found",)
    places = ("file, or why it is missing", "aliases") if verbose or not shown else ("",)
    align = "l" + ("rllll" if what == "prices" else "r" * len(shown)) + "l" * len(places)
    section = Section(title=what, rows=tuple(rows), align=align, header=(*shown, *places), wrap=False)
    return Page(head=head, sections=(section,) if rows else ())


def _place(e: JsonObject, verbose: bool) -> tuple[str, ...]:
    """Where an entry comes from; in short only why it has no figures, or that they are announced."""
    missing = "" if e["file"] else e["note"] or NO_SPEC
    if not verbose:
        return (missing or (ANNOUNCED if e.get("announced") else ""),)
    return (display_path(Path(e["file"]), e["origin"]) if e["file"] else missing, " ".join(e["aliases"]))


def _cell(show: Callable[[JsonObject], str], e: JsonObject) -> str:
    try:
        return show(e)
    except (KeyError, TypeError):
        return ""


def _price(e: JsonObject) -> str:
    low, high = e["usd_per_hour_low"], e["usd_per_hour_high"]
    return f"{low:.2f}" if low == high else f"{low:.2f} – {high:.2f}"


COLUMNS: dict[str, dict[str, Callable[[JsonObject], str]]] = {
    "models": {
        "parameters": lambda e: scaled_count(e["params"]),
        "active": lambda e: scaled_count(e["active"]) if e["active"] != e["params"] else "",
        "context": lambda e: f"{e['context']:,}",
        "KV per token": lambda e: format_bytes(e["kv_bytes_per_token"]) if e["kv_bytes_per_token"] else "",
        "released": lambda e: e["released"] or "",
    },
    "hw": {
        "memory": lambda e: format_bytes(e["memory_bytes"]),
        "bandwidth": lambda e: format_rate(e["bandwidth_bytes_per_s"], "B/s"),
        "dense peak": lambda e: f"{format_rate(e['peak_flops'], 'FLOP/s')} {e['peak_dtype']}",
        "$ per hour": _price,
    },
    "formats": {"bits per weight": lambda e: f"{e['bits_per_weight']:.4g}"},
    "prices": {
        "$ per hour": lambda e: f"{e['usd_per_device_hour']:,.4g}",
        "provider": lambda e: e["provider"],
        "terms": lambda e: e["terms"],
        "region": lambda e: e["region"] or "",
        "date": lambda e: e["as_of"] or "undated",
    },
}
"""Kind -> title of a column and what it shows of an entry."""


def _catalog(kind: Kind) -> list[JsonObject]:
    listed = names(kind)
    figures = catalog_facts(kind, listed)
    return [
        {
            "name": e.name,
            "aliases": aliases_text(e),
            "status": AVAILABLE if e.path else NO_SPEC,
            "note": e.status,
            "origin": e.origin,
            "file": str(e.path) if e.path else None,
            **figures.get(e.name, {}),
        }
        for e in listed
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


def _prices() -> list[JsonObject]:
    """Rents of the table by device, the lowest first. Other names of an entry are its provider, terms and region."""
    from archsim.cost.price_table import price_table, table_file

    path = table_file()
    origin = BUILT_IN if is_built_in(path) else display_path(path, "")
    entries = [
        {
            "name": price.device, "aliases": [price.provider, price.terms, *([price.region] if price.region else [])],
            "status": AVAILABLE, "note": price.notes or None, "origin": origin, "file": str(path), **price.to_dict(),
        }
        for price in price_table()
    ]  # fmt: skip
    return sorted(entries, key=lambda e: (e["name"], e["usd_per_device_hour"]))


def _run_folders() -> list[tuple[Path, str]]:
    folders = [(Path("runs"), "./runs"), (Path("reports/runs"), "./reports/runs")]
    for root in filter(None, os.environ.get("ARCHSIM_PATH", "").split(os.pathsep)):
        folders.append((Path(root) / "runs", "$ARCHSIM_PATH"))
    return [*folders, (data_roots("reports")[-1] / "runs", BUILT_IN)]


OTHERS: dict[str, Callable[[], list[JsonObject]]] = {"runs": _runs, "prices": _prices}
"""What is listed from other places than the catalog."""
