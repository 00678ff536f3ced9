"""A device as the plain `archsim.hardware/1` object."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from archsim.base.json_types import JsonObject
from archsim.base.units import parse_quantity

if TYPE_CHECKING:
    from archsim.spec.hardware import Hardware


def describe(hardware: Hardware) -> JsonObject:
    """The contract's keys, then what else the document says; a dtype that the device lacks is absent."""
    return {
        "schema": "archsim.hardware/1",
        "id": hardware.id,
        "name": hardware.name,
        "vendor": hardware.vendor,
        "per": hardware.per,
        "confidence": hardware.confidence,
        "peaks_flops": peaks(hardware),
        "peaks_fp16_accumulate_flops": _narrow(hardware),
        "memory_bytes": hardware.memory_bytes,
        "working_set_bytes": hardware.working_set_bytes,
        "bandwidth_bytes_per_s": hardware.bandwidth,
        "link_bytes_per_s_per_direction": hardware.link_bytes_per_s,
        "max_domain": hardware.max_domain,
        "tdp_w": hardware.tdp_w,
        "l2_bytes": hardware.l2_bytes,
        "memory": hardware.memory.model_dump(),
        "arch": hardware.arch.model_dump(exclude_none=True),
        "compute": hardware.compute.model_dump(include={"units", "clock_mhz", "flop_per_clk_per_unit"}),
        "fabric": [_level(level) for level in hardware.levels],
        "cost": [cost.model_dump(exclude_none=True) for cost in hardware.cost],
        "aliases": list(hardware.aliases),
        "variant_of": hardware.variant_of,
        "notes": list(hardware.notes),
        "unverified": list(hardware.unverified),
        "warnings": [note.text for note in hardware.warnings],
        "sources": [_source(key, source) for key, source in hardware.sources.items()],
    }


def peaks(hardware: Hardware) -> dict[str, float]:
    """Dense FLOP/s by dtype with fp32 accumulation.

    `fp32` and `fp64` are the vector units' where these are listed, `fp32_matrix` and `fp64_matrix` the matrix
    units'; every narrower dtype has one figure, the matrix units' if there are any.
    """
    result: dict[str, float] = {}
    for dtype, entry in hardware.compute.peak.items():
        wide = dtype in ("fp32", "fp64")
        first = (entry.vector or entry.matrix) if wide else (entry.matrix or entry.vector)
        assert first is not None  # UnitPeaks refuses an entry with neither
        result[dtype] = float(parse_quantity(first, "FLOP/s"))
        if wide and entry.vector and entry.matrix:
            result[f"{dtype}_matrix"] = float(parse_quantity(entry.matrix, "FLOP/s"))
    return result


def _narrow(hardware: Hardware) -> dict[str, float]:
    found = {dtype: entry.fp16_accumulate for dtype, entry in hardware.compute.peak.items()}
    return {dtype: float(parse_quantity(text, "FLOP/s")) for dtype, text in found.items() if text}


def _level(level: Any) -> JsonObject:
    rate = float(parse_quantity(level.per_direction, "B/s")) if level.per_direction else None
    kept = level.model_dump(include={"name", "level", "topology", "domain", "links", "optional"})
    return {**kept, "bytes_per_s_per_direction": rate}


def _source(key: str, source: Any) -> JsonObject:
    return {"id": key, **source.model_dump(mode="json")}
