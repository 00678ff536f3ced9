"""Decoders with linear attention beside softmax attention."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import biased, d_head, gated, layers
from archsim.importers.hf.families.moe import mtp, top_k
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, attention, decoder, every, glu, layer_types, moe, rmsnorm, rope

Doc = JsonObject
BOTH = ("full_attention", "linear_attention")


# MiniMaxConfig
@family("minimax", "minimax_text_01", vocab_size=32000, hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=False, num_experts_per_tok=2,
        num_local_experts=8, block_size=256, rope_parameters={"rope_theta": 1000000.0})  # fmt: skip
def minimax(c: Config) -> Doc:
    """MiniMax-01: lightning attention, softmax attention in between, the residual taken after the norm."""
    c.skip("postnorm", "shared_moe_mode", "sliding_window", "layernorm_full_attention_alpha",
           "layernorm_full_attention_beta", "layernorm_linear_attention_alpha",
           "layernorm_linear_attention_beta", "layernorm_mlp_alpha", "layernorm_mlp_beta")  # fmt: skip
    c.only("shared_intermediate_size", 0)
    n, norm = layers(c), rmsnorm(c)
    n_heads, size = c.count("num_attention_heads"), d_head(c)
    position = rope(c, size)
    if c.get("rotary_dim") is not None:
        position["dim"] = c.count("rotary_dim")
    lightning = {"kind": "lightning", "n_heads": n_heads, "d_head": size, "chunk": c.count("block_size"),
                 "activation": activation(c, "hidden_act")}  # fmt: skip
    ffn = moe(c.count("num_local_experts", "num_experts"), top_k(c), gated(c))
    base = {"norm": norm, "placement": "residual_after_norm", **_factors(c)}
    full = base | {"attention": attention(c, position=position), "ffn": ffn}
    kinds = {"linear_attention": ("linear", base | {"mixer": lightning, "ffn": ffn}), "full_attention": ("full", full)}
    return decoder(c, [kinds[t] for t in _minimax_types(c, n)], norm)


def _minimax_types(c: Config, n: int) -> list[str]:
    """Layer types by name, as flags (1 is softmax attention), or alternating."""
    flags = c.listed("attn_type_list", n)
    if flags is not None:
        return ["full_attention" if flag == 1 else "linear_attention" for flag in flags]
    return layer_types(c, n, every(n, 2, "linear_attention", "full_attention"), BOTH)


def _factors(c: Config) -> Doc:
    """Factors on the stream and on the branch; one of each for the layer."""
    result = {}
    for word, field in (("alpha", "residual_scale"), ("beta", "branch_scale")):
        found = set()
        for part, old in (("full_attn", "full_attention"), ("linear_attn", "linear_attention"), ("mlp", "mlp")):
            value = c.first(f"{part}_{word}_factor", f"layernorm_{old}_{word}")
            found.add(1.0 if value is None else float(value))
        if len(found) > 1:
            raise c.error(f"mlp_{word}_factor", "differs from the attention's factor, which is not supported")
        if found != {1.0}:
            result[field] = found.pop()
    return result


QWEN = {
    "vocab_size": 248320, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "head_dim": 256, "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 32, "full_attention_interval": 4,
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.25},
}  # fmt: skip
"""What Qwen3_5TextConfig and Qwen3_5MoeTextConfig have in common."""


# Qwen3_5TextConfig
@family("qwen3_5_text", hidden_size=4096, intermediate_size=12288, num_hidden_layers=32,
        num_attention_heads=16, **{**QWEN, "num_key_value_heads": 4})  # fmt: skip
def qwen3_5(c: Config) -> Doc:
    """Qwen3.5 without experts."""
    return _gated(c, gated(c))


# Qwen3_5MoeTextConfig
@family("qwen3_5_moe_text", hidden_size=2048, num_hidden_layers=40, num_attention_heads=16,
        moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts_per_tok=8,
        num_experts=256, **QWEN)  # fmt: skip
def qwen3_5_moe(c: Config) -> Doc:
    """Qwen3.5: experts in every layer."""
    c.skip("intermediate_size")
    return _gated(c, _qwen_experts(c))


def _gated(c: Config, ffn: Doc) -> Doc:
    """Three gated delta nets to one gated softmax attention."""
    c.skip("full_attention_interval", "mamba_ssm_dtype", "mtp_use_dedicated_embeddings", "mlp_only_layers")
    c.only("attn_output_gate", True)
    c.only("output_gate_type", "swish", "silu")
    n, norm = layers(c), rmsnorm(c, offset=True)
    position = rope(c, d_head(c))
    sections = (c.data.get("rope_parameters") or {}).get("mrope_section")
    if sections:
        position["sections"] = list(sections)
    bias = biased(c, "attention_bias", bias=True)
    block = attention(c, **bias, qk_norm=norm, gate={"per": "element"}, position=position)
    full = {"norm": norm, "attention": block, "ffn": ffn}
    kinds = {"linear_attention": ("linear", {"norm": norm, "mixer": delta_net(c), "ffn": ffn})}
    kinds["full_attention"] = ("full", full)
    default = every(n, c.count("full_attention_interval"), "full_attention", "linear_attention")
    doc = decoder(c, [kinds[t] for t in layer_types(c, n, default, BOTH)], norm)
    return doc | mtp(c.get("mtp_num_hidden_layers"), full)


def _qwen_experts(c: Config) -> Doc:
    act = activation(c, "hidden_act")
    shared = glu(act, c.count("shared_expert_intermediate_size"), gate=True)
    expert = glu(act, c.count("moe_intermediate_size"))
    return moe(c.count("num_experts", "num_local_experts"), top_k(c), expert, shared=shared)


def delta_net(c: Config) -> Doc:
    """The mixer of the layers with linear attention."""
    return {
        "kind": "gated_delta_net",
        "n_key_heads": c.count("linear_num_key_heads"),
        "n_value_heads": c.count("linear_num_value_heads"),
        "d_key": c.count("linear_key_head_dim"),
        "d_value": c.count("linear_value_head_dim"),
        "d_conv": c.count("linear_conv_kernel_dim"),
    }
