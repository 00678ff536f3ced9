"""Softmax attention as one fused kernel, where nothing but a mask stands between its two products."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.axes import Dims, align, arrange, dims_of
from archsim.backend.run import RULES, Run, Value, kernel
from archsim.backend.terms import allowed_pairs
from archsim.backend.trained_kernels import train_attention
from archsim.base.json_types import JsonObject
from archsim.graph.graph import Block, Op
from archsim.graph.step import Mask

BOTH_WAYS = Mask(causal=False)
"""A mask that lets every pair through."""
HALVES = (torch.float16, torch.bfloat16)


@kernel("attention")
def run_fused_attention(run: Run, block: Block) -> bool:
    """torch's scaled_dot_product_attention in place of the body; False where the body is not plain."""
    if run.dialect:
        return train_attention(run, block)
    if not run.fused or not _plain(block, sinks=_has_flash(run)):
        return False
    *scores, read = [op for op in _ops(block) if op.kind == "contract"]
    biases = [op for op in _ops(block) if op.kind == "gather"]
    (softmax,) = [op for op in _ops(block) if op.fn == "softmax"]
    heads = _heads(dims_of(softmax.writes[0].tensor.axes))
    keys = [run.read(op.reads[1]) for op in scores]
    values = run.read(read.reads[1])
    shared = tuple(d for d in heads if any(d in v.dims for v in (*keys, values)))
    q = _concat([_queries(run, op, heads) for op in scores])
    k = _concat(_repeat_kv([_by_head(v, shared) for v in keys]))
    v = _by_head(values, shared)
    v = v.expand(*k.shape[:-1], -1)
    mask, scale = softmax.attrs["mask"], scores[0].attrs["scale"]
    sinks = run.read(softmax.reads[1]).x.flatten() if len(softmax.reads) > 1 else None
    if biases:
        y = _attend_biased(run, mask, (q, k, v), scale, [_bias(run, op, heads) for op in biases])
    elif sinks is not None or (_has_flash(run) and _is_banded(mask, k.shape[2]) and q.shape[-1] == v.shape[-1]):
        y = _flash(mask, q, k, v, scale, sinks)
    else:
        y = _attend(run, mask, q, k, v, scale)
    out = dims_of(read.writes[0].tensor.axes)
    sizes = run.read(scores[0].reads[0])
    y = torch.unflatten(y, 1, [sizes.x.shape[sizes.dims.index(d)] for d in heads])
    run.write(read.writes[0], arrange(y, ("S", *heads, "T", out[-1]), out))
    return True


def _ops(block: Block) -> list[Op]:
    return [op for op in block.body if isinstance(op, Op)]


def _plain(block: Block, sinks: bool) -> bool:
    """Whether the body is products, their sum, and a softmax without an indexer's choice, or sinks unless allowed."""
    for op in _ops(block):
        if op.kind == "contract" or op.attrs.get("index") == "t5" or (op.fn == "add" and _adds_scores(op)):
            continue
        if op.fn != "softmax" or (op.attrs["mask"] and op.attrs["mask"].top_k):
            return False
        if len(op.reads) > 1 and not (sinks and _is_banded(op.attrs["mask"], 0)):
            return False
    return len(_ops(block)) == len(block.body)


def _adds_scores(op: Op) -> bool:
    """Whether a sum is of scores, or of scores and a number for each head and pair."""
    return bool(op.attrs.get("term", "pair") == "pair")


def _bias(run: Run, op: Op, heads: Dims) -> Tensor:
    """(1 or S, heads, T, C): what is added to the scores of every pair."""
    RULES[op.kind](run, op)
    use = op.writes[0]
    bias = run.values.pop(use.tensor.name)
    return arrange(bias, dims_of(use.tensor.axes), ("S", *heads, "T", "C")).flatten(1, len(heads))


