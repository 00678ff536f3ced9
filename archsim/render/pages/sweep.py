"""`archsim sweep` without a file: the best points, and all of them where they are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from archsim.base.diagnostics import shorten
from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_rate, format_seconds
from archsim.render.command_line import command_line, try_section
from archsim.render.page import Cell, Page, Row, Section, percent, plural, row
from archsim.sweeps.chunk import Chunk
from archsim.sweeps.columns import BY_NAME
from archsim.sweeps.sweep import Sweep

FEW = 48
"""Points that are all shown."""

MANY = 24
"""Lines of a table of more."""

BEST = {
    "tokens_per_s_per_device": "most tokens/s per device",
    "tokens_per_s": "most tokens/s in all",
    "tpot_s": "shortest time per token",
    "ttft_s": "shortest time to first token",
    "devices": "fewest devices",
}
"""Column -> what its best point is called."""

LABELS = ("model", "hw", "weights", "kv_cache", "engine")
"""What tells the structures of a sweep apart."""

Line = JsonObject
"""One point: column -> plain value."""


@dataclass(slots=True)
class SweepGroup:
    """The points of one structure: how many, how many fit, and its best ones by column."""

    points: int = 0
    fitting: int = 0
    best: dict[str, Line] = field(default_factory=dict)
    batch: int = 0


Asked = tuple[Sequence[str], Mapping[str, object]]
"""Names of models, and options by name."""


@dataclass(slots=True)
class Best:
    """Collects, block by block, the first points, the best ones, and those of each structure."""

    points: int = 0
    first: list[Line] = field(default_factory=list)
    groups: dict[tuple[str, ...], SweepGroup] = field(default_factory=dict)

    def add(self, chunk: Chunk) -> None:
        """Take in a block."""
        self.points += chunk.points
        if self.points <= FEW:
            self.first += chunk.rows()
        for key, part in structures(chunk):
            self._take(self.groups.setdefault(key, SweepGroup()), part)

    def _take(self, group: SweepGroup, chunk: Chunk) -> None:
        fits = chunk.fits().ravel()
        group.points += chunk.points
        group.fitting += int(fits.sum())
        if not fits.any():
            return
        if "batch" in chunk.values:
            group.batch = max(group.batch, int(chunk.numbers("batch").ravel()[fits].max()))
        for name in BEST:
            if name in chunk.values:
                _improve(group, chunk, name, fits)

    @property
    def best(self) -> dict[str, Line]:
        """The best point of all for each column of `BEST`."""
        found: dict[str, Line] = {}
        for name in BEST:
            lines = [group.best[name] for group in self.groups.values() if name in group.best]
            if lines:
                found[name] = max(lines, key=lambda line: BY_NAME[name].better * line[name])
        return found


def structures(chunk: Chunk) -> list[tuple[tuple[str, ...], Chunk]]:
    """The structures that a block holds points of, each with them."""
    values = [chunk.values.get(name, "") for name in LABELS]
    if not any(isinstance(value, np.ndarray) for value in values):
        return [(tuple(map(str, values)), chunk)]
    columns = [np.broadcast_to(np.asarray(value, dtype=object), chunk.shape).ravel() for value in values]
    lines = list(zip(*columns, strict=True))
    return [(key, chunk.kept(np.array([line == key for line in lines]))) for key in dict.fromkeys(lines)]


def _improve(group: SweepGroup, chunk: Chunk, name: str, fits: Any) -> None:
    """Keep the best point of a block if it is the best so far."""
    better = BY_NAME[name].better
    score = np.where(fits, better * chunk.numbers(name).ravel(), np.nan)
    if np.isnan(score).all():
        return
    at = int(np.nanargmax(score))
    if name not in group.best or score[at] > better * group.best[name][name]:
        mask = np.zeros(chunk.points, dtype=bool)
        mask[at] = True
        group.best[name] = next(iter(chunk.kept(mask.reshape(chunk.shape)).rows()))


# ---------------------------------------------------------------------- the page
def page(swept: Sweep, best: Best, priced: int, asked: Asked = ((), {})) -> Page:
    """The report of the points that were priced. asked: names of models and all options, as they were given."""
    structures = plural(len(swept.structures), "structure")
    head = [f"{plural(priced, 'point')}: {structures} × {_grid(swept)}"]
    if swept.where is not None:
        head.append(f"where {swept.where.text}: {plural(best.points, 'point')} left")
    if swept.pareto:
        names = ", ".join(f"{'most' if o.sign > 0 else 'least'} {o.column.name}" for o in swept.pareto)
        head.append(f"Pareto set of {names}: {plural(best.points, 'point')}")
    sections: list[Section] = []
    if not best.points:
        sections.append(Section(title="No point is left", below=("a wider range, or another condition",)))
    elif best.points <= FEW:
        sections.append(_points(best.first, swept))
    else:
        sections += [_best(best), _structures(best)]
    sections += [_next(swept, asked)] if asked[0] else []
    note = "each row equals `archsim estimate` at that point"
    return Page(head=tuple(head), notes=(note,), sections=tuple(sections))


def _grid(swept: Sweep) -> str:
    names = ("batch", "tokens in", "tokens out")
    spans = [f"{name} {_span(values)}" for name, values in zip(names, swept.axes, strict=True)]
    return " · ".join(spans)


def _span(values: Sequence[int]) -> str:
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,} ({len(values):,})"


SHOWN = {
    "model": "model", "hw": "device", "weights": "weights", "kv_cache": "cache", "engine": "engine",
    "devices": "devices", "tp": "tp", "batch": "batch", "input_len": "in", "output_len": "out", "fits": "fits",
    "memory_bytes_per_device": "memory", "ttft_s": "TTFT", "tpot_s": "TPOT", "tokens_per_s": "tokens/s",
    "tokens_per_s_per_device": "per device",
}  # fmt: skip
"""Columns of the table of points, with their heads."""

AXES = ("batch", "input_len", "output_len")

KEYS = frozenset({"model", "hw", "weights", "kv_cache", "engine", *AXES})
"""Columns that name a point."""

ALWAYS = frozenset({"batch", "devices", "fits", "ttft_s", "tpot_s", "tokens_per_s"})


NARROW = 10
"""Columns up to which all that were chosen are shown."""


def _points(lines: list[Line], swept: Sweep) -> Section:
    """All points; columns that never change are left to the heading, unless few were chosen."""
    ranged = {name for name, values in zip(AXES, swept.axes, strict=True) if len(values) > 1}
    kept = ALWAYS | ranged
    shown = [n for n in SHOWN if n in swept.names and (n in kept or len({x[n] for x in lines}) > 1)]
    objectives = [o.column.name for o in swept.pareto if o.column.name not in SHOWN]
    shown += [name for name in objectives if name in swept.names]
    shown = list(swept.names) if len(swept.names) <= NARROW else shown
    keys = 1 + max((i for i, name in enumerate(shown, start=1) if name in KEYS), default=0)
    same = [str(lines[0][n]) for n in ("model", "hw", "weights") if n in swept.names and n not in shown]
    rows = tuple(row("", *(_cell(name, line[name]) for name in shown)) for line in lines)
    align = "l" + "".join("l" if BY_NAME[name].kind == "text" else "r" for name in shown)
    header = tuple(SHOWN.get(name, name) for name in shown)
    return Section(
        title=_clip(" · ".join(same) or "Points"), rows=rows, align=align, header=header, wrap=False, keys=keys
    )


def _clip(text: str) -> str:
    return shorten(text, 40)


def _cell(name: str, value: Any) -> Cell:
    if value is None:
        return Cell("–", "dim")
    if name == "fits":
        return Cell("yes" if value else "no", "" if value else "bad")
    if isinstance(value, str):
        return Cell(_clip(value))
    if name.endswith("_s") and BY_NAME[name].better < 0:
        return Cell(format_seconds(value))
    if "bytes" in name:
        return Cell(format_bytes(value))
    return Cell(f"{value:,}" if isinstance(value, int) else format_rate(value, ""))


def _best(best: Best) -> Section:
    """The best point of all, by each measure."""
    rows: list[Row] = []
    for name, line in best.best.items():
        model = _clip(str(line.get("model", "")))
        rows.append(row(BEST[name], _cell(name, line[name]), _group(line), _load(line), model))
    return Section(title="Best points that fit", rows=tuple(rows), align="lrlll", wrap=False)


def _group(line: Line) -> str:
    if not {"devices", "hw", "weights"} <= line.keys():
        return ""
    return f"{line['devices']} × {_clip(line['hw'])}, {_clip(line['weights'])}"


def _load(line: Line) -> str:
    words = {"batch": "batch", "input_len": "in", "output_len": "out"}
    return ", ".join(f"{text} {line[name]:,}" for name, text in words.items() if name in line)


def _structures(best: Best) -> Section:
    """One line for each model, device and format, the fastest first."""

    def speed(group: SweepGroup) -> float:
        return float(group.best.get("tokens_per_s_per_device", {}).get("tokens_per_s_per_device", 0.0))

    ordered = sorted(best.groups.items(), key=lambda item: -speed(item[1]))
    rows = [_structure(key, group) for key, group in ordered[:MANY]]
    more = len(ordered) - len(rows)
    below = (f"{plural(more, 'more structure')} not shown",) if more else ()
    header = ("device", "weights", "points", "fit", "largest batch", "tokens/s/device", "TPOT", "TTFT")
    return Section(title="Structures", rows=tuple(rows), align="lllrrrrrr", header=header, below=below, wrap=False)


def _structure(key: tuple[str, ...], group: SweepGroup) -> Row:
    def of(name: str) -> Cell:
        return _cell(name, group.best[name][name]) if name in group.best else Cell("–", "dim")

    return row(
        _clip(key[0]), _clip(key[1]), _clip(key[2]), f"{group.points:,}",
        percent(group.fitting / group.points), f"{group.batch:,}" if group.batch else "–",
        of("tokens_per_s_per_device"), of("tpot_s"), of("ttft_s"),
    )  # fmt: skip


def _next(swept: Sweep, asked: Asked) -> Section:
    """Commands that go on from here: the same sweep with one thing more."""
    models, options = asked

    def more(**extra: object) -> str:
        return command_line("sweep", *models, **{**options, **extra})

    lines = [(more(out="FILE.csv"), "every point with all columns; .json and .parquet too")]
    if not swept.pareto:
        lines.append((more(pareto="tokens_per_s_per_device,tpot"), "only what no other point beats"))
    if swept.where is None:
        lines.append((more(where="fits and ttft_s < 0.5"), "only points that satisfy this"))
    return try_section(lines)
