"""Dense decoders in LLaMA's naming, and what each does differently: biases, parallel branches, windows."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.gemma import SCALED, causal, gelu
from archsim.importers.hf.families.llama import (
    biased,
    capped,
    d_head,
    gated,
    layers,
    llama,
    mtp,
    plain,
    qwen2,
    rotary,
    two_kinds,
    uniform,
    window,
)
from archsim.importers.hf.families.registry import DEFAULTS, family
from archsim.importers.hf.parts import (  # fmt: skip
    activation,
    attention,
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
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0}  # fmt: skip


# ApertusConfig
@family("apertus", vocab_size=131072, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="xielu", max_position_embeddings=65536, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_parameters={"rope_theta": 12000000.0, **LLAMA3})  # fmt: skip
def apertus(c: Config) -> Doc:
    """Apertus: xIELU without a gate, normed queries and keys."""
    c.only("hidden_act", "xielu")
    c.only("post_norm", False)
    c.only("qk_norm", True)
    ffn = mlp("xielu", c.count("intermediate_size"), bool(c.get("mlp_bias")))
    return uniform(c, rmsnorm(c), rotary(c, qk_norm=rmsnorm(c)), ffn)


# Apertus1p5TextConfig
@family("apertus1p5_text", **{**DEFAULTS["apertus"], "vocab_size": 266752})
def apertus_1_5(c: Config) -> Doc:
    """Apertus 1.5: tokens of images and sounds beside those of text, which alone the output table may have."""
    rows, kept = c.count("vocab_size"), c.get("output_vocab_size")
    if kept is None or kept == rows:
        return apertus(c)
    if c.get("tie_word_embeddings"):
        raise c.error("output_vocab_size", "a tied table has all rows")
    doc = apertus(c.changed(vocab_size=c.count("output_vocab_size")))
    return doc | {"embedding": {**doc.get("embedding", {}), "input_rows": rows}}


# ArceeConfig
@family("arcee", vocab_size=32000, hidden_size=2560, intermediate_size=18432, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="relu2", max_position_embeddings=4096, rms_norm_eps=1e-5,
        tie_word_embeddings=False)  # fmt: skip
def arcee(c: Config) -> Doc:
    """Arcee: LLaMA with a squared ReLU and no gate."""
    return uniform(c, rmsnorm(c), rotary(c), plain(c))


# CwmConfig
@family("cwm", vocab_size=128256, hidden_size=6144, intermediate_size=21504, num_hidden_layers=64,
        num_attention_heads=48, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=8192,
        rope_parameters={"rope_theta": 1000000.0, **LLAMA3, "factor": 16.0})  # fmt: skip
def cwm(c: Config) -> Doc:
    """CWM: LLaMA with three local layers after each global one."""
    norm, n = rmsnorm(c), layers(c)
    block = attention(c, position=rope(c, d_head(c)))
    base = {"norm": norm, "attention": block, "ffn": gated(c, **biased(c, "mlp_bias", bias=True))}
    default = ["full_attention" if i % 4 == 0 else "sliding_attention" for i in range(n)]
    types = layer_types(c, n, default)
    return two_kinds(c, base, {"mask": sliding(c.count("sliding_window"))}, {}, types)


# Ernie4_5Config
@family("ernie4_5", vocab_size=103424, hidden_size=1024, intermediate_size=3072, num_hidden_layers=18,
        num_attention_heads=16, num_key_value_heads=2, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1e-5, tie_word_embeddings=True, use_bias=False,
        rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def ernie4_5(c: Config) -> Doc:
    """ERNIE 4.5: LLaMA with neighbouring pairs rotated."""
    return _ernie(c, interleaved=True)


def _ernie(c: Config, interleaved: bool) -> Doc:
    bias = biased(c, "use_bias", bias=True)
    block = attention(c, **bias, position=rope(c, d_head(c), interleaved=interleaved))
    return uniform(c, rmsnorm(c), block, gated(c, **bias))


# PaddleOCRTextConfig
@family("paddleocr_vl_text", **DEFAULTS["ernie4_5"])
def paddleocr(c: Config) -> Doc:
    """PaddleOCR-VL's language model: ERNIE 4.5 with the halves of a head rotated."""
    c.skip("ignored_index", "weight_share_add_bias", "use_3d_rope", "rope_is_neox_style")
    c.only("compression_ratio", 1)
    return _ernie(c, interleaved=False)


