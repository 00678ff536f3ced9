"""Families whose class comes with the checkpoint: what their configs say, in the names of families that are known."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import biased, d_head, gated, layers, llama, qwen2, qwen3, uniform
from archsim.importers.hf.families.moe import dense_then_experts
from archsim.importers.hf.families.registry import DEFAULTS, family
from archsim.importers.hf.parts import attention, glu, head, rmsnorm, rope

Doc = JsonObject


# configuration_internlm2.py of internlm/internlm2_5-7b
@family("internlm2", vocab_size=103168, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False, bias=True)  # fmt: skip
def internlm2(c: Config) -> Doc:
    """InternLM2: LLaMA with queries, keys and values in one matrix."""
    c.skip("attn_implementation")
    block = attention(c, **biased(c, "bias", bias=True), position=rope(c, d_head(c)))
    return uniform(c, rmsnorm(c), block, gated(c))


# configuration_baichuan.py of baichuan-inc/Baichuan2-7B-Base
@family("baichuan", vocab_size=125696, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", rms_norm_eps=1e-6, tie_word_embeddings=False)  # fmt: skip
def baichuan(c: Config) -> Doc:
    """Baichuan: LLaMA. The configs of 13B have no `max_position_embeddings`, because the scores have ALiBi."""
    c.skip("model_max_length", "_from_model_config", "gradient_checkpointing", "z_loss_weight")
    rotary = c.get("max_position_embeddings") is not None
    block = attention(c, position=rope(c, d_head(c)) if rotary else {"kind": "alibi"})
    context = c.first("max_position_embeddings", "model_max_length")
    return uniform(c.changed(max_position_embeddings=context), rmsnorm(c), block, gated(c))


# ExaoneConfig; configuration_exaone.py of LGAI-EXAONE/EXAONE-3.5-7.8B-Instruct
@family("exaone", vocab_size=102400, hidden_size=4096, intermediate_size=14336, num_layers=32, num_attention_heads=32,
        num_key_value_heads=8, activation_function="silu", max_position_embeddings=4096, layer_norm_epsilon=1e-5,
        tie_word_embeddings=False, rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def exaone(c: Config) -> Doc:
    """EXAONE 3: LLaMA under GPT-2's names, which the class of transformers renames."""
    c.skip("embed_dropout")
    return llama(c.changed(
        num_hidden_layers=c.count("num_hidden_layers", "num_layers"), hidden_act=c.first("hidden_act",
        "activation_function"), rms_norm_eps=c.first("rms_norm_eps", "layer_norm_epsilon"),
    ))  # fmt: skip


MINICPMV = {"2.6": qwen2, "4.5": qwen3}
"""Version of MiniCPM-V to the language model that its config extends."""


# configuration_minicpm.py of openbmb/MiniCPM-V-4_5 and openbmb/MiniCPM-V-2_6, whose defaults are those of Qwen
@family("minicpmv", **DEFAULTS["qwen2"])
def minicpmv(c: Config) -> Doc:
    """MiniCPM-V: the language model that its version says, without its encoder of images."""
    c.skip("batch_vision_input", "drop_vision_last_layer", "image_size", "patch_size", "query_num", "slice_config",
           "slice_mode", "use_image_id", "vision_batch_size", "vision_config", "version")  # fmt: skip
    version = str(c.data.get("version"))
    if version not in MINICPMV:
        raise c.error("version", f"no language model is known; known: {', '.join(MINICPMV)}")
    return MINICPMV[version](c)


# configuration_bailing_moe_v2.py of inclusionAI/Ling-mini-2.0
@family("bailing_moe_v2", vocab_size=157184, hidden_size=2048, intermediate_size=5120, num_hidden_layers=20,
        num_attention_heads=16, num_key_value_heads=4, hidden_act="silu", max_position_embeddings=32768,
        rms_norm_eps=1e-6, tie_word_embeddings=False, use_qkv_bias=False, use_bias=False, use_qk_norm=True,
        num_experts=256, num_shared_experts=1, num_experts_per_tok=8, n_group=8, topk_group=4,
        moe_intermediate_size=512, first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=2.5,
        partial_rotary_factor=0.5, rope_theta=600000.0, score_function="sigmoid",
        moe_router_enable_expert_bias=True, num_nextn_predict_layers=0)  # fmt: skip
