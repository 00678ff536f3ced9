"""`archsim evolve` as a page: a row for each decision, what it adds, and its mean over other orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.evolution.evolve import Evolution
from archsim.evolution.figures import ArchitectureFigures
from archsim.evolution.words import describe_change
from archsim.render.page import Cell, Page, Row, Section, bar, footer, plural, row
from archsim.render.signed import NOTHING, absolute, signed_change

if TYPE_CHECKING:
    from archsim.render.figures.chart import Chart

METRICS = {
    "params": "parameters",
    "flops_per_token": "FLOPs per token",
    "kv_bytes": "KV cache",
    "decode_s": "decode",
    "prefill_s": "prefill",
}
"""The figures that are shown, and their titles."""

HEADS = ("params", "FLOPs/token", "KV cache", "decode", "prefill", "")

TRAINING_METRICS = {
    "params": "parameters",
    "train_flops_per_token": "FLOPs of a training token",
    "train_bytes": "memory in training",
    "train_step_s": "a training step",
}
"""The same where training was asked for."""

TRAINING_HEADS = ("params", "FLOPs/token", "memory", "step", "")


def trained(e: Evolution) -> bool:
    """Whether training was asked for."""
    return e.last.train_bytes is not None


def metrics_of(e: Evolution) -> Mapping[str, str]:
    """The figures that are shown, and their titles."""
    return TRAINING_METRICS if trained(e) else METRICS


def page(e: Evolution, *, changes: Sequence[str] = (), drawn: bool = False) -> Page:
    """The report. changes: `--set` assignments. drawn: whether pictures stand beside it."""
    where = f" on one {e.hardware.id}" if e.hardware else ""
    what = "training on " * trained(e)
    changed = (f"changed: {', '.join(changes)}",) if changes else ()
    head = (
        f"{e.a.name} to {e.b.name}, one decision at a time",
        f"{what}one sequence of {e.context_len:,} tokens{where} · order: {e.order} · {plural(len(e.steps), 'step')}",
        *changed,
    )
    notes = tuple(note.text for note in e.warnings)
    if not e.steps:
        return Page(head=head, notes=("both are the same architecture",))
    return Page(
        head=head, notes=notes, sections=(_steps(e), *(() if drawn else _falls(e)), *_attribution(e), _basis(e))
    )


def charts(e: Evolution) -> list[Chart]:
    """A chart for each figure that changes."""
    from archsim.render.figures.steps import step_charts

    return step_charts(e, (e.a.name, e.b.name), metrics_of(e))


def rows(e: Evolution) -> list[JsonObject]:
    """A row for each step, for CSV: its change, and the figures after it."""
    none = dict.fromkeys(f"delta_{name}" for name in e.first.to_dict())
    found: list[JsonObject] = [{"step": 0, "change": e.a.name, **none, **_after(e.first)}]
    for i, step in enumerate(e.steps, start=1):
        delta = {f"delta_{name}": value for name, value in step.delta.items()}
        found.append({"step": i, "change": e.change(step), **delta, **_after(step.after)})
    return found


def _after(costs: ArchitectureFigures) -> JsonObject:
    return {f"after_{name}": value for name, value in costs.to_dict().items()}


def _steps(e: Evolution) -> Section:
    shown = metrics_of(e)
    lines = [_line("from", e.first, e.a.name, shown)]
    lines += [_delta(str(i), step.delta, e.change(step), shown) for i, step in enumerate(e.steps, start=1)]
    lines.append(_line("to", e.last, e.b.name, shown))
    return Section(title="Step", rows=tuple(lines), align="l" + "r" * len(shown) + "l", header=_heads(e))


def _heads(e: Evolution) -> tuple[str, ...]:
    return TRAINING_HEADS if trained(e) else HEADS


FALLS = {"train_step_s": "Training step", "train_bytes": "Training memory", "decode_s": "Decode time",
         "params": "Parameters"}  # fmt: skip
"""Figures whose waterfall is drawn as text, the first of them that there is."""


def _falls(e: Evolution) -> tuple[Section, ...]:
    """A waterfall: each step that changes the figure begins where the one before ended."""
    for metric, title in FALLS.items():
        before, lines = getattr(e.first, metric), []
        afters = [getattr(step.after, metric) for step in e.steps]
        if before is None or all(signed_change(metric, step.delta[metric]).text == NOTHING for step in e.steps):
            continue
        most = max(before, *afters)
        lines.append(row("from", "", absolute(metric, before), bar(before / most)))
        for i, (step, after) in enumerate(zip(e.steps, afters, strict=True), start=1):
            change = signed_change(metric, step.delta[metric])
            if change.text != NOTHING:
                place = bar(abs(after - before) / most, min(before, after) / most)
                lines.append(row(str(i), change, absolute(metric, after), place))
            before = after
        lines.append(row("to", "", absolute(metric, before), bar(before / most)))
        return (Section(title=title, rows=tuple(lines), align="lrrl", header=("change", "after it", "")),)
    return ()


def _attribution(e: Evolution) -> tuple[Section, ...]:
    found = e.attribution
    if found is None:
        return ()
    shown = metrics_of(e)
    lines = [_delta("", delta, describe_change(name, e.changes), shown) for name, delta in _largest(found.shares)]
    what = "all" if found.complete else "sampled"
    orders = f"mean change over {found.orders:,} {what} orders"
    rest = "" if found.complete else f", seed {found.seed}; `--orders N` for more"
    below = (f"{orders}{rest}; over all orders it is Shapley's value",)
    align = "l" + "r" * len(shown) + "l"
    return (Section(title="Mean", rows=tuple(lines), align=align, header=_heads(e), below=below),)


def _largest(shares: Mapping[str, JsonMapping]) -> list[tuple[str, JsonMapping]]:
    """The shares by how much they change the decode time, or parameters where there is none."""

    def size(item: tuple[str, JsonMapping]) -> tuple[float, float]:
        most = item[1].get("train_step_s") or item[1].get("train_bytes") or item[1]["decode_s"]
        return -abs(most or 0.0), -abs(item[1]["params"] or 0)

    return sorted(shares.items(), key=size)


def _line(name: str, costs: ArchitectureFigures, what: str, shown: Mapping[str, str]) -> Row:
    cells = (Cell(absolute(metric, getattr(costs, metric)), "title") for metric in shown)
    return row(Cell(name, "title"), *cells, Cell(what, "title"))


def _delta(name: str, delta: JsonMapping, what: str, shown: Mapping[str, str]) -> Row:
    return row(name, *(signed_change(metric, delta.get(metric)) for metric in shown), what)


def _basis(e: Evolution) -> Section:
    return footer(("" if i else "Basis", note.text) for i, note in enumerate(e.assumptions))
