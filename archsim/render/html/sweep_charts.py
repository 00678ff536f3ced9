"""A sweep as a chart: what a device gives in all against what one user gets, a line for each structure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from archsim.base.units import format_number
from archsim.render.figures.chart import Chart, Table
from archsim.render.figures.curves import Rate, RateCurve, front, throughput_latency
from archsim.render.figures.theme import SERIES
from archsim.render.html.markup import name_of
from archsim.render.page import plural
from archsim.render.pages.sweep import LABELS, structures
from archsim.sweeps.chunk import Chunk
from archsim.sweeps.pareto import front as pareto_rows
from archsim.sweeps.sweep import Sweep

USER, DEVICE = "tokens_per_s_per_user", "tokens_per_s_per_device"

TOLD = ("batch", "input_len", "output_len", "devices")
"""What is said of a point, where the sweep has it."""

MOST = 100
"""Points of a structure that the table lists."""

NAMED = 4
"""Models, or devices, that a title names."""

Point = tuple[float, float, tuple[int, ...]]
"""Both rates, and what is said of the point."""


@dataclass(slots=True)
class Curves:
    """Collects, block by block, the points of each structure that no other of its points beats in both rates."""

    found: dict[tuple[str, ...], list[Point]] = field(default_factory=dict)
    told: tuple[str, ...] = ()

    def add(self, chunk: Chunk) -> None:
        """Take in a block."""
        if not {USER, DEVICE} <= chunk.values.keys():
            return
        self.told = tuple(name for name in TOLD if name in chunk.values)
        for key, part in structures(chunk):
            self.found[key] = front([*self.found.get(key, ()), *self._points(part)])

    def _points(self, chunk: Chunk) -> list[Point]:
        rates = np.stack([chunk.numbers(name).ravel() for name in (USER, DEVICE)])
        at = np.flatnonzero(chunk.fits().ravel() & np.isfinite(rates).all(axis=0))
        at = at[pareto_rows(-rates[:, at].T)]
        words = [chunk.numbers(name).ravel()[at].astype(np.int64).tolist() for name in self.told]
        said = zip(*words, strict=True) if words else iter([()] * len(at))
        return list(zip(*rates[:, at].tolist(), said, strict=True))


def sweep_title(swept: Sweep) -> str:
    """What is swept: models, and what they run on; how many where they are many."""
    models = dict.fromkeys(one.model.name for one in swept.structures)
    devices = dict.fromkeys(one.hardware.id for one in swept.structures)
    return f"{_listed([*models], 'model')} on {_listed([*devices], 'device')}"


def _listed(names: Sequence[str], kind: str) -> str:
    return ", ".join(map(name_of, names)) if len(names) <= NAMED else plural(len(names), kind)


def sweep_charts(curves: Curves) -> list[Chart]:
    """The chart; nothing where no token is written or nothing fits."""
    shown = sorted(curves.found.items(), key=lambda item: -max((p[1] for p in item[1]), default=0.0))
    shown = [(key, points) for key, points in shown if points]
    if not shown:
        return []
    names = _names([key for key, _ in shown])
    lines = [(name, points) for name, (_, points) in zip(names, shown, strict=True)][:SERIES]
    more = len(shown) - len(lines)
    drawn = [RateCurve(name, [_rate(point, curves.told) for point in points]) for name, points in lines]
    chart = throughput_latency(drawn)
    rest = f" {more:,} more structures are not drawn." if more else ""
    told = "Each line joins the points of one structure that fit and that no other of its points beats in both figures."
    return [replace(chart, finding=f"{chart.finding} {told}{rest}", table=_table(lines, curves.told))]


def _names(found: Sequence[tuple[str, ...]]) -> list[str]:
    """Structures by what sets them apart."""
    kept = [i for i in range(len(LABELS)) if len({key[i] for key in found}) > 1] or [0]
    return [" · ".join(name_of(key[i], 40) for i in kept) for key in found]


def _rate(point: Point, told: Sequence[str]) -> Rate:
    known = dict(zip(told, point[2], strict=True))
    return Rate(known.get("batch", 0), point[0], point[1], note=_words(known))


def _words(known: dict[str, int]) -> str:
    short = {"input_len": "{} tokens in", "output_len": "{} out", "devices": "on {} devices"}
    parts = [text.format(f"{known[name]:,}") for name, text in short.items() if name in known]
    return ", ".join(part.replace("on 1 devices", "on 1 device") for part in parts)


def _table(lines: Sequence[tuple[str, Sequence[Point]]], told: Sequence[str]) -> Table:
    head = ["structure", *(name.replace("_", " ") for name in told), "tokens/s per user", "tokens/s per device"]
    rows = [
        [name, *(f"{value:,}" for value in point[2]), format_number(point[0]), format_number(point[1])]
        for name, points in lines for point in points[:MOST]
    ]  # fmt: skip
    return Table(head, rows)
