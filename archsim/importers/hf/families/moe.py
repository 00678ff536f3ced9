"""Decoders with routed experts and ordinary attention."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import (
    biased,
    d_head,
    gated,
    layers,
    rotary,
    rotated_layers,
    two_kinds,
    uniform,
    window,
    windowed,
)
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import (  # fmt: skip
    activation,
    attention,
    decoder,
    every,
    glu,
    layer_types,
    moe,
    rmsnorm,
    rope,
    sliding,
)
from archsim.importers.hf.pattern import Entry

Doc = JsonObject


def top_k(c: Config) -> int:
    """Experts per token."""
    return c.count("num_experts_per_tok", "num_experts_per_token")


def n_experts(c: Config) -> int:
    """Routed experts."""
    return c.count("num_local_experts", "num_experts")


UNIFORM = {"normalize": False}
"""Router whose chosen weights are not made to add up to 1."""


def unnormalized(c: Config) -> Doc:
    """The router of a config that does not make the chosen weights add up to 1."""
    return {} if c.get("norm_topk_prob") else UNIFORM


def shared_expert(act: str, width: int, n: int | None) -> Doc | None:
    """The network for every token as wide as n experts; None for none."""
    return glu(act, width, **({"n": n} if n > 1 else {})) if n else None


def grouped_router(c: Config) -> Doc:
    """What `norm_topk_prob`, groups of experts and a factor add to a router."""
    router: Doc = dict(unnormalized(c))
    if (c.get("n_group") or 1) > 1:
        router |= {"groups": c.count("n_group"), "top_groups": c.count("topk_group")}
    c.skip("topk_group")
    factor = c.number("routed_scaling_factor")
    return router | ({"scale": factor} if factor != 1 else {})


def qwen_entries(c: Config, n: int, base: Doc, experts: Doc) -> list[Entry]:
    """Layers with experts but for those that the step and the list of exceptions name."""
    dense, step = set(c.get("mlp_only_layers") or ()), c.count("decoder_sparse_step")
    c.skip("intermediate_size")
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(n)]
    return [("moe", base | {"ffn": experts}) if s else ("dense", base | {"ffn": gated(c)}) for s in sparse]


# MixtralConfig
@family("mixtral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts_per_tok=2, num_local_experts=8,
        rope_parameters={"rope_theta": 1000000.0})  # fmt: skip
def mixtral(c: Config) -> Doc:
    """Mixtral: Mistral with experts instead of the feed-forward layer."""
    block = attention(c, position=rope(c, d_head(c))) | window(c)
    return uniform(c, rmsnorm(c), block, moe(n_experts(c), top_k(c), gated(c)))


# Qwen3MoeConfig
@family("qwen3_moe", "qwen3_vl_moe_text", vocab_size=151936, hidden_size=2048, intermediate_size=6144,
        num_hidden_layers=24, num_attention_heads=32, num_key_value_heads=4, hidden_act="silu",
        max_position_embeddings=32768, rms_norm_eps=1e-6, tie_word_embeddings=False, use_sliding_window=False,
        decoder_sparse_step=1, moe_intermediate_size=768, num_experts_per_tok=8, num_experts=128,
        norm_topk_prob=False)  # fmt: skip
def qwen3_moe(c: Config) -> Doc:
    """Qwen3 with experts in every layer, or in those that the step and the list of exceptions leave."""
    c.only("qkv_bias", False)
    c.only("use_qk_norm", True)
    c.only("shared_expert_intermediate_size", 0)
    n, norm = layers(c), rmsnorm(c)
    block = rotary(c, qk_norm=norm)
    types, width = windowed(c, n)
    if width and "full_attention" not in types:
        block["mask"] = sliding(width)
    expert = glu(activation(c, "hidden_act"), c.count("moe_intermediate_size"))
    experts = moe(n_experts(c), top_k(c), expert, unnormalized(c))
    return decoder(c, qwen_entries(c, n, {"norm": norm, "attention": block}, experts), norm)


# GptOssConfig
@family("gpt_oss", num_hidden_layers=36, num_local_experts=128, vocab_size=201088, hidden_size=2880,
        intermediate_size=2880, head_dim=64, num_attention_heads=64, num_key_value_heads=8,
        sliding_window=128, tie_word_embeddings=False, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, num_experts_per_tok=4, swiglu_limit=7.0, swiglu_alpha=1.702, attention_bias=True,
        rope_parameters={"rope_theta": 150000.0})  # fmt: skip
def gpt_oss(c: Config) -> Doc:
    """gpt-oss: every second layer local, attention sinks, biases everywhere, clamped SwiGLU experts."""
    c.skip("experts_per_token", "initial_context_length", "swiglu_limit", "swiglu_alpha")
    n, norm = layers(c), rmsnorm(c)
    expert = gated(c, bias=True, clamp=c.number("swiglu_limit"), alpha=c.number("swiglu_alpha"))
    router = {"order": "topk_then_score", "bias": True}
    ffn = moe(n_experts(c), top_k(c), expert, router)
    base = {"norm": norm, "attention": rotary(c, sinks=True), "ffn": ffn}
    types = layer_types(c, n, every(n, 2, "full_attention", "sliding_attention"))
    return two_kinds(c, base, {"mask": sliding(c.count("sliding_window"))}, {}, types)


# AfmoeConfig
@family("afmoe", vocab_size=200192, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=1408,
        num_hidden_layers=32, num_dense_layers=1, num_attention_heads=16, head_dim=128, hidden_act="silu",
        max_position_embeddings=16384, rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts=64,
        num_experts_per_tok=6, num_shared_experts=2, route_scale=1.0, global_attn_every_n_layers=4,
        sliding_window=1024, mup_enabled=False, score_func="sigmoid", route_norm=True)  # fmt: skip
def afmoe(c: Config) -> Doc:
    """Trinity: local layers with rotary positions, global ones without; gated; norms on both sides."""
    c.skip("load_balance_coeff", "use_grouped_mm", "num_expert_groups", "num_limited_groups")
    c.only("n_group", 1)
    c.only("topk_group", 1)
    c.only("score_func", "sigmoid")
    n, norm = layers(c), rmsnorm(c)
    base = {"norm": norm, "placement": "pre+post"}
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm, gate={"per": "element"})
    near = {"position": rope(c, d_head(c)), "mask": sliding(c.count("sliding_window"))}
    step, dense = c.count("global_attn_every_n_layers"), c.get("num_dense_layers") or 0
    types = layer_types(c, n, every(n, step, "full_attention", "sliding_attention"))
    ffns, entries = {True: gated(c), False: _afmoe_experts(c)}, []
    for i, kind in enumerate(types):
        local = kind == "sliding_attention"
        name = ("dense" if i < dense else "local") if local else "global"
        entries.append((name, base | {"attention": block | near if local else block, "ffn": ffns[i < dense]}))
    scaled = {"scale": "sqrt_d_model"} if c.get("mup_enabled") else None
    return decoder(c, entries, norm, embedding=scaled)


def _afmoe_experts(c: Config) -> Doc:
    act, width = activation(c, "hidden_act"), c.count("moe_intermediate_size")
    router = {"score": "sigmoid", "selection_bias": "parameter", "scale": c.number("route_scale")}
    router |= {} if c.get("route_norm") else UNIFORM
    shared = shared_expert(act, width, c.get("num_shared_experts"))
    return moe(c.count("num_experts"), top_k(c), glu(act, width), router, shared=shared)


# MiniMaxM2Config
@family("minimax_m2", vocab_size=200064, hidden_size=3072, intermediate_size=1536, num_hidden_layers=62,
        num_attention_heads=48, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=196608, rms_norm_eps=1e-6, tie_word_embeddings=False, num_experts_per_tok=8,
        num_local_experts=256, rope_parameters={"rope_theta": 5000000.0}, use_qk_norm=True,
        qk_norm_type="per_layer", scoring_func="sigmoid", use_routing_bias=True)  # fmt: skip
def minimax_m2(c: Config) -> Doc:
    """MiniMax-M2: full attention in all layers, one norm over all heads, sigmoid routing."""
    c.skip("attn_type_list", "layernorm_full_attention_beta", "layernorm_linear_attention_beta",
           "layernorm_mlp_beta", "mlp_intermediate_size", "max_model_len", "sliding_window",
           "shared_moe_mode")  # fmt: skip
    c.only("qk_norm_type", "per_layer")
    c.only("use_qk_norm", True)
    c.only("scoring_func", "sigmoid")
    c.only("shared_intermediate_size", 0)
    norm = rmsnorm(c)
    position = rope(c, d_head(c))
    if c.get("rotary_dim") is not None:
        position["dim"] = c.count("rotary_dim")
    block = attention(c, qk_norm=norm | {"over": "all"}, position=position)
    router = {"score": "sigmoid"} | ({"selection_bias": True} if c.get("use_routing_bias") else {})
    ffn = moe(n_experts(c), top_k(c), gated(c), router)
    layer = {"norm": norm, "attention": block, "ffn": ffn}
    doc = decoder(c, [("layers", layer)] * layers(c), norm)
    c.skip("mtp_transformer_layers")
    modules = c.get("num_mtp_modules") if c.get("use_mtp", True) else 0
    return doc | mtp(modules, layer)


def mtp(n: int | None, layer: Doc) -> Doc:
    """Multi-token prediction modules with one layer each, where there are any."""
    if not n:
        return {}
    return {"mtp": ({"n": n} if n > 1 else {}) | {"norm": layer["norm"], "layer": layer}}


# Glm4MoeConfig
@family("glm4_moe", vocab_size=151552, hidden_size=4096, intermediate_size=10944, num_hidden_layers=46,
        num_attention_heads=96, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=False, moe_intermediate_size=1408,
        num_experts_per_tok=8, n_shared_experts=1, n_routed_experts=128, routed_scaling_factor=1.0, n_group=1,
        topk_group=1, first_k_dense_replace=1, norm_topk_prob=True, use_qk_norm=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def glm4_moe(c: Config) -> Doc:
    """GLM-4.5: DeepSeek-V3's experts with grouped-query attention, half of each head rotated."""
    norm = rmsnorm(c)
    block = attention(c, **biased(c, "attention_bias", qkv_bias=True))
    if c.get("use_qk_norm"):
        block["qk_norm"] = norm
    block["position"] = rope(c, d_head(c))
    return dense_then_experts(c, norm, block, {"score": "sigmoid", "selection_bias": True})