def bailing_moe_v2(c: Config) -> Doc:
    """Ling 2: DeepSeek-V3's router over small experts, grouped-query attention with normed queries and keys."""
    c.skip("embedding_dropout", "output_dropout", "router_dtype", "rotary_dim", "mtp_loss_scaling_factor",
           "using_split_qkv_in_self_attention", "moe_router_topk_scaling_factor")  # fmt: skip
    c.only("score_function", "sigmoid")
    c.only("use_bias", False)
    c.only("moe_shared_expert_intermediate_size", c.get("moe_intermediate_size"))
    norm = rmsnorm(c)
    block = attention(c, **biased(c, "use_qkv_bias", qkv_bias=True), position=rope(c, d_head(c)))
    if c.get("use_qk_norm"):
        block["qk_norm"] = norm
    router = {"score": "sigmoid", **biased(c, "moe_router_enable_expert_bias", selection_bias=True)}
    return dense_then_experts(c.changed(n_shared_experts=c.get("num_shared_experts")), norm, block, router)


# configuration_chatglm.py of THUDM/chatglm3-6b
@family("chatglm", hidden_size=4096, num_layers=28, num_attention_heads=32, padded_vocab_size=65024, kv_channels=128,
        ffn_hidden_size=13696, seq_length=2048, layernorm_epsilon=1e-5, multi_query_attention=False,
        multi_query_group_num=1, add_bias_linear=False, add_qkv_bias=False, rope_ratio=1, rmsnorm=True,
        post_layer_norm=True, apply_residual_connection_post_layernorm=False,
        tie_word_embeddings=False)  # fmt: skip
def chatglm(c: Config) -> Doc:
    """ChatGLM 2 and 3, GLM-4: groups of keys and values, half of each head rotated."""
    c.skip("apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion", "original_rope",
           "fp32_residual_connection", "hidden_dropout", "pre_seq_len", "prefix_projection", "classifier_dropout",
           "vocab_size", "quantization_bit")  # fmt: skip
    for key in ("rmsnorm", "post_layer_norm"):
        c.only(key, True)
    for key in ("apply_residual_connection_post_layernorm", "add_bias_linear", "interleaved_qkv"):
        c.only(key, False)
    if not c.get("multi_query_attention"):
        c.skip("multi_query_group_num")
    n_heads, width = c.count("num_attention_heads"), c.count("kv_channels")
    groups = c.count("multi_query_group_num") if c.get("multi_query_attention") else n_heads
    c = c.changed(
        num_hidden_layers=c.get("num_layers"), num_key_value_heads=groups, head_dim=width, partial_rotary_factor=0.5,
        vocab_size=c.get("padded_vocab_size"), max_position_embeddings=c.get("seq_length"),
        rms_norm_eps=c.get("layernorm_epsilon"), rope_theta=10000 * c.number("rope_ratio"),
    )  # fmt: skip
    block = attention(c, **biased(c, "add_qkv_bias", qkv_bias=True), position=rope(c, width, interleaved=True))
    return uniform(c, rmsnorm(c), block, glu("silu", c.count("ffn_hidden_size")))


# configuration_minicpm.py of openbmb/MiniCPM-2B-sft-bf16
@family("minicpm", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=True, scale_emb=1, dim_model_base=1, scale_depth=1)  # fmt: skip
def minicpm(c: Config) -> Doc:
    """MiniCPM: LLaMA with factors on embedding, branches and logits."""
    c.skip("mup_denominator")  # of learning rates
    c.only("attention_bias", False)
    block = attention(c, position=rope(c, d_head(c)))
    factor = c.number("scale_depth") / layers(c) ** 0.5
    output = head(c, scale=c.number("dim_model_base") / c.count("hidden_size"))
    embedding = {"scale": c.number("scale_emb")}
    return uniform(c, rmsnorm(c), block, gated(c), branch_scale=factor, embedding=embedding, output=output)
