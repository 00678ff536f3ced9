"""Decoders of 2025 and 2026 whose layers are made of parts that others have as well."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.deepseek import SIGMOID, latent
from archsim.importers.hf.families.dense import glm4, granite_embedding, granite_head, multiplied
from archsim.importers.hf.families.llama import (
    biased,
    capped,
    cohere_usual,
    d_head,
    gated,
    layers,
    mtp,
    phi3,
    plain,
    rotary,
    two_kinds,
    uniform,
)
from archsim.importers.hf.families.moe import (
    dense_then_experts,
    granite_experts,
    grouped_router,
    n_experts,
    qwen_entries,
    shared_expert,
    sparse_layers,
    top_k,
    unnormalized,
)
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import (
    activation,
    attention,
    decoder,
    every,
    every_layer,
    glu,
    head,
    heads,
    layer_types,
    layernorm,
    moe,
    rmsnorm,
    rope,
    rope_scaling,
    sliding,
)
from archsim.importers.hf.pattern import Entry

Doc = JsonObject
LOCAL = "sliding_attention"


# Glm4vTextConfig
@family("glm4v_text", vocab_size=151552, hidden_size=4096, intermediate_size=13696, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=2, hidden_act="silu", max_position_embeddings=32768,
        rms_norm_eps=1e-05)  # fmt: skip
def glm4v(c: Config) -> Doc:
    """GLM-4.1V's language model: GLM-4-0414 with biases on queries, keys and values."""
    return glm4(c.changed(attention_bias=True))


# GlmOcrTextConfig
@family("glm_ocr_text", vocab_size=59392, hidden_size=1024, intermediate_size=4096, num_hidden_layers=16,
        num_attention_heads=16, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-05)  # fmt: skip
def glm_ocr(c: Config) -> Doc:
    """GLM-OCR's language model: GLM-4-0414 without biases."""
    return glm4(c.changed(attention_bias=False))


# GraniteSWAConfig
@family("granite_swa", vocab_size=100352, hidden_size=2560, intermediate_size=8192, num_hidden_layers=24,
        num_attention_heads=20, num_key_value_heads=4, hidden_act="silu", max_position_embeddings=8192,
        rms_norm_eps=1e-05, tie_word_embeddings=True, attention_multiplier=1.0, embedding_multiplier=1.0,
        logits_scaling=1.0, residual_multiplier=1.0, sliding_window=128)  # fmt: skip
def granite_swa(c: Config) -> Doc:
    """Granite with sinks, windows, and a base of its own for the positions of every layer."""
    return _granite_swa(c, gated(c, **biased(c, "mlp_bias", bias=True)))


# GraniteMoeSWAConfig
@family("granitemoe_swa", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, hidden_act="silu", max_position_embeddings=2048,
        rms_norm_eps=1e-06, tie_word_embeddings=False, attention_multiplier=1.0, embedding_multiplier=1.0,
        logits_scaling=1.0, residual_multiplier=1.0, sliding_window=128, num_local_experts=8,
        num_experts_per_tok=2, shared_intermediate_size=0)  # fmt: skip
def granitemoe_swa(c: Config) -> Doc:
    """The same with experts."""
    return _granite_swa(c, granite_experts(c))


def _granite_swa(c: Config, ffn: Doc) -> Doc:
    n, norm, factor = layers(c), rmsnorm(c), c.number("residual_multiplier")
    bias = biased(c, "attention_bias", bias=True)
    block = attention(c, **bias, scale=c.number("attention_multiplier"), sinks=True)
    base = {"norm": norm, **({"branch_scale": factor} if factor != 1 else {}), "ffn": ffn}
    types = layer_types(c, n, ["sliding_attention" if i % 4 else "full_attention" for i in range(n)])
    entries = [
        (_place(t), base | {"attention": block | position | _window(c, t)})
        for t, position in zip(types, own_positions(c, n), strict=True)
    ]
    return decoder(c, entries, norm, embedding=granite_embedding(c), output=granite_head(c))


def own_positions(c: Config, n: int, rotated: Sequence[bool] = ()) -> list[Doc]:
    """The positions of every layer: `layer_rope_theta` gives a base for each, 0 for none. rotated: layers that have
    some where it is not given; all unless stated.
    """
    common, bases = rope(c, d_head(c)), c.listed("layer_rope_theta", n)
    if bases is None:
        return [{"position": common} if own else {} for own in rotated or [True] * n]
    return [{"position": common | {"theta": int(base)}} if base else {} for base in bases]


def _place(kind: str) -> str:
    return "local" if kind == LOCAL else "global"


def _window(c: Config, kind: str) -> Doc:
    return {"mask": sliding(c.count("sliding_window"))} if kind == LOCAL else {}


# HYV3Config
@family("hy_v3", vocab_size=120832, hidden_size=4096, intermediate_size=13312, num_hidden_layers=80,
        num_attention_heads=64, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-05, tie_word_embeddings=False,
        moe_intermediate_size=1536, num_experts=192, num_experts_per_tok=8, num_shared_experts=1,
        router_scaling_factor=2.826, rope_parameters={"rope_theta": 11158840.0})  # fmt: skip
