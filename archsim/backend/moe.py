"""Mixture of experts: the choice of experts, their products, and the way back to the tokens."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.axes import Dims, contract
from archsim.backend.run import Routing, Run, Value
from archsim.backend.training import grouped_product
from archsim.base.json_types import JsonMapping
from archsim.blocks.moe import Router
from archsim.graph.graph import Op


def choose(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The router: (token, expert) pairs go to `run.routing`, their weights (M,) are the result."""
    router: Router = op.attrs["router"]
    logits = operands[0].x.flatten(0, 1).float()
    learned = [operand.x.float() for operand in operands[1:]]
    whole = learned.pop() if router.learned_scale else None
    factors = learned.pop() if router.expert_scale else None
    bias = learned[0] if learned else None
    if router.softcap is not None:
        logits = torch.tanh(logits / router.softcap) * router.softcap
    if router.choice == "expert":
        return _experts_choose(run, logits, router, op.attrs)
    if op.attrs["sinks"]:
        weights, expert = _beside_sinks(run, logits, bias, router, op.attrs["top_k"], op.attrs["sinks"])
    elif router.by_token and bias is not None:
        weights, expert = _looked_up(run, logits, bias, router)
    else:
        weights, expert = _tokens_choose(logits, bias, router, op.attrs["top_k"])
    if factors is not None:
        weights = weights * factors[expert]
    if whole is not None:
        weights = weights * whole
        run.sinks = None if run.sinks is None else run.sinks * whole
    token = torch.arange(logits.shape[0], device=logits.device)[:, None].expand_as(expert).flatten()
    if router.pass_through:
        return _without_passed(run, token, expert, weights, logits.shape[1], router.pass_through)
    run.routing = Routing(token, expert.flatten())
    if op.attrs["capacity"] is not None:
        return _limit_capacity(run, weights.flatten(), logits.shape[1], op.attrs["capacity"])
    return weights.flatten().to(run.dtype)


