"""Families with experts whose class comes with the checkpoint. Their keys and tensors are those that vLLM's and
SGLang's model files read (vLLM 0.7.3, 0.19 and 0.33, SGLang 0.5.23)."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.deepseek import DEEPSEEK_V3, latent
from archsim.importers.hf.families.llama import biased, d_head, gated, layers
from archsim.importers.hf.families.moe import (
    UNIFORM,
    dense_then_experts,
    qwen_entries,
    shared_expert,
    top_k,
    unnormalized,
)
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, attention, decoder, glu, head, heads, moe, rmsnorm, rope

Doc = JsonObject


# configuration_deepseek.py of deepseek-ai/deepseek-moe-16b-base
@family("deepseek", vocab_size=102400, hidden_size=4096, intermediate_size=11008, moe_intermediate_size=1407,
        num_hidden_layers=30, num_attention_heads=32, n_shared_experts=None, n_routed_experts=None,
        first_k_dense_replace=0, norm_topk_prob=False, scoring_func="softmax", hidden_act="silu",
        routed_scaling_factor=1.0, max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False)  # fmt: skip
def deepseek(c: Config) -> Doc:
    """DeepSeek MoE: LLaMA's attention over small experts and shared ones."""
    c.only("scoring_func", "softmax")
    block = attention(c, **biased(c, "attention_bias", bias=True), position=rope(c, d_head(c)))
    return dense_then_experts(c, rmsnorm(c), block, {})


# configuration_bailing_moe.py of inclusionAI/Ling-lite
@family("bailing_moe", vocab_size=126464, hidden_size=2048, intermediate_size=5632, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=4, hidden_act="silu", use_qkv_bias=False, use_bias=False,
        rms_norm_eps=1e-6, max_position_embeddings=16384, rope_theta=600000.0, num_experts=64, num_shared_experts=2,
        num_experts_per_tok=6, norm_topk_prob=True, moe_intermediate_size=1408, first_k_dense_replace=0,
        routed_scaling_factor=1.0, tie_word_embeddings=False)  # fmt: skip
def bailing_moe(c: Config) -> Doc:
    """Ling 1: grouped-query attention over experts of a softmax router."""
    c.skip("embedding_dropout", "output_dropout", "norm_softmax", "norm_head", "max_window_layers", "multi_gate",
           "sliding_window", "use_sliding_window")  # fmt: skip
    c.only("use_bias", False)
    c.only("moe_router_enable_expert_bias", False)
    c.only("moe_shared_expert_intermediate_size", c.get("moe_intermediate_size"))
    block = attention(c, **biased(c, "use_qkv_bias", qkv_bias=True), position=rope(c, d_head(c)))
    block |= biased(c, "use_qk_norm", qk_norm=rmsnorm(c))
    return dense_then_experts(c.changed(n_shared_experts=c.get("num_shared_experts")), rmsnorm(c), block, {})


