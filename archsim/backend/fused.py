"""The row-wise functions that fuse: residual and norm, rotation, gate. Plain torch, and compiled by torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional

from archsim.base.json_types import JsonMapping

Gemv = Callable[..., Tensor]


@dataclass(frozen=True, slots=True)
class Kernels:
    """One way to run the row-wise functions.

    norm(x, weight, eps, offset), add_norm(x, y, weight, eps, offset) -> (x + y, its norm),
    rope(x, cos, sin, interleaved), gated(fn, attrs, gate, up). gemv: a product with one row that takes the norm
    before it and the gate or residual behind it, where there is one. store: one token's queries turned, its keys
    and values put into their caches.
    """

    name: str
    norm: Callable[..., Tensor]
    add_norm: Callable[..., tuple[Tensor, Tensor]]
    rope: Callable[..., Tensor]
    gated: Callable[[str, JsonMapping, Tensor, Tensor], Tensor]
    gemv: Gemv | None = None
    store: Callable[..., Tensor] | None = None


def norm(x: Tensor, weight: Tensor, eps: float, offset: bool) -> Tensor:
    """x / rms(x) · weight over the last dimension, in float32; with `offset` the weight is one more."""
    y = x.float()
    y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + eps)
    w = weight.float()
    return (y * (w + 1.0 if offset else w)).to(x.dtype)


def add_norm(x: Tensor, y: Tensor, weight: Tensor, eps: float, offset: bool) -> tuple[Tensor, Tensor]:
    """x + y, and its norm."""
    total = x + y
    return total, norm(total, weight, eps, offset)


def rope(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x (..., H) with its first entries turned, two for each of cos and sin: neighbours, or one of each half."""
    dim = 2 * cos.shape[-1]
    part, rest = x[..., :dim].float(), x[..., dim:]
    if interleaved:
        a, b = part[..., 0::2], part[..., 1::2]
        y = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
    else:
        a, b = part.chunk(2, dim=-1)
        y = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)
    return torch.cat([y.to(x.dtype), rest], dim=-1)


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up"""
    return functional.silu(gate) * up


def geglu(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) · up"""
    return functional.gelu(gate) * up


def geglu_tanh(gate: Tensor, up: Tensor) -> Tensor:
    """gelu(gate) · up, with the tanh approximation."""
    return functional.gelu(gate, approximate="tanh") * up


def clamped_swiglu(gate: Tensor, up: Tensor, limit: float, alpha: float, offset: float) -> Tensor:
    """gate · sigmoid(alpha · gate) · (up + offset), both clamped."""
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    return gate * torch.sigmoid(gate * alpha) * (up + offset)


GATES: dict[str, Callable[..., Tensor]] = {
    "swiglu": swiglu, "geglu": geglu, "geglu_tanh": geglu_tanh, "clamped_swiglu": clamped_swiglu,
}  # fmt: skip


def can_gate(fn: str, attrs: JsonMapping) -> bool:
    """Whether a gated activation is one of `GATES`, without Gemma 3n's sparsity."""
    return fn in GATES and not attrs.get("sparsity")


def gate_arguments(fn: str, attrs: JsonMapping) -> tuple[float, ...]:
    """The numbers that a gate takes behind its two tensors."""
    if fn != "clamped_swiglu":
        return ()
    return float(attrs["clamp"]), float(attrs.get("alpha", 1.702)), float(attrs.get("up_offset", 1.0))


def _gate(fn: str, attrs: JsonMapping, gate: Tensor, up: Tensor) -> Tensor:
    return GATES[fn](gate, up, *gate_arguments(fn, attrs))


EAGER = Kernels("eager", norm, add_norm, rope, _gate)
"""One torch kernel per operation."""


DYNAMO = {"recompile_limit": 64, "fail_on_recompile_limit_hit": True}
"""Settings of torch.compile: ranks and strides of several models are compiled for, which takes some variants."""


@cache
def compile_functions() -> Kernels:
    """Every function compiled by torch, once for all sizes; an error, not a silent return to eager, if it gives up."""
    for name, value in DYNAMO.items():
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, value)
    gates = {name: torch.compile(f, dynamic=True) for name, f in GATES.items()}

    def gated(fn: str, attrs: JsonMapping, gate: Tensor, up: Tensor) -> Tensor:
        return gates[fn](gate, up, *gate_arguments(fn, attrs))

    one, two, turn = (torch.compile(f, dynamic=True) for f in (norm, add_norm, rope))
    return Kernels("torch.compile", one, two, turn, gated)  # type: ignore[arg-type]
