"""Calls of attention over chosen or compressed entries: an indexer's scores, the choice by them, and attention.

The graph says what is kept (`keeps` of the op that makes the scores, a `Mask`) and over what: entries of several tokens
each, tokens, or blocks of them. Tables count tokens of the layers that were measured, so a call's `seq_kv` is the
length at which such a layer would have as many entries.
"""

from __future__ import annotations

from math import prod

from archsim.base.number import Num, maximum, minimum
from archsim.counts.graph_counts import op_flops
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel, Traffic
from archsim.graph.step import Mask, Step
from archsim.graph.tensor import Tensor, numel
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.sparse_attention import WINDOW, CsaLogits, CsaTopk, DsaLogits, DsaTopk, HcaAttn

NO_PAIRS = 1e-9
"""Pairs of a step that has none yet (prompts shorter than an entry), so that there is still one list of each row."""


def score_calls(kernel: Kernel, moved: Traffic, step: Step) -> list[KernelCall]:
    """The scores of all entries and the choice of the best, which is a launch of its own; none for other kernels."""
    last = next((op for op in kernel.ops if "keeps" in op.attrs), None)
    if last is None:
        return []
    keeps: Mask = last.attrs["keeps"]
    logits, choice = (CsaLogits, CsaTopk) if keeps.ratio else (DsaLogits, DsaTopk)
    block = maximum(keeps.block, 1)
    products = [op for op in kernel.ops if op.kind == "contract"]
    query, key = products[0].reads
    written = numel(last.writes[0]) / block  # of a block only its best score
    pairs = products[0].writes[0].axes["P"]
    batch = step.n_seqs * (query.axes["T"] / step.tokens)
    each = {"batch": batch, "seq_q": step.tokens / step.n_seqs}
    length = key.axes["C"] / batch * logits.tokens_per_entry
    dims = {
        **each, "seq_kv": length, **_index_heads(products[0]), "pairs": pairs,
        "scores": written, "flops": sum([op_flops(op) for op in products]), "kv_bytes": moved.state,
        "hbm_bytes": moved.total,
    }  # fmt: skip
    lists = maximum(written * block, NO_PAIRS) / maximum(pairs, NO_PAIRS)
    chosen = {
        **each, "batch": batch * lists, "seq_kv": length / block, "topk": keeps.top_k / block, "pairs": written,
        "hbm_bytes": 0,
    }  # fmt: skip
    dtype, cache = stored_as(key.tensor), stored_as(key.tensor)
    return [
        KernelCall(logits.kernel_class, dtype, cache, dims=dims),
        KernelCall(choice.kernel_class, dtype, cache, dims=chosen),
    ]


def _index_heads(scores: Op) -> dict[str, Num]:
    """Index heads, and the width of their one key."""
    query, key = scores.reads
    width = prod([n for axis, n in key.axes.items() if axis != "C"])
    return {"heads": numel(query) / query.axes["T"] / width, "head_dim": width}


def entry_attention_call(
    counted: dict[str, Num], part: tuple[Num, Num], masks: tuple[Mask, Mask | None], width: Num, cache: str
) -> KernelCall:
    """Attention of every row over the last tokens and over entries, each of them key and value at once.

    counted: batch, heads, pairs and bytes. part: new tokens and length of a sequence. masks: of tokens and of entries.
    width: of an entry.
    """
    (new, length), (near, far) = part, masks
    seen: Num = minimum(length, near.window) if near.window else length
    places: Num = near.window or length
    if far is not None:
        entries = length / far.ratio
        entries = minimum(entries, far.top_k) if far.top_k else entries
        seen, places = seen + entries, places + entries
    alike = maximum((places - WINDOW) * HcaAttn.tokens_per_entry, minimum(seen, WINDOW))
    dims = {**counted, "seq_q": new, "seq_kv": alike, "head_dim": width, "places": places}
    return KernelCall(HcaAttn.kernel_class, "bf16", cache, dims=dims)


def stored_as(cache: Tensor) -> str:
    """The tables' name for the format of a cache."""
    bits = cache.format.bits
    return "bf16" if bits > 12 else "fp8" if bits > 6.5 else "int4"
