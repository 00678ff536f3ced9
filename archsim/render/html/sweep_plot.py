"""A sweep as a picture: what a device gives in all against what one user gets, a line for each structure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from archsim.base.units import format_rate
from archsim.render.figures.curves import front
from archsim.render.html.markup import details, figure, legend, name_of
from archsim.render.html.page import grid
from archsim.render.html.plots import INSIDE, SHAPES, Frame, chart_svg, frame, line, shape_of
from archsim.render.html.validate_svg import sample, symbols
from archsim.render.page import row
from archsim.render.pages.sweep import LABELS, structures
from archsim.sweeps.chunk import Chunk
from archsim.sweeps.pareto import front as pareto_rows

USER, DEVICE = "tokens_per_s_per_user", "tokens_per_s_per_device"
AXES = "tokens/s of one user", "tokens/s of one device"

TOLD = ("batch", "input_len", "output_len", "devices")
"""What is said of a point, where the sweep has it."""

MOST = 100
"""Points of a structure that the table lists."""

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


# ---------------------------------------------------------------------- the picture
def picture(curves: Curves) -> str:
    """The chart with its caption and table; nothing where no token is written or nothing fits."""
    shown = sorted(curves.found.items(), key=lambda item: -max((p[1] for p in item[1]), default=0.0))
    shown = [(key, points) for key, points in shown if points]
    if not shown:
        return ""
    names = _names([key for key, _ in shown])
    lines = [(name, points) for name, (_, points) in zip(names, shown, strict=True)]
    drawn_, rest = lines[:SHAPES], len(lines) - SHAPES
    flat = [point for _, points in drawn_ for point in points]
    found = frame([p[0] for p in flat], [p[1] for p in flat], *AXES)
    marks = "".join(_line(found, i, name, points, curves.told) for i, (name, points) in enumerate(drawn_))
    chart = chart_svg("sweep", found, marks, "tokens/s per device against tokens/s of one user")
    more = f" {rest:,} more structures are not drawn." if rest > 0 else ""
    body = symbols() + INSIDE + figure(chart + _legend(drawn_), _finding(drawn_, curves.told) + more)
    behind = details("The numbers as a table", _twin(drawn_, curves.told))
    return f"<h2>Throughput against latency</h2>\n{body}{behind}"


def _names(found: Sequence[tuple[str, ...]]) -> list[str]:
    """Structures by what sets them apart."""
    kept = [i for i in range(len(LABELS)) if len({key[i] for key in found}) > 1] or [0]
    return [" · ".join(name_of(key[i], 40) for i in kept) for key in found]


def _line(found: Frame, i: int, name: str, points: Sequence[Point], told: Sequence[str]) -> str:
    return line(found, i, [(p[0], p[1], f"{name}: {_words(p, told)}") for p in points])


def _words(point: Point, told: Sequence[str]) -> str:
    short = {"batch": "batch {}", "input_len": "{} tokens in", "output_len": "{} out", "devices": "on {} devices"}
    parts = [short[name].format(f"{value:,}") for name, value in zip(told, point[2], strict=True)]
    parts = [part.replace("on 1 devices", "on 1 device") for part in parts]
    return ", ".join((*parts, f"{_rate(point[0])} tokens/s of one user and {_rate(point[1])} of a device"))


def _rate(value: float) -> str:
    return format_rate(value, "").strip()


def _legend(lines: Iterable[tuple[str, Any]]) -> str:
    return legend((sample(shape_of(i), i % SHAPES), name) for i, (name, _) in enumerate(lines))


def _finding(lines: Sequence[tuple[str, Sequence[Point]]], told: Sequence[str]) -> str:
    """The best at both ends."""
    every = [(name, point) for name, points in lines for point in points]
    user, device = max(every, key=lambda x: x[1][0]), max(every, key=lambda x: x[1][1])
    return (
        f"Fastest for one user: {user[0]} ({_words(user[1], told)}); most of a device: {device[0]} "
        f"({_words(device[1], told)}). Each line joins the points of one structure that fit and that no other of its "
        "points beats in both."
    )


def _twin(lines: Sequence[tuple[str, Sequence[Point]]], told: Sequence[str]) -> str:
    heads = ("structure", *(name.replace("_", " ") for name in told), *AXES)
    rows = [
        row(name, *(f"{value:,}" for value in point[2]), _rate(point[0]), _rate(point[1]))
        for name, points in lines for point in points[:MOST]
    ]  # fmt: skip
    return grid("Points that no other of their structure beats", heads, rows, "l" + "r" * (len(heads) - 1))