def _attend_biased(
    run: Run, mask: Mask | None, operands: tuple[Tensor, Tensor, Tensor], scale: float, biases: list[Tensor]
) -> Tensor:
    """Attention with numbers added to the scores, which the kernel takes as its mask."""
    q, k, v = operands
    bias = biases[0] if len(biases) == 1 else torch.stack(biases).sum(0)
    if mask is not None and mask != BOTH_WAYS and not (q.shape[2] == 1 and _only_causal(mask, k.shape[2])):
        seen = allowed_pairs(mask, run.past, q.shape[2], k.shape[2], q.device)
        bias = bias.masked_fill(~seen, -torch.inf)
    return functional.scaled_dot_product_attention(
        q, k, v, attn_mask=bias.to(q.dtype), scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


def _heads(dims: Dims) -> Dims:
    return tuple(d for d in dims if d not in ("S", "T", "C"))


def _queries(run: Run, op: Op, heads: Dims) -> Tensor:
    """(S, heads, T, H)"""
    x, dims = run.read(op.reads[0])
    (inner,) = (d for d in dims if d not in ("S", "T", *heads))
    return arrange(x, dims, ("S", *heads, "T", inner)).flatten(1, len(heads))


def _by_head(value: Value, heads: Dims) -> Tensor:
    """(S, heads, C, H), one head where a key has none of its own."""
    x, dims = value
    (inner,) = (d for d in dims if d not in ("S", "C", *heads))
    y = align(x, dims, ("S", *heads, "C", inner))
    return y.flatten(1, len(heads)) if heads else y.unsqueeze(1)


def _concat(xs: list[Tensor]) -> Tensor:
    """Side by side; a single one as it is, since a copy of a cache would be read again."""
    return xs[0] if len(xs) == 1 else torch.cat(xs, dim=-1)


def _repeat_kv(xs: list[Tensor]) -> list[Tensor]:
    """Keys with as many heads as the one with most."""
    heads = max(x.shape[1] for x in xs)
    return [x.expand(-1, heads, -1, -1) for x in xs]


def _attend(run: Run, mask: Mask | None, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    new, keys = q.shape[2], k.shape[2]
    options: JsonObject = {"scale": scale, "enable_gqa": q.shape[1] != k.shape[1]}
    if mask is None or mask == BOTH_WAYS or (_only_causal(mask, keys) and new == 1):
        if new == 1 and q.shape[1] != k.shape[1] and (q.shape[-1] != v.shape[-1] or not q.is_cuda):
            return _heads_as_rows(q, k, v, scale)
        if new == 1 and q.device.type == "cpu" and q.dtype in HALVES and q.shape[-1] == v.shape[-1]:
            return _two_rows(q, k, v, scale)
        return functional.scaled_dot_product_attention(q, k, v, **options)
    if q.device.type == "cpu" and q.shape[-1] > v.shape[-1]:
        wide = _attend(run, mask, q, k, _padded(v, q.shape[-1]), scale)
        return wide[..., : v.shape[-1]]
    if _only_causal(mask, keys) and new == keys:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, **options)
    seen = allowed_pairs(mask, run.past, new, keys, q.device)
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, **options)


def _padded(v: Tensor, width: int) -> Tensor:
    """Values as wide as keys: torch's fused kernel of a processor wants them alike, and without it every score is
    written down.
    """
    return functional.pad(v, (0, width - v.shape[-1]))


def _heads_as_rows(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """One token's heads that share a key head as rows of one head. Where keys and values differ in width no kernel
    takes them as they are, and torch would copy the key head for each of them. On a processor a key head is read once
    so: in bf16 each row of its own took five to ten times as long (torch 2.13).
    """
    rows = torch.unflatten(q.squeeze(2), 1, (k.shape[1], -1))
    return functional.scaled_dot_product_attention(rows, k, v, scale=scale).flatten(1, 2).unsqueeze(2)


def _two_rows(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """A lone row with a second one of zeros behind it: a processor's kernel takes one row of 16 bits by a slow path,
    0.4 of whose time two rows take (24 heads of 64 over 513 keys, torch 2.13).
    """
    return functional.scaled_dot_product_attention(functional.pad(q, (0, 0, 0, 1)), k, v, scale=scale)[:, :, :1]


def _has_flash(run: Run) -> bool:
    """Whether torch's FlashAttention, with a window and with the sum of the softmax, runs here."""
    return run.tokens.is_cuda and run.dtype in HALVES


def _is_banded(mask: Mask | None, keys: int) -> bool:
    """Whether a mask is causal with nothing but a window, and the window shorter than so many keys."""
    if mask is None or not mask.causal or replace(mask, window=0) != Mask():
        return False
    return not keys or 0 < mask.window < keys


def _flash(mask: Mask, q: Tensor, k: Tensor, v: Tensor, scale: float, sinks: Tensor | None) -> Tensor:
    """FlashAttention (arXiv:2307.08691) with a window; a sink is one more term in the softmax's sum:
    out · e^lse / (e^lse + e^sink).
    """
    new, keys = q.shape[2], k.shape[2]
    band = mask.window if 0 < mask.window < keys else 0
    out, lse, *_ = torch.ops.aten._flash_attention_forward(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), None, None, new, keys, 0.0, new > 1, False,
        scale=scale, window_size_left=band - 1 if band else None, window_size_right=0 if band else None,
    )  # fmt: skip
    if sinks is not None:
        share = torch.sigmoid(lse - sinks.float()[:, None]).transpose(1, 2).unsqueeze(-1)
        out = (out * share).to(out.dtype)
    y: Tensor = out.transpose(1, 2)
    return y


def _only_causal(mask: Mask, keys: int) -> bool:
    """Whether a mask is the plain triangle for so many keys."""
    short = mask.window >= keys
    return replace(mask, window=0 if short else mask.window) == Mask()
