"""Kernels by the part of the model that they belong to, under the names that people use."""

from __future__ import annotations

from archsim.graph.collectives import COLLECTIVES
from archsim.timing.step_time import KernelTime

_PARTS = {
    "ffn": "MLP", "attention": "attention projections", "cross_attention": "cross-attention projections",
    "mixer": "recurrent mixer", "indexer": "indexer",
}  # fmt: skip
_ENDS = {"embedding": "embedding", "head": "output head", "pooler": "pooler", "mlm_head": "MLM head"}


def part_of(op: KernelTime, phase: str = "decode") -> str:
    """The part of the model that a kernel belongs to."""
    words = op.path.split(".")
    if op.kind in COLLECTIVES:
        return COLLECTIVES[op.kind].label
    if op.kind == "attention":
        return "attention over cache" if phase == "decode" else "attention scores"
    if words[0] in _ENDS:
        return _ENDS[words[0]]
    if "moe" in words:
        return _expert_part(words)
    return next((_PARTS[word] for word in reversed(words[:-1]) if word in _PARTS), "norms and residuals")


def _expert_part(words: list[str]) -> str:
    if "shared" in words or words[-1].startswith("shared"):
        return "shared experts"
    if "dense" in words:
        return "dense MLP"
    return "router" if words[-1] in ("router", "top_k", "dispatch") else "experts"
