"""What each decision between the first and the last architecture costs, where archsim can take them apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from archsim.base.errors import ArchsimError
from archsim.base.units import format_bytes, format_flops, format_seconds
from archsim.report.html.markup import details, figure, name_of, paragraph, safe, table
from archsim.report.html.study import Study

MODULE = "archsim.sim.evolve"
WIDTH, ROW, LEFT, RIGHT = 800, 22, 310, 150

METRICS: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "params": ("parameters", lambda v: f"{v:,.0f}"),
    "flops_per_token": ("work per token", format_flops),
    "kv_bytes": ("cache of one sequence", format_bytes),
    "decode_s": ("time per token", format_seconds),
    "prefill_s": ("time of the prompt", format_seconds),
}


def waterfall(study: Study) -> str:
    """A bar for every step from the first model to the last; nothing where there is one model."""
    models = list({m.name: m for m in study.models}.values())
    if len(models) < 2 or find_spec(MODULE) is None:
        return ""
    try:
        found = steps(models[0], models[-1], study)
    except ArchsimError as error:
        return paragraph(
            f"The way from {models[0].name} to {models[-1].name} could not be taken apart: {error.message}"
        )
    if not found:
        return ""
    names = name_of(models[0].name), name_of(models[-1].name)
    pictures = [_chart(metric, found, names) for metric in ("params", "kv_bytes", "decode_s")]
    told = (
        f"One decision at a time from {names[0]} to {names[1]}, in order; the steps add up to the whole "
        f"difference. Cache of {study.asked.input_len:,} tokens; times of one {study.devices[0].id} "
        "at batch 1, whether it fits or not."
    )
    return paragraph(told) + "".join(pictures) + details("Every step as a table", _twin(found, names))


def steps(first: Any, last: Any, study: Study) -> Sequence[Mapping[str, Any]]:
    """The steps as `evolve --json` gives them."""
    evolve: Callable[..., Any] = import_module(MODULE).evolve
    answer = evolve(first, last, study.devices[0], context_len=study.asked.input_len, orders=0)
    document: Mapping[str, Any] = answer.to_dict()
    return list(document["steps"])


def _chart(metric: str, found: Sequence[Mapping[str, Any]], names: tuple[str, str]) -> str:
    """Steps below one another, each beginning where the one before ended."""
    words, shown = METRICS[metric]
    deltas = [(str(step["change"]), float(step["delta"].get(metric) or 0.0)) for step in found]
    deltas = [(change, delta) for change, delta in deltas if delta]
    if not deltas:
        return ""
    at, low, high = 0.0, 0.0, 0.0
    for _, delta in deltas:
        at += delta
        low, high = min(low, at), max(high, at)
    scale = (WIDTH - LEFT - RIGHT) / ((high - low) or 1.0)
    parts, at = [], 0.0
    for i, (change, delta) in enumerate(deltas):
        start = LEFT + (min(at, at + delta) - low) * scale
        parts.append(_step(i, name_of(change, 42), start, abs(delta) * scale, _signed(delta, shown)))
        at += delta
    title = f"{words}: what each step from {names[0]} to {names[1]} adds"
    head = f'<svg viewBox="0 0 {WIDTH} {ROW * len(deltas) + 4}" role="img" aria-label="{safe(title)}">'
    picture = f"{head}{''.join(parts)}</svg>"
    held = f'<div class="scroll" tabindex="0" role="region" aria-label="{safe(words)}, step by step">{picture}</div>'
    return figure(held, f"{title}; {_signed(at, shown)} in all.", kind="wide fall")


def _signed(value: float, shown: Callable[[float], str]) -> str:
    return f"{'+' if value >= 0 else '−'}{shown(abs(value))}"


def _step(i: int, change: str, start: float, size: float, text: str) -> str:
    y = ROW * i + 2
    style = "down" if text.startswith("−") else "up"
    return (
        f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" class="name">{safe(change)}</text>'
        f'<rect class="{style}" x="{start:.1f}" y="{y}" width="{max(size, 1):.1f}" height="{ROW - 4}"/>'
        f'<text x="{min(start + size + 6, WIDTH - RIGHT + 6):.1f}" y="{y + 14}">{safe(text)}</text>'
    )


def _twin(found: Sequence[Mapping[str, Any]], names: tuple[str, str]) -> str:
    rows = []
    for step in found:
        cells = [str(step["change"])]
        for metric, (_, shown) in METRICS.items():
            value = step["delta"].get(metric)
            cells.append("–" if value is None else _signed(value, shown) if value else "0")
        rows.append(cells)
    return table(
        f"Steps from {names[0]} to {names[1]}", ["", *(words for words, _ in METRICS.values())], rows
    )
