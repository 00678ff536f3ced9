"""xLSTM's matrix memory (arXiv:2405.04517, appendix A.3): in chunks of products, or token by token."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.run import Run, kernel
from archsim.graph.graph import Block, Op


class Memory(NamedTuple):
    """Of each head (S, N, ...): the matrix, the vector that normalises, and the logarithm that both are scaled by."""

    matrix: Tensor
    vector: Tensor
    largest: Tensor


@kernel("mlstm")
def mlstm(run: Run, block: Block) -> bool:
    """Block attributes give the chunk, the inputs, the states and the least denominator."""
    q, k, v, enters, forgets = (run.values[name].transpose(1, 2).float() for name in block.attrs["inputs"])
    body = [op for op in block.body if isinstance(op, Op)]
    states = {use.tensor.name: use for op in body for use in op.writes if use.tensor.kind == "state"}
    uses = [states[name] for name in block.attrs["states"]]
    memory = Memory(*(run.read(use).x for use in uses))
    kept, chunk = functional.logsigmoid(forgets), block.attrs["chunk"]
    step = _token if q.shape[2] == 1 and run.past > 0 else _chunk
    found = []
    for start in range(0, q.shape[2], chunk):
        qs, ks, vs, es, fs = (x[:, :, start : start + chunk] for x in (q * q.shape[-1] ** -0.5, k, v, enters, kept))
        read, memory = step(qs, ks, vs, es, fs, memory, block.attrs["eps"])
        found.append(read)
    for use, x in zip(uses, memory, strict=True):
        run.write(use, x)
    run.write(body[-1].writes[0], torch.cat(found, dim=2).transpose(1, 2).to(run.dtype))
    return True


def _chunk(
    q: Tensor, k: Tensor, v: Tensor, enters: Tensor, kept: Tensor, memory: Memory, eps: float
) -> tuple[Tensor, Memory]:
    """What the tokens of a chunk read, and the memory after it. All is scaled by the largest exponent so far."""
    total = kept.cumsum(-1)
    later = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
    inside = (total[..., :, None] - total[..., None, :] + enters[..., None, :]).masked_fill(later, float("-inf"))
    before = total + memory.largest[..., None]
    largest = torch.maximum(before, inside.amax(-1))
    scores = (q @ k.transpose(-1, -2)) * (inside - largest[..., None]).exp()
    old = q * (before - largest).exp()[..., None]
    norm = (old * memory.vector[:, :, None]).sum(-1) + scores.sum(-1)
    y = (old @ memory.matrix + scores @ v) / _bounded(norm, largest, eps)
    return y, _added(k, v, total[..., -1:] - total + enters, total[..., -1], memory)


def _token(
    q: Tensor, k: Tensor, v: Tensor, enters: Tensor, kept: Tensor, memory: Memory, eps: float
) -> tuple[Tensor, Memory]:
    """One token: the memory takes it in first."""
    after = _added(k, v, enters, kept[..., 0], memory)
    norm = (q * after.vector[:, :, None]).sum(-1)
    return q @ after.matrix / _bounded(norm, after.largest[..., None], eps), after


def _bounded(norm: Tensor, largest: Tensor, eps: float) -> Tensor:
    """The denominator: never below one before the scaling."""
    return (torch.maximum(norm.abs(), (-largest).exp()) + eps)[..., None]


def _added(k: Tensor, v: Tensor, weights: Tensor, decay: Tensor, memory: Memory) -> Memory:
    """The memory with keys and values of these logarithmic weights, itself decayed."""
    largest = torch.maximum(decay + memory.largest, weights.amax(-1))
    keys = k * (weights - largest[..., None]).exp()[..., None]
    left = (decay + memory.largest - largest).exp()[..., None]
    return Memory(
        left[..., None] * memory.matrix + keys.transpose(-1, -2) @ v, left * memory.vector + keys.sum(2), largest
    )
