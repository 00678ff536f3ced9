"""What each decision on the way from one architecture to another changes: both ends as bars, between them the steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.evolution.evolve import Evolution
from archsim.render.figures.bars import THICK, bar_layout
from archsim.render.figures.chart import Chart, Table, hover, plain
from archsim.render.page import plural
from archsim.render.signed import absolute, signed_change

UNITS = {
    "params": (1e9, "10⁹ parameters"), "flops_per_token": (1e9, "GFLOP per token"), "kv_bytes": (1e9, "GB of cache"),
    "decode_s": (1e-3, "ms of a decode step"), "prefill_s": (1e-3, "ms of the prompt"),
    "train_flops_per_token": (1e9, "GFLOP per training token"), "train_bytes": (1e9, "GB in training"),
    "train_step_s": (1e-3, "ms of a training step"),
}  # fmt: skip
"""Figure -> the size of its unit, and the axis."""

WHOLE, UP, DOWN = "@s7", "@s1", "@s2"


def step_charts(e: Evolution, names: tuple[str, str], metrics: Mapping[str, str], key: str = "steps") -> list[Chart]:
    """A chart for each figure that a step changes. names: of both ends. metrics: figure -> its words."""
    steps = [(e.change(step), step.delta) for step in e.steps]
    found = (step_chart(m, words, steps, names, getattr(e.first, m), f"{key}-{m}") for m, words in metrics.items())
    return [chart for chart in found if chart is not None]


def step_chart(
    metric: str, words: str, steps: Sequence[tuple[str, JsonMapping]], names: tuple[str, str], first: float | None,
    key: str,
) -> Chart | None:  # fmt: skip
    """The steps that change one figure; None where none does. steps: (change, changes of all figures). first: the
    figure that they begin at.
    """
    found = [(change, delta[metric]) for change, delta in steps if delta.get(metric)]
    if not found or first is None:
        return None
    ends = [first]
    for _, delta in found:
        ends.append(ends[-1] + delta)
    size, unit = UNITS[metric]
    bases = [0.0, *(min(pair) / size for pair in pairwise(ends)), 0.0]
    values = [first / size, *(abs(delta) / size for _, delta in found), ends[-1] / size]
    colours = [WHOLE, *(UP if delta > 0 else DOWN for _, delta in found), WHOLE]
    labels = [names[0], *(change for change, _ in found), names[1]]
    texts = [absolute(metric, first), *(signed_change(metric, d).text for _, d in found), absolute(metric, ends[-1])]
    title = words[:1].upper() + words[1:]
    trace: JsonObject = {
        "type": "bar", "orientation": "h", "x": values, "base": bases, "y": list(range(len(values))), "width": THICK,
        "marker": {"color": colours}, "showlegend": False, "hoverinfo": "text",
        "hovertext": [hover(plain(label, 160), f"{words}: {text}") for label, text in zip(labels, texts, strict=True)],
    }  # fmt: skip
    return Chart(
        key=key, title=title, finding=_finding(metric, found, ends, len(steps) - len(found)), traces=(trace,),
        layout=bar_layout(labels, texts, unit, []),
        table=Table(["step", words, "after it"], [
            [label, text, absolute(metric, end)]
            for label, text, end in zip(labels, texts, [*ends, ends[-1]], strict=True)
        ]),
    )  # fmt: skip


def _finding(metric: str, found: Sequence[tuple[str, float]], ends: Sequence[float], still: int) -> str:
    most, delta = max(found, key=lambda step: abs(step[1]))
    rest = f"; {plural(still, 'other step')} {'changes' if still == 1 else 'change'} nothing" if still else ""
    return (
        f"{absolute(metric, ends[0])} to {absolute(metric, ends[-1])}, most of all by {plain(most, 80)} "
        f"({signed_change(metric, delta).text}){rest}."
    )
