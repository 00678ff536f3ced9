"""Maps as fused kernels run them in training: they keep their inputs, and norms one statistic per row."""

from __future__ import annotations

import torch
from torch import Tensor

from archsim.backend.axes import Dims, align
from archsim.backend.maps import MAPS, Map
from archsim.backend.run import Run, Value
from archsim.backend.training import Body, combine_rows, norm, recomputed
from archsim.graph.graph import Op

KEEP_INPUTS = frozenset({
    "relu2", "softcap", "swiglu", "geglu", "geglu_tanh", "reglu", "gate", "xielu", "clamped_swiglu", "clamped_geglu",
    "altup_split", "altup_correct", "altup_merge", "softplus", "bounded_decay",
})  # fmt: skip
"""Functions whose own PyTorch operations would keep more than their inputs."""

NORMS = frozenset({"rmsnorm", "layernorm", "l2norm"})


ALWAYS_FUSED = frozenset({"hyper_mixing", "hyper_collapse", "hyper_expand", "hyper_head", "residual_mix", "situglu"})
"""Functions that run as one kernel in every implementation."""


def fused_map(op: Op, dialect: str) -> Map | None:
    """The fused implementation of a map in a dialect; None where PyTorch's own operation runs, or keeps no more."""
    if op.fn in ALWAYS_FUSED:
        return _inputs_alone
    if dialect != "fused":
        return None
    if op.fn in NORMS:
        return _inputs_alone if op.attrs.get("groups") else _norm
    if op.fn == "combine":
        return _combine
    if op.fn == "topk":
        return _choose
    return _inputs_alone if op.fn in KEEP_INPUTS else None


def _norm(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    x, dims = operands[0]
    over = tuple(dims.index(axis) for axis in op.attrs["over"])
    learned = [align(v.x, v.dims, dims) for v in operands[1:]]
    return norm(x, learned, over, op.attrs["eps"], op.fn == "layernorm", float(op.attrs.get("offset", False)))


def _body(bare: Run, op: Op, operands: list[Value], out: Dims) -> tuple[Body, list[Tensor]]:
    names = [v.dims for v in operands]  # the body lives until the backward, and must hold no tensor

    def body(*inputs: Tensor) -> Tensor:
        values = [Value(x, dims) for x, dims in zip(inputs, names, strict=True)]
        return MAPS[op.fn](bare, op, values, out)

    return body, [v.x for v in operands]


def _inputs_alone(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    body, inputs = _body(run.without_values(), op, operands, out)
    return recomputed(body, inputs)


def _combine(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    assert run.routing is not None
    sequences, length = run.tokens.shape
    weights = operands[1].x if op.attrs["scaled"] else None
    y = combine_rows(operands[0].x, weights, run.routing.token, sequences * length)
    return torch.unflatten(y, 0, (sequences, length))


def _choose(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The router keeps its logits and which experts it chose."""
    bare = run.without_values()
    body, inputs = _body(bare, op, operands, out)
    y = recomputed(body, inputs, lambda: [] if bare.routing is None else [bare.routing.expert])
    run.passed, bare.passed = bare.passed, None
    run.sinks, bare.sinks = bare.sinks, None
    run.routing, bare.routing = bare.routing, None  # the body lives until the backward
    return y
