"""GLM-5.3-Flash: several streams, delta rules, and latent attention without positions over groups of keys."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.deepseek import SIGMOID, indexer_types
from archsim.importers.hf.families.llama import layers
from archsim.importers.hf.families.moe import grouped_router, shared_expert, top_k
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, decoder, every, glu, layer_types, moe, rmsnorm
from archsim.importers.hf.pattern import Entry

Doc = JsonObject
LINEAR, INDEXED = "linear_attention", "indexed_attention"


# Glm5NextTextConfig
@family("glm5_next_text", vocab_size=154880, hidden_size=4096, intermediate_size=12288, moe_intermediate_size=2048,
        num_hidden_layers=45, num_attention_heads=64, num_key_value_heads=64, n_shared_experts=1,
        n_routed_experts=288, routed_scaling_factor=2.5, kv_lora_rank=512, q_lora_rank=1536, qk_rope_head_dim=0,
        v_head_dim=256, qk_nope_head_dim=256, n_group=1, topk_group=1, num_experts_per_tok=8, norm_topk_prob=True,
        hidden_act="silu", max_position_embeddings=1048576, rms_norm_eps=1e-5, tie_word_embeddings=False,
        index_topk=2048, index_head_dim=128, index_n_heads=32, swiglu_limit=10.0, linear_head_dim=128,
        linear_num_heads=64, linear_conv_kernel_dim=4, linear_lower_bound=-5.0, hc_mult=4, hc_eps=1e-6,
        hc_sinkhorn_iters=20, index_kpool=16, index_kpool_always_select_tail=True)  # fmt: skip
def glm5_next(c: Config) -> Doc:
    """GLM-5.3-Flash: three layers of Kimi delta attention, whose gates are bounded, to one of latent attention over the
    groups of keys that an indexer chooses; streams that end as their mean. Its prediction modules are left out: no
    class of transformers has them.
    """
    c.skip("num_nextn_predict_layers", "rope_parameters", "rope_theta", "rope_scaling", "head_dim",
           "qk_head_dim", "topk_method", "scoring_func")  # fmt: skip
    for key, value in (("qk_rope_head_dim", 0), ("attention_bias", False), ("index_kpool_always_select_tail", True)):
        c.only(key, value)
    c.only("num_key_value_heads", c.count("num_attention_heads"))
    n, norm, act, width = layers(c), rmsnorm(c), activation(c, "hidden_act"), c.count("moe_intermediate_size")
    clamped = {"clamp": c.number("swiglu_limit"), "alpha": 1.0, "up_offset": 0.0}
    shared = shared_expert(act, width, c.get("n_shared_experts"))
    experts = moe(c.count("n_routed_experts", "num_local_experts"), top_k(c), glu(act, width, **clamped),
                  SIGMOID | grouped_router(c), shared=shared | clamped if shared else None)  # fmt: skip
    ffns = {"dense": glu(act, c.count("intermediate_size"), **clamped), "sparse": experts}
    sparse = layer_types(c, n, ["dense" if i < 3 else "sparse" for i in range(n)], tuple(ffns), key="mlp_layer_types")
    types = layer_types(
        c,
        n,
        every(n, 4, INDEXED, LINEAR),
        (LINEAR, INDEXED),
        renamed=dict.fromkeys(("full_attention", "deepseek_sparse_attention"), INDEXED),
    )
    entries: list[Entry] = []
    for kind, ffn, index in zip(types, sparse, indexer_types(c), strict=True):
        mixing = {"mixer": _mixer(c)} if kind == LINEAR else {"attention": _attention(c, index == "shared")}
        own = {"norm": norm, "hyper": _streams(c), **mixing, "ffn": ffns[ffn]}
        name = "linear" if kind == LINEAR else "indexed" + ("_shared" if index == "shared" else "")
        entries.append((name + ("_dense" if ffn == "dense" else ""), own))
    return decoder(c, entries, norm)


def _streams(c: Config) -> Doc:
    return {"n": c.count("hc_mult"), "iterations": c.count("hc_sinkhorn_iters"), "eps": c.number("hc_eps"),
            "norm_eps": c.number("rms_norm_eps"), "head": "mean"}  # fmt: skip


def _mixer(c: Config) -> Doc:
    """Delta attention; released files may keep its sizes in a mapping."""
    inner = c.child("linear_attn_config") if c.data.get("linear_attn_config") else None
    fields = {"n_heads": ("linear_num_heads", "num_heads"), "d_head": ("linear_head_dim", "head_dim"),
              "d_conv": ("linear_conv_kernel_dim", "short_conv_kernel_size")}  # fmt: skip
    mixer: Doc = {"kind": "kimi_delta", "norm": rmsnorm(c)}
    mixer |= {field: c.count(key) for field, (key, _) in fields.items()}
    bound = c.get("linear_lower_bound")
    if inner is not None:
        inner.skip("kda_layers", "full_attn_layers")
        mixer |= {field: inner.count(key, default=mixer[field]) for field, (_, key) in fields.items()}
        stated, safe = inner.get("gate_lower_bound"), inner.get("safe_gate")
        bound = bound if stated is None else stated
        bound = -5.0 if bound is None and safe is not False else bound
    return mixer | ({} if bound is None else {"decay_bound": bound})


def _attention(c: Config, shared: bool) -> Doc:
    """Latent attention without positions; the layer's own choice of keys, or that of the layer before."""
    pooled = {"pool": c.count("index_kpool")} if c.count("index_kpool") > 1 else {}
    indexer = {"n_heads": c.count("index_n_heads"), "d_head": c.count("index_head_dim"),
               "top_k": c.count("index_topk"), **pooled, **({"shared": True} if shared else {})}  # fmt: skip
    return {
        "kind": "mla", "n_heads": c.count("num_attention_heads"), "q_rank": c.count("q_lora_rank"),
        "kv_rank": c.count("kv_lora_rank"), "d_nope": c.count("qk_nope_head_dim"), "d_rope": 0,
        "d_v": c.count("v_head_dim"), "norm": rmsnorm(c), "position": None, "indexer": indexer,
    }  # fmt: skip
