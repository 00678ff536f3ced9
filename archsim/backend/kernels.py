"""Rules for the op kinds that move or multiply data: contract, gather, append, view, select, map, scan."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

import archsim.backend.moe as moe
from archsim.backend.axes import Dims, contract, dims_of
from archsim.backend.fused_maps import fused_map
from archsim.backend.maps import MAPS
from archsim.backend.run import Run, Value, rule
from archsim.backend.ssd import SCANS
from archsim.backend.terms import pair_buckets
from archsim.backend.training import product
from archsim.graph.graph import Op
from archsim.spec.model import NGrams


@rule("contract")
def _contract(run: Run, op: Op) -> None:
    """One (batched) matrix product, times the op's `scale`."""
    if op.fn == "causal_conv":
        _causal_conv(run, op)
        return
    a, b = op.reads
    if "E" in b.tensor.axes and "M" in a.tensor.axes:
        y = moe.expert_product(run, run.read(a).x, run.read(b).x)
    else:
        (x, x_dims), (w, w_dims) = run.read(a), run.read(b)
        function = product if run.dialect else contract
        y = function(x, x_dims, w.to(x.dtype), w_dims, dims_of(op.writes[0].tensor.axes))
    scale = op.attrs.get("scale")
    run.write(op.writes[0], y if scale is None or scale == 1.0 else y * scale)


def _causal_conv(run: Run, op: Op) -> None:
    """A depthwise convolution along time. A prefill pads both ends, a later step has the inputs before it."""
    (x, _), (w, _), (state, _) = (run.read(use) for use in op.reads)
    taps = w.shape[-1]
    flat = x.flatten(2).transpose(1, 2)
    before = torch.cat([state.flatten(1, -2).to(x.dtype), flat], dim=2)
    kernel = w.reshape(-1, 1, taps)
    channels = flat.shape[1]
    if run.past == 0:
        y = functional.conv1d(flat, kernel, padding=taps - 1, groups=channels)[..., : flat.shape[2]]
    else:
        y = functional.conv1d(before, kernel, groups=channels)
    y = y.contiguous() if run.dialect else y  # the cut-off padding is not kept
    kept = before[..., before.shape[2] - (taps - 1) :]
    run.write(op.writes[0], y.transpose(1, 2).reshape(x.shape))
    run.write(op.writes[1], kept.reshape(state.shape))


@rule("map")
def _map(run: Run, op: Op) -> None:
    """A function of the table `MAPS`, its operands read by name."""
    pairs = any("M" in use.tensor.axes for use in op.reads)
    operands = [_by_pair(run, run.read(use)) if pairs else run.read(use) for use in op.reads]
    out = dims_of(op.writes[0].tensor.axes)
    function = fused_map(op, run.dialect) if run.dialect else None
    run.write(op.writes[0], (function or MAPS[op.fn])(run, op, operands, out))


def _by_pair(run: Run, value: Value) -> Value:
    """What belongs to an expert, once for every (token, expert) pair."""
    if "E" not in value.dims:
        return value
    assert run.routing is not None
    return Value(value.x[run.routing.expert], tuple("M" if d == "E" else d for d in value.dims))


@rule("scan")
def _scan(run: Run, op: Op) -> None:
    """A recurrence along time: writes its output and the state after the last token."""
    y, state = SCANS[op.fn](run, op)
    run.write(op.writes[0], y)
    run.write(op.writes[1], state)


@rule("gather")
def _gather(run: Run, op: Op) -> None:
    """Rows of a table by token id, by position, or by the distance of a pair."""
    table, index = run.read(op.reads[0]).x, op.attrs["index"]
    out = dims_of(op.writes[0].tensor.axes)
    if index == "t5":
        y = _pair_rows(run, table, op, out)
    else:
        y = functional.embedding(_ids(run, op, table.shape[0]), table.flatten(1))
        y = torch.unflatten(y, -1, table.shape[1:])
    scale = op.attrs.get("scale")
    run.write(op.writes[0], y if scale is None else y * scale)


