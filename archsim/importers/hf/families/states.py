"""State-space mixers and gated linear recurrences, alone and beside softmax attention."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import MAX_LAYERS, Config
from archsim.importers.hf.families.dense import granite_embedding, granite_head
from archsim.importers.hf.families.gemma import SCALED, gelu
from archsim.importers.hf.families.hybrid import BOTH
from archsim.importers.hf.families.llama import biased, d_head, gated, layers, rotary
from archsim.importers.hf.families.moe import granite_experts, grouped_router, top_k
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import (  # fmt: skip
    activation,
    attention,
    decoder,
    glu,
    head,
    layer_types,
    mlp,
    moe,
    rmsnorm,
    rope,
    sliding,
)

Doc = JsonObject
OLD = {"mamba": "linear_attention", "attention": "full_attention", "hybrid": "linear_attention"}
"""Names that layer types had before."""

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
        raise c.error("num_heads", f"{n} heads of size {size} do not add up to expand x hidden_size channels")
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


def hybrid_types(c: Config, n: int, default: list[str], key: str = "layer_types") -> list[str]:
    """Layer types in the older or newer spelling."""
    return layer_types(c, n, default, BOTH, key=key, renamed=OLD)


def mamba2_mixer(c: Config, n_heads: int, d_head: int, *, norm: Doc | None) -> Doc:
    """The Mamba-2 block of Bamba and its relatives."""
    c.skip("time_step_limit", "time_step_min", "time_step_max", "time_step_floor", "z_loss_coefficient",
           "num_logits_to_keep", "mamba_expand")  # fmt: skip
    return {
        "kind": "mamba2",
        "n_heads": n_heads,
        "d_head": d_head,
        "d_state": c.count("mamba_d_state"),
        "n_groups": c.count("mamba_n_groups"),
        "d_conv": c.count("mamba_d_conv"),
        "chunk": c.count("mamba_chunk_size"),
        **biased(c, "mamba_proj_bias", bias=True),
        **({} if c.get("mamba_conv_bias") else {"conv_bias": False}),
        **({"norm": norm} if norm else {}),
    }


def expanded(c: Config) -> tuple[int, int]:
    """Heads and their size, which have to add up to the widened stream."""
    n, inner = c.count("mamba_n_heads"), c.count("mamba_expand") * c.count("hidden_size")
    size = inner // n if c.get("mamba_d_head") in ("auto", None) else c.count("mamba_d_head")
    if n * size != inner:
        raise c.error("mamba_n_heads", f"{n} heads of size {size} do not add up to mamba_expand x hidden_size channels")
    return n, size


BAMBA = {
    "mamba_n_heads": 128, "mamba_d_head": "auto", "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
    "mamba_expand": 2, "mamba_chunk_size": 256, "mamba_conv_bias": True, "mamba_proj_bias": False,
}  # fmt: skip


# BambaConfig
@family("bamba", vocab_size=128000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=262144,
        rms_norm_eps=1e-5, tie_word_embeddings=False, **BAMBA,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def bamba(c: Config) -> Doc:
    """Bamba: Mamba-2 layers, and attention in those that are listed."""
    n, norm = layers(c), rmsnorm(c)
    chosen = set(c.get("attn_layer_indices") or ())
    c.only("attn_rotary_emb", d_head(c) // 2)
    block = rotary(c)
    base = {"norm": norm, "ffn": gated(c, **biased(c, "mlp_bias", bias=True))}
    mixer = mamba2_mixer(c, *expanded(c), norm=norm)
    pick = [("attention", base | {"attention": block}), ("mamba", base | {"mixer": mixer})]
    return decoder(c, [pick[i not in chosen] for i in range(n)], norm)


# GraniteMoeHybridConfig
@family("granitemoehybrid", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False, embedding_multiplier=1.0, logits_scaling=1.0, residual_multiplier=1.0,
        attention_multiplier=1.0, num_local_experts=8, num_experts_per_tok=2, shared_intermediate_size=1024,
        **{**BAMBA, "mamba_d_head": "auto"})  # fmt: skip
def granitemoehybrid(c: Config) -> Doc:
    """Granite 4: Mamba-2 and attention layers, each followed by experts and a shared network, or that alone."""
    c.skip("rms_norm", "normalization_function", "init_method")
    n, norm, factor = layers(c), rmsnorm(c), c.number("residual_multiplier")
    block = attention(c, **biased(c, "attention_bias", bias=True), scale=c.number("attention_multiplier"))
    rotated = c.get("position_embedding_type") == "rope"
    c.only("position_embedding_type", "rope", "nope")
    position = rope(c, d_head(c))
    if rotated:
        block["position"] = position
    routed = c.get("num_local_experts")
    c.skip("num_experts_per_tok", "intermediate_size")
    plain = glu(activation(c, "hidden_act"), c.count("shared_intermediate_size"))
    ffn = granite_experts(c) if routed else plain
    base = {"norm": norm, **({"branch_scale": factor} if factor != 1 else {}), "ffn": ffn}
    kinds = {
        "full_attention": ("attention", base | {"attention": block}),
        "linear_attention": ("mamba", base | {"mixer": mamba2_mixer(c, *expanded(c), norm=norm)}),
    }
    types = hybrid_types(c, n, ["linear_attention"] * n)
    entries = [kinds[t] for t in types]
    return decoder(c, entries, norm, embedding=granite_embedding(c), output=granite_head(c))


# FalconH1Config
@family("falcon_h1", vocab_size=128000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=8192,
        rms_norm_eps=1e-5, tie_word_embeddings=False, mamba_rms_norm=False, mamba_d_ssm=1024,
        **{**BAMBA, "mamba_d_head": "auto"}, lm_head_multiplier=1.0, embedding_multiplier=1.0,
        key_multiplier=1.0, rope_parameters={"rope_theta": 10000.0})  # fmt: skip
def falcon_h1(c: Config) -> Doc:
    """Falcon-H1: attention and Mamba-2 side by side in every layer. Factors on activations change no count."""
    c.skip("mlp_multipliers", "attention_out_multiplier", "attention_in_multiplier", "ssm_multipliers",
           "ssm_in_multiplier", "ssm_out_multiplier", "mamba_norm_before_gate", "mamba_use_mlp",
           "mlp_expansion_factor", "attn_layer_indices")  # fmt: skip
    c.only("projectors_bias", bool(c.get("mamba_proj_bias")))
    n, norm, size = c.count("mamba_n_heads"), rmsnorm(c), d_head(c)
    inner = c.count("mamba_d_ssm", default=c.count("mamba_expand") * c.count("hidden_size"))
    width = inner // n if c.get("mamba_d_head") in ("auto", None) else c.count("mamba_d_head")
    if n * width != inner:
        raise c.error("mamba_d_ssm", f"{n} heads of {width} do not add up to {inner}")
    scale = {} if c.number("key_multiplier") == 1 else {"scale": c.number("key_multiplier") * size**-0.5}
    block = rotary(c, **scale)
    mixer = mamba2_mixer(c, n, width, norm=norm if c.get("mamba_rms_norm") else None)
    ffn = gated(c, **biased(c, "mlp_bias", bias=True))
    layer = {"norm": norm, "attention": block, "mixer": mixer, "ffn": ffn}
    factor, logits = c.number("embedding_multiplier"), c.number("lm_head_multiplier")
    embedding = {"scale": factor} if factor != 1 else None
    output = head(c, **({"scale": logits} if logits != 1 else {}))
    return decoder(c, [("layers", layer)] * layers(c), norm, embedding=embedding, output=output)


# JambaConfig
@family("jamba", vocab_size=65536, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", rms_norm_eps=1e-6,
        max_position_embeddings=262144, num_experts_per_tok=2, num_experts=16, expert_layer_period=2,
        expert_layer_offset=1, attn_layer_period=8, attn_layer_offset=4, mamba_d_state=16, mamba_d_conv=4,
        mamba_expand=2, mamba_dt_rank="auto", mamba_conv_bias=True, mamba_proj_bias=False,
        tie_word_embeddings=False)  # fmt: skip
def jamba(c: Config) -> Doc:
    """Jamba: Mamba and attention without positions, experts in every second layer."""
    c.skip("use_mamba_kernels", "use_mambapy", "use_associative_scan", "num_logits_to_keep",
           "calc_logits_for_entire_prompt")  # fmt: skip
    c.only("mamba_inner_layernorms", True)
    c.only("sliding_window", None)
    n, norm, ffn = layers(c), rmsnorm(c), gated(c)
    block, mixer = attention(c), _jamba_mixer(c, norm)
    many = c.count("num_experts") > 1
    experts = moe(c.count("num_experts"), top_k(c), ffn, {"normalize": False}) if many else ffn
    attn, wide = (_periodic(c, f"{what}_layer", n) for what in ("attn", "expert"))
    entries = []
    for is_attention, has_experts in zip(attn, wide, strict=True):
        mix = {"attention": block} if is_attention else {"mixer": mixer}
        name = ("attention" if is_attention else "mamba") + ("_moe" if has_experts and many else "")
        entries.append((name, {"norm": norm, **mix, "ffn": experts if has_experts else ffn}))
    return decoder(c, entries, norm)


def _jamba_mixer(c: Config, norm: Doc) -> Doc:
    d, rank = c.count("hidden_size"), c.get("mamba_dt_rank")
    return {
        "kind": "mamba",
        "d_inner": c.count("mamba_expand") * d,
        "d_state": c.count("mamba_d_state"),
        "d_conv": c.count("mamba_d_conv"),
        "dt_rank": -(-d // 16) if rank == "auto" else c.count("mamba_dt_rank"),
        **biased(c, "mamba_proj_bias", bias=True),
        **({} if c.get("mamba_conv_bias") else {"conv_bias": False}),
        "inner_norm": norm,
    }


def _periodic(c: Config, what: str, n: int) -> list[bool]:
    period, offset = c.count(f"{what}_period"), c.get(f"{what}_offset")
    return [i % period == offset for i in range(n)]


LETTERS = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
"""Nemotron-H's pattern, one letter per layer."""


