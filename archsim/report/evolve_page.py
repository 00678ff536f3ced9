"""`archsim evolve` as a page: a row for each decision, what it adds, and its mean over other orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from archsim.report.page import Cell, Page, Row, Section, plural, row
from archsim.report.signed import absolute, signed
from archsim.report.waterfall import waterfall
from archsim.sim.evolve import Evolution
from archsim.sim.evolve_price import Costs
from archsim.sim.evolve_words import told

METRICS = {
    "params": "parameters",
    "flops_per_token": "FLOPs per token",
    "kv_bytes": "KV cache",
    "decode_s": "decode",
    "prefill_s": "prefill",
}
"""The figures that are shown, and their titles."""

HEADS = ("params", "FLOPs/token", "KV cache", "decode", "prefill", "")


def page(e: Evolution, *, changes: Sequence[str] = ()) -> Page:
    """The report. changes: `--set` assignments."""
    where = f" on one {e.hardware.id}" if e.hardware else ""
    changed = (f"changed: {', '.join(changes)}",) if changes else ()
    head = (
        f"{e.a.name} to {e.b.name}, one decision at a time",
        f"one sequence of {e.context_len:,} tokens{where} · order: {e.order} · {plural(len(e.steps), 'step')}",
        *changed,
    )
    note = " · ".join(e.warnings)
    if not e.steps:
        return Page(head=head, note="both are the same architecture")
    return Page(head=head, note=note, sections=(_steps(e), *_attribution(e), _basis(e)))


def figures(e: Evolution) -> str:
    """Waterfalls of the figures that change, as HTML."""
    steps = [(e.change(step), step.delta) for step in e.steps]
    return "".join(waterfall(metric, name, steps, (e.a.name, e.b.name)) for metric, name in METRICS.items())


def rows(e: Evolution) -> list[dict[str, Any]]:
    """A row for each step, for CSV: its change, and the figures after it."""
    found: list[dict[str, Any]] = [{"step": 0, "change": e.a.name, **_after(e.first)}]
    for i, step in enumerate(e.steps, start=1):
        delta = {f"delta_{name}": value for name, value in step.delta.items()}
        found.append({"step": i, "change": e.change(step), **delta, **_after(step.after)})
    return found


def _after(costs: Costs) -> dict[str, Any]:
    return {f"after_{name}": value for name, value in costs.to_dict().items()}


def _steps(e: Evolution) -> Section:
    lines = [_line("from", e.first, e.a.name)]
    lines += [_delta(str(i), step.delta, e.change(step)) for i, step in enumerate(e.steps, start=1)]
    lines.append(_line("to", e.last, e.b.name))
    return Section(title="Step", rows=tuple(lines), align="lrrrrrl", header=HEADS)


def _attribution(e: Evolution) -> tuple[Section, ...]:
    found = e.attribution
    if found is None:
        return ()
    lines = [_delta("", delta, told(name, e.changes)) for name, delta in _largest(found.shares)]
    what = "all" if found.complete else "sampled"
    orders = f"mean change over {found.orders:,} {what} orders"
    rest = "" if found.complete else f", seed {found.seed}; `--orders N` for more"
    below = (orders + rest,)
    return (Section(title="Mean", rows=tuple(lines), align="lrrrrrl", header=HEADS, below=below),)


def _largest(shares: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, Mapping[str, Any]]]:
    """The shares by how much they change the decode time, or parameters where there is none."""

    def size(item: tuple[str, Mapping[str, Any]]) -> tuple[float, float]:
        return -abs(item[1]["decode_s"] or 0.0), -abs(item[1]["params"] or 0)

    return sorted(shares.items(), key=size)


def _line(name: str, costs: Costs, what: str) -> Row:
    cells = (Cell(absolute(metric, getattr(costs, metric)), "title") for metric in METRICS)
    return row(Cell(name, "title"), *cells, Cell(what, "title"))


def _delta(name: str, delta: Mapping[str, Any], what: str) -> Row:
    return row(name, *(signed(metric, delta[metric]) for metric in METRICS), what)


def _basis(e: Evolution) -> Section:
    lines = [("Basis", text) if i == 0 else ("", text) for i, text in enumerate(e.assumptions)]
    return Section(title="", rows=tuple(row(Cell(name, "dim"), text) for name, text in lines))