def hy_v3(c: Config) -> Doc:
    """Hunyuan 3: normed queries and keys, sigmoid routing balanced by a bias, a shared expert."""
    c.skip("enable_moe_fp32_combine", "enable_lm_head_fp32", "enable_attention_fp32_softmax", "intermediate_size",
           "route_norm", "use_grouped_mm", "num_nextn_predict_layers")  # fmt: skip
    c.only("mlp_bias", False)
    for key in ("qk_norm", "moe_router_enable_expert_bias", "moe_router_use_sigmoid"):
        c.only(key, True)
    c.only("expert_hidden_dim", c.get("moe_intermediate_size"))
    n, norm, act, width = layers(c), rmsnorm(c), activation(c, "hidden_act"), c.count("moe_intermediate_size")
    router = SIGMOID | {"scale": c.number("router_scaling_factor")}
    if c.get("num_shared_experts") == 0:
        raise c.error("num_shared_experts", "its class reads 0 as one shared expert as wide as a dense layer")
    shared = shared_expert(act, width, c.get("num_shared_experts"))
    experts = moe(n_experts(c), top_k(c), glu(act, width), router, shared=shared)
    c = c.changed(first_k_dense_replace=c.data.get("first_k_dense_replace", 1))
    base = {"norm": norm, "attention": rotary(c, qk_norm=norm)}
    kinds = {True: ("moe", base | {"ffn": experts}), False: ("dense", base | {"ffn": gated(c)})}
    return decoder(c, [kinds[sparse] for sparse in sparse_layers(c, n)], norm)


# HyperCLOVAXConfig
@family("hyperclovax", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, head_dim=128, hidden_act="silu",
        max_position_embeddings=2048, rms_norm_eps=1e-06, tie_word_embeddings=False,
        attention_multiplier=0.08838834764831845, embedding_multiplier=1.0, logits_scaling=1.0,
        residual_multiplier=1.0, use_post_norm=True)  # fmt: skip
def hyperclovax(c: Config) -> Doc:
    """HyperCLOVA X: Granite's factors but for the logits, which are multiplied, and norms on both sides of a branch."""
    factor = c.number("logits_scaling")
    doc = multiplied(c.changed(logits_scaling=1.0), gated(c, **biased(c, "mlp_bias", bias=True)))
    doc["head"] = doc["head"] | ({"scale": factor} if factor != 1 else {})
    if not c.get("use_post_norm"):
        return doc
    return every_layer(doc, lambda layer: layer | {"placement": "pre+post"})


# MellumConfig
@family("mellum", vocab_size=98304, hidden_size=2304, intermediate_size=7168, num_hidden_layers=28,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-06, tie_word_embeddings=False,
        moe_intermediate_size=896, num_local_experts=64, num_experts_per_tok=8, norm_topk_prob=True,
        sliding_window=1024)  # fmt: skip
def mellum(c: Config) -> Doc:
    """Mellum 2: Qwen3's experts, and windows in some layers, whose positions have a base of their own."""
    c.skip("intermediate_size", "sliding_window", "mtp_layer_types", "mtp_mlp_layer_types")
    c.only("num_nextn_predict_layers", 0)
    n, norm = layers(c), rmsnorm(c)
    expert = glu(activation(c, "hidden_act"), c.count("moe_intermediate_size"))
    experts = moe(n_experts(c), top_k(c), expert, unnormalized(c))
    if not all(sparse_layers(c, n)):
        raise c.error("mlp_layer_types", "only sparse is supported")
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm)
    entries: list[Entry] = []
    for kind in layer_types(c, n, ["full_attention"] * n):
        own = block | {"position": rope(c, d_head(c), kind)} | _window(c, kind)
        entries.append((_place(kind), {"norm": norm, "attention": own, "ffn": experts}))
    return decoder(c, entries, norm)


# MiniCPM3Config
@family("minicpm3", vocab_size=73448, hidden_size=2560, intermediate_size=6400, num_hidden_layers=62,
        num_attention_heads=40, num_key_value_heads=40, head_dim=32, hidden_act="silu",
        max_position_embeddings=32768, rms_norm_eps=1e-05, tie_word_embeddings=True, kv_lora_rank=256,
        q_lora_rank=768, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64, scale_depth=1.4, scale_emb=12,
        dim_model_base=256)  # fmt: skip
def minicpm3(c: Config) -> Doc:
    """MiniCPM3: latent attention in a dense decoder, with factors on embedding, branches and logits."""
    d, n = c.count("hidden_size"), layers(c)
    block = latent(c.changed(rope_interleave=False))
    factor = c.number("scale_depth") / n**0.5
    output = head(c, scale=c.number("dim_model_base") / d)
    embedding = {"scale": c.number("scale_emb")}
    return uniform(c, rmsnorm(c), block, gated(c), branch_scale=factor, embedding=embedding, output=output)


# YoutuConfig
@family("youtu", vocab_size=128256, hidden_size=2048, intermediate_size=6144, num_hidden_layers=32,
        num_attention_heads=16, num_key_value_heads=16, head_dim=64, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-06, tie_word_embeddings=True, kv_lora_rank=512,
        q_lora_rank=1536, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, rope_interleave=True)  # fmt: skip
def youtu(c: Config) -> Doc:
    """Youtu-LLM: latent attention in a dense decoder."""
    return uniform(c, rmsnorm(c), latent(c), gated(c))


# Mistral4Config
@family("mistral4", vocab_size=131072, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
        num_attention_heads=32, num_key_value_heads=32, head_dim=128, hidden_act="silu",
        max_position_embeddings=1048576, rms_norm_eps=1e-06, tie_word_embeddings=False, kv_lora_rank=256,
        q_lora_rank=1024, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=128, rope_interleave=True,
        moe_intermediate_size=2048, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=4,
        first_k_dense_replace=0, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.0,
        rope_parameters={"rope_theta": 10000.0})  # fmt: skip
def mistral4(c: Config) -> Doc:
    """Mistral Small 4: DeepSeek-V3's layer with softmax routing. The config's share of rotated dimensions is that of
    the whole head: all of `qk_rope_head_dim` are rotated.
    """
    inner = {k: v for k, v in (c.data.get("rope_parameters") or {}).items() if k != "partial_rotary_factor"}
    c = c.changed(rope_parameters=inner) if inner else c
    return dense_then_experts(c, rmsnorm(c), latent(c), {})