def _without_passed(run: Run, token: Tensor, expert: Tensor, weights: Tensor, experts: int, without: int) -> Tensor:
    """Weights of the pairs whose expert has weights; those of the last `without` add up to each token's share."""
    known = experts - without
    passed = expert >= known
    run.passed = (weights * passed).sum(-1)
    kept = ~passed.flatten()
    if kept.is_meta:  # shapes alone: pairs spread evenly
        kept = torch.arange(kept.numel() * known // experts, device=kept.device)
    run.routing = Routing(token[kept], expert.flatten()[kept])
    return weights.flatten()[kept].to(run.dtype)


def _beside_sinks(
    run: Run, logits: Tensor, bias: Tensor | None, router: Router, top_k: int, sinks: int
) -> tuple[Tensor, Tensor]:
    """Weights and ids (tokens, top_k) of the chosen; those of the last `sinks` logits sum to 1 with them, and wait."""
    scores = _scores(logits, router)
    routed = scores[:, :-sinks]
    expert = (routed if bias is None else routed + bias[:-sinks]).topk(top_k, dim=-1).indices
    weights = torch.cat([routed.gather(1, expert), scores[:, -sinks:]], dim=1)
    if router.normalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    weights = weights * router.scale
    run.sinks = weights[:, top_k:]
    return weights[:, :top_k], expert


def shared_weights(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The weight of each shared expert (S, T, Sn)."""
    assert run.sinks is not None
    return run.sinks.reshape(*run.tokens.shape, -1).to(run.dtype)


def multiply_groups(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """Runs of the last dimension, each times its own weight."""
    x, weights = operands[0].x, operands[1].x
    groups = torch.unflatten(x, -1, (weights.shape[-1], -1)) * weights.unsqueeze(-1)
    return groups.flatten(-2)


def passed_share(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """How much of itself each token gets back (S, T, 1)."""
    assert run.passed is not None
    return run.passed.reshape(*run.tokens.shape, 1).to(run.dtype)


def _limit_capacity(run: Run, weights: Tensor, experts: int, capacity: int) -> Tensor:
    """Weights when an expert takes the first `capacity` rows of a sequence that want it.

    Of every sequence as many rows are kept as all experts can take; those beyond an expert's own capacity weigh 0.
    """
    assert run.routing is not None
    token, expert, weight = (
        torch.unflatten(x, 0, (run.tokens.shape[0], -1)) for x in (run.routing.token, run.routing.expert, weights)
    )
    wanted = functional.one_hot(expert, experts)
    place = (wanted.cumsum(1) * wanted).sum(-1)
    beyond = place > capacity
    order = beyond.long().argsort(dim=1, stable=True)[:, : experts * capacity]
    run.routing = Routing(token.gather(1, order).flatten(), expert.gather(1, order).flatten())
    return weight.masked_fill(beyond, 0.0).gather(1, order).flatten().to(run.dtype)


def _scores(logits: Tensor, router: Router) -> Tensor:
    if router.score == "sqrt_softplus":
        return functional.softplus(logits).sqrt()
    return logits.softmax(-1) if router.score == "softmax" else logits.sigmoid()


def _looked_up(run: Run, logits: Tensor, table: Tensor, router: Router) -> tuple[Tensor, Tensor]:
    """Weights and ids (tokens, top_k): a table (vocabulary, top_k) holds the experts of every token."""
    tokens = run.tokens.flatten()
    expert = table[tokens.where(tokens < table.shape[0], 0)].long() % logits.shape[1]
    weights = _scores(logits, router).gather(1, expert)
    if router.normalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * router.scale, expert


def _tokens_choose(logits: Tensor, bias: Tensor | None, router: Router, top_k: int) -> tuple[Tensor, Tensor]:
    """Weights and ids (tokens, top_k). Only the choice sees `bias`; weights are the plain scores."""
    if router.order == "topk_then_score":
        expert = (logits if bias is None else logits + bias).topk(top_k, dim=-1).indices
        weights = _scores(logits.gather(1, expert), router)
    else:
        scores = _scores(logits, router)
        seen = scores if bias is None else scores + bias
        expert = _within_groups(seen, router).topk(top_k, dim=-1).indices
        weights = scores.gather(1, expert)
    if router.normalize:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * router.scale, expert


def _within_groups(scores: Tensor, router: Router) -> Tensor:
    """Scores with all but the best groups of experts left out."""
    if router.groups == 1:
        return scores
    grouped = torch.unflatten(scores, -1, (router.groups, -1))
    two = min(2, grouped.shape[-1])
    rank = grouped.amax(-1) if router.group_score == "max" else grouped.topk(two, dim=-1).values.sum(-1)
    best = rank.topk(router.top_groups, dim=-1).indices
    kept = torch.zeros_like(rank).scatter(1, best, 1.0).unsqueeze(-1)
    return grouped.masked_fill(kept == 0, float("-inf")).flatten(1)


def _experts_choose(run: Run, logits: Tensor, router: Router, attrs: JsonMapping) -> Tensor:
    """Every expert takes its best tokens: `capacity` of each sequence, or `top_k` per token among them all."""
    tokens, experts = logits.shape
    groups = 1 if attrs["capacity"] is None else run.tokens.shape[0]
    size = tokens // groups
    pairs = size * attrs["top_k"] if attrs["capacity"] is None else experts * min(attrs["capacity"], size)
    weights, token = torch.unflatten(_scores(logits, router), 0, (groups, size)).topk(-(-pairs // experts), dim=1)
    first = torch.arange(0, tokens, size, device=logits.device)[:, None, None]
    expert = torch.arange(experts, device=logits.device).expand(token.shape)
    token, expert, weights = (x.flatten(1)[:, :pairs].flatten() for x in (token + first, expert, weights))
    run.routing = Routing(token, expert)
    return (weights * router.scale).to(run.dtype)


def dispatch(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The rows (M, D) that experts work on."""
    assert run.routing is not None
    rows = operands[0].x.flatten(0, 1)[run.routing.token]
    return rows * operands[1].x[:, None] if op.attrs["scaled"] else rows


def combine(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """The sum of every token's experts, by their weights, over (S, T, D)."""
    assert run.routing is not None
    rows = operands[0].x
    rows = rows * operands[1].x[:, None] if op.attrs["scaled"] else rows
    size = run.tokens.shape
    total = torch.zeros(size[0] * size[1], rows.shape[1], dtype=rows.dtype, device=rows.device)
    return torch.unflatten(total.index_add(0, run.routing.token, rows), 0, size)


def expert_product(run: Run, x: Tensor, w: Tensor) -> Tensor:
    """x (M, in) times each row's own expert's matrix, w (E, in, out): 2·M·in·out FLOP."""
    assert run.routing is not None
    expert = run.routing.expert
    if run.dialect == "fused":
        return grouped_product(x, w, expert)
    if not run.fast and not run.dialect:
        return contract(x, ("M", "in"), w[expert], ("M", "in", "out"), ("M", "out"))
    order = expert.argsort(stable=True)
    counts = torch.bincount(expert, minlength=w.shape[0]).tolist()
    matrices = w.unbind(0)  # whose gradients are put together once, where those of `w[e]` are each as large as w
    parts = [rows @ matrices[e] for e, rows in enumerate(torch.split(x[order], counts)) if len(rows)]
    return torch.empty_like(x[:, :1].expand(-1, w.shape[2])).index_copy(0, order, torch.cat(parts))
