"""Decoders with delta rules beside softmax attention: OLMo Hybrid, Kimi Linear."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.deepseek import SIGMOID, latent
from archsim.importers.hf.families.hybrid import BOTH, delta_net
from archsim.importers.hf.families.llama import biased, d_head, gated, layers
from archsim.importers.hf.families.moe import grouped_router, unnormalized
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, attention, decoder, every, glu, layer_types, moe, rmsnorm, rope
from archsim.importers.hf.pattern import Entry

Doc = JsonObject
LINEAR, FULL = "linear_attention", "full_attention"


# OlmoHybridConfig
@family("olmo_hybrid", vocab_size=100352, hidden_size=3840, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=30, hidden_act="silu", max_position_embeddings=65536, rms_norm_eps=1e-6,
        tie_word_embeddings=False, linear_conv_kernel_dim=4, linear_allow_neg_eigval=True)  # fmt: skip
def olmo_hybrid(c: Config) -> Doc:
    """OLMo Hybrid: OLMo 2's layer in one of four, before and between them gated delta nets with a norm in front."""
    c.skip("linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor")
    n, norm = layers(c), rmsnorm(c)
    turns = {"negative_eigenvalues": True} if c.get("linear_allow_neg_eigval") else {}
    mixer = delta_net(_olmo_sizes(c)) | turns | {"norm": {"kind": "rmsnorm", "eps": 1e-5}}
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm | {"over": "all"})
    given = c.data.get("rope_parameters")
    if isinstance(given, dict) and given.get("rope_theta", 0) is None:
        c.skip("rope_parameters", "rope_theta", "rope_scaling")  # the released files switch positions off so
    else:
        block["position"] = rope(c, d_head(c))
    kinds: dict[str, Entry] = {
        LINEAR: ("linear", {"norm": norm, "mixer": mixer, "ffn": gated(c)}),
        FULL: ("full", {"norm": norm, "placement": "post_inside", "attention": block, "ffn": gated(c)}),
    }
    return decoder(c, [kinds[t] for t in layer_types(c, n, every(n, 4, FULL, LINEAR), BOTH)], norm)


def _olmo_sizes(c: Config) -> Config:
    """The config with the sizes of its delta nets, which follow those of the model where it does not give them."""
    n = c.count("num_attention_heads")
    keys, values = (c.count(f"linear_num_{side}_heads", default=n) for side in ("key", "value"))
    wide = c.count("linear_key_head_dim", default=int(0.75 * c.count("hidden_size") / keys))
    sizes = {"linear_num_key_heads": keys, "linear_num_value_heads": values, "linear_key_head_dim": wide}
    return c.changed(**sizes, linear_value_head_dim=c.count("linear_value_head_dim", default=2 * wide))


# KimiLinearConfig
@family("kimi_linear", vocab_size=163840, hidden_size=2304, intermediate_size=9216, moe_intermediate_size=1024,
        num_hidden_layers=27, num_attention_heads=32, num_key_value_heads=32, n_shared_experts=1,
        routed_scaling_factor=2.446, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, v_head_dim=128,
        qk_nope_head_dim=128, n_group=1, topk_group=1, num_experts_per_tok=8, norm_topk_prob=True,
        hidden_act="silu", max_position_embeddings=1048576, rms_norm_eps=1e-5, tie_word_embeddings=False,
        num_local_experts=256, linear_head_dim=128, linear_num_heads=32, linear_conv_kernel_dim=4,
        first_k_dense_replace=1)  # fmt: skip
def kimi_linear(c: Config) -> Doc:
    """Kimi Linear: three layers of Kimi delta attention to one of latent attention without positions, with experts.
    Kimi K3 has gates on both, narrow experts and attention residuals besides.
    """
    c.skip("rope_parameters", "rope_theta", "rope_scaling", "topk_method")
    c.only("mla_use_nope", True)
    c.only("moe_router_activation_func", "sigmoid")
    c.only("use_grouped_topk", True, False)
    c.only("moe_layer_freq", 1)
    c = _new_names(c)
    n = layers(c)
    full = {k: v for k, v in latent(c).items() if k != "position"} | {"position": None}
    full |= {"gate": {"per": "element"}} if c.get("mla_use_output_gate") else {}
    types, mixer = _kimi_layers(c, n)
    return _delta_and_latent(c, types, mixer, full)


