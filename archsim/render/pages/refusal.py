"""Why a device count does not hold a model, and what would fit."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.units import format_bytes
from archsim.predict.estimate import Estimate
from archsim.predict.what_fits import Suggestion


def too_small(e: Estimate) -> tuple[str, str]:
    """Headline and table of a device count that does not hold the model."""
    m, load = e.memory, e.workload
    tokens = f"{load.input_len + load.output_len:,} tokens × batch {load.batch:,}" if e.decode else ""
    rows: list[tuple[str, int, int | None, str]] = [
        ("weights", m.weights, None, ""),
        ("caches", m.kv_cache, None, tokens),
    ]
    rows += [("activations", m.activations, None, ""), ("runtime", m.runtime, None, "")]
    rows.append(("total", m.needed, m.usable, f"short by {format_bytes(-m.free)}"))
    each = " per device" if e.plan.devices > 1 else ""
    lines = [f"  {'':<12}{'needed':>10}   {'usable':>9}{each}"]
    for name, need, usable, note in rows:
        shown = format_bytes(usable) if usable is not None else ""
        lines.append(f"  {name:<12}{format_bytes(need):>10}   {shown:>9}   {note}".rstrip())
    where = f"{e.plan.devices:,} × {e.hardware.name}"
    return f"{e.model.name} in {e.formats.name} does not fit on {where}", "\n".join(lines)


def suggestions(found: Sequence[Suggestion]) -> str:
    """The hint that lists what would fit."""
    if not found:
        return "a smaller batch, a shorter context or a larger device"
    lines = ["what would fit, cheapest change first"]
    for s in found:
        each = "/device" if s.devices > 1 else ""
        room = f"room for {s.room:,} more tokens" if s.room is not None else ""
        lines.append(f"  {s.change:<20}{format_bytes(s.memory.needed) + each:>17}   {room}".rstrip())
    return "\n".join(lines)