SARVAM = {
    "vocab_size": 262144, "hidden_size": 4096, "intermediate_size": 16384, "moe_intermediate_size": 2048,
    "num_hidden_layers": 32, "num_attention_heads": 64, "num_experts": 128, "num_experts_per_tok": 8,
    "num_shared_experts": 1, "n_group": None, "topk_group": None, "norm_topk_prob": True,
    "routed_scaling_factor": 2.5, "first_k_dense_replace": 1, "moe_router_enable_expert_bias": True,
    "score_function": "sigmoid", "hidden_act": "silu", "rms_norm_eps": 1e-6, "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}  # fmt: skip
"""What vLLM's readers of Sarvam's configs take where a key is missing."""


def _sarvam(c: Config, block: Doc) -> Doc:
    """Experts of a sigmoid router behind some dense layers."""
    c.skip("embedding_dropout", "output_dropout", "router_dtype", "use_bias", "max_window_layers")
    c.only("use_bias", False)
    score = {"score": c.only("score_function", "sigmoid", "softmax") or "sigmoid"}
    if score["score"] == "softmax":
        score = {}
    c.only("moe_shared_expert_intermediate_size", c.get("moe_intermediate_size"))
    router = score | biased(c, "moe_router_enable_expert_bias", selection_bias=True)
    c = c.changed(n_shared_experts=c.get("num_shared_experts"), num_nextn_predict_layers=None)
    return dense_then_experts(c, rmsnorm(c), block, router)


RENAMED = {"n_routed_experts": "num_experts", "n_shared_experts": "num_shared_experts",
           "attention_bias": "use_qkv_bias"}  # fmt: skip
"""Names that transformers gives to keys of the released files."""


def _released(c: Config) -> Config:
    """The config under the names of the released files."""
    return c.changed(**{old: c.get(new) for new, old in RENAMED.items() if new in c.data and old not in c.data})


# SarvamMoEConfig (configuration_sarvam_moe.py of sarvamai/sarvam-30b)
@family("sarvam_moe", **{**SARVAM, "intermediate_size": 8192, "moe_intermediate_size": 1024, "num_hidden_layers": 19,
        "num_experts_per_tok": 6}, num_key_value_heads=4, head_dim=64, use_qkv_bias=False, use_qk_norm=True,
        rope_parameters={"rope_theta": 8000000.0})  # fmt: skip
# configuration_param2moe.py of bharatgenai's Param 2
@family("param2moe", **SARVAM, num_key_value_heads=4, use_qkv_bias=False, use_qk_norm=False)
def sarvam_moe(c: Config) -> Doc:
    """Sarvam and Param 2: Ling 2's layer."""
    c = _released(c)
    block = attention(c, **biased(c, "use_qkv_bias", qkv_bias=True), position=rope(c, d_head(c)))
    if c.get("use_qk_norm"):
        block["qk_norm"] = rmsnorm(c)
    return _sarvam(c, block)


# configuration_sarvam_mla.py of sarvamai/sarvam-105b
@family("sarvam_mla", **SARVAM, q_lora_rank=None, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
        v_head_dim=128)  # fmt: skip
def sarvam_mla(c: Config) -> Doc:
    """Sarvam's larger model: the same experts under latent attention."""
    c.skip("use_qk_norm", "use_qkv_bias", "default_theta", "head_dim")
    c.only("q_head_dim", c.count("qk_nope_head_dim") + c.count("qk_rope_head_dim"))
    return _sarvam(_released(c), latent(c))


PANGU = {
    "num_dense_layers": "first_k_dense_replace", "attention_q_lora_dim": "q_lora_rank",
    "attention_kv_lora_dim": "kv_lora_rank", "attention_qk_dim": "qk_nope_head_dim",
    "attention_qk_rope_dim": "qk_rope_head_dim", "attention_v_dim": "v_head_dim",
    "num_routed_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts",
    "num_mtp_layers": "num_nextn_predict_layers",
}  # fmt: skip
"""Names of openPangu's released file and those of DeepSeek-V3's keys."""


# configuration_openpangu_moe.py of ascend-tribe/openpangu-ultra-moe-718b-model
@family("pangu_ultra_moe", "PanguUltraMoE", **{**DEEPSEEK_V3, "vocab_size": 153600, "hidden_size": 7680,
        "n_group": 1, "topk_group": 1, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5},
        sandwich_norm=True, router_enable_expert_bias=False)  # fmt: skip
def pangu_ultra_moe(c: Config) -> Doc:
    """openPangu Ultra MoE: DeepSeek-V3 with norms on both sides of every block."""
    c.only("param_sink_number", 0)
    c = c.changed(**{new: c.get(old) for old, new in PANGU.items() if old in c.data})
    router = {"score": "sigmoid"} | biased(c, "router_enable_expert_bias", selection_bias=True)
    doc = dense_then_experts(c, rmsnorm(c), latent(c), router)
    if not c.get("sandwich_norm"):
        return doc
    around = {"placement": "pre+post"}
    doc = {**doc, "layer": {**doc["layer"], **around}}
    return doc | ({"mtp": doc["mtp"] | {"layer": doc["mtp"]["layer"] | around}} if "mtp" in doc else {})


# Step3TextConfig in vLLM
@family("step3_text", hidden_size=7168, intermediate_size=18432, num_attention_heads=64, num_attention_groups=1,
        num_hidden_layers=61, vocab_size=128815, rms_norm_eps=1e-5, moe_intermediate_size=5120, moe_num_experts=48,
        moe_top_k=3, max_position_embedding=65536, share_expert_dim=5120, share_q_dim=2048, head_dim=256,
        norm_expert_weight=False, moe_layers_enum=tuple(range(4, 60)), rope_theta=500000.0,
        tie_word_embeddings=False)  # fmt: skip
def step3(c: Config) -> Doc:
    """Step-3: many queries through a latent over one head of keys and values; few wide experts beside a shared one."""
    c.skip("max_seq_len", "hidden_act", "use_moe")
    c.only("num_attention_groups", 1)
    n, norm = layers(c), rmsnorm(c)
    width = d_head(c)
    block = heads(c.count("num_attention_heads"), 1, width, q_rank=c.count("share_q_dim", default=width), q_norm=norm,
                  position=rope(c, width))  # fmt: skip
    router = {} if c.get("norm_expert_weight") else UNIFORM
    experts = moe(c.count("moe_num_experts"), c.count("moe_top_k"), glu("silu", c.count("moe_intermediate_size")),
                  router, shared=glu("silu", c.count("share_expert_dim")))  # fmt: skip
    given = c.get("moe_layers_enum")
    sparse = {int(i) for i in (given.split(",") if isinstance(given, str) else given or range(1, n))}
    base = {"norm": norm, "attention": block}
    kinds = {
        True: ("moe", base | {"ffn": experts}),
        False: ("dense", base | {"ffn": gated(c.changed(hidden_act="silu"))}),
    }
    return decoder(c, [kinds[i in sparse] for i in range(n)], norm, context="max_position_embedding")


# ArcticConfig in vLLM 0.19
@family("arctic", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-5,
        num_experts_per_tok=1, num_local_experts=8, moe_layer_frequency=2, parallel_attn_mlp_res=False,
        use_residual=False, rope_theta=1000000.0, tie_word_embeddings=False)  # fmt: skip
def arctic(c: Config) -> Doc:
    """Arctic: a dense layer as wide as the model, and experts that read what the layer reads. The experts stand
    behind the dense network here, which is as much work.
    """
    c.skip("moe_train_capacity_factor", "moe_eval_capacity_factor", "enable_expert_tensor_parallelism",
           "moe_min_capacity", "moe_token_dropping", "quantization", "enc_index", "max_sequence_length")  # fmt: skip
    c.only("parallel_attn_mlp_res", True)
    c.only("use_residual", True)
    c.only("moe_layer_frequency", 1)
    c.only("sliding_window", None)
    norm = rmsnorm(c)
    block = attention(c, **biased(c, "attention_bias", bias=True), position=rope(c, d_head(c)))
    first = {"norm": norm, "attention": block, "ffn": glu("silu", c.count("hidden_size"))}
    routed = moe(c.count("num_local_experts"), top_k(c), gated(c))
    return decoder(c, [("dense", first), ("experts", {"norm": norm, "ffn": routed})] * layers(c), norm)


# What grok1.py of vLLM 0.19 and grok.py of SGLang read
@family("grok-1", "grok1", vocab_size=131072, hidden_size=6144, intermediate_size=32768, num_hidden_layers=64,
        num_attention_heads=48, num_key_value_heads=8, head_dim=128, num_local_experts=8, num_experts_per_tok=2,
        max_position_embeddings=8192, rms_norm_eps=1e-5, embedding_multiplier_scale=78.38367176906169,
        output_multiplier_scale=0.5773502691896257, attn_logit_softcapping=30.0, router_logit_softcapping=30.0,
        rope_theta=10000.0, residual_moe=False, tie_word_embeddings=True)  # fmt: skip
def grok(c: Config) -> Doc:
    """Grok: norms on both sides of every block, capped scores, eight wide experts; Grok 2's stand beside a dense
    network.
    """
    c.skip("attn_output_multiplier", "attn_logit_softcapping_method", "max_attn_value", "attn_temperature_len",
           "rope_type", "scaling_factor", "extrapolation_factor", "attn_factor", "beta_fast", "beta_slow",
           "original_max_position_embeddings", "moe_router_renormalize", "moe_renormalize", "hidden_act",
           "num_experts", "num_layers", "use_cache", "sliding_window_size", "context_len")  # fmt: skip
    c.only("global_attn_every_n", 1)
    norm, wide = rmsnorm(c), {"kind": "geglu", "activation": "gelu_tanh"}
    block = attention(c, softcap=c.number("attn_logit_softcapping"), position=rope(c, d_head(c)))
    width = c.count("moe_intermediate_size", default=c.count("intermediate_size"))
    dense = {"dense": wide | {"d_ff": c.count("intermediate_size")}} if c.get("residual_moe") else {}
    router = {"softcap": c.number("router_logit_softcapping")} | (UNIFORM if c.get("residual_moe") else {})
    ffn = moe(c.count("num_local_experts", "num_experts"), top_k(c), wide | {"d_ff": width}, router, **dense)
    capped = {"softcap": c.number("final_logit_softcapping")} if c.get("final_logit_softcapping") else {}
    output = head(c, scale=c.number("output_multiplier_scale"), **capped)
    layer = {"norm": norm, "placement": "pre+post", "attention": block, "ffn": ffn}
    embedding = {"scale": c.number("embedding_multiplier_scale")}
    return decoder(c, [("layers", layer)] * layers(c), norm, embedding=embedding, output=output)


# What xverse_moe.py of SGLang reads
@family("xverse_moe", vocab_size=100534, hidden_size=2560, intermediate_size=6912, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=8192, rms_norm_eps=1e-6, num_experts=64,
        num_shared_experts=2, moe_top_k=6, tie_word_embeddings=False)  # fmt: skip
def xverse_moe(c: Config) -> Doc:
    """XVERSE with experts, some of them for every token."""
    c.skip("max_tokenizer_truncation", "expert_num")
    width, n_shared = c.count("intermediate_size"), c.get("num_shared_experts")
    block = attention(c, position=rope(c, d_head(c)))
    shared = glu("silu", width, **({"n": n_shared} if n_shared > 1 else {})) if n_shared else None
    ffn = moe(c.count("num_experts"), c.count("moe_top_k"), glu("silu", width), unnormalized(c), shared=shared)
    norm = rmsnorm(c)
    return decoder(c, [("layers", {"norm": norm, "attention": block, "ffn": ffn})] * layers(c), norm)


# config.json of IFM/K2-Horizon-375B-A23B, which states all keys; what k2_horizon.py of vLLM 0.33 reads
@family("k2_horizon", vocab_size=250624, hidden_size=6144, intermediate_size=16384, moe_intermediate_size=1792,
        num_hidden_layers=61, num_attention_heads=48, num_key_value_heads=8, head_dim=128, rope_head_dim=64,
        num_experts=192, num_experts_per_tok=8, num_shared_experts=1, mlp_only_layers=[0, 1, 2], decoder_sparse_step=1,
        moe_gate_bias=True, norm_topk_prob=True, router_scaling_factor=2.5, router_score_func="sigmoid",
        attention_bias=False, query_key_norm=False, layernorm_num_groups=1, hidden_act="silu", rms_norm_eps=1e-6,
        max_position_embeddings=524288, tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000000.0})  # fmt: skip