def _delta_and_latent(c: Config, types: list[str], mixer: Doc, full: Doc) -> Doc:
    """Layers of delta and of latent attention, under dense networks first and experts then."""
    n, norm, network = layers(c), rmsnorm(c), _network(c)
    kinds = {LINEAR: ("linear", {"mixer": mixer}), FULL: ("full", {"attention": full})}
    width = c.count("moe_intermediate_size")
    router = SIGMOID | unnormalized(c) | grouped_router(c)
    n_shared, one = c.get("n_shared_experts"), network | {"d_ff": width}
    shared = one | ({"n": n_shared} if n_shared > 1 else {}) if n_shared else None
    narrow: Doc = {"latent": c.count("routed_expert_hidden_size")} if c.get("routed_expert_hidden_size") else {}
    narrow |= {"latent_norm": norm} if c.get("latent_moe_use_norm") else {}
    experts = moe(c.count("num_local_experts"), c.count("num_experts_per_tok"), one, router, shared=shared, **narrow)
    ffns = {"dense": network | {"d_ff": c.count("intermediate_size")}, "sparse": experts}
    first = c.get("first_k_dense_replace") or 0
    default = ["dense" if i < first else "sparse" for i in range(n)]
    sparse = layer_types(c, n, default, tuple(ffns), key="mlp_layer_types")
    entries: list[Entry] = []
    for i, (kind, ffn) in enumerate(zip(types, sparse, strict=True)):
        name, own = kinds[kind]
        layer = {"norm": norm, **own, "ffn": ffns[ffn], **_residuals(c, i, norm)}
        entries.append((name + ("_dense" if ffn == "dense" else ""), layer))
    return decoder(c, entries, norm)


def _network(c: Config) -> Doc:
    """A feed-forward network without its width."""
    if c.get("hidden_act") == "situ":
        bound = c.get("activation_situ_linear_beta")
        more = {} if bound is None else {"up_beta": c.number("activation_situ_linear_beta")}
        return {"kind": "glu", "activation": "situ", "beta": c.number("activation_situ_beta"), **more}
    c.skip("activation_situ_beta", "activation_situ_linear_beta")
    return {key: value for key, value in glu(activation(c, "hidden_act"), 0).items() if key != "d_ff"}


