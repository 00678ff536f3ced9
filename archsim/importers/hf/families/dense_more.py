"""Dense decoders with switches: biases, parallel branches, stretched Mistrals."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.dense import uniform
from archsim.importers.hf.families.gemma import SCALED, causal, gelu
from archsim.importers.hf.families.llama import biased, d_head, gated, layers, mistral
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import (  # fmt: skip
    activation,
    attention,
    decoder,
    every,
    head,
    layer_types,
    layernorm,
    mlp,
    rmsnorm,
    rope,
    sliding,
)

Doc = JsonObject


# Ministral3Config
@family("ministral3", vocab_size=131072, hidden_size=4096, intermediate_size=14336, num_hidden_layers=34,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=262144, rms_norm_eps=1e-5, sliding_window=None, tie_word_embeddings=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0,
                         "beta_slow": 1.0, "original_max_position_embeddings": 16384, "mscale": 1.0,
                         "mscale_all_dim": 1.0})  # fmt: skip
def ministral3(c: Config) -> Doc:
    """Ministral 3: Mistral with positions stretched by YaRN."""
    return mistral(c)


# NanoChatConfig
@family("nanochat", vocab_size=50304, hidden_size=768, intermediate_size=8192, num_hidden_layers=12,
        num_attention_heads=6, num_key_value_heads=6, max_position_embeddings=2048, hidden_act="relu2",
        rms_norm_eps=1e-6, final_logit_softcapping=15.0, tie_word_embeddings=False)  # fmt: skip
def nanochat(c: Config) -> Doc:
    """nanochat: norms without parameters everywhere, on the embedding too."""
    norm = rmsnorm(c, affine=False)
    bias = biased(c, "attention_bias", bias=True)
    block = attention(c, **bias, qk_norm=norm | {"place": "after_rope"}, position=rope(c, d_head(c)))
    ffn = mlp(activation(c, "hidden_act"), c.count("intermediate_size"), False)
    entries = [("layers", {"norm": norm, "attention": block, "ffn": ffn})] * layers(c)
    cap = {"softcap": c.number("final_logit_softcapping")} if c.get("final_logit_softcapping") else {}
    return decoder(c, entries, norm, embedding={"norm": norm}, output=head(c, **cap))


# SeedOssConfig
@family("seed_oss", vocab_size=155136, hidden_size=4096, intermediate_size=27648, num_hidden_layers=64,
        num_attention_heads=80, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=524288, rms_norm_eps=1e-6, attention_bias=True, attention_out_bias=False,
        tie_word_embeddings=False)  # fmt: skip
def seed_oss(c: Config) -> Doc:
    """Seed-OSS: biases on queries, keys and values."""
    bias = {"qkv_bias": bool(c.get("attention_bias")), "out_bias": bool(c.get("attention_out_bias"))}
    block = attention(c, **bias, position=rope(c, d_head(c)))
    return uniform(c, rmsnorm(c), block, gated(c, **biased(c, "mlp_bias", bias=True)))


# StableLmConfig
@family("stablelm", "stablelm_epoch", vocab_size=50304, intermediate_size=6912, hidden_size=2560,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32, hidden_act="silu",
        max_position_embeddings=4096, layer_norm_eps=1e-5, tie_word_embeddings=False, use_qkv_bias=False,
        qk_layernorm=False, use_parallel_residual=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.25})  # fmt: skip
def stablelm(c: Config) -> Doc:
    """StableLM 2: LayerNorm, a quarter of each head rotated; the larger ones parallel with normed heads."""
    c.skip("norm_eps", "rope_pct")
    norm = layernorm(c)
    block = attention(c, **biased(c, "use_qkv_bias", qkv_bias=True))
    if c.get("qk_layernorm"):
        block["qk_norm"] = norm | {"bias": False, "over": "heads"}
    block["position"] = rope(c, d_head(c))
    parallel = {"parallel": "one_norm"} if c.get("use_parallel_residual") else {}
    return uniform(c, norm, block, gated(c), **parallel)


# Starcoder2Config
@family("starcoder2", vocab_size=49152, hidden_size=3072, intermediate_size=12288, num_hidden_layers=30,
        num_attention_heads=24, num_key_value_heads=2, hidden_act="gelu_pytorch_tanh",
        max_position_embeddings=4096, norm_epsilon=1e-5, sliding_window=None, use_bias=True,
        tie_word_embeddings=True)  # fmt: skip
def starcoder2(c: Config) -> Doc:
    """StarCoder2: LayerNorm, GELU without a gate, biases everywhere, a window."""
    c.only("norm_type", "layer_norm")
    c.only("mlp_type", "default")
    bias, norm = bool(c.get("use_bias")), layernorm(c, "norm_epsilon")
    block = attention(c, **({"bias": True} if bias else {}), position=rope(c, d_head(c)))
    if c.get("sliding_window") is not None:
        block["mask"] = sliding(c.count("sliding_window"))
    return uniform(c, norm, block, mlp(activation(c, "hidden_act"), c.count("intermediate_size"), bias))


# VaultGemmaConfig
@family("vaultgemma", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=8192,
        rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=4096, final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0, tie_word_embeddings=True)  # fmt: skip
def vaultgemma(c: Config) -> Doc:
    """VaultGemma: Gemma 2 without the norms behind the branches."""
    causal(c)
    n, norm = layers(c), rmsnorm(c, offset=True)
    block = attention(c, scale=c.number("query_pre_attn_scalar") ** -0.5, position=rope(c, d_head(c)))
    if c.get("attn_logit_softcapping") is not None:
        block["softcap"] = c.number("attn_logit_softcapping")
    base = {"norm": norm, "attention": block, "ffn": gelu(c)}
    local = base | {"attention": block | {"mask": sliding(c.count("sliding_window"))}}
    types = layer_types(c, n, every(n, 2, "full_attention", "sliding_attention"))
    kinds = {"full_attention": ("global", base), "sliding_attention": ("local", local)}
    capped = c.get("final_logit_softcapping") is not None
    output = head(c, **({"softcap": c.number("final_logit_softcapping")} if capped else {}))
    return decoder(c, [kinds[t] for t in types], norm, embedding=SCALED, output=output)
