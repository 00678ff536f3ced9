"""Differential attention (arXiv:2410.05258): two results as one difference, whose share grows with the depth."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from archsim.backend.axes import Dims
from archsim.backend.run import Run, Value
from archsim.blocks.layer import depth
from archsim.graph.graph import Op


def _least(run: Run, op: Op) -> float:
    """The share that is subtracted where nothing was learned: 0.8 - 0.6·e^(-0.3·layer)."""
    return 0.8 - 0.6 * math.exp(-0.3 * depth(run.layers, op.name, run.index))


def _difference(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Both results (S, T, A, K, G, Hv) side by side, the second half of the heads taken from the first."""
    wide = torch.cat([operands[0].x, operands[1].x], dim=-1)
    q1, k1, q2, k2 = (v.x.float() for v in operands[2:])
    share = torch.exp((q1 * k1).sum()) - torch.exp((q2 * k2).sum()) + _least(run, op)
    return wide[:, :, 0] - share.to(wide.dtype) * wide[:, :, 1]


def _scale(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The difference as large as what it was taken from."""
    return operands[0].x * (1 - _least(run, op))


MAPS: dict[str, Callable[[Run, Op, list[Value], Dims], Tensor]] = {
    "difference": _difference, "difference_scale": _scale
}  # fmt: skip
