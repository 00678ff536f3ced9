"""Which keys a query sees, and what position adds to the scores of a (query, key) pair.

Distances are query position less key position, over (T, C). The keys of a cache are the latest ones, so the
last key is always the last query's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from archsim.backend.axes import Dims, align
from archsim.backend.run import Run, Value
from archsim.base.json_types import JsonMapping
from archsim.graph.graph import Op
from archsim.graph.step import Mask


def positions(past: int, new: int, keys: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Absolute positions of the queries (T, 1) and of the latest `keys` keys (1, C)."""
    end = past + new
    return torch.arange(past, end, device=device)[:, None], torch.arange(end - keys, end, device=device)[None]


def allowed_pairs(mask: Mask, past: int, new: int, keys: int, device: torch.device) -> Tensor:
    """The (T, C) pairs that `mask` lets through, but for an indexer's choice."""
    i, j = positions(past, new, keys, device)
    seen = (j <= i) if mask.causal else torch.ones_like(i - j, dtype=torch.bool)
    near = seen
    if mask.window:
        near = seen & (i - j < mask.window) if mask.causal else (i - j).abs() <= mask.window
    if mask.chunk:
        near = seen & (i // mask.chunk == j // mask.chunk)
    if mask.global_tokens:
        near = near | (seen & ((j < mask.global_tokens) | (i < mask.global_tokens)))
    if mask.vertical:
        near = near | (seen & ((j + 1) % mask.vertical == 0))
    if mask.prefix:
        near = near | ((j < mask.prefix) & (i < mask.prefix))
    return near


def pair_buckets(attrs: JsonMapping, buckets: int, past: int, new: int, device: torch.device) -> Tensor:
    """T5's bucket of every pair: near distances exact, far ones logarithmic, a half for each direction."""
    i, j = positions(past, new, past + new, device)
    ahead, offset = j - i, torch.zeros_like(j - i)
    if attrs["both_ways"]:
        buckets //= 2
        offset = (ahead > 0) * buckets
        distance = ahead.abs()
    else:
        distance = (-ahead).clamp(min=0)
    exact = buckets // 2
    spread = torch.log(distance.clamp(min=1).float() / exact) / math.log(attrs["max_distance"] / exact)
    far = (exact + (spread * (buckets - exact)).long()).clamp(max=buckets - 1)
    return offset + torch.where(distance < exact, distance, far)


def alibi_slopes(heads: int, device: torch.device) -> Tensor:
    """2^(-8 i / n) for head i of n; between powers of two, every other slope of the next one fills up."""
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    slopes += [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return torch.tensor(slopes, device=device)


def _distances(run: Run, value: Value) -> Tensor:
    new, keys = (value.x.shape[value.dims.index(d)] for d in ("T", "C"))
    i, j = positions(run.past, new, keys, value.x.device)
    return i - j


def _alibi(run: Run, op: Op, operands: list[Value]) -> Tensor:
    s, dims = operands[0]
    heads = s.shape[: dims.index("S")]
    slopes = alibi_slopes(math.prod(heads), s.device).reshape(*heads, 1, 1, 1)
    return -slopes * _distances(run, operands[0])


def _pair(run: Run, op: Op, operands: list[Value]) -> Tensor:
    (s, dims), (bias, bias_dims) = operands
    keys = s.shape[-1]
    return align(bias[..., bias.shape[-1] - keys :], bias_dims, dims)


def _key(run: Run, op: Op, operands: list[Value]) -> Tensor:
    return align(operands[1].x, operands[1].dims, operands[0].dims)


def log_distances(distance: Tensor, span: int, max_distance: int) -> Tensor:
    """DeBERTa-v2's buckets: distances up to span/2 as they are, farther ones by their logarithm, up to span."""
    middle = span // 2
    far = distance.abs().clamp(min=middle).float()
    steps = torch.ceil(torch.log(far / middle) / math.log((max_distance - 1) / middle) * (middle - 1))
    return torch.where(distance.abs() <= middle, distance, (steps.long() + middle) * distance.sign())


def _at_distance(run: Run, scores: Value, rows: Value, offset: int, buckets: tuple[int, int] | None = None) -> Tensor:
    """`rows` (queries or keys, heads, R) at R = distance + offset of every pair, laid out as `scores`."""
    by_key = "C" in rows.dims
    outer = tuple(d for d in scores.dims if d not in ("T", "C"))
    x = align(rows.x, rows.dims, (*outer, "C" if by_key else "T", "R"))
    key = ("distance", run.past, scores.x.shape[-2:], offset, x.shape[-1], buckets)

    def table() -> Tensor:
        near = _distances(run, scores)
        return ((near if buckets is None else log_distances(near, *buckets)) + offset).clamp(0, x.shape[-1] - 1)

    index = run.table(key, table)
    index = index.T if by_key else index
    found = x.gather(-1, index.expand(*x.shape[:-1], index.shape[1]))
    return found.transpose(-1, -2) if by_key else found


def _shift(run: Run, op: Op, operands: list[Value]) -> Tensor:
    """Row r of the position keys is distance r, or r - n where there are rows for both directions."""
    rows = operands[1].x.shape[-1]
    return _at_distance(run, operands[0], operands[1], relative_origin(run, rows))


def relative_origin(run: Run, rows: int) -> int:
    """The row of distance 0 in a table of relative positions: the first, or the middle of two-sided ones."""
    return 0 if rows == run.past + run.tokens.shape[1] else rows // 2


def _middle(run: Run, op: Op, operands: list[Value]) -> Tensor:
    buckets = (op.attrs["span"], op.attrs["max_distance"]) if "max_distance" in op.attrs else None
    return _at_distance(run, operands[0], operands[1], operands[1].x.shape[-1] // 2, buckets)


def _near(run: Run, op: Op, operands: list[Value]) -> Tensor:
    """Row r is the bias of keys r tokens back; later keys and those beyond the last row have none."""
    distance, rows = _distances(run, operands[0]), operands[1].x.shape[-1]
    bias = _at_distance(run, operands[0], operands[1], 0)
    return bias.masked_fill((distance < 0) | (distance >= rows), 0.0)


def _segment(run: Run, op: Op, operands: list[Value]) -> Tensor:
    """All tokens are of one segment here, which the first of the two embeddings stands for."""
    (_, dims), (x, x_dims) = operands
    return align(x.select(x_dims.index("Sg"), 0), tuple(d for d in x_dims if d != "Sg"), dims)


TERMS: dict[str, Callable[[Run, Op, list[Value]], Tensor]] = {
    "alibi": _alibi,
    "pair": _pair,
    "key": _key,
    "shift": _shift,
    "c2p": _middle,
    "p2c": _middle,
    "segment": _segment,
    "near": _near,
}
"""What is added to scores, in their dimensions up to broadcasting and before the op's `scale`."""


def masked_softmax(run: Run, op: Op, operands: list[Value], out: Dims) -> Tensor:
    """softmax over the keys that the mask allows; a `sinks` logit per head joins it and is dropped again."""
    s, dims = operands[0]
    x, hidden = s.float(), hidden_pairs(run, op, s.shape[-1])
    if hidden is not None:
        x = x.masked_fill(hidden, float("-inf"))
    if len(operands) > 1:
        sink = align(operands[1].x.float(), operands[1].dims, dims).expand(*x.shape[:-1], 1)
        return torch.cat([x, sink], dim=-1).softmax(-1)[..., :-1].to(s.dtype)
    return x.softmax(-1).to(s.dtype)


def hidden_pairs(run: Run, op: Op, keys: int) -> Tensor | None:
    """The pairs that a softmax leaves out: over (T, C), or (S, T, C) where an indexer chooses keys, or those after
    key/value and query heads where it chooses blocks; None without a mask.
    """
    mask: Mask | None = op.attrs["mask"]
    if mask is None:
        return None
    entries: Mask | None = op.attrs.get("entries")
    if entries is not None:
        return _beside_entries(run, op, mask, entries, keys)
    new, device = run.tokens.shape[1], run.tokens.device
    hidden = run.table((mask, run.past, new, keys), lambda: ~allowed_pairs(mask, run.past, new, keys, device))
    if mask.top_k and mask.block and not mask.local:
        hidden = hidden | ~_top_pools(run, run.values[op.attrs["index"]], keys, mask)
    elif mask.top_k and mask.block:
        hidden = hidden | ~_top_blocks(run.values[op.attrs["index"]], ~hidden, mask)
    elif mask.top_k:
        hidden = hidden | ~_top_keys(run.values[op.attrs["index"]], ~hidden, mask.top_k)
    return hidden


def _top_keys(scores: Tensor, seen: Tensor, top_k: int) -> Tensor:
    """The keys (S, T, C) that an indexer scores highest for each query, the earlier of equals."""
    ranked = scores.float().masked_fill(~seen, float("-inf"))
    best = ranked.sort(dim=-1, descending=True, stable=True).indices[..., :top_k]
    return torch.zeros_like(ranked).scatter(-1, best, 1.0) > 0


def _top_blocks(scores: Tensor, seen: Tensor, mask: Mask) -> Tensor:
    """The keys (K, 1, S, T, C) of the blocks that an indexer scores highest for each query; all queries are the latest
    ones, and their last blocks are among them.
    """
    new, keys = scores.shape[-2:]
    blocks = -(-keys // mask.block)
    ranked = torch.nn.functional.pad(
        scores.float().masked_fill(~seen, float("-inf")), (0, blocks * mask.block - keys), value=float("-inf")
    )
    best = torch.unflatten(ranked, -1, (blocks, mask.block)).amax(-1)
    own = torch.arange(keys - new, keys, device=scores.device) // mask.block
    last = (own[:, None] - torch.arange(mask.local, device=scores.device)).clamp(min=0)
    best = best.scatter(-1, last.expand(*best.shape[:-1], -1), float("inf"))
    chosen = best.topk(min(mask.top_k // mask.block, blocks), dim=-1).indices
    kept = torch.zeros_like(best).scatter(-1, chosen, 1.0).repeat_interleave(mask.block, dim=-1)[..., :keys] > 0
    return kept.unsqueeze(1)


def _top_pools(run: Run, scores: Tensor, keys: int, mask: Mask) -> Tensor:
    """The keys (S, T, C) of the complete blocks that an indexer scores highest for each query, and those of its block
    that is not complete. scores: (S, T, blocks).
    """
    new, device = scores.shape[1], scores.device
    complete = torch.arange(run.past + 1, run.past + new + 1, device=device)[:, None] // mask.block
    seen = torch.arange(scores.shape[-1], device=device) < complete
    kept = _top_keys(scores, seen, min(mask.top_k // mask.block, scores.shape[-1])) & seen
    kept = torch.nn.functional.pad(kept.repeat_interleave(mask.block, dim=-1), (0, keys % mask.block))
    return kept | (torch.arange(keys, device=device) >= complete * mask.block)


def _beside_entries(run: Run, op: Op, near: Mask, entries: Mask, keys: int) -> Tensor:
    """The pairs left out over keys of tokens and, behind them, entries that are complete, or chosen by an indexer."""
    new, device = run.tokens.shape[1], run.tokens.device
    complete = (run.past + new) // entries.ratio
    tokens = ~allowed_pairs(near, run.past, new, keys - complete, device)
    first = torch.arange(run.past + 1, run.past + new + 1, device=device)[:, None] // entries.ratio
    seen = torch.arange(complete, device=device) < first
    if not entries.top_k:
        return torch.cat([tokens, ~seen], dim=-1)
    scores = run.values[op.attrs["index"]]
    kept = _top_keys(scores, seen, min(entries.top_k, complete)) & seen if complete else scores > 0
    return torch.cat([tokens.expand(kept.shape[0], -1, -1), ~kept], dim=-1)
