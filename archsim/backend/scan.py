"""Diagonal recurrences along time: selective state spaces and the RG-LRU."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.axes import align, dims_of
from archsim.backend.run import Run
from archsim.graph.graph import Op

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


SCANS: dict[str, Callable[[Run, Op], tuple[Tensor, Tensor]]] = {"selective_scan": selective_scan, "rg_lru": rg_lru}
"""Recurrences that run as one op. Those of lightning and delta-rule blocks run with the whole block."""
