"""Decoders with routed experts, in every layer or in some, beside shared ones or not."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.dense import hunyuan_attention, multiplied, pattern_types
from archsim.importers.hf.families.llama import (
    biased,
    d_head,
    gated,
    layers,
    mtp,
    rotary,
    rotated_layers,
    two_kinds,
    uniform,
    window,
    windowed,
)
from archsim.importers.hf.families.registry import DEFAULTS, family
from archsim.importers.hf.parts import (  # fmt: skip  # fmt: skip
    activation,
    attention,
    decoder,
    every,
    glu,
    head,
    heads,
    layer_types,
    layernorm,
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
@family("qwen3_moe", vocab_size=151936, hidden_size=2048, intermediate_size=6144,
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


family("qwen3_vl_moe_text", **{**DEFAULTS["qwen3_moe"], "norm_topk_prob": True, "rope_theta": 500000.0})(qwen3_moe)


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


# Glm4vMoeTextConfig
@family("glm4v_moe_text", vocab_size=151424, hidden_size=4096, intermediate_size=10944, num_hidden_layers=46,
        num_attention_heads=96, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=65536,
        rms_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, moe_intermediate_size=1408,
        num_experts_per_tok=8, n_shared_experts=1, n_routed_experts=128, routed_scaling_factor=1.0, n_group=1,
        topk_group=1, first_k_dense_replace=1, norm_topk_prob=True,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def glm4v_moe(c: Config) -> Doc:
    """GLM-4.5V's language model: GLM-4.5 with biases."""
    return glm4_moe(c)


def dense_then_experts(c: Config, norm: Doc, block: Doc, router: Doc, own: list[Entry] | None = None) -> Doc:
    """Some layers dense, by default the first, all others with experts, some of them shared by every token. own: what
    the attention of each layer has beside the block, and what is added to the layer's name.
    """
    act, width, n = activation(c, "hidden_act"), c.count("moe_intermediate_size"), layers(c)
    c.only("moe_layer_freq", 1)
    n_routed = c.count("n_routed_experts", "num_experts", "num_local_experts")
    shared = shared_expert(act, width, c.get("n_shared_experts"))
    experts = moe(n_routed, top_k(c), glu(act, width), router | grouped_router(c), shared=shared)
    base = {"norm": norm, "attention": block}
    dense, sparse = base | {"ffn": gated(c)}, base | {"ffn": experts}
    entries = [("moe", sparse) if routed else ("dense", dense) for routed in sparse_layers(c, n)]
    if own is not None:
        entries = [
            (name + suffix, layer | {"attention": block | more})
            for (name, layer), (suffix, more) in zip(entries, own, strict=True)
        ]
    doc = decoder(c, entries, norm)
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


# DbrxConfig, DbrxAttentionConfig and DbrxFFNConfig
@family("dbrx", d_model=2048, n_heads=16, n_layers=24, max_seq_len=2048, vocab_size=32000,
        tie_word_embeddings=False, attn_config={"kv_n_heads": 1, "clip_qkv": None},
        ffn_config={"ffn_act_fn": {"name": "silu"}, "ffn_hidden_size": 3584, "moe_num_experts": 4,
                    "moe_top_k": 1, "moe_normalize_expert_weights": 1.0})  # fmt: skip
