"""Tensors with named axes, storage formats, and what one op touches of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal

from archsim.base.number import Num, ceil_div, divide, product

Axes = Mapping[str, Num]
Kind = Literal["weight", "state", "act"]

PAIRS: Mapping[str, tuple[str, str]] = {"P": ("T", "C"), "M": ("T", "E")}
"""A pair axis holds the chosen pairs of two axes: P the (new token, cached token) pairs that a mask allows,
M the (token, expert) pairs that a router chose."""

REFINES: Mapping[str, tuple[str, ...]] = {
    "P": ("T", "C", "S"), "M": ("T", "E", "S"), "T": ("S",), "C": ("S",)
}  # fmt: skip
"""Axes that a finer axis replaces wherever work is counted: a pair its two parents, and a token its sequence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How numbers are stored: a block of ``block[0]`` inner by ``block[1]`` outer elements takes ``bytes``.

    Integers, never fractional bits: int4 with 16-bit scales per 128 is (128, 1) in 66 bytes, MXFP4 (32, 1) in
    17, fp8 with one fp32 scale per 128 x 128 tile is (128, 128) in 16,388.
    `compute` names the dtype whose peak the arithmetic runs at.
    """

    name: str
    bytes: int
    block: tuple[int, int] = (1, 1)
    compute: str = "bf16"

    @property
    def plain(self) -> bool:
        """Whether every element stands alone."""
        return self.block == (1, 1)

    @property
    def elements(self) -> int:
        """Elements in one block."""
        return self.block[0] * self.block[1]

    @property
    def bits(self) -> float:
        """Bits per element with scales, for whole blocks."""
        return 8 * self.bytes / self.elements


BF16 = Format(name="bf16", bytes=2)
FP32 = Format(name="fp32", bytes=4, compute="fp32")


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A weight, a state (cache) or an activation. Identity is the name: extents may be arrays.

    `role` is the tensor class that formats are chosen by (linear, expert, router, embedding, head, norm, bias,
    conv, ...); `inner` the axes of a weight that its op sums over, along which block scales run.
    """

    name: str
    axes: Axes
    kind: Kind = "act"
    format: Format = BF16
    role: str = ""
    inner: tuple[str, ...] = ()

    def part(self, copy: tuple[int, ...] | None = None, **extents: Num) -> Use:
        """What an op touches when it needs only `extents` of these axes (window, rows, experts)."""
        return Use(self, {**self.axes, **extents}, copy)


@dataclass(frozen=True, slots=True, eq=False)
class Use:
    """What one op touches of a tensor. `copy` names one repetition of the tensor's block (shared caches)."""

    tensor: Tensor
    axes: Axes
    copy: tuple[int, ...] | None = None


@cache
def split(axes: str) -> tuple[str, ...]:
    """``"T K G H"`` as a tuple of axis names."""
    return tuple(axes.split())


def numel(x: Tensor | Use) -> Num:
    """Number of elements."""
    count: Num = 1
    for extent in x.axes.values():
        count = count * extent
    return count


def nbytes(x: Tensor | Use) -> Num:
    """Bytes of the elements touched, block scales included and short blocks padded."""
    tensor = x.tensor if isinstance(x, Use) else x
    fmt = tensor.format
    if fmt.plain:
        return numel(x) * fmt.bytes
    if not tensor.inner:
        return divide(numel(x) * fmt.bytes, fmt.elements)
    batch = {"E"} if tensor.role == "expert" else set()
    inner = product(n for a, n in x.axes.items() if a in tensor.inner)
    outer = product(n for a, n in x.axes.items() if a not in tensor.inner and a not in batch)
    copies = product(n for a, n in x.axes.items() if a in batch and a not in tensor.inner)
    return copies * ceil_div(inner, fmt.block[0]) * ceil_div(outer, fmt.block[1]) * fmt.bytes