# AriaTextConfig
@family("aria_text", vocab_size=32000, hidden_size=4096, intermediate_size=4096, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, head_dim=128, hidden_act="silu",
        max_position_embeddings=2048, rms_norm_eps=1e-06, tie_word_embeddings=False, moe_num_experts=8,
        moe_num_shared_experts=2, moe_topk=2)  # fmt: skip
def aria(c: Config) -> Doc:
    """Aria's language model: LLaMA with experts and shared ones."""
    c.only("mlp_bias", False)
    shared = shared_expert(activation(c, "hidden_act"), c.count("intermediate_size"), c.get("moe_num_shared_experts"))
    experts = moe(
        c.count("moe_num_experts"), c.count("moe_topk"), gated(c), {"order": "topk_then_score"}, shared=shared
    )
    return uniform(c, rmsnorm(c), rotary(c), experts)


# Cohere2MoeConfig
@family("cohere2_moe", vocab_size=256000, hidden_size=8192, intermediate_size=22528, num_hidden_layers=40,
        num_attention_heads=64, num_key_value_heads=64, head_dim=128, hidden_act="silu",
        max_position_embeddings=8192, layer_norm_eps=1e-05, tie_word_embeddings=True, logit_scale=0.0625,
        sliding_window=4096, sliding_window_pattern=4, num_experts=8, num_experts_per_tok=2,
        num_shared_experts=0, norm_topk_prob=True, expert_selection_fn="softmax",
        shared_expert_combination_strategy="average")  # fmt: skip
def cohere2_moe(c: Config) -> Doc:
    """Command A with experts, and shared ones whose output is averaged with theirs or added to it."""
    cohere_usual(c)
    c.skip("prefix_dense_intermediate_size", "rms_norm_eps", "layer_norm_eps")
    joined = c.only("shared_expert_combination_strategy", "average", "sum")
    n_shared = c.get("num_shared_experts")
    own = {"n": c.count("num_shared_experts"), "averaged": joined == "average"} if n_shared else {}
    score = c.only("expert_selection_fn", "softmax", "sigmoid")
    n = layers(c)
    norm = layernorm(c, bias=False) if c.get("rms_norm_eps") is None else rmsnorm(c)
    router = {"order": "topk_then_score"} | ({"score": "sigmoid"} | unnormalized(c) if score == "sigmoid" else {})
    c.skip("norm_topk_prob")
    experts = moe(n_experts(c), top_k(c), gated(c), router, shared=gated(c) | own if own else None)
    block = attention(c, **biased(c, "attention_bias", bias=True))
    position = {"position": rope(c, d_head(c), interleaved=True)}
    near = position | {"mask": sliding(c.count("sliding_window"))}
    period = c.count("prefix_dense_sliding_window_pattern", default=1)
    turned = position if period == 1 else {}  # dense layers are rotated where none of them is local
    entries: list[Entry] = []
    for kind, sparse in zip(_cohere_types(c, n, period), sparse_layers(c, n), strict=True):
        own = near if kind == LOCAL else {} if sparse else turned
        ffn = experts if sparse else gated(c.changed(intermediate_size=c.get("prefix_dense_intermediate_size")))
        layer = {"norm": norm, "parallel": "one_norm", "attention": block | own, "ffn": ffn}
        entries.append((_place(kind) + ("" if sparse else "_dense"), layer))
    return decoder(c, entries, norm, output=head(c, scale=c.number("logit_scale")))


def _cohere_types(c: Config, n: int, period: int) -> list[str]:
    """The kind of attention of every layer; the dense ones in front have a pattern of their own."""
    first = c.get("first_k_dense_replace") or 0
    usual = every(n - first, c.count("sliding_window_pattern"), "full_attention", LOCAL)
    return layer_types(c, n, every(first, period, "full_attention", LOCAL) + usual)


# Kolibri1Config
@family("kolibri1", vocab_size=128000, hidden_size=2560, num_hidden_layers=50, num_attention_heads=48,
        num_key_value_heads=4, head_dim=128, hidden_act="silu", max_position_embeddings=262144,
        rms_norm_eps=1e-06, tie_word_embeddings=False, moe_intermediate_size=512, num_local_experts=384,
        num_experts_per_tok=6, shared_expert_intermediate_size=512, norm_topk_prob=False,
        sliding_window=513)  # fmt: skip
def kolibri1(c: Config) -> Doc:
    """Kolibri: norms on both sides of a branch, local layers rotated and global ones not, small experts."""
    c.skip("intermediate_size")
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    router = {"score": "sigmoid", "order": "topk_then_score", "selection_bias": True} | unnormalized(c)
    shared = glu(act, c.count("shared_expert_intermediate_size"))
    experts = moe(n_experts(c), top_k(c), glu(act, c.count("moe_intermediate_size")), router, shared=shared)
    base = {"norm": norm, "placement": "pre+post", "attention": attention(c, qk_norm=norm), "ffn": experts}
    near = {"position": rope(c, d_head(c)), "mask": sliding(c.count("sliding_window"))}
    types = layer_types(c, n, every(n, 5, "full_attention", LOCAL))
    return two_kinds(c, base, near, {}, types)


# FlintConfig
@family("flint", vocab_size=150144, hidden_size=2048, intermediate_size=6144, num_hidden_layers=49,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, hidden_act="silu",
        max_position_embeddings=262144, rms_norm_eps=1e-06, tie_word_embeddings=False,
        moe_intermediate_size=512, num_experts=256, num_experts_per_tok=6, shared_expert_intermediate_size=1024,
        norm_topk_prob=True, sliding_window=513, decoder_sparse_step=1)  # fmt: skip
