"""Named axes as dimensions of dense torch tensors, and the one rule for contractions.

A token axis T of S equal sequences is held as two dimensions (S, T), the cached tokens C as (S, C), and their pairs P
as the whole square (S, T, C). M, the (token, expert) pairs that a router chose, is one flat dimension.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

import torch
from torch import Tensor

Dims = tuple[str, ...]

DIMENSIONS = {"T": ("S", "T"), "C": ("S", "C"), "P": ("S", "T", "C")}


def dims_of(axes: Iterable[str]) -> Dims:
    """The dimensions that hold these axes."""
    return tuple(d for axis in axes for d in DIMENSIONS.get(axis, (axis,)))


def align(x: Tensor, dims: Dims, out: Dims) -> Tensor:
    """`x` with its dimensions ordered as in `out`, and one of size 1 where it lacks one.

    Axes named One vanish. Where the names differ but not their number (A and A2, of a square matrix),
    dimensions correspond by position.
    """
    if "One" in dims:
        x, dims = x.squeeze(dims.index("One")), tuple(d for d in dims if d != "One")
    if dims == out:
        return x
    if not set(dims) <= set(out):
        if len(dims) == len(out):
            return x
        raise ValueError(f"cannot broadcast {dims} to {out}")
    x = x.permute([dims.index(d) for d in out if d in dims])
    for i, d in enumerate(out):
        if d not in dims:
            x = x.unsqueeze(i)
    return x


def arrange(x: Tensor, dims: Dims, out: Dims) -> Tensor:
    """`x` permuted to exactly the dimensions `out`."""
    return x if dims == out else x.permute([dims.index(d) for d in out])


def contract(a: Tensor, a_dims: Dims, b: Tensor, b_dims: Dims, out: Dims) -> Tensor:
    """Sum of products over the dimensions that `out` lacks, as one (batched) matrix product.

    torch.einsum would compute products over dimensions of size 1 elementwise, where no FLOP is counted.
    """
    in_a, in_b = set(a_dims), set(b_dims)
    batch = tuple(d for d in out if d in in_a and d in in_b)
    rows = tuple(d for d in out if d in in_a and d not in in_b)
    columns = tuple(d for d in out if d in in_b and d not in in_a)
    inner = tuple(d for d in a_dims if d in in_b and d not in out)
    left, right = _merge_dims(a, a_dims, (batch, rows, inner)), _merge_dims(b, b_dims, (batch, inner, columns))
    y = torch.bmm(left, right) if batch else torch.mm(left[0], right[0])
    size = dict(zip(a_dims, a.shape, strict=True)) | dict(zip(b_dims, b.shape, strict=True))
    found = (*batch, *rows, *columns)
    return arrange(y.view([size[d] for d in found]), found, out)


def _merge_dims(x: Tensor, dims: Dims, groups: Sequence[Dims]) -> Tensor:
    """`x` with one dimension for each group of its dimensions."""
    order = [d for group in groups for d in group]
    size = dict(zip(dims, x.shape, strict=True))
    return arrange(x, dims, tuple(order)).reshape([prod(size[d] for d in group) for group in groups])
