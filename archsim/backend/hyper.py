"""Hyper-connections: several residual streams (S, T, A, D), the numbers that mix them, and entries of many tokens."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.axes import Dims
from archsim.backend.run import Run, Value
from archsim.graph.graph import Op


def _parts(operands: list[Value], n: int) -> tuple[Tensor, ...]:
    """The numbers (S, T, ...) that collapse and expand the streams, and those that mix them where there are any, before
    their functions.
    """
    mix, base, scale = (v.x.float() for v in operands)
    ends = (slice(0, n), slice(n, 2 * n), slice(2 * n, None))
    return tuple(mix[..., end] * scale[i] + base[end] for i, end in enumerate(ends[: len(scale)]))


def _mixing(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The matrix (S, T, A, A2) between the streams, rows and columns brought to sums of one by turns."""
    n, eps = int(op.writes[0].tensor.axes["A"]), op.attrs["eps"]
    y = torch.unflatten(_parts(operands, n)[2], -1, (n, n)).softmax(-1) + eps
    y = y / (y.sum(-2, keepdim=True) + eps)
    for _ in range(op.attrs["iterations"] - 1):
        y = y / (y.sum(-1, keepdim=True) + eps)
        y = y / (y.sum(-2, keepdim=True) + eps)
    mixing: Tensor = y.to(run.dtype)
    return mixing


def _collapse(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """All streams as one: each times its own number."""
    x = operands[0].x
    return _weighted(x, torch.sigmoid(_parts(operands[1:], x.shape[2])[0]) + op.attrs["eps"])


def _weighted(x: Tensor, share: Tensor) -> Tensor:
    """The sum of all streams, each times its share."""
    return (share.unsqueeze(-1) * x).sum(2).to(x.dtype)


def _expand(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The mixed streams, with a block's result added to each, times its own number."""
    mixed, y = operands[0].x, operands[1].x
    share = op.attrs["magnitude"] * torch.sigmoid(_parts(operands[2:], mixed.shape[2])[1]) + op.attrs["eps"]
    expanded: Tensor = mixed + share.to(y.dtype).unsqueeze(-1) * y.unsqueeze(2)
    return expanded


def _head(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """All streams as one behind the last layer."""
    x, (mix, base, scale) = operands[0].x, (v.x.float() for v in operands[1:])
    return _weighted(x, torch.sigmoid(mix * scale + base) + op.attrs["eps"])


def _mean(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """All streams as one, each as much as the others."""
    return operands[0].x.mean(2)


def _repeat(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """As many streams (or halves of the heads) as there are, all alike."""
    x = operands[0].x.unsqueeze(2)
    return x.expand(-1, -1, int(op.writes[0].tensor.axes["A"]), *x.shape[3:])


def _stack(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Streams (S, T, D) beside each other."""
    return torch.stack([v.x for v in operands], 2)


def _mix(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """All streams as one, in the shares that the softmax of their scores gives."""
    x, scores = (v.x for v in operands)
    return _weighted(x, scores.float().squeeze(-1).softmax(-1))


MAPS: dict[str, Callable[[Run, Op, list[Value], Dims], Tensor]] = {
    "repeat_streams": _repeat,
    "hyper_mixing": _mixing,
    "hyper_collapse": _collapse,
    "hyper_expand": _expand,
    "hyper_head": _head,
    "stream_mean": _mean,
    "stack_streams": _stack,
    "residual_mix": _mix,
}


def compress(run: Run, op: Op) -> tuple[Tensor, Tensor]:
    """Entries (S, C, H) that the new tokens complete, and the last tokens' numbers and gates (S, Wb, Hb)."""
    kv, gate, bias, buffer = (run.read(use).x for use in op.reads)
    ratio, overlap = op.attrs["ratio"], op.attrs["overlap"]
    kept = buffer.shape[1]
    rows = torch.cat([buffer.to(kv.dtype), torch.cat([kv, gate], -1)], dim=1)
    first, last = run.past // ratio, (run.past + kv.shape[1]) // ratio
    start = kept - run.past + first * ratio  # the row of the first new entry's first token
    values, gates = rows[:, start : start + (last - first) * ratio].chunk(2, -1)
    y, z = (torch.unflatten(x, 1, (last - first, ratio)) for x in (values, gates))
    z = z + bias
    if overlap:
        y, z = _with_entry_before(rows, bias, y, z, start, first)
    made = (y * z.float().softmax(2).to(y.dtype)).sum(2)
    return made, rows[:, rows.shape[1] - kept :].to(buffer.dtype)


def _with_entry_before(
    rows: Tensor, bias: Tensor, y: Tensor, z: Tensor, start: int, first: int
) -> tuple[Tensor, Tensor]:
    """The second series of each entry's own tokens behind the first series of those before."""
    entries, ratio, width = y.shape[1], y.shape[2], y.shape[3] // 2
    if not entries:
        return y[..., width:], z[..., width:]
    before = functional.pad(rows, (0, 0, ratio, 0))[:, start : start + ratio]  # rows begin `ratio` later
    own, gate = before.chunk(2, -1)
    gate = (gate + bias).masked_fill(torch.tensor(first == 0, device=gate.device), float("-inf"))
    values = torch.cat([own[:, None], y[:, :-1]], 1)[..., :width]
    gates = torch.cat([gate[:, None], z[:, :-1]], 1)[..., :width]
    return torch.cat([values, y[..., width:]], 2), torch.cat([gates, z[..., width:]], 2)
