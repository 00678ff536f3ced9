"""The maps of AltUp's parallel streams (arXiv:2301.13310), as Gemma 3n runs them."""

from __future__ import annotations

import torch
from torch import Tensor

from archsim.backend.axes import Dims
from archsim.backend.run import Run, Value
from archsim.graph.graph import Op

SMALLEST_SQUARE = 1e-5


def _like(x: Tensor, first: Tensor) -> Tensor:
    """Streams `x` (S, T, A, D) scaled to the magnitude of `first` (S, T, D)."""
    wanted = first.square().mean(-1, keepdim=True).sqrt().unsqueeze(2)
    return x * wanted / x.square().mean(-1, keepdim=True).clamp(min=SMALLEST_SQUARE).sqrt()


def split(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The stream and its projections, all of one magnitude, stacked: (S, T, A, D)."""
    first, projected = operands[0].x, operands[1].x
    return torch.cat([first.unsqueeze(2), _like(projected, first)], dim=2)


def correct(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Every prediction moved by the first one's error, times 1 + its own coefficient."""
    predicted, y, coefficients = (v.x for v in operands)
    innovation = y - predicted[:, :, 0]
    return predicted + innovation.unsqueeze(2) * (coefficients + 1.0).unsqueeze(-1)


def merge(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The mean of the first stream and the projections of the others, brought to its magnitude."""
    first = operands[0].x[:, :, 0]
    return torch.cat([first.unsqueeze(2), _like(operands[1].x, first)], dim=2).mean(2)


def add_to_others(streams: Tensor, y: Tensor) -> Tensor:
    """`y` (S, T, D) added to all streams but the first."""
    return torch.cat([streams[:, :, :1], streams[:, :, 1:] + y.unsqueeze(2)], dim=2)
