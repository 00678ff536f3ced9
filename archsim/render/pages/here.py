"""The present machine: what it is, what it sustains, and whether anything disturbed the probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_rate
from archsim.measure.here import MachineFacts, facts_data
from archsim.render.page import Page, Row, Section, facts, row

if TYPE_CHECKING:
    from archsim.measure.probe import Noise, Rate

UNITS = {"bandwidth": "B/s", "peak": "FLOP/s"}
LEVELS = {"llc": "last-level cache", "memory": "memory"}


def here_data(machine: MachineFacts, rates: Sequence[Rate], noise: Noise, path: Path) -> JsonObject:
    """The `archsim.here/1` object."""
    found: JsonObject = {
        "schema": "archsim.here/1", "file": str(path), **facts_data(machine), "rates": [asdict(rate) for rate in rates],
        "noise": {**asdict(noise), "quiet": noise.quiet},
    }  # fmt: skip
    return found


def here_page(machine: MachineFacts, rates: Sequence[Rate], noise: Noise, path: Path) -> Page:
    """The machine, its rates with their spread, and the verdict on noise."""
    caches = ", ".join(f"L{cache.level} {format_bytes(cache.size, binary=True)}" for cache in machine.caches)
    rows = [
        ("processor", f"{machine.name}, {machine.cores} cores, {machine.threads} threads of torch {machine.torch}"),
        ("instruction sets", " ".join(machine.sets) or machine.capability),
        ("caches", caches or "not reported by the system"),
        ("memory", format_bytes(machine.memory, binary=True) + (f", {machine.numa} nodes" * (machine.numa > 1))),
        ("GPU", machine.gpu or None),
    ]
    table = Section(
        title="sustained", rows=tuple(map(_row, rates)), align="lrrrl",
        header=("threads", "rate", "spread", "by"),
    )  # fmt: skip
    files = facts("Files", [("device file", str(path)), ("use it", f"--hw {_name(machine, path)}")])
    return Page(head=(machine.id,), sections=(facts("Machine", rows), table, facts("Noise", _noise(noise)), files))


def _name(machine: MachineFacts, path: Path) -> str:
    """What `--hw` takes: the name where the file lies in a catalog, else the file."""
    return machine.id if path.parent.name == "devices" else str(path)


def _row(rate: Rate) -> Row:
    kind, _, name = rate.what.partition("/")
    if kind == "operator":
        return row("one operator", "1", f"{1e6 / rate.value:.2f} µs", f"± {rate.spread:.1%}", rate.kernel)
    label = f"{name} products" if kind == "peak" else LEVELS.get(name, name.upper())
    value = format_rate(rate.value, UNITS[kind])
    return row(label, str(rate.threads), value, f"± {rate.spread:.1%}", rate.kernel)


def _noise(noise: Noise) -> list[tuple[str, str | None]]:
    others = None if noise.others is None else f"{noise.others:.1%} of the processors"
    load = None if noise.load is None else f"{noise.load:.2f} on {noise.cores} cores"
    verdict = "quiet" if noise.quiet else f"not quiet: {'; '.join(noise.reasons)}"
    effect = f"a rate of this file is uncertain by ±{noise.spread:.1%}, and so is every bound that follows from it"
    return [
        ("verdict", verdict), ("used by others", others),
        ("load average before", load), ("spread of rounds", f"± {noise.spread:.1%}"),
        ("drift", f"{noise.drift:.1%}"), ("what that means", effect),
    ]  # fmt: skip
