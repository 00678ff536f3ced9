"""Rotary position embedding: frequencies as each scaling stretches them, and the rotation."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from archsim.blocks.rope import Rope, RopeScaling


def frequencies(rope: Rope, dim: int, length: int) -> tuple[Tensor, float]:
    """Angle per token of each of dim/2 pairs, and the factor on cos and sin. `length`: tokens so far."""
    s = rope.scaling
    theta = rope.theta
    if s is not None and s.kind == "ntk" and s.original_max and length > s.original_max:
        stretch = s.factor * length / s.original_max - (s.factor - 1)
        theta *= stretch ** (dim / (dim - 2))
    angle = theta ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    if s is None or s.kind == "ntk":
        return angle, 1.0
    if s.kind == "linear":
        return angle / s.factor, 1.0
    if s.kind == "llama3":
        return _llama3(s, angle), 1.0
    if s.kind == "yarn":
        return _yarn(s, angle, theta), _yarn_factor(s)
    return _longrope(s, angle, length), _longrope_factor(s)


def _llama3(s: RopeScaling, angle: Tensor) -> Tensor:
    """Long waves are slowed by the factor, short ones kept, those between blended."""
    turns = (s.original_max or 8192) * angle / (2 * math.pi)
    blend = ((turns - s.low_freq_factor) / (s.high_freq_factor - s.low_freq_factor)).clamp(0, 1)
    return (1 - blend) * angle / s.factor + blend * angle


def _yarn(s: RopeScaling, angle: Tensor, theta: float) -> Tensor:
    """arXiv:2309.00071 section 3.2: a ramp over dimensions from kept to slowed frequencies."""
    dim, original = 2 * len(angle), s.original_max or 4096

    def dimension(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = dimension(s.beta_fast), dimension(s.beta_slow)
    if s.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    ramp = (torch.arange(len(angle)) - low) / (high - low if high != low else 0.001)
    kept = 1 - ramp.clamp(0, 1)
    return angle / s.factor * (1 - kept) + angle * kept


def _yarn_factor(s: RopeScaling) -> float:
    def magnitude(mscale: float) -> float:
        return 1.0 if s.factor <= 1 else 0.1 * mscale * math.log(s.factor) + 1.0

    if s.attention_factor is not None:
        return s.attention_factor
    if s.mscale and s.mscale_all_dim:
        return magnitude(s.mscale) / magnitude(s.mscale_all_dim)
    return magnitude(1.0)


def _longrope(s: RopeScaling, angle: Tensor, length: int) -> Tensor:
    """One published factor per dimension, from one of two lists by length; without lists, nothing changes."""
    factors = s.long_factor if s.original_max and length > s.original_max else s.short_factor
    return angle / torch.tensor(factors) if len(factors) == len(angle) else angle


def _longrope_factor(s: RopeScaling) -> float:
    if s.attention_factor is not None:
        return s.attention_factor
    if s.factor <= 1 or not s.original_max:
        return 1.0
    return math.sqrt(1 + math.log(s.factor) / math.log(s.original_max))


def rotate(x: Tensor, rope: Rope, past: int) -> Tensor:
    """x (S, T, ..., H) with the first `rope.dim` entries of its last axis turned by each token's position."""
    dim = rotated(x, rope)
    return turn(x, rope, cosines(rope, dim, past, x.shape[1], x.device))


def rotated(x: Tensor, rope: Rope) -> int:
    """How many entries of the last axis are turned."""
    return min(rope.dim or x.shape[-1], x.shape[-1])


def cosines(rope: Rope, dim: int, past: int, new: int, device: torch.device, every: int = 1) -> Tensor:
    """Cosines and sines (2, T, dim / 2) of `new` positions after `past`, both counted in steps of `every`."""
    length = past + new
    angle, factor = frequencies(rope, dim, length * every)
    turns = torch.arange(past, length, dtype=torch.float32)[:, None] * every * angle
    turns = turns.to(device)
    return torch.stack([torch.cos(turns) * factor, torch.sin(turns) * factor])


def turn(x: Tensor, rope: Rope, table: Tensor) -> Tensor:
    """x with the entries turned that a table of `cosines` is for."""
    dim = 2 * table.shape[-1]
    cos, sin = table.reshape(2, x.shape[1], *(1,) * (x.ndim - 3), dim // 2).unbind()
    part, rest = x[..., :dim].float(), x[..., dim:]
    a, b = (part[..., 0::2], part[..., 1::2]) if rope.interleaved else part.chunk(2, dim=-1)
    turned = (a * cos - b * sin, b * cos + a * sin)
    y = torch.stack(turned, dim=-1).flatten(-2) if rope.interleaved else torch.cat(turned, dim=-1)
    return torch.cat([y.to(x.dtype), rest], dim=-1)