def _ids(run: Run, op: Op, rows: int) -> Tensor:
    """Row numbers over (S, T), or (S, T, tables) of n-grams."""
    tokens, index = run.tokens, op.attrs["index"]
    if index == "zero":
        return torch.zeros_like(tokens)
    if index == "ngram":
        return ngram_rows(tokens, op.attrs["ngrams"], op.attrs["vocabulary"])
    if index == "position":
        first = run.past + op.attrs.get("offset", 0)
        count = int(op.writes[0].tensor.axes["T"]) // tokens.shape[0]
        made = run.table(("position", first, count), lambda: torch.arange(first, first + count, device=tokens.device))
        return made.expand(tokens.shape[0], count)
    if op.name.startswith("mtp."):
        # The last tokens' successors are not known: what stands in for them reaches no position before.
        tokens = tokens.roll(-1 - run.index.get("mtp", 0), dims=1)
    return tokens.where(tokens < rows, 0)


def ngram_rows(tokens: Tensor, ngrams: NGrams, vocabulary: int) -> Tensor:
    """Rows (S, T, tables) in one table of all: the last tokens as digits of a number, modulo each table's rows. Tokens
    before those of the step count as 0.
    """
    found, first = [], 0
    for i, size in enumerate(map(int, ngrams.rows(vocabulary))):
        row = torch.zeros_like(tokens)
        for back in range(i // ngrams.tables + 2):
            before = functional.pad(tokens, (back, 0))[:, : tokens.shape[1]]
            row = (row + before * pow(vocabulary, back, size)) % size
        found.append(row + first)
        first += size
    return torch.stack(found, dim=-1)


def _pair_rows(run: Run, table: Tensor, op: Op, out: Dims) -> Tensor:
    """One scalar per head for every (query, key) pair: (heads ..., 1, T, C)."""
    key = ("t5", op.attrs["both_ways"], op.attrs["max_distance"], table.shape[0], run.past, run.tokens.shape[1])
    index = run.table(key, lambda: pair_buckets(op.attrs, table.shape[0], run.past, run.tokens.shape[1], table.device))
    y = table[index].movedim((0, 1), (-2, -1))
    return y.unsqueeze(out.index("S"))


@rule("append")
def _append(run: Run, op: Op) -> None:
    """New tokens behind the cached ones; the cache is cut to size when the step is over."""
    new, cache = run.read(op.reads[0]).x, run.read(op.writes[0]).x
    if op.attrs.get("source"):
        run.cache.source = new.shape[1]
        run.write(op.writes[0], new)
        return
    run.write(op.writes[0], torch.cat([cache, new.to(cache.dtype)], dim=1) if cache.shape[1] else new.to(cache.dtype))


@rule("view")
def _view(run: Run, op: Op) -> None:
    """Other names for the same numbers; without a result, weights that a step does not touch."""
    if not op.writes:
        return
    x = run.read(op.reads[0]).x
    axes = op.writes[0].tensor.axes
    if "stride" in op.attrs:
        x = _columns(x, int(axes["Ck"]), int(op.attrs["stride"]))
    run.write(op.writes[0], x)


def _columns(x: Tensor, taps: int, stride: int) -> Tensor:
    """What a convolution along time sums over: (S, T, channels) to (S, T / stride, taps, channels), with zeros at both
    ends.
    """
    padded = functional.pad(x, (0, 0, (taps - 1) // 2, taps // 2))
    return padded.unfold(1, taps, stride).transpose(-1, -2)


@rule("select")
def _select(run: Run, op: Op) -> None:
    """A slice: the last token, the first tokens, the first entry or the rest of an axis, or the next entry."""
    x, dims = run.read(op.reads[0])
    out, how = dims_of(op.writes[0].tensor.axes), op.attrs["how"]
    gone = next((d for d in dims if d not in out), "T")
    i = dims.index(gone)
    if how == "next":
        y = x.select(i, run.count(op.reads[0].tensor.name))
    elif how == "rest":
        y = x.narrow(i, 1, x.shape[i] - 1)
    elif gone != "T":
        y = x.select(i, 0)
    else:
        count = max(int(op.writes[0].tensor.axes["T"]) // x.shape[0], 1)
        y = x.narrow(i, x.shape[i] - 1 if how == "last" else 0, count)
    run.write(op.writes[0], y)