def dbrx(c: Config) -> Doc:
    """DBRX: clamped grouped-query attention, norms without bias, sixteen experts of which four are used."""
    attn = c.child("attn_config") or Config({}, c.defaults["attn_config"])
    inner = c.child("ffn_config") or Config({}, c.defaults["ffn_config"])
    inner.skip("moe_jitter_eps", "moe_loss_weight", "uniform_expert_assignment", "hidden_size")
    attn.skip("attn_pdrop")
    d, n = c.count("d_model"), c.count("n_heads")
    position = rope(attn, d // n) if "rope_theta" in attn.data else rope(c, d // n)
    block = heads(n, attn.count("kv_n_heads"), d // n, position=position)
    if attn.get("clip_qkv") is not None:
        block["clip"] = attn.number("clip_qkv")
    act = inner.child("ffn_act_fn") or Config(inner.defaults["ffn_act_fn"], {})
    expert = glu(activation(act, "name"), inner.count("ffn_hidden_size"))
    inner.only("moe_normalize_expert_weights", 1, None)
    router = {} if inner.get("moe_normalize_expert_weights") else UNIFORM
    ffn = moe(inner.count("moe_num_experts"), inner.count("moe_top_k"), expert, router)
    norm = {"kind": "layernorm", "eps": 1e-5, "bias": False}
    entries = [("layers", {"norm": norm, "attention": block, "ffn": ffn})] * c.count("n_layers")
    return decoder(c, entries, norm, context="max_seq_len", width="d_model")


# Dots1Config
@family("dots1", vocab_size=152064, hidden_size=4608, intermediate_size=10944, moe_intermediate_size=1408,
        num_hidden_layers=62, num_attention_heads=32, num_key_value_heads=32, hidden_act="silu",
        max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=False, n_group=1, topk_group=1,
        first_k_dense_replace=0, norm_topk_prob=False, routed_scaling_factor=1.0, sliding_window=4096,
        max_window_layers=62)  # fmt: skip
def dots1(c: Config) -> Doc:
    """dots.llm1: DeepSeek-V3's experts behind Qwen3's attention."""
    c.only("scoring_func", "sigmoid", "noaux_tc")
    c.only("topk_method", "noaux_tc")
    norm, n, window = rmsnorm(c), layers(c), c.get("sliding_window")
    first = c.get("max_window_layers")
    types = c.listed("layer_types", n) or []
    if "sliding_attention" in types or (window is not None and not types and first is not None and first < n):
        raise c.error("sliding_window", "sliding windows are not supported in this family")
    return dense_then_experts(c, norm, rotary(c, qk_norm=norm), {"score": "sigmoid", "selection_bias": True})


# Ernie4_5_MoeConfig
@family("ernie4_5_moe", vocab_size=103424, hidden_size=2560, intermediate_size=12288, num_hidden_layers=28,
        num_attention_heads=20, num_key_value_heads=4, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=True, use_bias=False, moe_intermediate_size=1536, moe_k=6,
        moe_num_experts=64, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
        moe_layer_interval=1, rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def ernie4_5_moe(c: Config) -> Doc:
    """ERNIE 4.5 with experts: the balancing bias is a parameter of the checkpoint."""
    c.skip("moe_norm_min", "moe_capacity", "moe_gate", "moe_use_aux_free", "moe_aux_loss_lambda",
           "moe_norm_gate_logits", "moe_all_to_all_dropout", "num_nextn_predict_layers")  # fmt: skip
    n, norm, bias = layers(c), rmsnorm(c), biased(c, "use_bias", bias=True)
    act, width = activation(c, "hidden_act"), c.count("moe_intermediate_size")
    c.only("use_bias", False)
    block = attention(c, **bias, position=rope(c, d_head(c), interleaved=True))
    shared = shared_expert(act, width, c.get("moe_num_shared_experts"))
    router = {"selection_bias": "parameter"}
    experts = moe(c.count("moe_num_experts"), c.count("moe_k"), glu(act, width), router, shared=shared)
    first, last = c.get("moe_layer_start_index") or 0, c.get("moe_layer_end_index")
    last, step = n - 1 if last == -1 else last, c.count("moe_layer_interval")
    base = {"norm": norm, "attention": block}
    dense, sparse = ("dense", base | {"ffn": gated(c)}), ("moe", base | {"ffn": experts})
    chosen = [(i + 1) % step == 0 and first <= i <= last for i in range(n)]
    return decoder(c, [sparse if s else dense for s in chosen], norm)


# ExaoneMoeConfig
@family("exaone_moe", vocab_size=102400, hidden_size=4096, intermediate_size=16384, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, hidden_act="silu", max_position_embeddings=2048,
        rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=4096, sliding_window_pattern=4,
        first_k_dense_replace=1, moe_intermediate_size=1024, num_experts=64, num_experts_per_tok=8,
        num_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=2.5, n_group=1,
        topk_group=1)  # fmt: skip
def exaone_moe(c: Config) -> Doc:
    """K-EXAONE: EXAONE 4's attention before the norms, DeepSeek-V3's experts."""
    c.skip("num_nextn_predict_layers", "is_moe_layer")
    n, norm = layers(c), rmsnorm(c)
    act, width, shared = (activation(c, "hidden_act"), c.count("moe_intermediate_size"), c.get("num_shared_experts"))
    router = {"score": "sigmoid", "selection_bias": True} | grouped_router(c)
    beside = glu(act, width, n=shared) if shared else None
    experts = moe(c.count("num_experts", "n_routed_experts"), top_k(c), glu(act, width), router, shared=beside)
    types, near = pattern_types(c, n), {"position": rope(c, d_head(c))}
    block = attention(c, qk_norm=norm)
    far = near if c.get("sliding_window") is None else {}
    near = near | ({} if far else {"mask": sliding(c.count("sliding_window"))})
    entries = []
    for kind, sparse in zip(types, sparse_layers(c, n), strict=True):
        local = kind == "sliding_attention"
        name = ("local" if local else "global") + ("" if sparse else "_dense")
        ffn = experts if sparse else gated(c)
        entries.append((name, {"norm": norm, "attention": block | (near if local else far), "ffn": ffn}))
    return decoder(c, entries, norm)


def sparse_layers(c: Config, n: int) -> list[bool]:
    """Which layers have experts: a list of types, else all behind the dense prefix."""
    given, first = c.listed("mlp_layer_types", n), c.get("first_k_dense_replace") or 0
    if given is None:
        return [i >= first for i in range(n)]
    if not set(map(str, given)) <= {"dense", "sparse"}:
        raise c.error("mlp_layer_types", "only dense, sparse is supported")
    return [t == "sparse" for t in given]


# FlexOlmoConfig
@family("flex_olmo", vocab_size=100352, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-6,
        tie_word_embeddings=False, num_experts_per_tok=5, num_experts=7, norm_topk_prob=False,
        rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def flex_olmo(c: Config) -> Doc:
    """FlexOlmo: OLMo 2 with experts."""
    return uniform(c, rmsnorm(c), _olmo_attention(c), plain_experts(c), placement="post_inside")


# OlmoeConfig
@family("olmoe", vocab_size=50304, hidden_size=2048, intermediate_size=2048, num_hidden_layers=16,
        num_attention_heads=16, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-5,
        tie_word_embeddings=False, clip_qkv=None, num_experts_per_tok=8, num_experts=64,
        norm_topk_prob=False)  # fmt: skip
def olmoe(c: Config) -> Doc:
    """OLMoE: one norm over all queries and one over all keys, small experts."""
    return uniform(c, rmsnorm(c), _olmo_attention(c), plain_experts(c))


def _olmo_attention(c: Config) -> Doc:
    clip = {} if c.get("clip_qkv") is None else {"clip": c.number("clip_qkv")}
    return rotary(c, qk_norm=rmsnorm(c, over="all")) | clip


def plain_experts(c: Config) -> Doc:
    """Experts as wide as `intermediate_size`; their weights add up to 1 where `norm_topk_prob` says so."""
    return moe(n_experts(c), top_k(c), gated(c), unnormalized(c))


GRANITE = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False, "embedding_multiplier": 1.0, "logits_scaling": 1.0,
    "residual_multiplier": 1.0, "attention_multiplier": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip
"""GraniteMoeConfig; the classes derived from it differ in the keys given beside it."""


# GraniteMoeSharedConfig
@family("granitemoe", "granitemoeshared", **GRANITE, shared_intermediate_size=0)
def granitemoe(c: Config) -> Doc:
    """Granite 3 with experts, some with a shared one."""
    return multiplied(c, granite_experts(c))


def granite_experts(c: Config) -> Doc:
    """Routed experts and, where it has a width, a shared one."""
    width = c.get("shared_intermediate_size") or 0
    act = activation(c, "hidden_act")
    shared = glu(act, c.count("shared_intermediate_size")) if width else None
    return moe(n_experts(c), top_k(c), gated(c), shared=shared)


# HunYuanMoEV1Config
@family("hunyuan_v1_moe", vocab_size=290943, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-5,
        tie_word_embeddings=False, num_experts=1, moe_topk=1)  # fmt: skip
def hunyuan_moe(c: Config) -> Doc:
    """Hunyuan-A13B: a shared network as wide as an expert in every layer."""
    c.skip("moe_layer_num_skipped", "moe_drop_tokens", "moe_random_routing_dropped_token", "norm_topk_prob",
           "capacity_factor", "group_limited_greedy", "n_group", "topk_group",
           "routed_scaling_factor")  # fmt: skip
    c.skip("num_media_embeds", *(key for key in c.data if key.startswith("vit_")))  # of a model that sees
    c.only("use_mixed_mlp_moe", True)
    width = c.count("intermediate_size")
    for key, usual in (("num_shared_expert", 1), ("moe_intermediate_size", width)):
        value = c.get(key)
        if value is not None and set(value if isinstance(value, list) else [value]) != {usual}:
            raise c.error(key, f"only {usual} is supported, in every layer")
    experts = moe(_same(c, "num_experts"), _same(c, "moe_topk"), gated(c), shared=gated(c))
    return uniform(c, rmsnorm(c), hunyuan_attention(c), experts)


def _same(c: Config, key: str) -> int:
    """A count that some files give once per layer."""
    value = c.get(key)
    if isinstance(value, list) and value and all(v == value[0] for v in value):
        return Config({key: value[0]}, {}).count(key)
    return c.count(key)


# PhimoeConfig
@family("phimoe", vocab_size=32064, hidden_size=4096, intermediate_size=6400, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts_per_tok=2, num_local_experts=16,
        sliding_window=None, attention_bias=False, lm_head_bias=False,
        rope_parameters={"rope_theta": 1000000.0})  # fmt: skip
def phimoe(c: Config) -> Doc:
    """Phi-3.5-MoE: LayerNorm, two of sixteen experts, biases in the attention and the head."""
    c.skip("input_jitter_noise", "original_max_position_embeddings")
    norm = layernorm(c, "rms_norm_eps")
    scaling = c.data.get("rope_scaling")
    if isinstance(scaling, dict):
        c = c.changed(rope_scaling={k: v for k, v in scaling.items() if not k.endswith("_mscale")})
    ffn, output = moe(n_experts(c), top_k(c), gated(c), UNIFORM), head(c, **biased(c, "lm_head_bias", bias=True))
    return uniform(c, norm, rotary(c) | window(c), ffn, output=output)


# Qwen2MoeConfig
@family("qwen2_moe", vocab_size=151936, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24,
        num_attention_heads=16, num_key_value_heads=16, hidden_act="silu", max_position_embeddings=32768,
        rms_norm_eps=1e-6, tie_word_embeddings=False, use_sliding_window=False, sliding_window=0,
        max_window_layers=28, decoder_sparse_step=1, moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632, num_experts_per_tok=4, num_experts=60, norm_topk_prob=False,
        qkv_bias=True)  # fmt: skip
def qwen2_moe(c: Config) -> Doc:
    """Qwen1.5-MoE and Qwen2-MoE: a gated shared expert beside the routed ones."""
    n, norm = layers(c), rmsnorm(c)
    block = attention(c, **biased(c, "qkv_bias", qkv_bias=True), position=rope(c, d_head(c)))
    types, width = windowed(c, n)
    near = {"mask": sliding(width)} if width else {}
    if len(set(types)) > 1:
        raise c.error("max_window_layers", "sliding windows in some layers alone are not supported in this family")
    block |= near if "sliding_attention" in types else {}
    base = {"norm": norm, "attention": block}
    return decoder(c, qwen_entries(c, n, base, shared_experts(c, unnormalized(c))), norm)


def shared_experts(c: Config, router: Doc) -> Doc:
    """Routed experts with a gated shared one."""
    act = activation(c, "hidden_act")
    shared = glu(act, c.count("shared_expert_intermediate_size"), gate=True)
    expert = glu(act, c.count("moe_intermediate_size"))
    return moe(n_experts(c), top_k(c), expert, router, shared=shared)


# SolarOpenConfig
@family("solar_open", vocab_size=196608, hidden_size=4096, num_hidden_layers=48, num_attention_heads=64,
        num_key_value_heads=8, head_dim=128, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=False, moe_intermediate_size=1280, num_experts_per_tok=8,
        n_shared_experts=1, n_routed_experts=128, routed_scaling_factor=1.0, n_group=1, topk_group=1,
        norm_topk_prob=True, rope_parameters={"rope_theta": 1000000.0})  # fmt: skip
def solar_open(c: Config) -> Doc:
    """Solar Open: GLM-4.5's experts in every layer."""
    c.skip("intermediate_size")
    c.only("first_k_dense_replace", 0)
    c = c.changed(intermediate_size=c.count("moe_intermediate_size"))
    c.only("use_qk_norm", False)
    block = attention(c, **biased(c, "attention_bias", qkv_bias=True), position=rope(c, d_head(c)))
    return dense_then_experts(c, rmsnorm(c), block, {"score": "sigmoid", "selection_bias": True})