def _residuals(c: Config, i: int, norm: Doc) -> Doc:
    """The mixture that layer i reads: a part ends at every `attn_res_block_size`-th layer."""
    if c.get("attn_res_block_size") is None:
        return {}
    size = c.count("attn_res_block_size")
    opens = {"opens": True} if i % size == 0 else {}
    return {"residuals": {"sources": -(-i // size) + 1, **opens, "norm": norm}}


# BailingHybridConfig
@family("bailing_hybrid", vocab_size=157184, hidden_size=2560, intermediate_size=6144, moe_intermediate_size=768,
        num_hidden_layers=42, num_attention_heads=32, num_key_value_heads=32, num_shared_experts=1,
        routed_scaling_factor=2.5, kv_lora_rank=512, q_lora_rank=None, qk_rope_head_dim=64, v_head_dim=128,
        qk_nope_head_dim=128, num_expert_group=8, topk_group=4, num_experts_per_token=8, moe_renormalize=True,
        hidden_act="silu", model_max_length=262144, rms_norm_eps=1e-6, tie_word_embeddings=False, num_experts=512,
        linear_head_dim=128, linear_num_heads=32, linear_conv_kernel_dim=4, first_k_dense_replace=2,
        layer_group_size=6)  # fmt: skip
def bailing_hybrid(c: Config) -> Doc:
    """Ling 3.0: five layers of Kimi delta attention, whose gates are whole matrices, to one of latent
    attention with a gate for each head. Ling 2.5 has the same type and lightning attention.
    """
    if c.data.get("group_norm_size") is not None and c.data.get("short_conv_kernel_size") is None:
        return _ling_2_5(c)
    _as_released(c)
    c.skip("kda_lower_bound", "kda_safe_gate", "mtp_loss_scaling_factor", "num_nextn_predict_layers",
           "short_conv_kernel_size", "rope_theta")  # fmt: skip
    defaults = {new: c.get(old) for new, old in RENAMED.items() if c.get(old) is not None}
    c = c.changed(**{key: value for key, value in defaults.items() if key not in c.data})
    n = layers(c)
    full = latent(c) | {"gate": {"per": "head"}}
    step = c.count("layer_group_size")
    types = layer_types(c, n, [FULL if (i + 1) % step == 0 else LINEAR for i in range(n)], BOTH)
    sizes = {
        "n_heads": c.count("linear_num_heads"), "d_head": c.count("linear_head_dim"),
        "d_conv": c.count("linear_conv_kernel_dim"),
    }  # fmt: skip
    mixer = {"kind": "kimi_delta", **sizes, "gate_rank": "full", "norm": rmsnorm(c)}
    return _delta_and_latent(c, types, mixer, full)


OFF = ("use_kda_lora", "use_mla_nope", "use_nGPT", "up_proj_norm", "value_norm", "scale_router_input", "use_bias",
       "use_qkv_bias")  # fmt: skip
"""What Ling's own code could do besides, and no released file asks for."""


def _as_released(c: Config) -> None:
    """Refuse what the class does not do, of the keys of Ling 3.0's released file that it does not read."""
    c.skip("expert_swiglu_limit_list", "share_expert_swiglu_limit_list", "num_kv_heads_for_linear_attn", "linear_silu",
           "max_window_layers", "rotary_dim", "rope_interleave", "router_dtype", "score_function", "scoring_func",
           "topk_method", "use_qk_norm", "mtp_use_kda", "partial_rotary_factor", "embedding_dropout", "output_dropout",
           "num_key_value_heads", "head_dim")  # fmt: skip
    for key in OFF:
        c.only(key, False)
    for key in ("no_kda_lora", "moe_router_enable_expert_bias"):
        c.only(key, True)
    c.only("group_norm_size", 1)
    c.only("gated_attention_proj_granularity_type", "head_wise")
    c.only("moe_shared_expert_intermediate_size", c.get("moe_intermediate_size"))
    c.only("qk_head_dim", c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim"))


def _ling_2_5(c: Config) -> Doc:
    """Seven layers of lightning attention to one of latent attention (BailingMoeV2_5 in SGLang)."""
    c.skip("max_window_layers", "rotary_dim", "rope_interleave", "router_dtype", "score_function",
           "scoring_func", "topk_method", "mtp_loss_scaling_factor", "num_nextn_predict_layers", "embedding_dropout",
           "output_dropout", "num_key_value_heads", "moe_shared_expert_intermediate_size")  # fmt: skip
    for key in ("use_bias", "use_qkv_bias"):
        c.only(key, False)
    c.only("moe_router_enable_expert_bias", True)
    c.only("num_kv_heads_for_linear_attn", c.count("num_attention_heads"))
    c.only("qk_head_dim", c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim"))
    c = c.changed(num_local_experts=c.count("num_experts"), n_shared_experts=c.get("num_shared_experts"))
    n, norm, step, size = layers(c), rmsnorm(c), c.count("layer_group_size"), c.count("head_dim")
    mixer: Doc = {"kind": "lightning", "n_heads": c.count("num_attention_heads"), "d_head": size,
                  "norm": norm | {"groups": c.count("group_norm_size")}, "position": rope(c, size)}  # fmt: skip
    mixer |= {"qk_norm": norm} if c.get("use_qk_norm") else {}
    mixer["activation"] = "silu" if c.get("linear_silu") else None
    types = layer_types(c, n, [FULL if (i + 1) % step == 0 else LINEAR for i in range(n)], BOTH)
    whole = c.changed(partial_rotary_factor=None)
    return _delta_and_latent(c, types, mixer, latent(whole))


RENAMED = {
    "max_position_embeddings": "model_max_length", "norm_topk_prob": "moe_renormalize", "n_group": "num_expert_group",
    "num_local_experts": "num_experts", "num_experts_per_tok": "num_experts_per_token",
    "n_shared_experts": "num_shared_experts",
}  # fmt: skip
"""Names that transformers gives to keys of the released file."""


def _new_names(c: Config) -> Config:
    given = {new: c.get(old) for new, old in RENAMED.items() if old in c.data}
    return c.changed(**given)


def _kimi_layers(c: Config, n: int) -> tuple[list[str], Doc]:
    """The kind of every layer, and the mixer; a released file keeps both in a mapping that counts layers from 1."""
    inner = c.child("linear_attn_config") if c.data.get("linear_attn_config") else None
    default = [FULL if i and i % 4 == 0 else LINEAR for i in range(n)]
    if inner is not None and inner.get("full_attn_layers") is not None:
        default = [FULL if i + 1 in inner.get("full_attn_layers") else LINEAR for i in range(n)]
        inner.skip("kda_layers")
    sizes = {
        "n_heads": c.count("linear_num_heads"), "d_head": c.count("linear_head_dim"),
        "d_conv": c.count("linear_conv_kernel_dim"),
    }  # fmt: skip
    if inner is not None:
        names = {"n_heads": "num_heads", "d_head": "head_dim", "d_conv": "short_conv_kernel_size"}
        sizes = {field: inner.count(key, default=sizes[field]) for field, key in names.items()}
    mixer = {"kind": "kimi_delta", **sizes, "norm": rmsnorm(c)}
    if inner is not None:
        inner.skip("gate_lower_bound")  # a bound on the forget gates
        mixer |= {"full_output_gate": True} if inner.get("use_full_rank_gate") else {}
    return layer_types(c, n, default, BOTH), mixer
