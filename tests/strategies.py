"""Random specs for property tests: any of these must lower, count, shard and quantize."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from archsim.spec.model import Model

norms = st.sampled_from([{"kind": "rmsnorm"}, {"kind": "layernorm"}, {"kind": "layernorm", "affine": False}])
masks = st.sampled_from([{"kind": "causal"}, {"kind": "sliding", "window": 8}, {"kind": "chunked", "window": 8}])
positions = st.sampled_from([None, {"kind": "rope"}, {"kind": "rope", "dim": 4}, {"kind": "alibi"}, {"kind": "t5"}])


@st.composite
def attentions(draw: st.DrawFn) -> dict[str, Any]:
    """An attention block of any kind."""
    groups, kv = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 4]))
    if draw(st.booleans()) and draw(st.booleans()):
        return {
            "kind": "mla", "n_heads": 4, "q_rank": draw(st.sampled_from([None, 24])), "kv_rank": 16,
            "d_nope": 8, "d_rope": 4, "d_v": 8,
        }  # fmt: skip
    block: dict[str, Any] = {
        "kind": "gqa", "n_heads": groups * kv, "n_kv_heads": kv, "d_head": draw(st.sampled_from([8, 16])),
        "bias": draw(st.booleans()), "mask": draw(masks), "sinks": draw(st.booleans()),
        "position": draw(positions), "softcap": draw(st.sampled_from([None, 30.0])),
    }  # fmt: skip
    if draw(st.booleans()):
        block["qk_norm"] = {"kind": "rmsnorm", "over": draw(st.sampled_from(["head", "heads", "all"]))}
    return block


@st.composite
def ffns(draw: st.DrawFn) -> dict[str, Any]:
    """A feed-forward block of any kind."""
    dense = {"kind": draw(st.sampled_from(["mlp", "swiglu", "geglu"])), "d_ff": draw(st.sampled_from([32, 64]))}
    if draw(st.booleans()):
        return {**dense, "bias": draw(st.booleans())}
    moe: dict[str, Any] = {"kind": "moe", "n_experts": 8, "top_k": draw(st.integers(1, 4)), "expert": dense}
    if draw(st.booleans()):
        moe["shared"] = {**dense, "n": draw(st.integers(1, 2)), "gate": draw(st.booleans())}
    return moe


@st.composite
def layers(draw: st.DrawFn) -> dict[str, Any]:
    """One layer, repeated."""
    placement = draw(st.sampled_from(["pre", "post", "post_inside", "pre+post"]))
    layer: dict[str, Any] = {
        "repeat": draw(st.integers(1, 3)), "norm": draw(norms), "attention": draw(attentions()),
        "ffn": draw(ffns()), "placement": placement,
    }  # fmt: skip
    if placement == "pre":
        layer["parallel"] = draw(st.sampled_from([False, "one_norm", "two_norms"]))
    return layer


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A small decoder of any architecture."""
    stack = draw(st.lists(layers(), min_size=1, max_size=3))
    if draw(st.booleans()):
        stack = [{"repeat": 2, "layers": stack}]
    document = {
        "name": "random", "d_model": draw(st.sampled_from([16, 32])), "vocab_size": draw(st.integers(10, 99)),
        "head": {"tied": draw(st.booleans())}, "final_norm": draw(norms), "layers": stack,
    }  # fmt: skip
    return Model.model_validate(document)