def flint(c: Config) -> Doc:
    """Flint: Qwen3's attention with sinks; local layers rotated and global ones not; sigmoid routing, a shared expert,
    dense layers by name.
    """
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    router = {"score": "sigmoid"} | unnormalized(c)
    shared = glu(act, c.count("shared_expert_intermediate_size"))
    experts = moe(n_experts(c), top_k(c), glu(act, c.count("moe_intermediate_size")), router, shared=shared)
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm, sinks=True)
    near = {"position": rope(c, d_head(c)), **_window(c, LOCAL)}
    usual = ["full_attention" if i < 2 or i % 4 == 1 or i == n - 1 else LOCAL for i in range(n)]
    types = layer_types(c, n, usual)
    if c.data.get("mlp_only_layers") is None:
        c = c.changed(mlp_only_layers=[0, 1])
    entries: list[Entry] = []
    for kind, (ffn, layer) in zip(types, qwen_entries(c, n, {"norm": norm}, experts), strict=True):
        name = _place(kind) + ("_dense" if ffn == "dense" else "")
        entries.append((name, layer | {"attention": block | (near if kind == LOCAL else {})}))
    return decoder(c, entries, norm)


# LagunaConfig
@family("laguna", vocab_size=100352, hidden_size=2048, intermediate_size=8192, num_hidden_layers=40,
        num_attention_heads=48, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-06, tie_word_embeddings=False, gating=True,
        moe_intermediate_size=512, num_experts=256, num_experts_per_tok=8, shared_expert_intermediate_size=512,
        moe_routed_scaling_factor=1.0, sliding_window=512, moe_router_logit_softcapping=0.0)  # fmt: skip
def laguna(c: Config) -> Doc:
    """Laguna: heads of their own number in every layer, a softplus gate, sigmoid routing, a shared expert."""
    c.skip("num_attention_heads_per_layer", "sliding_window")
    c.only("moe_apply_router_weight_on_input", False)
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    cap = c.get("moe_router_logit_softcapping")
    router: Doc = {"score": "sigmoid", "selection_bias": "parameter", "scale": c.number("moe_routed_scaling_factor")}
    router |= {"softcap": cap} if cap else {}
    shared = glu(act, c.count("shared_expert_intermediate_size"))
    experts = moe(n_experts(c), top_k(c), glu(act, c.count("moe_intermediate_size")), router, shared=shared)
    ffns = {True: experts, False: gated(c)}
    numbers = c.listed("num_attention_heads_per_layer", n) or [c.count("num_attention_heads")] * n
    types = layer_types(c, n, ["full_attention"] * n)
    c = c.changed(first_k_dense_replace=1)
    entries: list[Entry] = []
    for kind, number, sparse in zip(types, numbers, sparse_layers(c, n), strict=True):
        block = _laguna_attention(c, kind, number, norm) | _window(c, kind)
        name = _place(kind) + ("" if sparse else "_dense")
        entries.append((name, {"norm": norm, "attention": block, "ffn": ffns[sparse]}))
    return decoder(c, entries, norm)


def _laguna_attention(c: Config, kind: str, n_heads: int, norm: Doc) -> Doc:
    """One layer's attention; the gate is per head or, where `gating` says anything else, per element."""
    size = c.count("head_dim")
    block = attention(c.changed(num_attention_heads=n_heads), **biased(c, "attention_bias", bias=True), qk_norm=norm)
    gating = c.only("gating", True, False, "per-head", "per-element")
    block["gate"] = {"kind": "softplus", "per": "head" if gating in (True, "per-head") else "element"}
    return block | {"position": rope(c, size, kind)}


# Cosmos3EdgeTextConfig
@family("cosmos3_edge_text", vocab_size=131072, hidden_size=2048, intermediate_size=9216, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=8, head_dim=128, hidden_act="relu2",
        max_position_embeddings=131072, rms_norm_eps=1e-05, tie_word_embeddings=False,
        rope_parameters={"rope_theta": 100000000.0})  # fmt: skip
def cosmos3(c: Config) -> Doc:
    """Cosmos 3 Edge's language model: LLaMA with a squared ReLU and no gate."""
    return uniform(c, rmsnorm(c), rotary(c), plain(c))


# Molmo2TextConfig
@family("molmo2_text", vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=36864, rms_norm_eps=1e-06, tie_word_embeddings=False, additional_vocab_size=128,
        qk_norm_type="qwen3")  # fmt: skip
def molmo2(c: Config) -> Doc:
    """Molmo 2's language model: Qwen3 with rows for image tokens in the input table."""
    c.skip("rope_scaling_layers")
    c.only("norm_after", False)
    c.only("qk_norm_type", "qwen3")
    bias = biased(c, "attention_bias", qkv_bias=True)
    doc = uniform(c, rmsnorm(c), attention(c, **bias, qk_norm=rmsnorm(c), position=rope(c, d_head(c))), gated(c))
    added = c.get("additional_vocab_size") or 0
    return doc | ({"embedding": {"input_rows": doc["vocab_size"] + added}} if added else {})


# MuseGlimmerTextConfig
@family("muse_glimmer_text", vocab_size=202048, hidden_size=6656, intermediate_size=19968, num_hidden_layers=52,
        num_attention_heads=32, num_key_value_heads=2, head_dim=128, max_position_embeddings=131072,
        rms_norm_eps=1e-05, tie_word_embeddings=False, hidden_activation="silu", final_logit_softcapping=20.0,
        output_multiplier=0.19611613513818404, qk_scale_factor=3.87, sliding_window=2048)  # fmt: skip
