"""Recurrences along time: selective state spaces and the RG-LRU step by step, Mamba-2 in chunks (arXiv:2405.21060)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.axes import align, contract, dims_of
from archsim.backend.hyper import compress
from archsim.backend.run import Run, kernel, state_of
from archsim.graph.graph import Block, Op


@kernel("ssd")
def ssd(run: Run, block: Block) -> bool:
    """A prefill, or several tokens after others; block attributes give the chunk, the inputs and the weights."""
    chunk, (u, dt, drive, read) = block.attrs["chunk"], (run.values[n].float() for n in block.attrs["inputs"])
    a_log, skip = (run.weights(block.attrs[n], run.index).float().flatten() for n in ("A_log", "D_skip"))
    state, heads = state_of(block), dt.shape[3]
    before = run.read(state).x
    drive, read = (x.repeat_interleave(heads, dim=2) for x in (drive, read))
    u_flat, dt = u.flatten(2, 3), dt.flatten(2, 3)
    fill = -u.shape[1] % chunk
    inputs = (u_flat * dt[..., None], drive, read)
    x, drive, read = (_chunk(functional.pad(v, (0, 0, 0, 0, 0, fill)), chunk) for v in inputs)
    decay = _chunk(functional.pad(-torch.exp(a_log) * dt, (0, 0, 0, fill)), chunk).permute(0, 3, 1, 2)
    y, after = _chunks(x, decay, drive, read, before.flatten(1, 2))
    y = y.flatten(1, 2)[:, : u.shape[1]] + skip[:, None] * u_flat
    run.write(state, after.reshape(before.shape))
    last = block.body[-1]
    assert isinstance(last, Op)
    run.write(last.writes[0], y.reshape(u.shape).to(run.dtype))
    return True


def _chunk(x: Tensor, chunk: int) -> Tensor:
    return torch.unflatten(x, 1, (-1, chunk))


def _chunks(x: Tensor, decay: Tensor, drive: Tensor, read: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Outputs (b, c, l, h, p) and the last state (b, h, p, n).

    b: sequences, c and z: chunks, l and s: tokens of one, h: heads, p: inputs, n: states. x is (b, c, s, h, p),
    `drive` and `read` (b, c, l, h, n), `decay` the logarithms (b, h, c, l).
    """
    total = decay.cumsum(-1)
    scores = _product(read, "bclhn", drive, "bcshn", "bclsh") * segments(decay).exp().permute(0, 2, 3, 4, 1)
    inside = _product(scores, "bclsh", x, "bcshp", "bclhp")
    left = (total[..., -1:] - total).exp().permute(0, 2, 3, 1)[..., None]
    states = _product(drive * left, "bclhn", x, "bclhp", "bchpn")
    states = torch.cat([state[:, None], states], dim=1)
    between = segments(functional.pad(total[..., -1], (1, 0))).exp().permute(0, 3, 2, 1)
    states = _product(between, "bzch", states, "bzhpn", "bchpn")
    across = _product(read, "bclhn", states[:, :-1], "bchpn", "bclhp")
    return inside + across * total.exp().permute(0, 2, 3, 1)[..., None], states[:, -1]


def _product(a: Tensor, a_dims: str, b: Tensor, b_dims: str, out: str) -> Tensor:
    return contract(a, tuple(a_dims), b, tuple(b_dims), tuple(out))


def segments(x: Tensor) -> Tensor:
    """Sums of x over j < k <= i for every pair (..., i, j), minus infinity where j > i."""
    size = x.shape[-1]
    square = torch.ones(size, size, dtype=torch.bool, device=x.device)
    spread = x[..., None].expand(*x.shape, size).masked_fill(~square.tril(-1), 0)
    return spread.cumsum(-2).masked_fill(~square.tril(), float("-inf"))


RG_LRU_SHARPNESS = 8.0
"""The constant c of arXiv:2402.19427, equation 3."""


def recurrence(decay: Tensor, drive: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """h_t = decay_t · h_(t-1) + drive_t over (S, T, ...), from `state` (S, ...): all h, and the last."""
    found = []
    for t in range(drive.shape[1]):
        state = decay[:, t] * state + drive[:, t]
        found.append(state)
    return torch.stack(found, dim=1), state


def selective_scan(run: Run, op: Op) -> tuple[Tensor, Tensor]:
    """h_t = exp(dt·A) h_(t-1) + dt·B·u, with A = -exp(A_log): Mamba's recurrence, in float32."""
    out = dims_of(op.writes[0].tensor.axes)
    u, dt, a_log, drive = (align(v.x.float(), v.dims, out) for v in map(run.read, op.reads[:4]))
    state = run.read(op.reads[4]).x
    h, last = recurrence(torch.exp(-torch.exp(a_log) * dt), dt * drive * u, state)
    return h.to(run.dtype), last


def rg_lru(run: Run, op: Op) -> tuple[Tensor, Tensor]:
    """h_t = a_t h_(t-1) + sqrt(1 - a_t²)·(i_t·u_t); the very first token enters unscaled."""
    u, gate, forget, parameter, state = (run.read(use).x.float() for use in op.reads)
    log_a = -RG_LRU_SHARPNESS * forget * functional.softplus(parameter)
    scale = torch.sqrt(1 - torch.exp(2 * log_a))
    if run.past == 0:
        scale = torch.cat([torch.ones_like(scale[:, :1]), scale[:, 1:]], dim=1)
    h, last = recurrence(torch.exp(log_a), u * gate * scale, state)
    return h.to(run.dtype), last


def shift(run: Run, op: Op) -> tuple[Tensor, Tensor]:
    """The token before each, zeros before the first of a sequence; and the last token."""
    x, state = (run.read(use).x for use in op.reads)
    return torch.cat([state[:, None].to(x.dtype), x[:, :-1]], dim=1), x[:, -1].to(state.dtype)


SCANS: dict[str, Callable[[Run, Op], tuple[Tensor, Tensor]]] = {
    "selective_scan": selective_scan, "rg_lru": rg_lru, "compress": compress, "shift": shift,
}  # fmt: skip
"""Recurrences that run as one op. Those of lightning and delta-rule blocks run with the whole block."""
