"""Experts in every layer or in some, beside a shared one: Qwen's and Solar's."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.experts import UNIFORM
from archsim.importers.hf.families.llama import biased, d_head, gated, layers, windowed
from archsim.importers.hf.families.moe import dense_then_experts, top_k
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, attention, decoder, glu, moe, rmsnorm, rope, sliding

Doc = JsonObject


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
    types, window = windowed(c, n)
    near = {"mask": sliding(window)} if window else {}
    if len(set(types)) > 1:
        raise c.error("max_window_layers", "windows in some of the layers are not supported in this family")
    block |= near if "sliding_attention" in types else {}
    base = {"norm": norm, "attention": block}
    return decoder(c, qwen_entries(c, n, base, shared_experts(c)), norm)


def shared_experts(c: Config) -> Doc:
    """Routed experts with a gated shared one."""
    act, router = activation(c, "hidden_act"), {} if c.get("norm_topk_prob") else UNIFORM
    shared = glu(act, c.count("shared_expert_intermediate_size"), gate=True)
    expert = glu(act, c.count("moe_intermediate_size"))
    return moe(c.count("num_experts", "num_local_experts"), top_k(c), expert, router, shared=shared)


def qwen_entries(c: Config, n: int, base: Doc, experts: Doc) -> list[tuple[str, Doc]]:
    """Layers with experts but for those that the step and the list of exceptions name."""
    dense, step = set(c.get("mlp_only_layers") or ()), c.count("decoder_sparse_step")
    c.skip("intermediate_size")
    sparse = [i not in dense and (i + 1) % step == 0 for i in range(n)]
    return [("moe", base | {"ffn": experts}) if s else ("dense", base | {"ffn": gated(c)}) for s in sparse]


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
