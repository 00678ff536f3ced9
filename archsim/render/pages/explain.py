"""`archsim explain` as pages: formulas, error codes and terms."""

from __future__ import annotations

import textwrap

from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes, format_rate, format_seconds
from archsim.explanation.formulas import Explanation, Formula
from archsim.predict.estimate import Estimate
from archsim.render.page import Page, Section, facts, row

LONGEST_FORMULA = 1500


def formula_page(x: Explanation, on: Estimate | None = None) -> Page:
    """Formula, the same with numbers, value and source. on: an estimate, for the time that follows of it."""
    whole = facts(
        x.title,
        [
            ("formula", _short(x.whole.symbols)),
            ("with numbers", _short(x.whole.numbers)),
            ("value", value_text(x.whole)),
        ],
    )
    letters = tuple(row(letter, f"{n:,}", x.meaning(letter)) for letter, n in x.letters.items())
    parts = tuple(row(p.part, value_text(p), _short(p.symbols)) for p in x.parts)
    sections = [whole, Section(title="Letters", rows=letters, align="lr")]
    if len(parts) > 1:
        sections.append(Section(title="Parts", rows=parts, align="lr"))
    if on is not None and on.decode is not None and x.quantity == "decode":
        sections.append(_time(on))
    sections.append(Section(title="Conventions", rows=tuple(row("-", note) for note in x.notes)))
    sections.append(Section(title="Sources", rows=tuple(row("-", source) for source in x.sources)))
    return Page(head=(f"{x.model}: {x.quantity}",), sections=tuple(sections))


def value_text(f: Formula) -> str:
    """The value with its unit; bytes also with a prefix."""
    value = f"{f.value:,}" if isinstance(f.value, int) else f"{f.value:,.4f}"
    large = f.unit.split(" ")[0] == "B" and f.value >= 10_000
    return f"{value} {f.unit}" + (f" = {format_bytes(f.value)}" if large else "")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST_FORMULA else text[: LONGEST_FORMULA - 1] + "…"


def decode_terms(e: Estimate) -> JsonObject:
    """What the time of a decode step on a device is made of, per device."""
    phase = e.decode
    assert phase is not None
    bandwidth = e.hardware.bandwidth
    return {
        "devices": e.plan.devices,
        "context": e.workload.context,
        "weight_bytes": float(phase.total("weight_bytes")),
        "state_bytes": float(phase.total("state_bytes")),
        "activation_bytes": float(phase.total("act_bytes")),
        "bandwidth_bytes_per_s": bandwidth,
        "memory_s": float(phase.total("memory_s")),
        "compute_s": float(phase.total("compute_s")),
        "communication_s": float(phase.total("comm_s")),
        "ideal_s": float(phase.ideal_s),
        "expected_s": float(phase.expected_s),
    }


def _time(e: Estimate) -> Section:
    t = decode_terms(e)
    sizes = " + ".join(format_bytes(t[f"{part}_bytes"]) for part in ("weight", "state", "activation"))
    bandwidth = format_rate(t["bandwidth_bytes_per_s"], "B/s")
    memory, ideal = format_seconds(t["memory_s"]), format_seconds(t["ideal_s"])
    title = f"Time on {t['devices']:,} × {e.hardware.name}"
    return facts(
        title,
        [
            ("memory", f"(weights + caches + activations) / bandwidth = ({sizes}) / {bandwidth} = {memory}"),
            ("arithmetic", f"FLOP / peak = {format_seconds(t['compute_s'])}"),
            ("links", f"{format_seconds(t['communication_s'])}" if t["communication_s"] else None),
            ("speed of light", f"every kernel the larger of its two, links added: {ideal}"),
            ("expected", f"{format_seconds(t['expected_s'])} with efficiencies and launches"),
            ("for", f"each device, batch {e.workload.batch:,}, context of {t['context']:,} tokens"),
        ],
    )


def text_page(title: str, text: str, more: str = "") -> Page:
    """A paragraph under a title."""
    lines = (textwrap.dedent(text).strip(), *((more,) if more else ()))
    return Page(head=(title,), sections=(Section(title="", rows=tuple(row(line) for line in lines)),))
