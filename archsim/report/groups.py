"""Kernels under the names that people use for the parts of a model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from archsim.sim.phases import OpTime, Phase, group

_COLLECTIVES = {
    "all_reduce": "all-reduce", "all_gather": "all-gather", "all_to_all": "all-to-all",
    "send": "send to the next stage",
}  # fmt: skip
_PARTS = {
    "ffn": "MLP", "attention": "attention projections", "cross_attention": "cross-attention projections",
    "mixer": "recurrent mixer", "indexer": "indexer",
}  # fmt: skip
_ENDS = {"embedding": "embedding", "head": "output head", "pooler": "pooler", "mlm_head": "MLM head"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Kernels that belong together. Times are of one step, bytes and FLOP of one device."""

    name: str
    count: int
    ideal_s: float
    expected_s: float
    flops: float
    bytes: float
    comm_bytes: float
    bound: str

    def to_dict(self) -> dict[str, Any]:
        """Raw numbers."""
        return {
            "name": self.name, "count": self.count, "ideal_s": self.ideal_s, "expected_s": self.expected_s,
            "flops": self.flops, "bytes": self.bytes, "comm_bytes": self.comm_bytes, "bound": self.bound,
        }  # fmt: skip


def by_part(phase: Phase) -> list[Group]:
    """The phase's kernels by part of the model, the longest first."""
    found: dict[str, list[OpTime]] = {}
    for op in phase.ops:
        found.setdefault(part_of(op, phase.name), []).append(op)
    return _sorted(found, collective_counts=True)


def by(phase: Phase, what: str) -> list[Group]:
    """The phase's kernels by op, block, kind or phase, the longest first."""
    if what == "phase":
        return [_summed(phase.name, list(phase.ops))]
    return _sorted(group(phase.ops, what))


def part_of(op: OpTime, phase: str = "decode") -> str:
    """The part of the model that a kernel belongs to."""
    words = op.path.split(".")
    if op.kind in _COLLECTIVES:
        return _COLLECTIVES[op.kind]
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


def _sorted(found: dict[str, list[OpTime]], collective_counts: bool = False) -> list[Group]:
    groups = [_summed(name, ops) for name, ops in found.items()]
    if collective_counts:
        names = set(_COLLECTIVES.values())
        groups = [_summed(f"{g.name} ×{g.count:,}", found[g.name]) if g.name in names else g for g in groups]
    return sorted(groups, key=lambda g: (-g.expected_s, g.name))


def _summed(name: str, ops: Iterable[OpTime]) -> Group:
    ops = list(ops)
    shares: dict[str, float] = {}
    for op in ops:
        shares[op.bound] = shares.get(op.bound, 0.0) + float(op.ideal_s)
    return Group(
        name=name, count=round(sum(op.count for op in ops)), ideal_s=float(sum(op.ideal_s for op in ops)),
        expected_s=float(sum(op.expected_s for op in ops)), flops=sum(op.flops for op in ops),
        bytes=sum(op.bytes for op in ops), comm_bytes=sum(op.comm_bytes for op in ops),
        bound=max(shares, key=lambda key: shares[key]),
    )  # fmt: skip
