"""Decoders of gated short convolutions beside softmax attention."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import biased, d_head, layers
from archsim.importers.hf.families.moe import top_k
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import attention, decoder, glu, layer_types, moe, rmsnorm, rope

Doc = JsonObject
LFM2 = {
    "vocab_size": 65536, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 128_000, "norm_eps": 1e-5, "tie_word_embeddings": True, "conv_bias": False,
    "conv_L_cache": 3, "rope_parameters": {"rope_theta": 1000000.0},
}  # fmt: skip
"""What Lfm2Config and Lfm2MoeConfig have in common."""


# Lfm2Config
@family("lfm2", hidden_size=2560, intermediate_size=12288, block_multiple_of=256, block_ffn_dim_multiplier=1.0,
        block_auto_adjust_ff_dim=True, **LFM2)  # fmt: skip
def lfm2(c: Config) -> Doc:
    """LFM2: the file's feed-forward width is that of two matrices, of which three matrices have two thirds."""
    c.skip("block_dim", "block_norm_eps", "block_mlp_init_scale", "block_out_init_scale", "conv_dim",
           "block_use_xavier_init", "conv_dim_out", "conv_use_xavier_init", "num_heads")  # fmt: skip
    c.only("block_use_swiglu", True)
    return _stack(c, [glu("silu", _width(c))] * layers(c))


def _width(c: Config) -> int:
    """Two thirds of the width, times a factor and rounded up to a multiple, unless switched off."""
    width, factor = c.count("block_ff_dim", "intermediate_size"), c.number("block_ffn_dim_multiplier")
    multiple = c.count("block_multiple_of")
    if not c.get("block_auto_adjust_ff_dim"):
        return width
    return -(-int(factor * int(2 * width / 3)) // multiple) * multiple


# Lfm2MoeConfig
@family("lfm2_moe", hidden_size=2048, intermediate_size=7168, moe_intermediate_size=1792, num_dense_layers=2,
        num_experts_per_tok=4, num_experts=32, use_expert_bias=True, routed_scaling_factor=1.0,
        norm_topk_prob=True, **LFM2)  # fmt: skip
def lfm2_moe(c: Config) -> Doc:
    """LFM2 with experts behind the first layers."""
    n, dense = layers(c), c.get("num_dense_layers")
    router: Doc = {"score": "sigmoid", "scale": c.number("routed_scaling_factor")}
    router |= biased(c, "use_expert_bias", selection_bias=True)
    if not c.get("norm_topk_prob"):
        router["normalize"] = False
    experts = moe(c.count("num_experts"), top_k(c), glu("silu", c.count("moe_intermediate_size")), router)
    first = glu("silu", c.count("intermediate_size"))
    return _stack(c, [first if i < dense else experts for i in range(n)])


def _stack(c: Config, ffns: list[Doc]) -> Doc:
    """Convolutions and attention in the order of the file, each before its feed-forward layer."""
    c.only("use_pos_enc", True)
    n, norm = len(ffns), rmsnorm(c, "norm_eps")
    full = range(n) if c.get("full_attn_idxs") is None else c.get("full_attn_idxs")
    order = ["full_attention" if i in full else "conv" for i in range(n)]
    mixer = {"kind": "short_conv", "d_inner": c.count("hidden_size"), "d_conv": c.count("conv_L_cache")}
    mixer |= biased(c, "conv_bias", bias=True)
    block = attention(c, qk_norm=norm, position=rope(c, d_head(c)))
    kinds = {"conv": ("conv", {"mixer": mixer}), "full_attention": ("full", {"attention": block})}
    found = [kinds[t] for t in layer_types(c, n, order, tuple(kinds))]
    entries = [(name, {"norm": norm, **own, "ffn": ffn}) for (name, own), ffn in zip(found, ffns, strict=True)]
    tied = c.first("tie_embedding", "tie_word_embeddings")
    return decoder(c.changed(tie_word_embeddings=tied), entries, norm)
