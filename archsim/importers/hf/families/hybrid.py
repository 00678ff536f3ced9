"""Decoders with linear attention or short convolutions beside softmax attention."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import biased, d_head, gated, layers, mtp, rotary
from archsim.importers.hf.families.moe import n_experts, qwen_entries, shared_experts, top_k, unnormalized
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import (
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

Doc = JsonObject
BOTH = ("full_attention", "linear_attention")


# MiniMaxConfig
@family("minimax", "minimax_text_01", "minimax_m1", vocab_size=32000, hidden_size=4096, intermediate_size=14336,
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
    ffn = moe(n_experts(c), top_k(c), gated(c))
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
    return _gated(c, shared_experts(c, {}))


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
    c.only("attention_bias", False)
    block = attention(c, qk_norm=norm, gate={"per": "element"}, position=position)
    full = {"norm": norm, "attention": block, "ffn": ffn}
    kinds = {"linear_attention": ("linear", {"norm": norm, "mixer": delta_net(c), "ffn": ffn})}
    kinds["full_attention"] = ("full", full)
    default = every(n, c.count("full_attention_interval"), "full_attention", "linear_attention")
    doc = decoder(c, [kinds[t] for t in layer_types(c, n, default, BOTH)], norm)
    return doc | mtp(c.get("mtp_num_hidden_layers"), full)


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


# Qwen3NextConfig
@family("qwen3_next", **{**QWEN, "vocab_size": 151936}, hidden_size=2048, intermediate_size=5632,
        num_hidden_layers=48, num_attention_heads=16, decoder_sparse_step=1, moe_intermediate_size=512,
        shared_expert_intermediate_size=512, num_experts_per_tok=10, num_experts=512,
        norm_topk_prob=True)  # fmt: skip
def qwen3_next(c: Config) -> Doc:
    """Qwen3-Next: three gated delta nets to one gated softmax attention, many small experts."""
    c.skip("full_attention_interval")
    c.only("attention_bias", False)
    n, norm = layers(c), rmsnorm(c, offset=True)
    block = rotary(c, qk_norm=norm, gate={"per": "element"})
    kinds = {"full_attention": ("full", {"attention": block}), "linear_attention": ("linear", {"mixer": delta_net(c)})}
    default = every(n, c.count("full_attention_interval"), "full_attention", "linear_attention")
    types = layer_types(c, n, default, BOTH)
    ffns = qwen_entries(c, n, {"norm": norm}, shared_experts(c, unnormalized(c)))
    entries = []
    for kind, (ffn, layer) in zip(types, ffns, strict=True):
        name, mix = kinds[kind]
        entries.append((name + ("_dense" if ffn == "dense" else ""), {"norm": norm} | mix | {"ffn": layer["ffn"]}))
    return decoder(c, entries, norm)


# LaraMiniConfig
@family("lara_mini", vocab_size=151936, hidden_size=1024, num_hidden_layers=34, num_attention_heads=16,
        num_key_value_heads=4, head_dim=128, hidden_act="silu", max_position_embeddings=131072, rms_norm_eps=1e-6,
        tie_word_embeddings=True, sliding_window=512, linear_num_key_heads=8, linear_num_value_heads=16,
        linear_key_head_dim=128, linear_value_head_dim=128, linear_conv_kernel_dim=4, moe_intermediate_size=512,
        shared_expert_intermediate_size=512, num_experts_per_tok=4, num_experts=128, norm_topk_prob=True)  # fmt: skip
def lara_mini(c: Config) -> Doc:
    """Lara Mini: of five layers two gated delta nets, two local ones and a global one without positions; experts
    beside a shared one in every layer.
    """
    c.skip("intermediate_size")
    n, norm, act = layers(c), rmsnorm(c), activation(c, "hidden_act")
    shared = glu(act, c.count("shared_expert_intermediate_size"))
    expert = glu(act, c.count("moe_intermediate_size"))
    experts = moe(c.count("num_experts"), top_k(c), expert, unnormalized(c), shared=shared)
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm)
    near = {"position": rope(c, d_head(c)), "mask": sliding(c.count("sliding_window"))}
    kinds: dict[str, tuple[str, Doc]] = {
        "linear_attention": ("linear", {"mixer": delta_net(c)}),
        "sliding_attention": ("local", {"attention": block | near}),
        "full_attention": ("global", {"attention": block}),
    }
    turn = ("linear_attention", "sliding_attention", "linear_attention", "full_attention", "sliding_attention")
    types = layer_types(c, n, [turn[i % len(turn)] for i in range(n)], tuple(kinds))
    entries = [(kinds[t][0], {"norm": norm, **kinds[t][1], "ffn": experts}) for t in types]
    return decoder(c, entries, norm)


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
    return _lfm2(c, [glu("silu", _width(c))] * layers(c))


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
    router |= unnormalized(c)
    experts = moe(c.count("num_experts"), top_k(c), glu("silu", c.count("moe_intermediate_size")), router)
    first = glu("silu", c.count("intermediate_size"))
    return _lfm2(c, [first if i < dense else experts for i in range(n)])


def _lfm2(c: Config, ffns: list[Doc]) -> Doc:
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
