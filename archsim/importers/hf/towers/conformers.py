"""Encoders of sound that begin with convolutions over time and frequency, and those whose layers convolve too."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.base.number import ceil_div
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.audio import WHISPER, whisper
from archsim.importers.hf.towers.parts import (
    BOTH_WAYS,
    ROTARY,
    act,
    glu,
    layer,
    layernorm,
    layers,
    linear,
    mha,
    mlp,
    norm,
    rmsnorm,
    two_layers,
)
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject


def conformer(n: int, first: Doc, attention: Doc, mixer: Doc, ffn: Doc, placement: str = "pre") -> Doc:
    """`n` layers of half a feed-forward network, attention, a convolution, the other half, and a norm
    (arXiv:2005.08100). placement: where the norms of all but the convolution stand.
    """
    half = {"norm": first, "ffn": ffn, "placement": placement, "branch_scale": 0.5}
    parts: list[Doc] = [
        {"name": "ffn_before", **half},
        {"name": "attention", "norm": first, "attention": attention, "placement": placement},
        {"name": "convolution", "norm": first, "mixer": mixer},
        {"name": "ffn_after", **half},
    ]
    return {"kind": "layers", "layers": [{"repeat": n, "layers": parts, "round_norm": first}]}


# Qwen3OmniMoeAudioEncoderConfig and Qwen3ASREncoderConfig
@encoder("audio", "qwen3_omni_moe", "qwen3_omni_moe_thinker", **WHISPER, n_window=50, output_dim=3584,
         n_window_infer=800, downsample_hidden_size=480)  # fmt: skip
@encoder("audio", "qwen3_asr", **{**WHISPER, "encoder_layers": 24, "encoder_attention_heads": 16,
         "encoder_ffn_dim": 4096, "d_model": 1024}, n_window=50, output_dim=3584, n_window_infer=800,
         downsample_hidden_size=480)  # fmt: skip
def qwen3_omni(c: Config, around: Around) -> list[Doc]:
    """Qwen3-Omni: three convolutions leave an eighth of the frames and of the bins, of each second by itself."""
    d, n, bins, chunk = c.count("d_model"), c.count("encoder_attention_heads"), c.count("num_mel_bins"), 0
    c.skip("conv_chunksize", "n_window_infer", "max_position_embeddings")
    chunk, found = 2 * c.count("n_window"), []
    for _ in range(3):
        found.append({"kind": "spectrum", "bins": bins, "d": c.count("downsample_hidden_size"), "chunk": chunk})
        bins, chunk = int(ceil_div(bins, 2)), int(ceil_div(chunk, 2))
    name = act(c, "activation_function")
    ffn = mlp(name, c.count("encoder_ffn_dim"))
    return [
        *found,
        linear(d, bias=False),
        layers(c.count("encoder_layers"), layer(layernorm(1e-5), mha(n, d, bias=True), ffn)),
        norm(layernorm(1e-5)),
        *two_layers(c.count("output_dim"), name, inner=d),
    ]


# GlmAsrEncoderConfig
@encoder("audio", "glmasr", hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=20,
         hidden_act="gelu", num_mel_bins=128)  # fmt: skip
def glmasr(c: Config, around: Around) -> list[Doc]:
    """GLM-ASR: Whisper's layers with rotary positions, vectors side by side up to the width of the networks."""
    d, n, wide = c.count("hidden_size"), c.count("num_attention_heads"), c.count("intermediate_size")
    c.only("num_key_value_heads", n)
    c.only("head_dim", d // n)
    attention = mha(n, d, bias=True, qkv_bias={"q": True, "v": True}, position=ROTARY)
    return [
        {"kind": "conv", "d": d, "channels": c.count("num_mel_bins")},
        {"kind": "conv", "d": d, "stride": 2},
        layers(c.count("num_hidden_layers"), layer(layernorm(1e-5), attention, mlp(act(c, "hidden_act"), wide))),
        norm(layernorm(1e-5)),
        {"kind": "merge", "tokens": wide // d, "dropped": True},
        *two_layers(around.width, "gelu", inner=2 * around.width),
    ]


# WhisperConfig
@encoder("audio", "moss_transcribe_diarize", **{**WHISPER, "num_mel_bins": 80, "encoder_layers": 24, "d_model": 1024,
         "encoder_attention_heads": 16, "encoder_ffn_dim": 4096})  # fmt: skip
def moss(c: Config, around: Around) -> list[Doc]:
    """MOSS: Whisper's encoder, vectors side by side, two matrices and a norm."""
    c.skip(*(key for key in c.data if key.startswith("decoder_")), "num_hidden_layers", "apply_spec_augment",
           "median_filter_width", "use_weighted_layer_sum", "classifier_proj_size", "max_target_positions",
           *(key for key in c.data if key.startswith("mask_")))  # fmt: skip
    merge = {"kind": "merge", "tokens": around.config.count("audio_merge_size", default=4)}
    name = act(Config(around.config.data, {"projector_hidden_act": "silu"}), "projector_hidden_act")
    bias = around.config.get("projector_bias")
    pair = two_layers(around.width, name, bias is None or bool(bias))
    return [*whisper(c), norm(layernorm(1e-5)), merge, *pair, norm(layernorm(1e-5), name="projector_norm")]


def usm(c: Config, sizes: Doc, bins: int) -> list[Doc]:
    """Layers of the Universal Speech Model (arXiv:2303.01037) as Gemma has them: two convolutions leave a quarter of
    the frames and of the bins; attention within blocks, with keys for distances.
    """
    d, n, chunk = c.count("hidden_size"), sizes["n_heads"], sizes["chunk"]
    past, ahead = sizes["left"] - 1, sizes["right"]
    found: list[Doc] = []
    for width in sizes["channels"]:
        found.append({"kind": "spectrum", "bins": bins, "d": width, "bias": False, "activation": "relu",
                      "norm": layernorm(1e-6) | {"bias": False}})  # fmt: skip
        bins = int(ceil_div(bins, 2))
    keys: Doc = {"kind": "transformer_xl", "bias": "none", "span": sizes["distances"]}
    blocked = {"kind": "blocked", "window": chunk, "context": chunk + past + ahead}
    attention = mha(n, d, mask=blocked, position=keys, softcap=c.number(sizes["cap"]), q_factor=True)
    mixer = {"kind": "conv_module", "d_inner": d, "d_conv": c.count(sizes["taps"]), "norm": rmsnorm()}
    first = rmsnorm()
    return [
        *found,
        linear(d, bias=False),
        conformer(c.count(sizes["depth"]), first, attention, mixer, mlp("silu", 4 * d, False), "pre+post"),
    ]


# Gemma3nAudioConfig
@encoder("audio", "gemma3n", hidden_size=1536, input_feat_size=128, conf_attention_chunk_size=12,
         conf_attention_context_left=13, conf_attention_context_right=0, conf_attention_logit_cap=50.0,
         conf_num_attention_heads=8, conf_num_hidden_layers=12, conf_conv_kernel_size=5, conf_reduction_factor=4,
         sscp_conv_channel_size=[128, 32], sscp_conv_kernel_size=[[3, 3], [3, 3]],
         sscp_conv_stride_size=[[2, 2], [2, 2]], vocab_size=128)  # fmt: skip
def gemma3n(c: Config, around: Around) -> list[Doc]:
    """Gemma 3n: one of every four vectors goes on; a small table of marks, norms and a matrix."""
    c.skip("gradient_clipping", "conf_residual_weight", "sscp_conv_group_norm_eps", "vocab_offset", "rms_norm_eps")
    for key, known in (("sscp_conv_kernel_size", 3), ("sscp_conv_stride_size", 2)):
        if any(list(pair) != [known, known] for pair in c.get(key)):
            raise c.error(key, "other convolutions than those of the class's default")
    left, right = c.count("conf_attention_context_left"), c.get("conf_attention_context_right")
    sizes = {
        "n_heads": c.count("conf_num_attention_heads"), "chunk": c.count("conf_attention_chunk_size"), "left": left,
        "right": right, "channels": c.get("sscp_conv_channel_size"), "distances": left + right,
        "cap": "conf_attention_logit_cap", "taps": "conf_conv_kernel_size", "depth": "conf_num_hidden_layers",
    }  # fmt: skip
    every = {"kind": "pool", "tokens": c.count("conf_reduction_factor"), "first": True}
    return [*usm(c, sizes, c.count("input_feat_size")), every, *embedder(around, c.count("vocab_size"))]


def embedder(around: Around, marks: int) -> list[Doc]:
    """Gemma 3n's way into the language model: a table of marks, norms for these and for what an encoder gave, one
    matrix.
    """
    return [
        {"kind": "vectors", "name": "marks", "n": marks},
        {"kind": "vectors", "name": "marks_norm"},
        norm(rmsnorm(), name="soft_norm"),
        linear(around.width, bias=False),
        norm(rmsnorm() | {"affine": False}, name="last_norm"),
    ]


# Gemma4AudioConfig
@encoder("audio", "gemma4", hidden_size=1024, num_hidden_layers=12, num_attention_heads=8, hidden_act="silu",
         subsampling_conv_channels=[128, 32], conv_kernel_size=5, attention_chunk_size=12, attention_context_left=13,
         attention_context_right=0, attention_logit_cap=50.0, output_proj_dims=1536)  # fmt: skip
def gemma4(c: Config, around: Around) -> list[Doc]:
    """Gemma 4: Gemma 3n's layers, a matrix behind them, a norm without weights and a matrix."""
    c.skip("gradient_clipping", "residual_weight", "attention_invalid_logits_value", "use_clipped_linears",
           "rms_norm_eps")  # fmt: skip
    c.only("hidden_act", "silu")
    left, right, chunk = (c.get(f"attention_{key}") for key in ("context_left", "context_right", "chunk_size"))
    channels = c.get("subsampling_conv_channels")
    sizes = {
        "n_heads": c.count("num_attention_heads"), "chunk": chunk, "left": left, "right": right, "channels": channels,
        "distances": (chunk + left - 1 + right) // 2 + 1, "cap": "attention_logit_cap", "taps": "conv_kernel_size",
        "depth": "num_hidden_layers",
    }  # fmt: skip
    # the class projects from channels[0] / 4 bins: as many as a spectrum of 128 has left
    found = usm(c, sizes, channels[0])
    last = norm(rmsnorm() | {"affine": False}, name="projector_norm")
    return [*found, linear(c.count("output_proj_dims")), last, linear(around.width, bias=False)]


# Phi4MultimodalAudioConfig
@encoder("audio", "phi4_multimodal", "phi4mm", hidden_size=1024, intermediate_size=1536, num_blocks=24,
         num_attention_heads=16, activation="swish", ext_pw_out_channel=1024, depthwise_separable_out_channel=1024,
         depthwise_multiplier=1, kernel_size=3, conv_activation="swish", input_size=80, conv_glu_type="swish",
         time_reduction=8, bias_max_distance=1000, bias_symmetric=False, nemo_activation="relu",
         nemo_conv_channels=1024)  # fmt: skip
def phi4_multimodal(c: Config, around: Around) -> list[Doc]:
    """Phi-4-multimodal: convolutions leave an eighth of the frames; two matrices, and as many for sounds beside
    images.
    """
    c.skip("chunk_size", "left_chunk", "audio_token_id", "feature_layer", "downsample_rate",
           "nemo_final_size")  # fmt: skip
    d, n, inner = c.count("hidden_size"), c.count("num_attention_heads"), c.count("ext_pw_out_channel")
    for key in ("ext_pw_out_channel", "depthwise_separable_out_channel"):
        c.only(key, d)
    c.only("depthwise_multiplier", 1)
    rows = c.count("bias_max_distance") * (1 if c.get("bias_symmetric") else 2)
    bias = {"kind": "t5", "buckets": rows, "max_distance": c.count("bias_max_distance")}
    mixer = {"kind": "conv_module", "d_inner": inner, "d_conv": c.count("kernel_size"), "bias": True,
             "conv_bias": True, "gate": act(c, "conv_glu_type"), "gate_bias": True, "pointwise": True,
             "activation": act(c, "conv_activation")}  # fmt: skip
    ffn = glu(act(c, "activation"), c.count("intermediate_size"), bias=True)
    attention = mha(n, d, bias=True, position=bias, mask=BOTH_WAYS)
    pair = two_layers(around.width, "gelu")
    return [
        *_nemo(
            c.count("input_size"), act(c, "nemo_activation"), c.count("nemo_conv_channels"), c.count("time_reduction")
        ),
        linear(d),
        conformer(c.count("num_blocks"), layernorm(1e-5), attention, mixer, ffn),
        {"kind": "unused", "stages": pair},
        *pair,
    ]


def _nemo(bins: int, name: str, width: int, factor: int) -> list[Doc]:
    """A full convolution, then depthwise ones with a matrix each, every one of stride 2, to a `factor`-th of frames."""
    found: list[Doc] = [{"kind": "spectrum", "bins": bins, "d": width, "activation": name}]
    for _ in range(factor.bit_length() - 2):
        bins = int(ceil_div(bins, 2))
        found += [
            {"kind": "spectrum", "bins": bins, "depthwise": True, "activation": None},
            {"kind": "spectrum", "bins": int(ceil_div(bins, 2)), "d": width, "kernel": 1, "stride": 1,
             "activation": name},
        ]  # fmt: skip
    return found


# ParakeetEncoderConfig
@encoder("audio", "nemotron_h_omni", hidden_size=1024, num_hidden_layers=24, num_attention_heads=8,
         intermediate_size=4096, hidden_act="silu", attention_bias=True, convolution_bias=True, conv_kernel_size=9,
         subsampling_factor=8, subsampling_conv_channels=256, num_mel_bins=80, subsampling_conv_kernel_size=3,
         subsampling_conv_stride=2)  # fmt: skip
def nemotron_h_omni(c: Config, around: Around) -> list[Doc]:
    """Nemotron Omni: Parakeet's FastConformer, a norm and two matrices."""
    inner, bias = c.count("projection_hidden_size"), bool(c.get("projection_bias"))
    pair = linear(inner, bias, "relu2"), linear(around.width, bias)
    return [*parakeet(c), norm(rmsnorm(), name="projector_norm"), *pair]


def parakeet(c: Config) -> list[Doc]:
    """FastConformer: relative positions with a bias of each head, convolutions of nine vectors."""
    d, n, bias = c.count("hidden_size"), c.count("num_attention_heads"), bool(c.get("attention_bias"))
    c.skip("scale_input", "dropout_positions")
    c.only("num_key_value_heads", n)
    c.only("subsampling_conv_kernel_size", 3)
    c.only("subsampling_conv_stride", 2)
    keys = {"kind": "transformer_xl", "bias": "layer", "odd": True}
    conv = bool(c.get("convolution_bias"))
    mixer: Doc = {"kind": "conv_module", "d_inner": d, "d_conv": c.count("conv_kernel_size"), "bias": conv,
                  "conv_bias": conv, "norm": layernorm(1e-5), "activation": act(c, "hidden_act")}  # fmt: skip
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"), bias)
    attention = mha(n, d, position=keys, mask=BOTH_WAYS, **({"bias": True} if bias else {}))
    return [
        *_nemo(c.count("num_mel_bins"), "relu", c.count("subsampling_conv_channels"), c.count("subsampling_factor")),
        linear(d),
        conformer(c.count("num_hidden_layers"), layernorm(1e-5), attention, mixer, ffn),
    ]