def muse_glimmer(c: Config) -> Doc:
    """Muse Glimmer's language model: gated attention, norms on both sides, queries and keys normed without weights."""
    n, norm = layers(c), rmsnorm(c, offset=True)
    plain_norm = {k: v for k, v in norm.items() if k != "offset"}
    post = norm | {"eps": c.number("post_norm_eps")} if c.get("post_norm_eps") is not None else norm
    scale = c.number("qk_scale_factor") * d_head(c) ** -0.5
    block = attention(c, **biased(c, "attention_bias", bias=True), scale=scale, gate={"per": "element"},
                      qk_norm=plain_norm | {"affine": False})  # fmt: skip
    base = {"norm": norm, "placement": "pre+post", "post_norm": post, "ffn": gated(c)}
    c.skip("sliding_window")  # where no layer is local
    usual = every(n, 4, "full_attention", LOCAL, last=True)
    types = layer_types(c, n, usual)
    entries = [
        (_place(t), base | {"attention": block | position | _window(c, t)})
        for t, position in zip(types, own_positions(c, n, [kind == LOCAL for kind in usual]), strict=True)
    ]
    output = head(c, scale=c.number("output_multiplier"), **capped(c, "final_logit_softcapping"))
    return decoder(c, entries, plain_norm, output=output, embedding={"norm": plain_norm | {"affine": False}})


# Phi4MultimodalConfig
@family("phi4_multimodal", vocab_size=200064, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-05, tie_word_embeddings=False)  # fmt: skip
def phi4_multimodal(c: Config) -> Doc:
    """Phi-4-multimodal's language model, without the adapters for images and speech."""
    c.skip("vision_config", "audio_config", "embd_layer", "img_processor", "audio_processor", "vision_lora",
           "speech_lora")  # fmt: skip
    return phi3(c)


# Lfm3Config
@family("lfm3", vocab_size=128000, hidden_size=2048, intermediate_size=7680, num_hidden_layers=24,
        num_attention_heads=16, num_key_value_heads=4, head_dim=128, max_position_embeddings=128000,
        tie_word_embeddings=True, norm_eps=1e-05, conv_L_cache=7, conv_bias=False, sliding_window=256,
        use_attention_gate=True, use_sandwich_norm=True, partial_theta=1000000.0,
        rope_parameters={"sliding_attention": {"rope_theta": 10000.0},
                         "full_attention": {"rope_theta": 1000000.0, "partial_rotary_factor": 0.5}})  # fmt: skip
def lfm3(c: Config) -> Doc:
    """LFM3: short convolutions, local and global attention with a gate per head, norms on both sides."""
    n, norm = layers(c), rmsnorm(c, "norm_eps")
    mixer = {"kind": "short_conv", "d_inner": c.count("hidden_size"), "d_conv": c.count("conv_L_cache")}
    mixer |= biased(c, "conv_bias", bias=True)
    gate = {"gate": {"per": "head"}} if c.get("use_attention_gate") else {}
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm, **gate)
    base = {"norm": norm, **({"placement": "pre+post"} if c.get("use_sandwich_norm") else {})}
    ffn = glu("silu", c.count("intermediate_size"))
    known = ("conv", "full_attention", LOCAL)
    c.skip("sliding_window")
    entries: list[Entry] = []
    usual = ["full_attention" if i % 4 == 2 else LOCAL if i and i % 4 == 0 else "conv" for i in range(n)]
    for kind in layer_types(c, n, usual, known):
        if kind == "conv":
            entries.append(("conv", base | {"mixer": mixer, "ffn": ffn}))
            continue
        own = block | {"position": rope(c, d_head(c), kind)} | _window(c, kind)
        entries.append((_place(kind), base | {"attention": own, "ffn": ffn}))
    return decoder(c, entries, norm)


