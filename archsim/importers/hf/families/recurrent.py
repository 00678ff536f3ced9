"""Decoders of state-space mixers and gated linear recurrences."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.gemma import SCALED, gelu
from archsim.importers.hf.families.llama import d_head, layers
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import attention, decoder, head, rmsnorm, rope, sliding

Doc = JsonObject
MAMBA = {
    "vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "layer_norm_epsilon": 1e-5,
    "expand": 2, "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
    "tie_word_embeddings": True,
}  # fmt: skip


# MambaConfig
@family("mamba", **MAMBA)
def mamba(c: Config) -> Doc:
    """Mamba: one selective state-space mixer per layer, nothing else."""
    return _mamba(c)


# FalconMambaConfig
@family("falcon_mamba", mixer_rms_eps=1e-6, **MAMBA)
def falcon_mamba(c: Config) -> Doc:
    """Falcon Mamba: Mamba with dt, B and C normalised, without weights."""
    return _mamba(c, inner_norm=rmsnorm(c, "mixer_rms_eps", affine=False))


def _mamba(c: Config, **more: object) -> Doc:
    c.skip("use_mambapy", "use_associative_scan", "time_step_scale", "time_step_init_scheme", "d_model", "n_layer",
           "d_inner", "intermediate_size", "ssm_cfg", "fused_add_norm", "pad_vocab_size_multiple")  # fmt: skip
    d, rank = c.count("hidden_size"), c.get("time_step_rank")
    mixer = {
        "kind": "mamba",
        "d_inner": c.count("intermediate_size", default=c.count("expand") * d),
        "d_state": c.count("state_size"),
        "d_conv": c.count("conv_kernel"),
        "dt_rank": rank if isinstance(rank, int) else -(-d // 16),
    }
    return _stacked(c, mixer | more, c.count("num_hidden_layers", "n_layer"))


# Mamba2Config
@family("mamba2", **{**MAMBA, "vocab_size": 32768, "hidden_size": 4096, "state_size": 128, "num_hidden_layers": 64,
        "tie_word_embeddings": False}, num_heads=128, head_dim=64, n_groups=8, chunk_size=256)  # fmt: skip
def mamba2(c: Config) -> Doc:
    """Mamba-2: heads that share a decay, groups of heads that share B and C, a gated norm before the output."""
    c.only("norm_before_gate", False, True)  # recorded by the files, not read by the class
    n, size = c.count("num_heads"), c.count("head_dim")
    if n * size != c.count("expand") * c.count("hidden_size"):
        raise c.error("num_heads", f"{n} heads of {size} are not expand x hidden_size channels")
    mixer = {
        "kind": "mamba2",
        "n_heads": n,
        "d_head": size,
        "d_state": c.count("state_size"),
        "n_groups": c.count("n_groups"),
        "d_conv": c.count("conv_kernel"),
        "chunk": c.count("chunk_size"),
        "norm": rmsnorm(c, "layer_norm_epsilon"),
    }
    return _stacked(c, mixer, layers(c))


def _stacked(c: Config, mixer: Doc, n: int) -> Doc:
    """Layers of a state-space mixer alone."""
    c.skip("residual_in_fp32", "rescale_prenorm_residual", "time_step_min", "time_step_max", "time_step_floor",
           "time_step_limit", "time_step_rank", "rms_norm")  # fmt: skip
    c.only("hidden_act", "silu")
    norm = rmsnorm(c, "layer_norm_epsilon")
    if c.get("use_bias"):
        mixer["bias"] = True
    if not c.get("use_conv_bias"):
        mixer["conv_bias"] = False
    return decoder(c, [("layers", {"norm": norm, "mixer": mixer})] * n, norm)


# RecurrentGemmaConfig
@family("recurrent_gemma", vocab_size=256000, hidden_size=2560, intermediate_size=7680, num_hidden_layers=26,
        num_attention_heads=10, attention_window_size=2048, conv1d_width=4, logits_soft_cap=30.0,
        rms_norm_eps=1e-6, block_types=["recurrent", "recurrent", "attention"], tie_word_embeddings=True,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def recurrent_gemma(c: Config) -> Doc:
    """Griffin: two RG-LRU layers to one with local attention. The feed-forward width counts both halves."""
    c.skip("w_init_variance_scale", "final_w_init_variance_scale", "embeddings_scale_by_sqrt_dim", "_block_types")
    n, norm, size = layers(c), rmsnorm(c, offset=True), d_head(c)
    window = sliding(c.count("attention_window_size", "sliding_window"))
    bias = {"qkv_bias": True} if c.get("attention_bias") else {}
    local = attention(c, out_bias=True, position=rope(c, size), mask=window, **bias)
    lru = {"kind": "rg_lru", "d_inner": c.count("lru_width", default=c.count("hidden_size")),
           "n_blocks": c.count("num_attention_heads"), "d_conv": c.count("conv1d_width")}  # fmt: skip
    ffn = gelu(c, bias=True)
    base = {"norm": norm, "ffn": ffn | {"d_ff": ffn["d_ff"] // 2}}
    kinds = {"recurrent": ("lru", base | {"mixer": lru}), "attention": ("local", base | {"attention": local})}
    order = c.get("block_types")
    entries = [kinds[order[i % len(order)]] for i in range(n)]
    return decoder(c, entries, norm, embedding=SCALED, output=head(c, softcap=c.number("logits_soft_cap")))
