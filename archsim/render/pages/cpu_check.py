"""Models on this processor: predicted beside measured, case by case, with what the difference consists of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonMapping
from archsim.base.units import format_bytes, format_seconds
from archsim.render.page import Page, Row, Section, facts, row

if TYPE_CHECKING:
    from archsim.measure.cpu_check import CpuCheck

TELLING = 0.05
"""Share of a case's time from which on a difference is shown by class of kernels."""

HEADS = ("predicted", "measured", "ratio", "80 % interval", "verdict", "roofline")
ERRORS = ("n", "median", "mean", "bias", "in 80 %", "roofline")


def cpu_check_page(answer: CpuCheck) -> Page:
    """The cases, the errors by phase and form, and the plan that was written before."""
    data = answer.to_dict()
    rows = [each for each in answer.rows if each.get("measured_s")]
    table = Section(title="Case", rows=tuple(map(_case, rows)), align="lrrrrlr", header=HEADS, wrap=False)
    figures = {**answer.figures, "all": data["all"]}
    errors = Section(
        title="Errors", rows=tuple(_errors(name, found) for name, found in figures.items() if found["rows"]),
        align="lrrrrrr", header=ERRORS,
    )  # fmt: skip
    memory = Section(
        title="Memory at the peak", rows=tuple(filter(None, map(_memory, rows))), align="lrrrr",
        header=("predicted", "live tensors", "ratio", "resident"), wrap=False,
    )  # fmt: skip
    parts = Section(
        title="Where the difference comes from", rows=tuple(line for each in rows for line in _parts(each)),
        align="lrrr", header=("predicted", "measured", "difference"), wrap=False,
    )  # fmt: skip
    order = data["order"]
    found = facts("Plan", [
        ("predictions", f"{answer.plan}, written before anything was timed"),
        ("SHA-256", answer.plan_sha256),
        ("order of two forms", f"{order['right']} of {order['pairs']} right" if order["pairs"] else None),
        ("left for the next run", str(answer.left) if answer.left else None),
        ("not timed", "; ".join(f"{r['id']}: {r['skipped']}" for r in answer.rows if r.get("skipped")) or None),
    ])  # fmt: skip
    head = (f"{answer.model} on {answer.device}, in {answer.dtype}", _basis(answer))
    return Page(head=head, sections=tuple(s for s in (table, errors, parts, memory, found) if s.rows))


def _basis(answer: CpuCheck) -> str:
    """What the predictions were made from."""
    if any(row.get("evidence") == "datasheet" for row in answer.rows):
        return "predicted without kernels of this machine; `archsim measure --here` times them"
    return "predicted from calls that were timed in layers of other shapes"


def case_name(each: JsonMapping) -> str:
    """A case in words."""
    if each["phase"] == "prefill":
        return f"{each['form']} prefill of {each['new']:,}"
    return f"{each['form']} decode, batch {each['batch']}, after {each['past']:,}"


def _case(each: JsonMapping) -> Row:
    inside = each["low_s"] <= each["measured_s"] <= each["high_s"]
    return row(
        case_name(each), format_seconds(each["predicted_s"]), format_seconds(each["measured_s"]),
        f"{each['predicted_s'] / each['measured_s']:.2f}",
        f"{format_seconds(each['low_s'])} – {format_seconds(each['high_s'])}", "inside" if inside else "outside",
        format_seconds(each["roofline_s"]),
    )  # fmt: skip


def _errors(name: str, found: JsonMapping) -> Row:
    return row(
        name, str(found["rows"]), f"{found['median']:.1%}", f"{found['mean']:.1%}", f"{found['bias']:+.1%}",
        f"{found['inside']:.0%}", f"{found['roofline_median']:.1%}",
    )  # fmt: skip


CLASSES = {
    "cpu_gemm": "products", "cpu_experts": "experts", "cpu_attention": "attention", "cpu_scan": "scans",
    "cpu_elementwise": "row-wise functions",
}  # fmt: skip


def _parts(each: JsonMapping) -> Iterator[Row]:
    """The classes of kernels whose difference is more than a twentieth of a case's time, and what no call takes."""
    seen: JsonMapping = each.get("measured_by_class_s") or {}
    if not seen:
        return
    whole = each["measured_s"]
    for name, title in CLASSES.items():
        told, took = each["by_class_s"].get(name, 0.0), seen.get(name, 0.0)
        if abs(told - took) > TELLING * whole:
            share = f"{(told - took) / whole:+.1%}"
            yield row(f"{case_name(each)}: {title}", format_seconds(told), format_seconds(took), share)


def _memory(each: JsonMapping) -> Row | None:
    """Weights, caches and activations that are alive at once, as predicted and as the dispatcher counted them."""
    if each.get("peak_bytes") is None:
        return None
    resident = each.get("resident_bytes")
    return row(
        case_name(each), format_bytes(each["predicted_peak_bytes"]), format_bytes(each["peak_bytes"]),
        f"{each['predicted_peak_bytes'] / each['peak_bytes']:.3f}", format_bytes(resident) if resident else "-",
    )  # fmt: skip
