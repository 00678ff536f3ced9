"""Which dense peak a dtype gets on a device, and what happens when the device lacks the dtype."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from archsim.base.errors import UsageError
from archsim.base.notes import Note
from archsim.base.units import parse_quantity
from archsim.spec.hardware_schema import Compute, UnitPeaks

WIDER: Mapping[str, tuple[str, ...]] = {
    "fp4": ("fp6", "fp8", "bf16", "fp16", "tf32", "fp32"),
    "fp6": ("fp8", "bf16", "fp16", "tf32", "fp32"),
    "fp8": ("bf16", "fp16", "tf32", "fp32"),
    "int4": ("int8", "fp16", "bf16", "tf32", "fp32"),
    "int8": ("fp16", "bf16", "tf32", "fp32"),
    "bf16": ("fp16", "tf32", "fp32"),
    "fp16": ("bf16", "tf32", "fp32"),
    "tf32": ("fp32",),
    "fp32": ("fp64",),
    "fp64": (),
}
"""Where a dtype is computed when the device has no units for it: the first of these that it has."""

VECTOR_SHARE = 1 / 16
"""Assumed vector rate over the 16-bit matrix peak where no vector rate is listed (H100: 67 / 989 = 1/15)."""


class Peak(NamedTuple):
    """A dense peak in FLOP/s with at least fp32 accumulation, and the dtype that it belongs to.

    `fallback` says that the device lacks `dtype` and computes it as `dtype_used`; `note` says so in words.
    """

    dtype: str
    dtype_used: str
    flops: float
    unit: Literal["matrix", "vector"]
    fallback: bool
    note: Note | None


def peak_of(owner: str, compute: Compute, dtype: str) -> Peak:
    """The peak for matrix products of a dtype on the fastest unit (see `Hardware.peak_flops`)."""
    if dtype not in WIDER:
        raise UsageError(f"no dtype named `{dtype}`", code="E121", hints=[f"known: {', '.join(WIDER)}"])
    entries: dict[str, UnitPeaks] = {str(name): entry for name, entry in compute.peak.items()}
    explicit: dict[str, str] = {str(name): wider for name, wider in compute.fallback.items()}
    chain = (dtype, *filter(None, (explicit.get(dtype),)), *WIDER[dtype])
    used = next((name for name in chain if name in entries), None)
    if used is None:
        raise UsageError(f"{owner} lists no peak for {dtype} nor for any wider dtype", code="E121")
    flops, unit, text = _fastest(entries[used])
    said = f"{owner} has no {dtype} units: computed in {used} at {text}"
    note = Note("A12", said) if used != dtype else None
    return Peak(dtype=dtype, dtype_used=used, flops=flops, unit=unit, fallback=used != dtype, note=note)


def vector_of(owner: str, compute: Compute) -> Peak:
    """The fp32 rate of the vector units; where unlisted, 1/16 of the 16-bit matrix peak, marked a fallback."""
    fp32 = compute.peak.get("fp32")
    if fp32 and fp32.vector:
        flops = float(parse_quantity(fp32.vector, "FLOP/s"))
        return Peak(dtype="fp32", dtype_used="fp32", flops=flops, unit="vector", fallback=False, note=None)
    base = peak_of(owner, compute, "bf16")
    flops = base.flops * (VECTOR_SHARE if base.unit == "matrix" else 1.0)
    rate = f"{flops / 1e12:.3g} TFLOP/s"
    note = Note("A13", f"{owner} lists no fp32 vector rate: taken as {rate}, from its {base.dtype_used} peak")
    return Peak(dtype="fp32", dtype_used=base.dtype_used, flops=flops, unit="vector", fallback=True, note=note)


def _fastest(entry: UnitPeaks) -> tuple[float, Literal["matrix", "vector"], str]:
    matrix = parse_quantity(entry.matrix, "FLOP/s") if entry.matrix else 0
    vector = parse_quantity(entry.vector, "FLOP/s") if entry.vector else 0
    if matrix >= vector:
        return float(matrix), "matrix", str(entry.matrix)
    return float(vector), "vector", str(entry.vector)