# NemotronHConfig
@family("nemotron_h", vocab_size=131072, hidden_size=4096, tie_word_embeddings=False, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=4096, intermediate_size=21504,
        mlp_hidden_act="relu2", ssm_state_size=128, mamba_num_heads=128, mamba_head_dim=64,
        mamba_hidden_act="silu", n_groups=8, conv_kernel=4, expand=2, use_conv_bias=True, chunk_size=128,
        n_routed_experts=8, n_shared_experts=1, moe_intermediate_size=7688,
        moe_shared_expert_intermediate_size=7688, num_experts_per_tok=2, routed_scaling_factor=1.0, n_group=1,
        topk_group=1, norm_topk_prob=True, layer_norm_epsilon=1e-5,
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp"])  # fmt: skip
def nemotron_h(c: Config) -> Doc:
    """Nemotron-H: each layer is one branch: Mamba-2, attention without positions, feed-forward or experts."""
    c.skip("use_mamba_kernels", "time_step_min", "time_step_max", "time_step_limit", "time_step_floor", "expand",
           "num_logits_to_keep", "mamba_ssm_cache_dtype", "residual_in_fp32", "rescale_prenorm_residual",
           "moe_shared_expert_overlap", "num_nextn_predict_layers", "mtp_layers_block_type",
           "mtp_hybrid_override_pattern", "num_hidden_layers", "attention_head_dim", "rms_norm_eps", "norm_eps",
           "mamba_proj_bias", "attention_bias", "rope_theta", "partial_rotary_factor",
           "rope_parameters")  # fmt: skip
    c.skip("time_step_rank")
    for key, only in (("sliding_window", None), ("mamba_hidden_act", "silu")):
        c.only(key, only)
    norm = rmsnorm(c, "layer_norm_epsilon")
    kinds = {
        "linear_attention": ("mamba", {"norm": norm, "mixer": _nemotron_mixer(c, norm)}),
        "full_attention": ("attention", {"norm": norm, "attention": attention(c)}),
        "mlp": ("mlp", {"norm": norm, "ffn": _relu2(c, c.count("intermediate_size"))}),
        "moe": ("moe", {"norm": norm, "ffn": _nemotron_experts(c)}),
    }
    return decoder(c, [kinds[t] for t in _nemotron_types(c)], norm)


def _nemotron_types(c: Config) -> list[str]:
    pattern, listed = c.get("hybrid_override_pattern"), c.first("layers_block_type", "layer_types")
    given = [LETTERS.get(letter, letter) for letter in pattern] if isinstance(pattern, str) else listed
    if not isinstance(given, list) or not 0 < len(given) <= MAX_LAYERS:
        raise c.error("hybrid_override_pattern", "no list of layers, here or in layers_block_type")
    found = [OLD.get(str(t), str(t)) for t in given]
    for kind in found:
        if kind not in LETTERS.values():
            raise c.error("layers_block_type", f"unknown layer {kind!r}; known: {', '.join(LETTERS.values())}")
    return found


def _relu2(c: Config, width: int) -> Doc:
    return mlp(activation(c, "mlp_hidden_act"), width, bool(c.get("mlp_bias")))


def _nemotron_mixer(c: Config, norm: Doc) -> Doc:
    return {
        "kind": "mamba2",
        "n_heads": c.count("mamba_num_heads"),
        "d_head": c.count("mamba_head_dim"),
        "d_state": c.count("ssm_state_size"),
        "n_groups": c.count("n_groups"),
        "d_conv": c.count("conv_kernel"),
        "chunk": c.count("chunk_size"),
        **biased(c, "use_bias", bias=True),
        **({} if c.get("use_conv_bias") else {"conv_bias": False}),
        "norm": norm,
    }


def _nemotron_experts(c: Config) -> Doc:
    router = {"score": "sigmoid", "selection_bias": True} | grouped_router(c)
    c.only("n_shared_experts", 1)
    shared = _relu2(c, c.count("moe_shared_expert_intermediate_size"))
    expert = _relu2(c, c.count("moe_intermediate_size"))
    latent = c.count("moe_latent_size") if c.get("moe_latent_size") is not None else None
    routed = c.count("n_routed_experts", "num_local_experts")
    return moe(routed, top_k(c), expert, router, shared=shared, latent=latent)
