"""A model of the same kinds and patterns, small enough to run anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

if TYPE_CHECKING:
    from archsim.spec.model import Model

WIDTH = 64
HEADS = 4
D_HEAD = 16
REPEATS = 2
EXPERTS = 8
VOCABULARY = 128
CONTEXT = 64
WINDOW = 8

LIMITS = {
    "repeat": REPEATS, "vocab_size": VOCABULARY, "rows": VOCABULARY, "max_context": CONTEXT, "d_ff": 64,
    "factor": 32, "d_head": D_HEAD, "d_head_v": D_HEAD, "window": WINDOW, "prefix": 4, "vertical": 4,
    "block": 4, "global_tokens": 1, "q_rank": 32, "kv_rank": 24, "d_nope": D_HEAD, "d_rope": 8,
    "d_v": D_HEAD, "d_state": 8, "dt_rank": 4, "chunk": 4, "rank": 8, "span": 8, "buckets": 8, "d": 16,
    "params": 1000,
}  # fmt: skip
"""The largest value of a field, by its name, in whatever spec it stands."""


def tiny(model: Model) -> Model:
    """`model` with every block kind, pattern and option kept, and all sizes reduced.

    Ratios that blocks depend on survive: shared key/value heads, groups of experts, half-rotated heads,
    inner widths that heads must fill.
    """
    small = _rewritten(model)
    assert isinstance(small, type(model))
    identity = {"name": f"{model.name}-tiny", "published": None, "d_model": min(model.d_model, WIDTH)}
    return small.model_copy(update=identity)


def _rewritten(spec: BaseModel) -> BaseModel:
    """A copy of any spec: fields limited by name, then what depends on several of them."""
    changes: dict[str, Any] = {}
    for name in type(spec).model_fields:
        old = getattr(spec, name)
        new = _limited(name, old)
        if new is not old:
            changes[name] = new
    changes |= _RELATED.get(type(spec).__name__, lambda spec: {})(spec)
    return spec.model_copy(update=changes)


def _limited(name: str, value: Any) -> Any:
    if isinstance(value, BaseModel):
        return _rewritten(value)
    if isinstance(value, tuple) and any(isinstance(item, BaseModel) for item in value):
        return tuple(_rewritten(item) if isinstance(item, BaseModel) else item for item in value)
    if name in LIMITS and isinstance(value, int) and not isinstance(value, bool):
        return min(value, LIMITS[name])
    return value


def _attention(spec: Any) -> dict[str, Any]:
    """At most four heads: one key/value head stays one, some stay some, and as many as heads stay that."""
    heads = min(spec.n_heads, HEADS)
    changes: dict[str, Any] = {"n_heads": heads}
    if spec.n_kv_heads is not None:
        some = heads // 2 if heads == HEADS and spec.kv_heads > 1 else 1
        changes["n_kv_heads"] = heads if spec.groups == 1 else some
    if getattr(spec.position, "kind", None) == "rope":
        changes["position"] = _rope(spec.position, min(spec.d_head, D_HEAD), spec.d_head)
    return changes


def _rope(rope: Any, d_head: int, was: int) -> Any:
    """Fewer rotated dimensions, and per-dimension factors as many as pairs are left."""
    dim = None if rope.dim is None else max(rope.dim * d_head // was // 2 * 2, 2)
    pairs = (dim or d_head) // 2
    scaling = rope.scaling
    if scaling is not None:
        original = None if scaling.original_max is None else min(scaling.original_max, CONTEXT)
        short, long = scaling.short_factor[:pairs], scaling.long_factor[:pairs]
        scaling = scaling.model_copy(
            update={"original_max": original, "short_factor": short, "long_factor": long}
        )
    return rope.model_copy(update={"dim": dim, "scaling": scaling, "sections": ()})


def _mla(spec: Any) -> dict[str, Any]:
    d_rope = min(spec.d_rope, LIMITS["d_rope"])
    return {"n_heads": min(spec.n_heads, HEADS), "position": _rope(spec.position, d_rope, spec.d_rope)}


def _indexer(spec: Any) -> dict[str, Any]:
    return {"n_heads": min(spec.n_heads, HEADS), "top_k": min(spec.top_k, WINDOW)}


def _moe(spec: Any) -> dict[str, Any]:
    """At most eight experts, two of them per token, in groups of at least two."""
    router, experts = spec.router, min(spec.n_experts, EXPERTS)
    top_k = min(spec.top_k, 2, experts)
    if router.groups > 1:
        experts -= experts % 2
        groups = min(router.groups, max(experts // 2, 1))
        experts -= experts % groups
        best = min(router.top_groups, max(groups // 2, 1))
        router = router.model_copy(update={"groups": groups, "top_groups": best})
    return {"n_experts": experts, "top_k": top_k, "router": router}


def _mamba(spec: Any) -> dict[str, Any]:
    return {"d_inner": min(spec.d_inner, 2 * WIDTH)}


def _mamba2(spec: Any) -> dict[str, Any]:
    groups = min(spec.n_groups, HEADS)
    return {"n_heads": min(spec.n_heads, HEADS) // groups * groups, "n_groups": groups}


def _lightning(spec: Any) -> dict[str, Any]:
    return {"n_heads": min(spec.n_heads, HEADS)}


def _delta(spec: Any) -> dict[str, Any]:
    groups = min(spec.n_value_heads // spec.n_key_heads, HEADS)
    keys = max(min(spec.n_key_heads, HEADS // groups), 1)
    sizes = {"d_key": min(spec.d_key, D_HEAD), "d_value": min(spec.d_value, D_HEAD)}
    return {"n_key_heads": keys, "n_value_heads": keys * groups, **sizes}


def _rg_lru(spec: Any) -> dict[str, Any]:
    blocks = min(spec.n_blocks, HEADS)
    return {"n_blocks": blocks, "d_inner": min(spec.d_inner, WIDTH) // blocks * blocks}


def _shared(spec: Any) -> dict[str, Any]:
    return {"n": min(spec.n, 2)}


def _positions(spec: Any) -> dict[str, Any]:
    return {"max": None if spec.max is None else min(spec.max, CONTEXT)}


def _altup(spec: Any) -> dict[str, Any]:
    return {"n": min(spec.n, HEADS)}


_RELATED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "Attention": _attention,
    "Mla": _mla,
    "Indexer": _indexer,
    "Moe": _moe,
    "Mamba": _mamba,
    "Mamba2": _mamba2,
    "Lightning": _lightning,
    "GatedDeltaNet": _delta,
    "RgLru": _rg_lru,
    "ShortConv": _mamba,
    "Shared": _shared,
    "Positions": _positions,
    "AltUp": _altup,
}
"""Fields of one spec that must be reduced together."""
