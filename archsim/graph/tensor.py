"""Tensors with named axes, storage formats, and what one op touches of a tensor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from math import lcm
from typing import Literal

from archsim.base.data_class import dataclass, light_dataclass
from archsim.base.number import Num, ceil_div, divide

Axes = dict[str, Num]
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
    17, fp8 with one fp32 scale per 128 x 128 tile is (128, 128) in 16,388. `scales` of them are scales and zero
    points: a block that a short row cuts off keeps all of those, but only the elements it has; without `scales`
    it is filled up. `compute` names the dtype whose peak the arithmetic runs at. `beside`: bytes stored
    outside the blocks, such as scales: per output row, per input column, and per matrix. `per_vector`: bytes beside
    each vector of a cache, of one head of a token. `parts`: of so many copies
    of a tensor, so many are stored in each format; `bytes` and `block` are then the average.
    """

    name: str
    bytes: int
    block: tuple[int, int] = (1, 1)
    scales: int = 0
    compute: str = "bf16"
    beside: tuple[int, int, int] | None = None
    per_vector: int = 0
    parts: tuple[tuple[int, Format], ...] = ()
    plain: bool = field(init=False, compare=False, repr=False)
    """Whether every element stands alone."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "plain", self.block == (1, 1) and self.beside is None and not self.per_vector)

    @property
    def elements(self) -> int:
        """Elements in one block."""
        return self.block[0] * self.block[1]

    @property
    def bits(self) -> float:
        """Bits per element with scales, for whole blocks."""
        return 8 * self.bytes / self.elements


def mixed_format(parts: tuple[tuple[int, Format], ...]) -> Format:
    """The format of a tensor whose copies are stored in several formats: the parts, and their exact average."""
    counts: dict[Format, int] = {}
    for n, part in parts:
        counts[part] = counts.get(part, 0) + n
    if len(counts) == 1:
        return next(iter(counts))
    copies, block = sum(counts.values()), lcm(*(part.elements for part in counts))
    size = sum(n * part.bytes * (block // part.elements) for part, n in counts.items())
    usual = max(counts, key=lambda part: counts[part])
    name = "+".join(f"{n}*{part.name}" for part, n in counts.items())
    return Format(name=name, bytes=size, block=(block * copies, 1), compute=usual.compute,
                  parts=tuple((n, part) for part, n in counts.items()))  # fmt: skip


BF16 = Format(name="bf16", bytes=2)
FP32 = Format(name="fp32", bytes=4, compute="fp32")


@light_dataclass(frozen=True, slots=True, eq=False)
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

    def stored_as(self, fmt: Format) -> Tensor:
        """The tensor in a format; itself where it is in it."""
        if fmt is self.format or fmt == self.format:
            return self
        return Tensor(name=self.name, axes=self.axes, kind=self.kind, format=fmt, role=self.role, inner=self.inner)

    def part(self, copy: tuple[int, ...] | None = None, **extents: Num) -> Use:
        """What an op touches when it needs only `extents` of these axes (window, rows, experts)."""
        return Use(self, {**self.axes, **extents}, copy)


@light_dataclass(frozen=True, slots=True, eq=False)
class Use:
    """What one op touches of a tensor. `copy` names one repetition of the tensor's block (shared caches)."""

    tensor: Tensor
    axes: Axes
    copy: tuple[int, ...] | None = None


@cache
def split_axes(axes: str) -> tuple[str, ...]:
    """``"T K G H"`` as a tuple of axis names."""
    return tuple(axes.split())


def numel(x: Tensor | Use) -> Num:
    """Number of elements."""
    count: Num = 1
    for extent in reversed(x.axes.values()):  # tokens, which may be an array, come first in most tensors
        count = count * extent
    return count


def nbytes(x: Tensor | Use, copies: Num = 1) -> Num:
    """Bytes of the elements touched, block scales included and short blocks padded, of so many copies.

    Copies in several formats: exact for all of them, the average for one.
    """
    tensor = x.tensor if isinstance(x, Use) else x
    fmt = tensor.format
    if fmt.plain:
        return numel(x) * fmt.bytes * copies
    if fmt.parts:
        whole = sum([n * _stored_bytes(x, tensor, part) for n, part in fmt.parts])
        return divide(whole * copies, sum([n for n, _ in fmt.parts]))
    return _stored_bytes(x, tensor, fmt) * copies


def _stored_bytes(x: Tensor | Use, tensor: Tensor, fmt: Format) -> Num:
    """Bytes of one copy in one format."""
    if fmt.plain:
        return numel(x) * fmt.bytes
    if not tensor.inner:
        return divide(numel(x) * fmt.bytes, fmt.elements) + _beside_vectors(x, fmt)
    batch = "E" if tensor.role == "expert" else ""
    inner: Num = 1
    outer: Num = 1
    copies: Num = 1
    for axis, extent in x.axes.items():
        if axis in tensor.inner:
            inner = inner * extent
        elif axis == batch:
            copies = copies * extent
        else:
            outer = outer * extent
    count = ceil_div(inner, fmt.block[0]) * ceil_div(outer, fmt.block[1])
    if fmt.scales:
        blocks = count * fmt.scales + ceil_div(inner * outer * (fmt.bytes - fmt.scales), fmt.elements)
    else:
        blocks = count * fmt.bytes
    if fmt.beside is None:
        return copies * blocks
    per_output, per_input, per_matrix = fmt.beside
    return copies * (blocks + outer * per_output + inner * per_input + per_matrix)


def _beside_vectors(x: Tensor | Use, fmt: Format) -> Num:
    """Bytes beside the vectors along the last axis of a cache."""
    if not fmt.per_vector or not x.axes:
        return 0
    *_, width = x.axes.values()
    return divide(numel(x), width) * fmt.per_vector