def dense_then_experts(c: Config, norm: Doc, block: Doc, router: Doc) -> Doc:
    """The first layers dense, all others with experts, some of them shared by every token."""
    act, width, n = activation(c, "hidden_act"), c.count("moe_intermediate_size"), layers(c)
    c.only("moe_layer_freq", 1)
    n_routed = c.count("n_routed_experts", "num_experts", "num_local_experts")
    shared = shared_expert(act, width, c.get("n_shared_experts"))
    experts = moe(n_routed, top_k(c), glu(act, width), router | grouped_router(c), shared=shared)
    base = {"norm": norm, "attention": block}
    first = c.get("first_k_dense_replace") or 0
    dense, sparse = base | {"ffn": gated(c)}, base | {"ffn": experts}
    doc = decoder(c, [("dense", dense)] * first + [("moe", sparse)] * (n - first), norm)
    return doc | mtp(c.get("num_nextn_predict_layers"), sparse)


# Llama4TextConfig
@family("llama4_text", vocab_size=202048, hidden_size=5120, intermediate_size=8192,
        intermediate_size_mlp=16384, num_hidden_layers=48, num_attention_heads=40, num_key_value_heads=8,
        head_dim=128, hidden_act="silu", max_position_embeddings=131072, rms_norm_eps=1e-5,
        tie_word_embeddings=False, num_experts_per_tok=1, num_local_experts=16, interleave_moe_layer_step=1,
        use_qk_norm=True, no_rope_layer_interval=4, attention_chunk_size=8192, attn_temperature_tuning=True,
        floor_scale=8192, attn_scale=0.1, rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def llama4(c: Config) -> Doc:
    """Llama 4: chunked layers with rotary positions, full ones without; each expert beside a shared one."""
    c.skip("for_llm_compressor", "attention_chunk_size", "floor_scale", "attn_scale", "layer_types")
    n, norm = layers(c), rmsnorm(c)
    block = attention(c, **biased(c, "attention_bias", bias=True))
    near: Doc = {"position": rope(c, d_head(c), interleaved=True)}
    if c.get("use_qk_norm"):
        near["qk_norm"] = {"kind": "l2norm", "eps": norm["eps"], "affine": False, "place": "after_rope"}
    if c.get("attention_chunk_size"):
        near["mask"] = {"kind": "chunked", "window": c.count("attention_chunk_size")}
    far: Doc = {}
    if c.get("attn_temperature_tuning"):
        far["temperature"] = {"floor_scale": c.number("floor_scale"), "attn_scale": c.number("attn_scale")}
    expert = gated(c)
    experts = moe(n_experts(c), top_k(c), expert,
                  {"score": "sigmoid", "order": "topk_then_score", "normalize": False, "input_scaled": True},
                  shared=expert)  # fmt: skip
    dense = glu(activation(c, "hidden_act"), c.count("intermediate_size_mlp"))
    step = c.count("interleave_moe_layer_step")
    sparse = set(c.get("moe_layers") or range(step - 1, n, step))
    entries = []
    for i, rotated in enumerate(rotated_layers(c, n)):
        name = ("local" if rotated else "global") + ("" if i in sparse else "_dense" if step > 1 else "")
        mix = block | (near if rotated else far)
        entries.append((name, {"norm": norm, "attention": mix, "ffn": experts if i in sparse else dense}))
    return decoder(c, entries, norm)
