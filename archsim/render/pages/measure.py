"""What `archsim measure` did, as data and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.measure.point import Point
from archsim.measure.session import Outcome, headlines
from archsim.render.page import Page, Row, Section, facts, plural, row

ABOUT = {
    "probe": "bandwidth, launch cost, one large product",
    "gemm": "16-bit products, 1 to 8,192 rows",
    "attention": "prefill and decode by back end",
    "fused": "norm, rotation, SwiGLU, quantising, logits: fused and not",
    "fp8": "e4m3 products, scales by row and column",
    "int4": "weight-only 4-bit products",
    "moe": "expert layers, even and skewed routing",
    "model": "whole models: prefill, decode step, peak memory",
    "train": "one optimiser step",
}


def suites_page(points: Mapping[str, Sequence[Point]], size: str) -> Page:
    """Every suite with its points and their expected time."""
    rows = [
        row(name, f"{len(found):,}", f"{sum(p.seconds for p in found):.0f} s", ABOUT.get(name, ""))
        for name, found in points.items()
    ]
    section = Section(
        title="suite", rows=tuple(rows), align="lrrl", header=("points", "about", "what is timed"), wrap=False
    )
    return Page(head=(f"suites at {size} size",), sections=(section,))


def to_dict(outcome: Outcome) -> JsonObject:
    """The `archsim.measure/1` object."""
    suites = sorted({*outcome.measured, *outcome.skipped})
    return {
        "schema": "archsim.measure/1", "device": outcome.device, "engine": outcome.engine,
        "out": str(outcome.out), "planned": outcome.planned, "resumed": outcome.resumed, "left": outcome.left,
        "seconds": round(outcome.seconds, 2), "stopped": outcome.stopped or None,
        "suites": {
            name: {"measured": outcome.measured.get(name, 0), "skipped": outcome.skipped.get(name, 0)}
            for name in suites
        },
        "kernels": headlines(outcome),
        "runs": [{k: v for k, v in run.items() if k != "key"} for run in outcome.runs],
    }  # fmt: skip


def measured_page(outcome: Outcome) -> Page:
    """A compact table of what was timed."""
    done = sum(outcome.measured.values())
    head = (
        f"{outcome.device}, {outcome.engine}",
        f"{plural(done, 'point')} measured, {sum(outcome.skipped.values())} skipped, {outcome.left} left, "
        f"{outcome.resumed} done before, in {outcome.seconds:.0f} s",
    )
    kernels = tuple(_kernel(line) for line in headlines(outcome))
    runs = tuple(_run(run) for run in outcome.runs)
    header = ("points", "spread", "most GB/s", "most TFLOP/s")
    sections = [Section(title="kernel", rows=kernels, align="lrrrr", header=header)] if kernels else []
    if runs:
        sections.append(Section(title="whole model", rows=runs, align="lrrl", header=("value", "spread", "how")))
    sections.append(facts("Files", [("folder", str(outcome.out)), ("ended early", outcome.stopped or None)]))
    return Page(head=head, sections=tuple(sections))


def _kernel(line: JsonMapping) -> Row:
    bandwidth, rate = line["bytes_per_s"], line["flops_per_s"]
    return row(
        line["op"], str(line["points"]), f"{line['spread_pct']:.1f} %",
        f"{bandwidth / 1e9:,.4g}" if bandwidth else "-", f"{rate / 1e12:,.4g}" if rate else "-",
    )  # fmt: skip


def _run(run: JsonMapping) -> Row:
    unit = "GiB" if run["metric"].endswith("_gb") else "ms"
    spread = "-" if run["spread_pct"] is None else f"{run['spread_pct']:.1f} %"
    name = f"{run['model']} {run['metric']} b{run['batch']} s{run['isl']}"
    return row(name, f"{run['value']:,.4g} {unit}", spread, f"{run['kernel']} {run['notes']}".strip())
