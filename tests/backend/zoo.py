"""One tiny model for every kind of block, and for every way that blocks are put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from archsim.spec.model import Model

RMS = {"kind": "rmsnorm"}
GEMMA = {"kind": "rmsnorm", "offset": True}
LAYER = {"kind": "layernorm"}
ROPE = {"kind": "rope"}
SWIGLU = {"kind": "swiglu", "d_ff": 24}
EXPERT = {"kind": "swiglu", "d_ff": 12}


def attention(kind: str = "gqa", **fields: Any) -> dict[str, Any]:
    """Attention with four heads of eight, two of them for keys and values."""
    base: dict[str, Any] = {"kind": kind, "n_heads": 4, "d_head": 8, "position": ROPE}
    return base | ({"n_kv_heads": 2} if kind == "gqa" else {}) | fields


def mla(**fields: Any) -> dict[str, Any]:
    """Latent attention with a query latent."""
    base = {"kind": "mla", "n_heads": 3, "q_rank": 10, "kv_rank": 12, "d_nope": 8, "d_rope": 4, "d_v": 6}
    return base | fields


def layer(**fields: Any) -> dict[str, Any]:
    """A pre-norm layer, twice."""
    return {"repeat": 2, "norm": RMS, "ffn": SWIGLU} | fields


def decoder(*layers: dict[str, Any], **fields: Any) -> Model:
    """A decoder of width 16."""
    document = {"name": "tiny", "d_model": 16, "vocab_size": 20, "layers": list(layers), "final_norm": RMS}
    return Model.model_validate(document | fields)


def encoder(*layers: dict[str, Any], **fields: Any) -> Model:
    """An encoder of width 16 with a pooler."""
    return decoder(*layers, architecture="encoder", pooler=True, **fields)


def moe(expert: dict[str, Any] = EXPERT, **fields: Any) -> dict[str, Any]:
    """Two of six experts."""
    return {"kind": "moe", "n_experts": 6, "top_k": 2, "expert": expert} | fields


def compressed(**fields: Any) -> dict[str, Any]:
    """Attention over a window and entries."""
    base = {"kind": "compressed", "n_heads": 4, "d_head": 8, "q_rank": 6, "out_groups": 2, "out_rank": 5,
            "position": ROPE | {"dim": 4, "interleaved": True}, "mask": {"kind": "sliding", "window": 3}}  # fmt: skip
    return base | fields


def _compressed() -> dict[str, Model]:
    chosen = {"ratio": 2, "overlap": True, "indexer": {"n_heads": 2, "d_head": 6, "top_k": 2}}
    by_token = moe(router={"by_token": True, "score": "sqrt_softplus"})
    hyper = {"n": 3, "iterations": 3}
    return {
        "compressed_window": decoder(layer(attention=compressed())),
        "compressed_heavy": decoder(layer(attention=compressed(ratio=3))),
        "compressed_sparse": decoder(layer(attention=compressed(**chosen))),
        "differential": decoder(layer(attention=attention(kind="differential", n_kv_heads=2))),
        "hyper": decoder(layer(hyper=hyper, attention=attention())),
        "hyper_mean": decoder(layer(hyper=hyper | {"head": "mean"}, attention=attention())),
        "hyper_apart": decoder(layer(hyper={"n": 3, "mixing": False, "magnitude": 1.5}, attention=attention())),
        "mla_sinks": decoder(layer(attention=mla(sinks=True))),
        "moe_by_token": decoder(layer(attention=attention(), ffn=by_token)),
    }


def _attentions() -> dict[str, Model]:
    def one(kind: str = "gqa", **fields: Any) -> Model:
        return decoder(layer(attention=attention(kind, **fields)))

    norm = {"kind": "rmsnorm"}
    sources = {"name": "own", "repeat": 2, "norm": RMS, "attention": attention(), "ffn": SWIGLU}
    return {
        "query_latent": one("mqa", q_rank=6, q_norm=norm),
        "block_indexer": one(indexer={"d_head": 6, "block": 2, "n_blocks": 2}),
        "mha": one("mha"), "gqa": one(), "mqa": one("mqa"), "bias": one(bias=True),
        "qkv_bias": one(qkv_bias={"q": True, "v": True}, out_bias=True), "d_head_v": one(d_head_v=6),
        "qk_norm": one(qk_norm=norm), "qk_norm_all": one(qk_norm=norm | {"over": "all"}),
        "qk_norm_heads": one(qk_norm={"kind": "layernorm", "bias": False, "over": "heads"}),
        "qk_norm_after": one(qk_norm={"kind": "l2norm", "affine": False, "place": "after_rope"}),
        "value_norm": one(qk_norm=norm | {"value": True}),
        "temperature": one(temperature={"floor_scale": 3, "attn_scale": 0.5}, position=None), "sinks": one(sinks=True),
        "softcap": one(softcap=5.0, scale=0.3), "clip": one(clip=0.5),
        "gate": one(gate={"per": "element"}), "gate_head": one(gate={"per": "head"}),
        "window": one(mask={"kind": "sliding", "window": 3}),
        "chunked": one(mask={"kind": "chunked", "window": 4}),
        "prefix": one(mask={"kind": "prefix", "prefix": 3}), "banded": one(mask={"kind": "banded", "window": 4}),
        "block_sparse": one(mask={"kind": "block_sparse", "window": 2, "vertical": 3}),
        "sinks_window": one(sinks=True, mask={"kind": "sliding", "window": 3}),
        "mla": decoder(layer(attention=mla())), "mla_plain_q": decoder(layer(attention=mla(q_rank=None))),
        "mla_bias": decoder(layer(attention=mla(bias=True))),
        "mla_pooled": decoder(layer(attention=mla(
            d_rope=0, position=None, indexer={"n_heads": 2, "d_head": 6, "top_k": 6, "pool": 3}))),
        "mla_learned": decoder(layer(attention=mla(
            q_rank=None, query_scale=True, learned_frequencies=True,
            indexer={"n_heads": 2, "d_head": 6, "top_k": 3, "query_norm": LAYER, "query_scale": True}))),
        "mla_indexer": decoder(layer(attention=mla(indexer={"n_heads": 2, "d_head": 6, "top_k": 3}))),
        "kv_from": decoder(sources, layer(attention=attention(kv_from="own"))),
        "kv_from_nested": decoder(
            {"name": "g", "repeat": 2, "layers": [sources, layer(name="more", attention=attention())]},
            layer(attention=attention(kv_from="g.own")),
        ),
    }  # fmt: skip


def _positions() -> dict[str, Model]:
    def scaled(kind: str, **fields: Any) -> Model:
        rope = {"kind": "rope", "scaling": {"kind": kind, "factor": 4.0, "original_max": 32} | fields}
        return decoder(layer(attention=attention(position=rope)))

    def position(**fields: Any) -> Model:
        return decoder(layer(attention=attention("mha", position=fields)))

    def embedded(**fields: Any) -> Model:
        return decoder(layer(attention=attention(position=None)), embedding={"positions": fields})

    longrope = {"short_factor": (1.0, 1.1, 1.2, 1.3), "long_factor": (2.0, 2.1, 2.2, 2.3)}
    deberta, both = {"kind": "deberta", "span": 4, "norm": LAYER}, {"kind": "bidirectional"}
    return {
        "linear": scaled("linear"), "ntk": scaled("ntk"), "llama3": scaled("llama3"),
        "yarn": scaled("yarn", mscale=1.0, mscale_all_dim=0.7), "yarn_plain": scaled("yarn", truncate=False),
        "longrope": scaled("longrope", **longrope),
        "partial": position(kind="rope", dim=4), "interleaved": position(kind="rope", interleaved=True),
        "alibi": position(kind="alibi"), "alibi_six": decoder(
            layer(attention={"kind": "mha", "n_heads": 6, "d_head": 4, "position": {"kind": "alibi"}})),
        "t5": position(kind="t5", buckets=8, max_distance=10),
        "t5_own": position(kind="t5", buckets=8, max_distance=10, shared=False),
        "transformer_xl": position(kind="transformer_xl"),
        "transformer_xl_stack": position(kind="transformer_xl", bias="stack"),
        "transformer_xl_none": position(kind="transformer_xl", bias="none"),
        "xlnet": encoder(layer(attention=attention("mha", position={"kind": "xlnet"}, mask=both))),
        "deberta": encoder(layer(attention=attention("mha", position=deberta, mask=both))),
        "deberta_shared": encoder(
            layer(attention=attention("mha", position=deberta | {"shared": True, "max_distance": 9}, mask=both))),
        "learned": embedded(kind="learned", max=40, offset=2), "sinusoidal": embedded(kind="sinusoidal"),
    }  # fmt: skip


def _ffns() -> dict[str, Model]:
    def one(**fields: Any) -> Model:
        return decoder(layer(attention=attention(), ffn={"d_ff": 24} | fields))

    plain = ("relu", "relu2", "gelu", "gelu_tanh", "silu", "xielu", "tanh", "sigmoid")
    gated = ("silu", "gelu", "gelu_tanh", "relu", "sigmoid")
    return {
        **{f"mlp_{act}": one(kind="mlp", activation=act, bias=True) for act in plain},
        **{f"glu_{act}": one(kind="glu", activation=act) for act in gated},
        "reglu": one(kind="reglu"),
        "clamped": one(kind="swiglu", clamp=0.5, alpha=1.702),
        "clamped_geglu": one(kind="geglu", clamp=0.5),
        "situ": one(kind="glu", activation="situ", beta=2.0, up_beta=3.0),
        "sparse": one(kind="geglu", activation="gelu_tanh", sparsity=0.9),
    }


def _moes() -> dict[str, Model]:
    def one(expert: dict[str, Any] = EXPERT, **fields: Any) -> Model:
        return decoder(layer(attention=attention(), ffn=moe(expert, **fields)))

    shared = EXPERT | {"n": 2, "gate": True}
    groups = {"groups": 3, "top_groups": 2}
    deepseek = groups | {"score": "sigmoid", "selection_bias": True, "scale": 2.5}
    return {
        "moe": one(), "moe_shared": one(shared=shared), "moe_dense": one(dense=SWIGLU),
        "moe_deepseek": one(router=deepseek, shared=EXPERT),
        "moe_groups_max": one(router=groups | {"group_score": "max", "normalize": False}),
        "moe_gpt_oss": one(
            EXPERT | {"bias": True, "clamp": 0.7}, router={"order": "topk_then_score", "bias": True}),
        "moe_llama4": one(top_k=1, router={"order": "topk_then_score", "score": "sigmoid", "normalize": False,
                                           "input_scaled": True}, shared=EXPERT),
        "moe_softcap": one(router={"softcap": 3.0}),
        "moe_mlp": one({"kind": "mlp", "d_ff": 12, "activation": "xielu"}),
        "moe_choice": one(router={"choice": "expert"}),
        "moe_latent": one(latent=6, latent_norm=RMS), "moe_capacity": one(capacity=2),
        "moe_choice_capacity": one(router={"choice": "expert"}, capacity=2),
    }  # fmt: skip


def _mixers() -> dict[str, Model]:
    def one(**fields: Any) -> Model:
        return decoder(layer(mixer=fields))

    mamba = {"kind": "mamba", "d_inner": 24, "d_state": 5, "dt_rank": 3}
    mamba2 = {"kind": "mamba2", "n_heads": 4, "d_head": 6, "d_state": 5, "n_groups": 2, "chunk": 4}
    rwkv = {"kind": "rwkv7", "d_inner": 16, "d_head": 4, "decay_rank": 3, "rate_rank": 5, "gate_rank": 6, "chunk": 4}
    shifted = {"kind": "mlp", "activation": "relu2", "d_ff": 24, "token_shift": True}
    delta = {"kind": "gated_delta_net", "n_key_heads": 2, "n_value_heads": 4, "d_key": 6, "d_value": 5, "chunk": 4}
    return {
        "mamba": one(**mamba), "mamba_norm": one(**mamba, inner_norm=RMS, bias=True),
        "mamba2": one(**mamba2, norm=RMS), "mamba2_plain": one(**mamba2, conv_bias=False),
        "lightning": one(kind="lightning", n_heads=2, d_head=6, chunk=4), "gated_delta_net": one(**delta),
        "delta_turning": one(**delta, negative_eigenvalues=True),
        "kimi_delta": one(kind="kimi_delta", n_heads=2, d_head=6, gate_rank=4, chunk=4),
        "kimi_delta_gate": one(kind="kimi_delta", n_heads=2, d_head=6, gate_rank=4, full_output_gate=True, chunk=4),
        "kimi_delta_bound": one(kind="kimi_delta", n_heads=2, d_head=6, gate_rank=4, decay_bound=-5.0, chunk=4),
        "mlstm": one(kind="mlstm", n_heads=2, d_key=6, d_value=5, chunk=4),
        "mlstm_bias": one(kind="mlstm", n_heads=2, d_key=6, d_value=5, chunk=4, bias=True),
        "rwkv7": decoder(layer(mixer=rwkv, repeat=1, ffn=shifted), layer(mixer=rwkv | {"value_rank": 2}, ffn=shifted)),
        "rg_lru": one(kind="rg_lru", d_inner=24, n_blocks=2),
        "short_conv": one(kind="short_conv", d_inner=16),
        "short_conv_bias": one(kind="short_conv", d_inner=24, bias=True),
    }  # fmt: skip


def _wirings() -> dict[str, Model]:
    def one(**fields: Any) -> Model:
        return decoder(layer(attention=attention(), **fields))

    plain = layer(attention=attention())
    local = layer(name="local", attention=attention(mask={"kind": "sliding", "window": 3}))
    full = layer(name="full", repeat=1, attention=attention())
    mamba = layer(name="ssm", mixer={"kind": "mamba", "d_inner": 24, "d_state": 5, "dt_rank": 3})
    return {
        **{name.replace("+", "_"): one(placement=name, norm=LAYER)
           for name in ("pre", "post", "post_inside", "pre+post", "residual_after_norm")},
        "parallel": one(parallel="one_norm"), "parallel_two": one(parallel="two_norms"),
        "gemma": decoder(layer(attention=attention(), norm=GEMMA), final_norm=GEMMA,
                         head={"tied": True, "softcap": 3.0}, embedding={"scale": "sqrt_d_model"}),
        "scales": one(residual_scale=1.5, branch_scale=0.5),
        "shared_weights": one(shared_weights=True, repeat=3),
        "rounds": decoder({"repeat": 3, "shared_weights": True, "round_norm": RMS, "exit_score": True,
                           "layers": [plain, full]}, final_norm=None),
        "residuals": _residuals(plain),
        "shared_group": decoder({"repeat": 2, "shared_weights": True, "layers": [plain, full]}),
        "nested": decoder({"repeat": 3, "layers": [local, full]}, layer(name="rest", attention=attention())),
        "deep": decoder(
            {"repeat": 2, "layers": [{"repeat": 2, "name": "in", "layers": [local, full]}, mamba]}),
        "attention_only": decoder(layer(attention=attention(), ffn=None)), "hybrid": decoder(mamba, full),
        "keys_as_values": decoder(
            layer(attention=attention(keys_as_values=True, qk_norm={"kind": "rmsnorm", "value": True}))),
        "inner_norms": decoder(layer(attention=attention(inner_norm=RMS), ffn=SWIGLU | {"inner_norm": RMS})),
        "head_dense": decoder(plain, head={"tied": True, "dense": {"norm": LAYER, "bias": True}}),
        "factorised": decoder(
            plain, embedding={"factor": 6, "factor_bias": True, "norm": LAYER}, head={"tied": True}),
        "head": decoder(plain, head={"bias": True, "scale": 0.5}, embedding={"rows": 24}), **_gemma3n(),
        "mtp": decoder(plain, mtp={"n": 2, "norm": RMS, "layer": layer(repeat=1, attention=attention())}),
    }  # fmt: skip


def _residuals(plain: dict[str, Any]) -> Model:
    """Three parts of one, two and one layers."""
    parts = ((1, True), (2, False), (2, True), (3, False))
    return decoder(*(
        plain | {"name": f"l{i}", "repeat": 1 if opens else 2,
                 "residuals": {"sources": n, "opens": opens, "norm": RMS}}
        for i, (n, opens) in enumerate(parts)
    ))  # fmt: skip


def _gemma3n() -> dict[str, Model]:
    per_layer = {"d": 6, "norm": RMS}
    embedding = {"per_layer": {"d": 6, "vocab_size": 18, "norm": RMS}}
    full = {"attention": attention(), "placement": "pre+post", "per_layer_input": per_layer,
            "altup": {"n": 3, "norm": RMS}, "laurel": {"rank": 4, "norm": RMS}}  # fmt: skip
    return {
        "altup": decoder(layer(attention=attention(), altup={"n": 3, "norm": RMS})),
        "laurel": decoder(layer(attention=attention(), laurel={"rank": 4, "norm": RMS})),
        "per_layer": decoder(layer(attention=attention(), per_layer_input=per_layer), embedding=embedding),
        "gemma3n": decoder(
            {"repeat": 2, "layers": [layer(name="a", **full), layer(name="b", repeat=1, **full)]}, embedding=embedding
        ),
    }


def _encoders() -> dict[str, Model]:
    both = {"kind": "bidirectional"}
    wide = {"kind": "sliding", "window": 2, "bidirectional": True, "global_tokens": 1}
    t5 = {"kind": "t5", "buckets": 8, "max_distance": 10}
    own = attention("mha", position=None, bias=True, mask=both)
    bert = layer(attention=own, placement="post", norm=LAYER,
                 ffn={"kind": "mlp", "d_ff": 24, "bias": True})  # fmt: skip
    embedding = {"positions": {"kind": "learned", "max": 40}, "token_types": 2, "norm": LAYER}

    def pair(own: dict[str, Any], cross: dict[str, Any], front: Sequence[Any] = (), **fields: Any) -> Model:
        encoding = layer(attention=own | {"mask": both})
        stack = {"layers": [encoding], "final_norm": RMS, "embedding": fields.get("embedding"), "front": list(front)}
        decoding = layer(attention=own, cross_attention=cross)
        return decoder(decoding, architecture="encoder-decoder", encoder=stack, **fields)

    bart = {"positions": {"kind": "learned", "max": 40}, "norm": LAYER}
    plain = attention("mha", position=None, bias=True)
    sound = [
        {"kind": "conv", "d": 24, "channels": 6, "gated": True, "kernel": 5}, {"kind": "conv", "d": 16, "stride": 2},
        {"kind": "positions", "rows": 40},
    ]  # fmt: skip
    return {
        "bert": encoder(bert, final_norm=None, embedding=embedding, mlm_head={"norm": LAYER}),
        "longformer": encoder(layer(attention=attention(mask=wide, global_projections=True, bias=True))),
        "longformer_idle": encoder(
            layer(attention=attention(mask=wide | {"global_tokens": 0}, global_projections=True, bias=True))
        ),
        "t5_pair": pair(attention("mha", position=t5, scale=1.0), attention("mha", position=None, scale=1.0)),
        "bart_pair": pair(plain, plain, embedding=bart),
        "sound": pair(plain, plain, sound, embedding=bart),
    }


ZOO: dict[str, Model] = {
    **_attentions(), **_compressed(), **_positions(), **_ffns(), **_moes(), **_mixers(), **_wirings(), **_encoders()
}  # fmt: skip
"""Every model by the name of what it is there for."""
