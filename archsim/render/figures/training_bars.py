"""What fills a device in training, and where a step goes: a bar for each run, its parts named."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_seconds
from archsim.render.figures.bars import THICK, bar_layout
from archsim.render.figures.chart import Chart, Table, hover, plain
from archsim.render.figures.theme import SERIES, series
from archsim.render.page import percent
from archsim.sweeps.training_runs import MEMORY_PARTS, STEP_PARTS

WORDS = {
    "saved": "saved for the backward", "logits": "logits and loss", "working": "working set",
    "gathered": "gathered layers", "head_and_loss": "head and loss", "recompute": "recomputation",
    "bubble": "pipeline bubble", "communication": "exposed communication",
}  # fmt: skip


def training_bars(rows: Sequence[JsonObject], labels: Sequence[str]) -> list[Chart]:
    """Memory per device, and the time of a step."""
    return [
        _bars("memory", "Memory per device", rows, labels, {p: f"memory_{p}_bytes" for p in MEMORY_PARTS}),
        _bars("step", "Time of a step", rows, labels, {p: f"step_{p}_s" for p in STEP_PARTS}),
    ]


def _binary(size: float) -> str:
    """Bytes in the unit of the axis."""
    return format_bytes(size, binary=True)


def _bars(key: str, title: str, rows: Sequence[JsonObject], labels: Sequence[str], columns: dict[str, str]) -> Chart:
    kept = {part: name for part, name in columns.items() if any(one[name] for one in rows)}
    sizes, write = (2.0**30, _binary) if key == "memory" else (1.0, format_seconds)
    wholes = [sum(one[name] for name in kept.values()) for one in rows]
    unit = "GiB" if key == "memory" else "s"
    traces = []
    for number, (part, name) in enumerate(kept.items()):
        words = [
            hover(
                f"<b>{plain(label)}</b>", f"{WORDS.get(part, part)}: {write(one[name])}, {percent(one[name] / whole)}"
            )
            for one, label, whole in zip(rows, labels, wholes, strict=True)
        ]
        traces.append({
            "type": "bar", "orientation": "h", "name": WORDS.get(part, part), "x": [one[name] / sizes for one in rows],
            "y": list(range(len(rows))), "width": THICK, "hovertext": words, "hoverinfo": "text",
            "marker": {"color": series(min(number, SERIES - 1)), "line": {"color": "@paper", "width": 1}},
        })  # fmt: skip
    names = [WORDS.get(part, part) for part in kept]
    table = Table(["", *names, "all"], [
        [label, *(write(one[name]) for name in kept.values()), write(whole)]
        for one, label, whole in zip(rows, labels, wholes, strict=True)
    ])  # fmt: skip
    return Chart(
        key=key, title=title, finding=_finding(rows, labels, wholes, kept, write), traces=tuple(traces),
        layout=bar_layout(labels, [write(whole) for whole in wholes], unit, names), table=table,
    )  # fmt: skip


def _finding(
    rows: Sequence[JsonObject], labels: Sequence[str], wholes: Sequence[float], kept: dict[str, str], write: object
) -> str:
    least = min(range(len(rows)), key=wholes.__getitem__)
    part = max(kept, key=lambda name: rows[least][kept[name]])
    who = f"{plain(labels[least])} needs least, {write(wholes[least])}; " if len(rows) > 1 else ""  # type: ignore[operator]
    return f"{who}most of it is {WORDS.get(part, part)}, {percent(rows[least][kept[part]] / wholes[least])}."