# Exaone4Config
@family("exaone4", vocab_size=102400, hidden_size=4096, intermediate_size=16384, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=32, hidden_act="silu", max_position_embeddings=2048,
        rms_norm_eps=1e-5, tie_word_embeddings=False, sliding_window=4096,
        sliding_window_pattern=4)  # fmt: skip
def exaone4(c: Config) -> Doc:
    """EXAONE 4: norms on the branches' outputs; where there is a window, global layers have no positions."""
    n, norm = layers(c), rmsnorm(c)
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm)
    base = {"norm": norm, "placement": "post_inside", "attention": block, "ffn": gated(c)}
    position = {"position": rope(c, d_head(c))}
    types = pattern_types(c, n)
    if c.get("sliding_window") is None:
        return two_kinds(c, base, position, position, types)
    return two_kinds(c, base, position | {"mask": sliding(c.count("sliding_window"))}, {}, types)


def pattern_types(c: Config, n: int) -> list[str]:
    """Layer types from a period, or from one period spelt with L and G; all are global without a window."""
    period = c.get("sliding_window_pattern")
    near, far = "sliding_attention", "full_attention"
    if c.get("sliding_window") is None:
        return layer_types(c, n, [far] * n)
    if isinstance(period, str) and period and set(period) <= {"L", "G"}:
        default = [near if period[i % len(period)] == "L" and i + 1 < n else far for i in range(n)]
    else:
        default = every(n, c.count("sliding_window_pattern"), far, near)
    return layer_types(c, n, default)


