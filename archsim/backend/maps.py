"""The functions that `map` ops name, over tensors whose dimensions are known by name."""

from __future__ import annotations

from collections.abc import Callable
from statistics import NormalDist

import torch
from torch import Tensor
from torch.nn import functional

import archsim.backend.differential as differential
import archsim.backend.hyper as hyper
import archsim.backend.moe as moe
from archsim.backend.axes import Dims, align
from archsim.backend.rope import cosines, frequencies, rotated, turn
from archsim.backend.run import Run, Value
from archsim.backend.terms import TERMS, masked_softmax, relative_origin
from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping
from archsim.blocks.attention import Temperature
from archsim.graph.graph import Op

Map = Callable[[Run, Op, list[Value], Dims], Tensor]
Attrs = JsonMapping

XIELU_BETA = 0.5
XIELU_EPS = -1e-6


def _align(function: Callable[..., Tensor]) -> Map:
    """A map that works element by element, its operands broadcast by the names of their dimensions."""

    def run_map(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
        return function(op.attrs, *(align(v.x, v.dims, out) for v in operands))

    return run_map


# ---------------------------------------------------------------------- arithmetic
def _add(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """x + y, x + y·z, or scores plus a position term; with factors on either side or on the sum."""
    term = op.attrs.get("term")
    if term == "other_streams":
        return _add_to_others(operands[0].x, operands[1].x)
    x = align(operands[0].x, operands[0].dims, out)
    if term is not None:
        scale: float = op.attrs.get("scale", 1.0)
        if term not in TERMS:
            raise UsageError(f"attention scores with the position term {quote(term)} have no PyTorch function here")
        return x + (TERMS[term](run, op, operands) * scale).to(x.dtype)
    y, *more = (align(v.x, v.dims, out) for v in operands[1:])
    for z in more:
        y = y * z
    left, right, total = (float(op.attrs.get(name, 1.0)) for name in ("left", "right", "scale_sum"))
    return (x * left + y * right) * total


def _mul(attrs: Attrs, x: Tensor, *others: Tensor) -> Tensor:
    for y in others:
        x = x * y
    return x


def _scale(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """x times a number, times a power (default -1) of the model's width, or more at later positions."""
    x, dims = operands[0]
    if "temperature" in op.attrs:
        t: Temperature = op.attrs["temperature"]
        count = x.shape[dims.index("T")]

        def factors() -> Tensor:
            position = torch.arange(run.past, run.past + count, device=x.device) + t.first
            if t.steady:
                return (1.0 + t.attn_scale * torch.log((position / t.floor_scale).clamp(min=1.0))).to(x.dtype)
            return (1.0 + t.attn_scale * torch.log1p(torch.floor(position / t.floor_scale))).to(x.dtype)

        return x * align(run.table((t, run.past, count), factors), ("T",), dims)
    if "by_size" in op.attrs:
        power: float = op.attrs.get("power", -1.0)
        return x * float(run.width**power)
    return x * float(op.attrs.get("by", 1.0))


def _concat(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The first tokens of each sequence from one tensor, the others from the second."""
    first, second = (align(v.x, v.dims, out) for v in operands)
    return torch.cat([first, second[:, first.shape[1] :]], dim=1)


def _join(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Keys behind keys."""
    return torch.cat([v.x for v in operands], dim=1)


def _dot(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Products of all operands, element by element, summed over the last dimension."""
    x, dims = operands[0]
    for other in operands[1:]:
        x = x * align(other.x, other.dims, dims)
    return x.sum(-1)


def _head_sum(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Scores (heads, S, T, C) times the weights (S, T, heads) of a token's heads, summed over them."""
    scores, weights = operands[0].x, operands[1].x
    return (scores * weights.permute(2, 0, 1).unsqueeze(-1)).sum(0)


def _sinusoid(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Sines and cosines of positions: interleaved for tokens (arXiv:1706.03762), halves for distances (R)."""
    width = int(op.writes[0].tensor.axes[out[-1]])
    relative = out[0] == "R"
    count = int(op.writes[0].tensor.axes["R"]) if relative else run.tokens.shape[1]
    first = -relative_origin(run, count) if relative else run.past
    position = torch.arange(first, first + count, dtype=torch.float32)[:, None]
    half = (width + 1) // 2
    angle = position * 10000.0 ** (-2.0 * torch.arange(half) / width)
    parts = [angle.sin(), angle.cos()]
    y = torch.cat(parts, -1) if relative else torch.stack(parts, -1).flatten(-2)
    y = y[:, :width].to(run.dtype).to(run.tokens.device)
    return y if relative else y.expand(run.tokens.shape[0], -1, -1)


# ---------------------------------------------------------------------- norms
def _norm(kind: str) -> Map:
    def run_map(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
        x, dims = operands[0]
        over = [dims.index(axis) for axis in op.attrs["over"]]
        y = x.float()
        if groups := op.attrs.get("groups"):
            runs = torch.unflatten(y.flatten(over[0]), -1, (groups, -1))
            runs = runs * torch.rsqrt(runs.square().mean(-1, keepdim=True) + op.attrs["eps"])
            y = runs.reshape(y.shape)
        else:
            if kind == "layernorm":
                y = y - y.mean(over, keepdim=True)
            y = y * torch.rsqrt(y.square().mean(over, keepdim=True) + op.attrs["eps"])
        learned = [align(v.x.float(), v.dims, dims) for v in operands[1:]]
        if learned:
            y = y * (learned[0] + 1.0 if op.attrs.get("offset") else learned[0])
        return (y + learned[1] if len(learned) > 1 else y).to(x.dtype)

    return run_map


# ---------------------------------------------------------------------- activations
def _gate(activation: Callable[[Tensor], Tensor]) -> Map:
    """act(gate) · up, where Gemma 3n first zeroes all but the largest gates of a token."""

    def function(attrs: Attrs, gate: Tensor, up: Tensor) -> Tensor:
        if attrs.get("sparsity"):
            gate = _largest(gate, attrs["sparsity"])
        return activation(gate) * up

    return _align(function)


def _largest(x: Tensor, sparsity: float) -> Tensor:
    """x less the value that a share `sparsity` of a normal distribution lies below, and not below 0."""
    cut = NormalDist().inv_cdf(sparsity)
    mean, spread = x.mean(-1, keepdim=True), x.std(-1, keepdim=True, unbiased=False)
    return functional.relu(x - (mean + spread * cut))


def _clamped_swiglu(attrs: Attrs, gate: Tensor, up: Tensor) -> Tensor:
    """gate·sigmoid(alpha·gate)·(up + 1) with both clamped (gpt-oss; Phi-3-small's GeGELU likewise)."""
    limit, alpha = attrs["clamp"], attrs.get("alpha", 1.702)
    gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
    offset: float = attrs.get("up_offset", 1.0)
    return gate * torch.sigmoid(gate * alpha) * (up + offset)


def _situglu(attrs: Attrs, gate: Tensor, up: Tensor) -> Tensor:
    """beta·tanh(gate/beta)·sigmoid(gate)·up, with up bounded likewise (Kimi K3)."""
    beta, bound, g, u = attrs["beta"], attrs.get("up_beta"), gate.float(), up.float()
    u = u if bound is None else bound * torch.tanh(u / bound)
    y: Tensor = beta * torch.tanh(g / beta) * torch.sigmoid(g) * u
    return y.to(up.dtype)


def _xielu(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """arXiv:2411.13010, as in transformers; the two scalars go through a softplus."""
    x, (positive, negative) = operands[0].x, functional.softplus(operands[1].x)
    below = (torch.expm1(x.clamp(max=XIELU_EPS)) - x) * (XIELU_BETA + negative)
    return torch.where(x > 0, positive * x * x, below) + XIELU_BETA * x


def _gelu_tanh(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


def _softplus(attrs: Attrs, x: Tensor, dt: Tensor | None = None, a_log: Tensor | None = None) -> Tensor:
    """softplus, or with `decay` the logarithm of a forget gate: -exp(A_log)·softplus(x + dt)."""
    if dt is None or a_log is None:
        return functional.softplus(x)
    return -torch.exp(a_log.float()) * functional.softplus(x.float() + dt.float())


def _bounded_decay(attrs: Attrs, x: Tensor, dt: Tensor, a_log: Tensor) -> Tensor:
    """The logarithm of a forget gate that does not fall below a bound: bound·sigmoid(exp(A_log)·(x + dt))."""
    bound: float = attrs["bound"]
    return bound * torch.sigmoid(torch.exp(a_log.float()) * (x.float() + dt.float()))


def _softcap(attrs: Attrs, x: Tensor) -> Tensor:
    cap: float = attrs["cap"]
    return torch.tanh(x / cap) * cap


def _rope(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Tokens turned by their positions, or back (`inverse`); entries of `every` tokens by that of their first."""
    x, rope = operands[0].x, op.attrs["rope"]
    every: int = op.attrs.get("every", 1)
    dim, new, past = rotated(x, rope), x.shape[1], run.past // every
    table = run.table((rope, dim, past, new, every), lambda: cosines(rope, dim, past, new, x.device, every))
    if op.attrs.get("inverse"):
        cos, sin = table
        table = torch.stack([cos, -sin])
    return turn(x, rope, table)


def _learned_rope(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Tokens turned by their positions, each frequency times a learned factor exp(alpha)."""
    x, rope, alpha = operands[0].x, op.attrs["rope"], operands[1].x.float()
    angle, factor = frequencies(rope, rotated(x, rope), run.past + x.shape[1])
    turns = _positions(run, x)[:, None] * angle.to(x.device) * torch.exp(alpha)
    return turn(x, rope, torch.stack([torch.cos(turns), torch.sin(turns)]) * factor)


def _grown(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Queries (S, T, heads, width) times scale·ln(position + 1) + bias of their head."""
    x, scale, bias = (v.x for v in operands)
    factor = torch.log1p(_positions(run, x))[:, None] * scale.float() + bias.float()
    return x * factor.to(x.dtype)[:, :, None]


def _positions(run: Run, x: Tensor) -> Tensor:
    """The positions of the tokens of x (S, T, ...), counted from 0."""
    return torch.arange(run.past, run.past + x.shape[1], dtype=torch.float32, device=x.device)


def _unary(function: Callable[[Tensor], Tensor]) -> Map:
    return _align(lambda attrs, x: function(x))


SMALLEST_SQUARE = 1e-5


def _rescale(x: Tensor, first: Tensor) -> Tensor:
    """Streams `x` (S, T, A, D) scaled to the magnitude of `first` (S, T, D)."""
    wanted = first.square().mean(-1, keepdim=True).sqrt().unsqueeze(2)
    return x * wanted / x.square().mean(-1, keepdim=True).clamp(min=SMALLEST_SQUARE).sqrt()


def _altup_split(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The stream and its projections, all of one magnitude, stacked: (S, T, A, D)."""
    first, projected = operands[0].x, operands[1].x
    return torch.cat([first.unsqueeze(2), _rescale(projected, first)], dim=2)


def _altup_correct(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Every prediction moved by the first one's error, times 1 + its own coefficient."""
    predicted, y, coefficients = (v.x for v in operands)
    innovation = y - predicted[:, :, 0]
    return predicted + innovation.unsqueeze(2) * (coefficients + 1.0).unsqueeze(-1)


def _altup_merge(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The mean of the first stream and the projections of the others, brought to its magnitude."""
    first = operands[0].x[:, :, 0]
    return torch.cat([first.unsqueeze(2), _rescale(operands[1].x, first)], dim=2).mean(2)


def _add_to_others(streams: Tensor, y: Tensor) -> Tensor:
    """`y` (S, T, D) added to all streams but the first."""
    return torch.cat([streams[:, :, :1], streams[:, :, 1:] + y.unsqueeze(2)], dim=2)


MAPS: dict[str, Map] = {
    "add": _add,
    "mul": _align(_mul),
    "scale": _scale,
    "concat": _concat,
    "sinusoid": _sinusoid,
    "join": _join,
    "head_sum": _head_sum,
    "rated": _align(lambda attrs, x, rate, share: x * (1.0 + (rate - 1.0) * share)),
    "dot": _dot,
    **hyper.MAPS,
    **differential.MAPS,
    "softmax": masked_softmax,
    "softcap": _align(_softcap),
    "rmsnorm": _norm("rmsnorm"),
    "layernorm": _norm("layernorm"),
    "l2norm": _norm("l2norm"),
    "relu": _unary(functional.relu),
    "relu2": _unary(lambda x: functional.relu(x).square()),
    "gelu": _unary(functional.gelu),
    "gelu_tanh": _unary(_gelu_tanh),
    "silu": _unary(functional.silu),
    "sigmoid": _unary(torch.sigmoid),
    "tanh": _unary(torch.tanh),
    "softplus": _align(_softplus),
    "bounded_decay": _align(_bounded_decay),
    "xielu": _xielu,
    "swiglu": _gate(functional.silu),
    "geglu": _gate(functional.gelu),
    "geglu_tanh": _gate(_gelu_tanh),
    "reglu": _gate(functional.relu),
    "clamped_swiglu": _align(_clamped_swiglu),
    "situglu": _align(_situglu),
    "clamped_geglu": _align(_clamped_swiglu),
    "gate": _align(lambda attrs, x, g: x * torch.sigmoid(g)),
    "clip": _align(lambda attrs, x: x.clamp(-attrs["limit"], attrs["limit"])),
    "rope": _rope,
    "learned_rope": _learned_rope,
    "grown": _grown,
    "topk": moe.choose,
    "passed_share": moe.passed_share,
    "shared_weights": moe.shared_weights,
    "mul_groups": moe.multiply_groups,
    "dispatch": moe.dispatch,
    "combine": moe.combine,
    "altup_split": _altup_split,
    "altup_correct": _altup_correct,
    "altup_merge": _altup_merge,
}
"""Every function that a lowering may name."""