def k2_horizon(c: Config) -> Doc:
    """K2-Horizon: norms in groups of channels, part of each head rotated, experts of a router with a bias behind dense
    layers, or none at all.
    """
    c.skip("mova_num_experts_per_tok", "sliding_window", "use_sliding_window")
    c.only("mova_num_experts", 0)  # experts of values
    c.only("attention_gate_func")
    c.only("dual_chunk_attention_config")
    groups, norm = c.count("layernorm_num_groups"), rmsnorm(c)
    spread = norm | ({"groups": groups} if groups > 1 else {})
    position = rope(c, d_head(c)) | {"dim": c.count("rope_head_dim", default=d_head(c))}
    block = attention(c, **biased(c, "attention_bias", bias=True), position=position)
    block |= biased(c, "query_key_norm", qk_norm=norm | {"over": "heads"})
    base: Doc = {"norm": spread, "attention": block}
    if not c.get("num_experts"):
        c.skip("moe_intermediate_size", "num_experts_per_tok", "num_shared_experts", "mlp_only_layers", "moe_gate_bias",
               "norm_topk_prob", "decoder_sparse_step", "router_scaling_factor", "router_score_func")  # fmt: skip
        return decoder(c, [("layers", base | {"ffn": gated(c)})] * layers(c), spread)
    width, act = c.count("moe_intermediate_size"), activation(c, "hidden_act")
    router: Doc = {"score": c.only("router_score_func", "softmax", "sigmoid"), **unnormalized(c)}
    router |= biased(c, "moe_gate_bias", selection_bias=True)
    router |= {} if c.get("router_scaling_factor") in (None, 1) else {"scale": c.number("router_scaling_factor")}
    shared = shared_expert(act, width, c.get("num_shared_experts"))
    experts = moe(c.count("num_experts"), top_k(c), glu(act, width), router, shared=shared)
    return decoder(c, qwen_entries(c, layers(c), base, experts), spread)