# Glm4Config
@family("glm4", vocab_size=151552, hidden_size=4096, intermediate_size=13696, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=2, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1.5625e-07, attention_bias=True,
        tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def glm4(c: Config) -> Doc:
    """GLM-4-0414: GLM-4 with norms on both sides of a branch."""
    position = rope(c, d_head(c), interleaved=True)
    block = attention(c, **biased(c, "attention_bias", qkv_bias=True), position=position)
    return uniform(c, rmsnorm(c), block, gated(c), placement="pre+post")


# GraniteConfig
@family("granite", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False, embedding_multiplier=1.0, logits_scaling=1.0, residual_multiplier=1.0,
        attention_multiplier=1.0)  # fmt: skip
def granite(c: Config) -> Doc:
    """Granite 3: LLaMA with factors on embedding, scores, branches and logits."""
    return multiplied(c, gated(c, **biased(c, "mlp_bias", bias=True)))


def multiplied(c: Config, ffn: Doc) -> Doc:
    """Granite's frame around a feed-forward layer."""
    factor, block = c.number("residual_multiplier"), rotary(c, scale=c.number("attention_multiplier"))
    scale = {"branch_scale": factor} if factor != 1 else {}
    return uniform(c, rmsnorm(c), block, ffn, embedding=granite_embedding(c), output=granite_head(c), **scale)


def granite_embedding(c: Config) -> Doc | None:
    """The embedding with its factor."""
    factor = c.number("embedding_multiplier")
    return {"scale": factor} if factor != 1 else None


def granite_head(c: Config) -> Doc:
    """Logits are divided by `logits_scaling`."""
    divisor = c.number("logits_scaling")
    if divisor == 0:
        raise c.error("logits_scaling", "logits cannot be divided by 0")
    return head(c, **({"scale": 1 / divisor} if divisor != 1 else {}))


# HeliumConfig
@family("helium", vocab_size=48000, hidden_size=2560, intermediate_size=7040, num_hidden_layers=24,
        num_attention_heads=20, num_key_value_heads=20, head_dim=128, hidden_act="silu",
        max_position_embeddings=4096, rms_norm_eps=1e-8, tie_word_embeddings=False,
        rope_parameters={"rope_theta": 100000.0})  # fmt: skip
def helium(c: Config) -> Doc:
    """Helium: LLaMA with neighbouring pairs rotated; its output projection is as wide as the model."""
    if c.count("num_attention_heads") * d_head(c) != c.count("hidden_size"):
        raise c.error("head_dim", "heads that do not add up to `hidden_size` are not supported")
    bias = biased(c, "attention_bias", qkv_bias=True)
    block = attention(c, **bias, position=rope(c, d_head(c), interleaved=True))
    return uniform(c, rmsnorm(c), block, gated(c, **biased(c, "mlp_bias", bias=True)))


# HunYuanDenseV1Config
@family("hunyuan_v1_dense", vocab_size=290943, hidden_size=4096, intermediate_size=11008,
        num_hidden_layers=32, num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048,
        rms_norm_eps=1e-5, tie_word_embeddings=False)  # fmt: skip
def hunyuan(c: Config) -> Doc:
    """Hunyuan dense: queries and keys are normed after their rotation."""
    return uniform(c, rmsnorm(c), hunyuan_attention(c), gated(c))


def hunyuan_attention(c: Config) -> Doc:
    """Attention of both Hunyuan families."""
    c.skip("eod_token_id", "im_end_id", "im_newline_id", "im_start_id", "text_end_id", "text_start_id",
           "eod_token", "pad_id", "cla_share_factor", "org_vocab_size", "norm_type")  # fmt: skip
    for key in ("use_cla", "use_mla", "add_classification_head"):
        c.only(key, False)
    c.only("use_qk_norm", True)
    c.only("use_rotary_pos_emb", True)
    c.only("attention_head_dim", d_head(c))
    return rotary(c, qk_norm=rmsnorm(c, place="after_rope"))


# InternLM3Config
@family("internlm3", vocab_size=128512, hidden_size=4096, intermediate_size=10240, num_hidden_layers=48,
        num_attention_heads=32, num_key_value_heads=2, head_dim=128, hidden_act="silu",
        max_position_embeddings=32768, rms_norm_eps=1e-5, tie_word_embeddings=False)  # fmt: skip
def internlm3(c: Config) -> Doc:
    """InternLM3: LLaMA."""
    for key in ("bias", "qkv_bias"):
        c.only(key, False)
    return llama(c)


# Jais2Config
@family("jais2", vocab_size=150272, hidden_size=3328, intermediate_size=26624, num_hidden_layers=32,
        num_attention_heads=26, head_dim=128, hidden_act="relu2", max_position_embeddings=8192,
        layer_norm_eps=1e-5, tie_word_embeddings=False, attention_bias=True, mlp_bias=True)  # fmt: skip
def jais2(c: Config) -> Doc:
    """Jais 2: LayerNorm, squared ReLU, biases."""
    return uniform(c, layernorm(c), rotary(c), plain(c))


# Qwen2Config; MiMo's own class derives from it and adds the prediction modules.
@family("mimo", vocab_size=151936, hidden_size=4096, intermediate_size=22016, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=32768, rms_norm_eps=1e-6,
        use_sliding_window=False, sliding_window=4096, max_window_layers=28, num_nextn_predict_layers=0,
        tie_word_embeddings=False)  # fmt: skip
def mimo(c: Config) -> Doc:
    """MiMo-7B: Qwen2.5's layer, and prediction modules."""
    c.only("attention_bias", True)
    doc = qwen2(c)
    layer = {k: v for k, v in doc["layers"][0].items() if k not in ("name", "repeat")}
    return doc | mtp(c.get("num_nextn_predict_layers"), layer)


# MinistralConfig
@family("ministral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-6, sliding_window=4096, tie_word_embeddings=False)  # fmt: skip
def ministral(c: Config) -> Doc:
    """Ministral: Mistral whose layers say one by one whether they have the window."""
    norm, n = rmsnorm(c), layers(c)
    base = {"norm": norm, "attention": attention(c, position=rope(c, d_head(c))), "ffn": gated(c)}
    usual = "full_attention" if c.get("sliding_window") is None else "sliding_attention"
    types = layer_types(c, n, [usual] * n)
    near = {"mask": sliding(c.count("sliding_window"))} if "sliding_attention" in types else {}
    return two_kinds(c, base, near, {}, types)


# Olmo3Config
@family("olmo3", vocab_size=50304, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-5,
        sliding_window=4096, tie_word_embeddings=False,
        rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def olmo3(c: Config) -> Doc:
    """OLMo 3: OLMo 2 with three local layers to one global, whose positions alone are stretched."""
    norm, n = rmsnorm(c), layers(c)
    block = attention(c, **biased(c, "attention_bias", bias=True), qk_norm=norm | {"over": "all"})
    base = {"norm": norm, "placement": "post_inside", "attention": block, "ffn": gated(c)}
    nested = "full_attention" in (c.data.get("rope_parameters") or {})
    far = rope(c, d_head(c), "full_attention" if nested else None)
    local = rope(c, d_head(c), "sliding_attention") if nested else far
    near = {k: v for k, v in local.items() if nested or k != "scaling"}
    types = layer_types(c, n, every(n, 4, "full_attention", "sliding_attention"))
    window = {"mask": sliding(c.count("sliding_window"))} if "sliding_attention" in types else {}
    return two_kinds(c, base, {"position": near, **window}, {"position": far}, types)


# PersimmonConfig
@family("persimmon", vocab_size=262144, hidden_size=4096, intermediate_size=16384, num_hidden_layers=36,
        num_attention_heads=64, hidden_act="relu2", max_position_embeddings=16384, layer_norm_eps=1e-5,
        qk_layernorm=True, tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def persimmon(c: Config) -> Doc:
    """Persimmon: LayerNorm on queries and keys too, squared ReLU, biases everywhere."""
    c.only("num_key_value_heads", None, c.count("num_attention_heads"))
    block = attention(c, bias=True)
    if c.get("qk_layernorm"):
        block["qk_norm"] = layernorm(c)
    block["position"] = rope(c, d_head(c))
    return uniform(c, layernorm(c), block, mlp(activation(c, "hidden_act"), c.count("intermediate_size"), True))


# Ministral3Config
@family("ministral3", vocab_size=131072, hidden_size=4096, intermediate_size=14336, num_hidden_layers=34,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, hidden_act="silu",
        max_position_embeddings=262144, rms_norm_eps=1e-5, sliding_window=None, tie_word_embeddings=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 1000000.0, "factor": 16.0, "beta_fast": 32.0,
                         "beta_slow": 1.0, "original_max_position_embeddings": 16384, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1}, partial_theta=10000.0)  # fmt: skip
def ministral3(c: Config) -> Doc:
    """Ministral 3: Mistral with positions stretched by YaRN, and queries that grow with their position."""
    block = attention(c, position=rope(c, d_head(c))) | window(c) | _tempered(c)
    return uniform(c, rmsnorm(c), block, gated(c))


def _tempered(c: Config) -> Doc:
    """The attention temperature of `llama_4_scaling_beta`, for each `original_max_position_embeddings` tokens."""
    given = c.data.get("rope_parameters") or c.data.get("rope_scaling") or c.defaults.get("rope_parameters") or {}
    beta, step = given.get("llama_4_scaling_beta"), given.get("original_max_position_embeddings")
    return {"temperature": {"floor_scale": step, "attn_scale": beta, "first": 0}} if beta and step else {}


# NanoChatConfig
@family("nanochat", vocab_size=50304, hidden_size=768, intermediate_size=8192, num_hidden_layers=12,
        num_attention_heads=6, num_key_value_heads=6, max_position_embeddings=2048, hidden_act="relu2",
        rms_norm_eps=1e-6, final_logit_softcapping=15.0, tie_word_embeddings=False)  # fmt: skip
def nanochat(c: Config) -> Doc:
    """nanochat: norms without parameters everywhere, on the embedding too."""
    norm = rmsnorm(c, affine=False)
    ffn = mlp(activation(c, "hidden_act"), c.count("intermediate_size"), False)
    output = head(c, **capped(c, "final_logit_softcapping"))
    return uniform(
        c, norm, rotary(c, qk_norm=norm | {"place": "after_rope"}), ffn, embedding={"norm": norm}, output=output
    )


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
    parallel: Doc = {"parallel": "one_norm"} if c.get("use_parallel_residual") else {}
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
    return uniform(c, norm, block | window(c), mlp(activation(c, "hidden_act"), c.count("intermediate_size"), bias))


# VaultGemmaConfig
@family("vaultgemma", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=8192,
        rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=4096, final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0, tie_word_embeddings=True)  # fmt: skip
def vaultgemma(c: Config) -> Doc:
    """VaultGemma: Gemma 2 without the norms behind the branches."""
    causal(c)
    n, norm = layers(c), rmsnorm(c, offset=True)
    block = attention(c, scale=c.positive("query_pre_attn_scalar") ** -0.5, position=rope(c, d_head(c)))
    base = {"norm": norm, "attention": block | capped(c, "attn_logit_softcapping"), "ffn": gelu(c)}
    types = layer_types(c, n, every(n, 2, "full_attention", "sliding_attention"))
    near, output = {"mask": sliding(c.count("sliding_window"))}, head(c, **capped(c, "final_logit_softcapping"))
    return two_kinds(c, base, near, {}, types, embedding=SCALED, output=output)


# BitNetConfig
@family("bitnet", vocab_size=128256, hidden_size=2560, intermediate_size=6912, num_hidden_layers=30,
        num_attention_heads=20, num_key_value_heads=5, hidden_act="relu2", max_position_embeddings=2048,
        rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def bitnet(c: Config) -> Doc:
    """BitNet b1.58: LLaMA with squared ReLU, and norms before the last matrix of attention and feed-forward layer."""
    norm = rmsnorm(c)
    return uniform(c, norm, rotary(c, inner_norm=norm), gated(c, inner_norm=norm))