# Ernie4_5_VLMoeTextConfig
@family("ernie4_5_vl_moe_text", vocab_size=103424, hidden_size=2560, intermediate_size=12288,
        num_hidden_layers=28, num_attention_heads=20, num_key_value_heads=4, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-05, tie_word_embeddings=True, use_bias=False, moe_k=6,
        moe_num_experts=64, moe_num_shared_experts=2, rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def ernie4_5_vl_moe(c: Config) -> Doc:
    """ERNIE 4.5 VL's language model: experts for texts, and as many for image tokens."""
    c.skip("moe_norm_min", "moe_capacity", "moe_gate", "moe_use_aux_free", "moe_layer_start_index",
           "moe_layer_end_index", "moe_layer_interval")  # fmt: skip
    c.skip("freq_allocation", "rope_3d", "moe_multimodal_dispatch_use_allgather", "moe_dense_experts_token_type_id",
           "pixel_hidden_size", "spatial_conv_size", "temporal_conv_size", "im_patch_id", "max_text_id",
           "num_nextn_predict_layers")  # fmt: skip
    c.only("use_bias", False)
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    widths = c.get("moe_intermediate_size")
    width = widths[0] if isinstance(widths, list) else c.count("moe_intermediate_size")
    shared = shared_expert(act, width, c.get("moe_num_shared_experts"))
    experts = moe(_first(c, "moe_num_experts"), c.count("moe_k"), glu(act, width),
                  {"selection_bias": "parameter"}, shared=shared, image_experts=_image_expert(c, act))  # fmt: skip
    base = {"norm": norm, "attention": attention(c, position=rope(c, d_head(c), interleaved=True))}
    kinds = {True: ("moe", base | {"ffn": experts}), False: ("dense", base | {"ffn": gated(c)})}
    c = c.changed(first_k_dense_replace=1)
    return decoder(c, [kinds[sparse] for sparse in sparse_layers(c, n)], norm)


def _image_expert(c: Config, act: str) -> Doc | None:
    """The expert of image tokens, where widths are given for both."""
    widths, numbers = c.get("moe_intermediate_size"), c.get("moe_num_experts")
    if not isinstance(widths, list) or len(widths) < 2:
        return None
    if isinstance(numbers, list) and len(set(numbers)) > 1:
        raise c.error("moe_num_experts", "a different number of vision experts is not supported")
    return glu(act, widths[1])


def _first(c: Config, key: str) -> int:
    """A count that files give once for texts and once for images."""
    value = c.get(key)
    return Config({key: value[0]}, {}).count(key) if isinstance(value, list) and value else c.count(key)


# MiMoV2FlashConfig
@family("mimo_v2_flash", vocab_size=152576, hidden_size=4096, intermediate_size=16384, num_hidden_layers=48,
        num_attention_heads=64, num_key_value_heads=4, head_dim=192, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-05, tie_word_embeddings=False, v_head_dim=128,
        moe_intermediate_size=2048, n_routed_experts=256, num_experts_per_tok=8, norm_topk_prob=True,
        routed_scaling_factor=1.0, n_group=1, topk_group=1, sliding_window=129)  # fmt: skip
def mimo_v2(c: Config) -> Doc:
    """MiMo-V2: five local layers with sinks and twice the key/value heads to one global, narrower values."""
    c.skip("attention_value_scale", "attention_chunk_size", "n_shared_experts", "moe_layer_freq", "scoring_func",
           "topk_method", "add_swa_attention_sink_bias", "add_full_attention_sink_bias", "layernorm_epsilon",
           "sliding_window", "sliding_window_size", "hybrid_layer_pattern", "swa_rope_theta",
           "rope_theta", "partial_rotary_factor", "num_nextn_predict_layers", "processor_config",
           "vision_model_type")  # fmt: skip
    c.only("attention_projection_layout", "fused_qkv", "split")  # one matrix or three, of as many weights
    stretched = c.child("rope_scaling")
    if stretched is not None and rope_scaling(stretched) is not None:
        raise c.error("rope_scaling", "only the default is supported")
    n, eps = layers(c), c.first("layernorm_epsilon", "rms_norm_eps")
    norm = {"kind": "rmsnorm", "eps": eps}
    flags, sparse = c.listed("hybrid_layer_pattern", n), c.listed("moe_layer_freq", n)
    usual = ["full_attention" if i == 0 or (i + 1) % 6 == 0 else LOCAL for i in range(n)]
    types = layer_types(c, n, [LOCAL if flag else "full_attention" for flag in flags] if flags else usual)
    routed = [bool(flag) for flag in sparse] if sparse else sparse_layers(c.changed(first_k_dense_replace=1), n)
    expert = glu(activation(c, "hidden_act"), c.count("moe_intermediate_size"))
    c = c if c.data.get("routed_scaling_factor", 1) is not None else c.changed(routed_scaling_factor=1.0)
    router = SIGMOID | grouped_router(c)
    experts = moe(c.count("n_routed_experts"), top_k(c), expert, router)
    entries: list[Entry] = []
    for kind, many in zip(types, routed, strict=True):
        name = _place(kind) + ("" if many else "_dense")
        entries.append(
            (name, {"norm": norm, "attention": _mimo_attention(c, kind), "ffn": experts if many else gated(c)})
        )
    return decoder(c, entries, norm)


def _mimo_attention(c: Config, kind: str) -> Doc:
    """One layer's attention: local ones have numbers of heads and a base of their own."""
    local, size = kind == LOCAL, c.count("head_dim")
    n, kv = c.count("num_attention_heads"), c.count("num_key_value_heads")
    wide = {"n": ("swa_num_attention_heads", n), "kv": ("swa_num_key_value_heads", 2 * kv),
            "k": ("swa_head_dim", size), "v": ("swa_v_head_dim", c.count("v_head_dim"))}  # fmt: skip
    own = {part: c.count(key, default=usual) for part, (key, usual) in wide.items()}
    if not local:
        own = {"n": n, "kv": kv, "k": size, "v": c.count("v_head_dim")}
    block = heads(own["n"], own["kv"], own["k"], **biased(c, "attention_bias", qkv_bias=True))
    if own["v"] != own["k"]:
        block["d_head_v"] = own["v"]
    flag = c.get("add_swa_attention_sink_bias" if local else "add_full_attention_sink_bias")
    if local if flag is None else flag:
        block["sinks"] = True
    block["position"] = _mimo_position(c, kind, own["k"])
    window = c.get("sliding_window_size")
    width = window + 1 if window is not None else c.count("sliding_window")
    return block | ({"mask": sliding(width)} if local else {})


def _mimo_position(c: Config, kind: str, size: int) -> Doc:
    """Rotary positions of one kind of layer, from nested parameters or the keys of released files."""
    if c.data.get("rope_parameters") is not None:
        return rope(Config({"rope_parameters": c.get("rope_parameters")}, {}), size, kind)
    key, usual = ("swa_rope_theta", 10_000) if kind == LOCAL else ("rope_theta", 5_000_000)
    theta, share = c.get(key, usual), c.get("partial_rotary_factor", 0.334)
    return rope(Config({"rope_theta": theta, "partial_rotary_factor": share}, {}), size)


# Step3p5Config, the language model of Step3p7Config
@family("step3p5", vocab_size=128815, hidden_size=4096, intermediate_size=11264, num_hidden_layers=45,
        num_attention_heads=64, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=128000, rms_norm_eps=1e-05, tie_word_embeddings=False,
        moe_intermediate_size=1280, n_routed_experts=288, num_experts_per_tok=8, share_expert_dim=1280,
        moe_router_scaling_factor=1.0)  # fmt: skip
def step3p5(c: Config) -> Doc:
    """Step 3.5 and 3.7: local layers have heads of their own number, all a gate per head; sigmoid routing."""
    c.skip("query_pre_attn_scalar", "swiglu_limits", "swiglu_limits_shared", "mtp_layer_types", "per_layer_config",
           "mtp_mlp_layer_types", "moe_layers_enum", "attention_other_setting", "num_nextn_predict_layers",
           "sliding_window", "rope_theta", "partial_rotary_factors", "use_moe_router_bias", "moe_every_n_layer",
           "use_head_wise_attn_gate", "need_fp32_gate", "norm_expert_weight", "n_shared_experts", "num_experts",
           "first_k_dense_replace", "scoring_func", "num_sliding_attention_heads")  # fmt: skip
    c.only("mlp_bias", False)
    n, norm, act = layers(c), rmsnorm(c, offset=True), activation(c, "hidden_act")
    router = SIGMOID | {"scale": c.number("moe_router_scaling_factor")}
    shared = glu(act, c.count("share_expert_dim"))
    expert = glu(act, c.count("moe_intermediate_size"))
    experts = moe(c.count("n_routed_experts", "num_experts"), top_k(c), expert, router, shared=shared)
    types = layer_types(_first_layers(c, "layer_types", n), n, ["full_attention"] * n)
    routed = sparse_layers(_first_layers(c, "mlp_layer_types", n).changed(first_k_dense_replace=3), n)
    entries: list[Entry] = []
    for kind, many in zip(types, routed, strict=True):
        block = _step_attention(c, kind, norm) | _window(c, kind)
        name = _place(kind) + ("" if many else "_dense")
        entries.append((name, {"norm": norm, "attention": block, "ffn": experts if many else gated(c)}))
    return decoder(c, entries, norm)


def _first_layers(c: Config, key: str, n: int) -> Config:
    """Lists of released files go on with the prediction modules."""
    value = c.get(key)
    return c.changed(**{key: value[:n]}) if isinstance(value, list) and len(value) > n else c


def _step_attention(c: Config, kind: str, norm: Doc) -> Doc:
    other = c.get("attention_other_setting") or {}
    n = c.count("num_attention_heads")
    if kind == LOCAL:
        given = c.get("num_sliding_attention_heads") or other.get("num_attention_heads") or n
        n = Config({"num_attention_heads": given}, {}).count("num_attention_heads")
    changed = c.changed(num_attention_heads=n)
    block = attention(changed, **biased(c, "attention_bias", bias=True), qk_norm=norm, gate={"per": "head"})
    nested = isinstance(c.data.get("rope_parameters"), dict) and kind in c.data["rope_parameters"]
    return block | {"position": rope(Config({"rope_parameters": c.get("rope_parameters")} if nested else {}, {}),
                                     c.count("head_dim"), kind if nested else None)}  # fmt: skip


# MiniMaxM3VLTextConfig
@family("minimax_m3_vl_text", "minimax_m3", vocab_size=200064, hidden_size=6144, intermediate_size=3072,
        num_hidden_layers=60, num_attention_heads=64, num_key_value_heads=4, head_dim=128, hidden_act="silu",
        max_position_embeddings=524288, rms_norm_eps=1e-06, tie_word_embeddings=False,
        dense_intermediate_size=12288, num_local_experts=128, num_experts_per_tok=4,
        shared_intermediate_size=3072, routed_scaling_factor=2.0, rotary_dim=64, swiglu_alpha=1.702,
        swiglu_limit=7.0, rope_parameters={"rope_theta": 5000000.0}, index_n_heads=4, index_head_dim=128,
        index_block_size=128, index_topk_blocks=16, index_local_blocks=1)  # fmt: skip
def minimax_m3(c: Config) -> Doc:
    """MiniMax-M3: most layers attend to blocks of keys that index heads choose; experts with a clamped gate."""
    c.skip("hidden_act", "first_k_dense_replace", "partial_rotary_factor", "moe_intermediate_size")
    for key, value in M3_AS_RELEASED.items():
        c.only(key, value)
    n, norm = layers(c), rmsnorm(c, offset=True)
    clamped = {"clamp": c.number("swiglu_limit"), "alpha": c.number("swiglu_alpha")}
    expert, shared = (glu("silu", c.count(key), **clamped) for key in ("intermediate_size", "shared_intermediate_size"))
    router = SIGMOID | {"scale": c.number("routed_scaling_factor")}
    experts = moe(n_experts(c), top_k(c), expert, router, shared=shared)
    position = rope(c, d_head(c)) | {"dim": c.count("rotary_dim")}
    block = attention(c, qk_norm=norm, position=position)
    dense = glu("silu", c.count("dense_intermediate_size"), **clamped)
    entries: list[Entry] = []
    chosen, sparse = _chosen_blocks(c, n, norm), _sparse_mlps(c, n)
    for indexer, routed in zip(chosen, sparse, strict=True):
        own = {"norm": norm, "attention": block | indexer, "ffn": experts if routed else dense}
        entries.append((("moe" if routed else "dense") + ("_blocks" if indexer else ""), own))
    c.skip("num_nextn_predict_layers")
    return decoder(c, entries, norm) | mtp(c.get("num_mtp_modules"), entries[-1][1])


M3_AS_RELEASED = {
    "use_gemma_norm": True, "attention_output_gate": False, "use_qk_norm": True, "qk_norm_type": "per_head",
    "n_shared_experts": 1, "scoring_func": "sigmoid", "use_routing_bias": True,
}  # fmt: skip
"""Keys of the released files that the class takes for granted."""

M3_INDEX = {
    "index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim",
    "index_block_size": "sparse_block_size", "index_topk_blocks": "sparse_topk_blocks",
    "index_local_blocks": "sparse_local_block",
}  # fmt: skip
"""Keys of the class, and what they are called in a released file's `sparse_attention_config`."""


def _chosen_blocks(c: Config, n: int, norm: Doc) -> list[Doc]:
    """The indexer of every layer, where it has one."""
    nested = c.child("sparse_attention_config")
    frequency = None
    if nested is not None:
        c = c.changed(**{flat: nested.get(key) for flat, key in M3_INDEX.items() if key in nested.data})
        frequency = nested.listed("sparse_attention_freq", n)
        nested.only("use_sparse_attention", True)
        nested.only("sparse_score_type", "max")
        nested.only("sparse_init_block", 0)
        _without_index_values(nested, n, frequency)
    usual = ["minimax_m3_sparse" if sparse else "full_attention" for sparse in frequency or [0] * n]
    types = layer_types(c, n, usual, ("full_attention", "minimax_m3_sparse"))
    heads, keys = c.count("index_n_heads"), c.count("num_key_value_heads")
    if "minimax_m3_sparse" in types and heads != keys:
        raise c.error(
            "index_n_heads", f"{heads} index heads for {keys} key/value heads; only equal numbers are supported"
        )
    indexer = {
        "d_head": c.count("index_head_dim"), "block": c.count("index_block_size"),
        "n_blocks": c.count("index_topk_blocks"), "local": c.count("index_local_blocks"), "norm": norm,
    }  # fmt: skip
    return [{"indexer": indexer} if kind == "minimax_m3_sparse" else {} for kind in types]


def _without_index_values(nested: Config, n: int, frequency: list[int] | None) -> None:
    """Refuses index heads with values of their own, which no released layer has."""
    disabled = nested.listed("sparse_disable_index_value", n)
    if disabled is not None and any(s and not d for s, d in zip(frequency or [0] * n, disabled, strict=True)):
        raise nested.error("sparse_disable_index_value", "index heads with values of their own are not supported")


def _sparse_mlps(c: Config, n: int) -> list[bool]:
    """Which layers have experts: by the list of kinds, or by the released files' flags."""
    flags = c.listed("moe_layer_freq", n)
    if flags is None or c.data.get("mlp_layer_types") is not None:
        return sparse_layers(c, n)
    return [bool(flag) for flag in flags]


# DeepseekOcr2TextConfig
@family("deepseek_ocr2_text", vocab_size=102400, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, hidden_act="silu", max_position_embeddings=2048,
        rms_norm_eps=1e-6, tie_word_embeddings=False, moe_intermediate_size=1407, n_routed_experts=64,
        n_shared_experts=2, routed_scaling_factor=1.0, topk_method="greedy")  # fmt: skip
def deepseek_ocr2(c: Config) -> Doc:
    """The language model of DeepSeek-OCR 2: LLaMA's attention over DeepSeek-V2's experts."""
    c.only("topk_method", "greedy")
    c.only("mlp_bias", False)
    block = rotary(c, **biased(c, "attention_bias", bias=True))
    return dense_then_experts(c, rmsnorm(c), block, {"normalize": False})


# AXK1Config
@family("axk1", vocab_size=163840, hidden_size=7168, intermediate_size=18432, num_hidden_layers=61,
        num_attention_heads=64, num_key_value_heads=64, hidden_act="silu", max_position_embeddings=32768,
        rms_norm_eps=1e-6, tie_word_embeddings=False, kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128,
        qk_rope_head_dim=64, v_head_dim=128, rope_interleave=True, moe_intermediate_size=2048, n_routed_experts=192,
        n_shared_experts=1, num_experts_per_tok=8, n_group=8, topk_group=4, norm_topk_prob=True,
        routed_scaling_factor=2.5, first_k_dense_replace=1)  # fmt: skip
def axk1(c: Config) -> Doc:
    """A.X K1: DeepSeek-V3's layer with a norm on what the experts give."""
    norm = rmsnorm(c)
    doc = dense_then_experts(c, norm, latent(c), SIGMOID)

    def normed(layer: Doc) -> Doc:
        ffn = layer.get("ffn", {})
        return layer | ({"ffn": ffn | {"output_norm": norm}} if ffn.get("kind") == "moe" else {})

    return every_layer(doc, normed)


# BeamConfig
@family("beam", vocab_size=151936, hidden_size=5120, intermediate_size=20480, num_hidden_layers=52,
        num_attention_heads=48, num_key_value_heads=8, head_dim=128, hidden_act="silu", max_position_embeddings=8192,
        rms_norm_eps=1e-6, tie_word_embeddings=False, sliding_window=512, moe_intermediate_size=2560, num_experts=256,
        num_experts_per_tok=8, norm_topk_prob=True, n_group=8, topk_group=4, routed_scaling_factor=2.5,
        final_logit_softcapping=30.0, first_k_dense_replace=3)  # fmt: skip
def beam(c: Config) -> Doc:
    """Beam: norms on both sides of a branch, gated attention, local layers rotated and global ones not. The factors
    that grow with depth and with the position are left out: they are no products.
    """
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    router = SIGMOID | grouped_router(c)
    experts = moe(n_experts(c), top_k(c), glu(act, c.count("moe_intermediate_size")), router)
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm, gate={"per": "element", "bias": True})
    near = {"position": _nested_rope(c), "mask": sliding(c.count("sliding_window"))}
    usual = every(n, 6, "full_attention", LOCAL)
    types = layer_types(c, n, [*usual[:-1], "full_attention"])
    base = {"norm": norm, "placement": "pre+post"}
    entries: list[Entry] = []
    for kind, many in zip(types, sparse_layers(c, n), strict=True):
        own = {"attention": block | (near if kind == LOCAL else {}), "ffn": experts if many else gated(c)}
        entries.append((_place(kind) + ("" if many else "_dense"), base | own))
    return decoder(c, entries, norm, output=head(c) | capped(c, "final_logit_softcapping"))


def _nested_rope(c: Config) -> Doc:
    """Positions of local layers, where the config has some for each kind."""
    given = c.get("rope_parameters")
    c.skip("rope_scaling")
    if isinstance(given, dict) and LOCAL in given:
        return rope(Config({"rope_parameters": given}, {}), d_head(c), LOCAL)
    return rope(c, d_head(c))
