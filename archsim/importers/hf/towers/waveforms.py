"""Encoders of sound that read the waveform itself (Omnilingual ASR, VibeVoice, Apertus 1.5), and those of spectra whose
frames are put beside each other (Fun-ASR-Nano, Nemotron 3.5 Transcribe).
"""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.parts import heads
from archsim.importers.hf.towers.parts import (
    ROTARY,
    act,
    held,
    layer,
    layernorm,
    layers,
    linear,
    mha,
    mlp,
    norm,
    rmsnorm,
)
from archsim.importers.hf.towers.registry import Around, encoder
from archsim.importers.hf.towers.resamplers import part

Doc = JsonObject


def residual(*stages: Doc, **more: object) -> Doc:
    """x plus what stages make of it."""
    return {"kind": "residual", "stages": [*stages]} | more


def block(n: int, *stages: Doc) -> list[Doc]:
    """`n` times these stages; none where n is 0."""
    return [residual(*stages, skip=False, repeat=n)] if n else []


# OmniASRAudioConfig
@encoder("audio", "omniasr", hidden_size=1024, conv_dim=[512] * 7, conv_kernel=[10, 3, 3, 3, 3, 2, 2],
         conv_stride=[5, 2, 2, 2, 2, 2, 2], conv_bias=True, num_attention_heads=16, num_hidden_layers=24,
         num_conv_pos_embeddings=128, num_conv_pos_embedding_groups=16, intermediate_size=4096, layer_norm_eps=1e-5,
         hidden_act="gelu")  # fmt: skip
def omniasr(c: Config, around: Around) -> list[Doc]:
    """Omnilingual ASR: wav2vec 2.0's encoder (arXiv:2006.11477), convolutions over samples, one more for positions."""
    d, name, first = c.count("hidden_size"), act(c, "hidden_act"), layernorm(c.number("layer_norm_eps"))
    convs: list[Doc] = [
        {"kind": "conv", "d": width, "kernel": kernel, "stride": stride, "whole": True, "norm": layernorm(1e-5),
         "bias": bool(c.get("conv_bias")), "activation": name}
        for width, kernel, stride in zip(*map(c.get, ("conv_dim", "conv_kernel", "conv_stride")), strict=True)
    ]  # fmt: skip
    places: Doc = {"kind": "conv", "d": d, "kernel": c.count("num_conv_pos_embeddings"), "activation": name,
                   "groups": c.count("num_conv_pos_embedding_groups")}  # fmt: skip
    one = layer(first, mha(c.count("num_attention_heads"), d, bias=True), mlp(name, c.count("intermediate_size")))
    return [
        convs[0] | {"channels": 1},
        *convs[1:],
        norm(first, name="features_norm"),
        linear(d),
        residual(places),
        layers(c.count("num_hidden_layers"), one),
        norm(first),
        linear(around.width),
    ]


ADAPTOR = {
    "hidden_size": 1024, "num_attention_heads": 8, "intermediate_size": 256, "num_hidden_layers": 2,
    "layer_norm_eps": 1e-5, "hidden_act": "relu", "projector_hidden_act": "relu", "projector_hidden_size": 2048,
}  # fmt: skip
"""FunAsrNanoAdaptorConfig."""

FRAMES_BETWEEN = 6
"""FunAsrNanoFeatureExtractor: frames of 10 ms from one stack to the next (`stride_lfr`)."""


# FunAsrNanoEncoderConfig
@encoder("audio", "fun_asr_nano", num_mel_bins=80, hidden_size=512, num_attention_heads=4, intermediate_size=2048,
         num_hidden_layers=70, layer_norm_eps=1e-5, hidden_act="relu", num_stacked_frames=7,
         num_timestamp_prediction_layers=20, fsmn_kernel_size=11)  # fmt: skip
def fun_asr_nano(c: Config, around: Around) -> list[Doc]:
    """Fun-ASR-Nano: SenseVoice's layers (SAN-M), two matrices and a few plain layers of the language model's width."""
    d, first, bins = c.count("hidden_size"), layernorm(c.number("layer_norm_eps")), c.count("num_mel_bins")
    stacked, n = c.count("num_stacked_frames"), c.count("num_hidden_layers")
    late = c.get("num_timestamp_prediction_layers")
    attention: Doc = {"kind": "memory_attention", "d": d, "n_heads": c.count("num_attention_heads"),
                      "d_conv": c.count("fsmn_kernel_size")}  # fmt: skip
    network: Doc = {"kind": "network", "ffn": mlp(act(c, "hidden_act"), c.count("intermediate_size"))}
    one = residual(norm(first), attention), residual(norm(first), network)
    begin = one if stacked * bins == d else (norm(first), attention, one[1])
    a = part(around, "adaptor_config", ADAPTOR)
    plain = layer(layernorm(a.number("layer_norm_eps")), mha(a.count("num_attention_heads"), a.count("hidden_size"),
                  bias=True), mlp(act(a, "hidden_act"), a.count("intermediate_size")))  # fmt: skip
    projector = [linear(a.count("projector_hidden_size"), activation=act(a, "projector_hidden_act")),
                 linear(a.count("hidden_size"))]  # fmt: skip
    return [
        {"kind": "merge", "tokens": stacked, "stride": FRAMES_BETWEEN, "channels": bins},
        *begin,
        *block(n - late - 1, *one),
        norm(first, name="text_norm"),
        *block(late, *one),
        *([norm(first, name="time_norm")] if late else []),
        *projector,
        layers(a.count("num_hidden_layers"), plain),
    ]


TOKENIZER: Doc = {
    "channels": 1, "hidden_size": 64, "kernel_size": 7, "rms_norm_eps": 1e-5, "num_filters": 32,
    "downsampling_ratios": [2, 2, 4, 5, 5, 8], "depths": [3, 3, 3, 3, 3, 3, 8], "hidden_act": "gelu",
    "ffn_expansion": 4,
}  # fmt: skip
"""VibeVoiceAcousticTokenizerEncoderConfig."""


def convnext(c: Config, d: int) -> tuple[Doc, Doc]:
    """A convolution of each channel by itself, and a network (arXiv:2201.03545); a factor for every channel of both."""
    first, kernel = norm(rmsnorm(c.number("rms_norm_eps"))), c.count("kernel_size")
    conv: Doc = {"kind": "conv", "d": d, "kernel": kernel, "groups": d, "activation": None}
    network: Doc = {"kind": "network", "ffn": mlp(act(c, "hidden_act"), c.count("ffn_expansion") * d)}
    return residual(first, conv, scale=True), residual(first, network, scale=True)


def samples(c: Config) -> list[Doc]:
    """VibeVoice's encoder: a waveform becomes shorter and wider step by step."""
    c.skip("vae_std")
    ratios, kernel, d = c.get("downsampling_ratios"), c.count("kernel_size"), c.count("num_filters")
    plain: Doc = {"kind": "conv", "kernel": kernel, "activation": None}
    found: list[Doc] = [plain | {"d": d, "channels": c.count("channels")}]
    for depth, ratio in zip(c.get("depths"), [*ratios, None], strict=True):
        found += block(depth, *convnext(c, d))
        if ratio:
            d *= 2
            found.append(plain | {"d": d, "kernel": 2 * ratio, "stride": ratio})
    return [*found, plain | {"d": c.count("hidden_size")}]


def reversed_samples(c: Config) -> list[Doc]:
    """The decoder beside it, whose weights are held: the same the other way round."""
    ratios, kernel = c.get("downsampling_ratios")[::-1], c.count("kernel_size")
    d = c.count("num_filters") * 2 ** len(ratios)
    plain: Doc = {"kind": "conv", "kernel": kernel, "activation": None}
    found: list[Doc] = [plain | {"d": d}]
    for depth, ratio in zip(c.get("depths")[::-1], [*ratios, None], strict=True):
        found += block(depth, *convnext(c, d))
        if ratio:
            d //= 2
            found.append(plain | {"d": d, "kernel": 2 * ratio})
    return [*found, plain | {"d": c.count("channels")}]


def connector(width: int) -> list[Doc]:
    """A matrix, a norm and a matrix."""
    return [linear(width), norm(rmsnorm(), name="projector_norm"), linear(width)]


@encoder("audio", "vibevoice_asr", **TOKENIZER)
def vibevoice_asr(c: Config, around: Around) -> list[Doc]:
    """VibeVoice-ASR: one encoder for how it sounds, another for what is said."""
    semantic = part(around, "semantic_tokenizer_encoder_config", {**TOKENIZER, "hidden_size": 128})
    ways = [{"stages": [*samples(own), *connector(around.width)]} for own in (c, semantic)]
    return [{"kind": "parallel", "join": "add", "ways": ways}]


DIFFUSION = {
    "hidden_size": 1536, "latent_size": 64, "num_hidden_layers": 4, "intermediate_size": 4608, "hidden_act": "silu",
    "frequency_embedding_size": 256, "mlp_bias": False,
}  # fmt: skip
"""VibeVoiceDiffusionHeadConfig."""


# VibeVoiceAcousticTokenizerConfig
@encoder("audio", "vibevoice", **TOKENIZER)
def vibevoice(c: Config, around: Around) -> list[Doc]:
    """VibeVoice reads a voice through one encoder; what speaks is held, and its work is in no figure: the decoder, the
    diffusion head, and the encoder of what it has said.
    """
    semantic = part(around, "semantic_model_config", {**TOKENIZER, "hidden_size": 128})
    head, width = part(around, "diffusion_head_config", DIFFUSION), around.width
    return [
        *samples(c),
        {"kind": "affine"},
        held("semantic", *samples(semantic), *connector(width)),
        held("decoder", *reversed_samples(c)),
        *diffusion(head, c, width),
        *connector(width),
    ]


def diffusion(h: Config, c: Config, d: int) -> list[Doc]:
    """A head that makes a latent vector out of noise, told by what the language model gave (adaptive norms)."""
    bias, latent = bool(h.get("mlp_bias")), c.count("hidden_size")
    wide, name = h.count("intermediate_size"), act(h, "hidden_act")
    gated = linear(wide, bias, name) | {"gated": True}
    ffn = [norm(rmsnorm()), gated, linear(d, bias)]
    modulated = block(h.count("num_hidden_layers"), *ffn, held("modulation", linear(3 * d, bias=False)))
    times = held("times", linear(d, bias=False), linear(d, bias=False), width=h.count("frequency_embedding_size"))
    last = held("last_modulation", linear(2 * d, bias=False))
    noise = linear(d, bias=False)
    condition = held("condition", linear(d, bias=False), width=d)
    return [held("diffusion", noise, *modulated, last, linear(latent, bias=False), width=latent), times, condition]


HEARD: Doc = {
    "hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32, "num_attention_heads": 10,
    "hidden_act": "gelu", "num_mel_bins": 128, "subsampling_factor": 8,
}  # fmt: skip
"""Nemotron3_5TranscribeAsrAudioConfig."""

SPEAKERS: Doc = {**HEARD, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 31,
                 "num_attention_heads": 8}  # fmt: skip
"""Nemotron3DiarizationAudioConfig."""

SPEAKER_HEAD: Doc = {"hidden_size": 192, "num_speakers": 8, "subsampling_factor": 8}
"""Nemotron3DiarizationHeadConfig."""

WORDS: Doc = {"hidden_size": 1280, "intermediate_size": 640, "num_hidden_layers": 2, "num_attention_heads": 16,
              "hidden_act": "gelu", "vocab_size": 23863, "upsampling_factor": 2}  # fmt: skip
"""Nemotron3_5TranscribeWordTimestampConfig."""


def inside(c: Config | None, key: str, defaults: Doc) -> Config:
    """A mapping inside another, with the defaults of its class."""
    child = None if c is None else c.child(key)
    found = Config({} if child is None else child.data, defaults, f"{key}.")
    if child is not None:
        found.read, found.children = child.read, child.children
    found.skip("max_position_embeddings", "partial_rotary_factor", "chunk_length", "chunk_left_context", "head_dim",
               "chunk_right_context", "fifo_length", "speaker_cache_update_period", "streaming_config",
               "audio_hidden_size", "rope_parameters", "initializer_range")  # fmt: skip
    return found


def half_turned(c: Config, normed: bool) -> list[Doc]:
    """Layers between two norms, half of every head rotated. normed: queries and keys, each head by itself."""
    d, n, first = c.count("hidden_size"), c.count("num_attention_heads"), layernorm(1e-5)
    qk = {"qk_norm": first} if normed else {}
    c.only("num_key_value_heads", n)
    position = ROTARY | {"dim": d // n // 2}
    attention = heads(n, n, d // n, out_bias=True, position=position, **qk)
    one = layer(first, attention, mlp(act(c, "hidden_act"), c.count("intermediate_size")))
    return [norm(first, name="input_norm"), layers(c.count("num_hidden_layers"), one), norm(first)]


def stacked(c: Config) -> Doc:
    """Frames beside each other, through one matrix."""
    n = c.count("subsampling_factor")
    return {"kind": "conv", "d": c.count("hidden_size"), "channels": c.count("num_mel_bins"), "kernel": n, "stride": n,
            "bias": False, "activation": None}  # fmt: skip


# Nemotron3_5TranscribeAudioConfig
@encoder("audio", "nemo_speechlm")
def nemotron_transcribe(c: Config, around: Around) -> list[Doc]:
    """Nemotron 3.5 Transcribe: what is said, and beside it who speaks, as sinusoids added for each; the head that dates
    words runs on request.
    """
    c.skip("speaker_activity_threshold")
    asr = inside(c, "asr_config", HEARD)
    who = c.child("diarization_config")
    speakers, head = inside(who, "audio_config", SPEAKERS), inside(who, "head_config", SPEAKER_HEAD)
    if who is not None:
        who.skip("chunk_length", "chunk_left_context", "chunk_right_context", "fifo_length",
                 "speaker_cache_update_period", "streaming_config")  # fmt: skip
    d, inner, n = asr.count("hidden_size"), head.count("hidden_size"), head.count("num_speakers")
    times, first = head.count("subsampling_factor"), layernorm(1e-5)
    words = part(around, "word_timestamp_config", WORDS)
    said = [stacked(asr), *half_turned(asr, normed=True), norm(first, name="said_norm")]
    speaking: list[Doc] = [
        stacked(speakers),
        *half_turned(speakers, normed=False),
        linear(inner),
        {"kind": "conv", "d": inner * times, "activation": None},
        {"kind": "split", "tokens": times},
        linear(inner, activation="relu"),
        linear(n),
        {"kind": "pool", "tokens": times},
        norm(first, name="speaker_norm"),
        linear(d, bias=False) | {"fixed": True},
        held("silence", {"kind": "vectors"}, width=speakers.count("hidden_size")),
    ]
    wide = words.count("hidden_size")
    finer: Doc = {"kind": "conv", "d": wide, "kernel": words.count("upsampling_factor"), "activation": None}
    dated = held("words", finer, *half_turned(words, normed=True), linear(words.count("vocab_size")), width=wide)
    joined = {"kind": "parallel", "join": "add", "ways": [{"stages": said}, {"stages": speaking}]}
    return [joined, dated, linear(around.width)]


def seanet(c: Config, plain: Doc) -> list[Doc]:
    """SEANet's encoder as EnCodec has it (arXiv:2210.13438), but for its last convolution: a waveform becomes shorter
    and wider step by step, behind residual convolutions. ReLU stands for ELU. plain: a convolution of it.
    """
    d, n, shortcut = c.count("num_filters"), c.get("num_residual_layers"), bool(c.get("use_conv_shortcut"))
    found: list[Doc] = [plain | {"d": d, "kernel": c.count("kernel_size"), "channels": c.count("audio_channels")}]
    for ratio in c.get("upsampling_ratios")[::-1]:
        found += block(n, bottleneck(c, plain, d, shortcut))
        d *= 2
        found.append(plain | {"d": d, "kernel": 2 * ratio, "stride": ratio})
    return found


def bottleneck(c: Config, plain: Doc, d: int, shortcut: bool) -> Doc:
    """Two convolutions through fewer channels, beside one of the input or the input itself."""
    inner = {"d": d // c.count("compress"), "kernel": c.count("residual_kernel_size"), "activation": "relu"}
    other = {"shortcut": [plain | {"d": d, "kernel": 1}]} if shortcut else {}
    return residual(plain | inner, plain | {"d": d, "kernel": 1}, **other)


# WavTokenizerEncoderConfig
@encoder("audio", "apertus1p5", audio_channels=1, num_filters=32, upsampling_ratios=[6, 5, 5, 4], num_residual_layers=1,
         compress=2, use_conv_shortcut=True, norm_type="weight_norm", kernel_size=7, last_kernel_size=7,
         residual_kernel_size=3, num_lstm_layers=2, hidden_size=512, codebook_size=4096)  # fmt: skip
def apertus_audio(c: Config, around: Around) -> list[Doc]:
    """Apertus 1.5: WavTokenizer's encoder; the entry of a codebook that a vector is nearest to is a token."""
    c.skip("sampling_rate", "dilation_growth_rate", "use_causal_conv", "pad_mode", "codebook_dim", "norm_eps",
           *(key for key in c.data if key.startswith(("decoder_", "adanorm_"))))  # fmt: skip
    by_length = c.only("norm_type", "weight_norm", "time_group_norm") == "weight_norm"
    normed: Doc = {"weight_norm": True} if by_length else {"norm": layernorm(1e-5)}
    plain: Doc = {"kind": "conv", "activation": None, **normed}
    last = plain | {"d": c.count("hidden_size"), "kernel": c.count("last_kernel_size")}
    return [*seanet(c, plain), {"kind": "lstm", "n": c.count("num_lstm_layers")}, last, nearest(c)]


def nearest(c: Config) -> Doc:
    """Distances to the entries of a codebook, which is no parameter."""
    return linear(c.count("codebook_size"), bias=False) | {"fixed": True}


# MimiConfig
@encoder("audio", "kyutai_speech_to_text", audio_channels=1, hidden_size=512, num_filters=64, num_residual_layers=1,
         upsampling_ratios=[8, 6, 5, 4], kernel_size=7, last_kernel_size=3, residual_kernel_size=3, compress=2,
         codebook_size=2048, num_quantizers=32, use_conv_shortcut=False, vector_quantization_hidden_dimension=256,
         num_semantic_quantizers=1, upsample_groups=512, num_hidden_layers=8, intermediate_size=2048,
         num_attention_heads=8, num_key_value_heads=8, hidden_act="gelu", norm_eps=1e-5, sliding_window=250,
         attention_bias=False)  # fmt: skip
def kyutai(c: Config, around: Around) -> list[Doc]:
    """Kyutai's speech to text: Mimi's encoder and the search for codes; its decoder is held."""
    c.skip("sampling_rate", "dilation_growth_rate", "use_causal_conv", "pad_mode", "codebook_dim", "trim_right_ratio",
           "layer_scale_initial_scale", "use_streaming", "frame_rate", "_frame_rate", "use_cache",
           "tie_word_embeddings")  # fmt: skip
    d, inner = c.count("hidden_size"), c.count("vector_quantization_hidden_dimension")
    plain: Doc = {"kind": "conv", "activation": None}
    stack, into = mimi_layers(c), linear(inner, bias=False)
    meant, all_codes = c.count("num_semantic_quantizers"), c.count("num_quantizers")
    search = [
        {
            "kind": "branch",
            "name": name,
            "stages": [into, *({"kind": "branch", "n": k, "stages": [nearest(c)]} for k in n)],
        }
        for name, n in (("semantic", [meant]), ("acoustic", [all_codes - meant] if all_codes > meant else []))
    ]
    out = held("codes", linear(d, bias=False), width=inner)
    finer = plain | {"d": d, "kernel": 4, "groups": c.count("upsample_groups"), "bias": False}
    return [
        *seanet(c, plain),
        plain | {"d": d, "kernel": c.count("last_kernel_size")},
        stack,
        plain | {"d": d, "kernel": 4, "stride": 2, "bias": False},
        *search,
        out,
        out,
        held("decoder", finer, stack, *seanet_decoder(c, plain)),
    ]


def mimi_layers(c: Config) -> Doc:
    """Layers that look back over a window, with a learned factor for each channel."""
    d, n, first = c.count("hidden_size"), c.count("num_attention_heads"), layernorm(c.number("norm_eps"))
    head = c.count("head_dim", default=d // n)
    bias = {"bias": True} if c.get("attention_bias") else {}
    mask = {"kind": "sliding", "window": c.count("sliding_window")}
    attention = heads(n, c.count("num_key_value_heads"), head, position=ROTARY, mask=mask, **bias)
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"), False)
    return layers(c.count("num_hidden_layers"), layer(first, attention, ffn, layer_scale="channel"))


def seanet_decoder(c: Config, plain: Doc) -> list[Doc]:
    """The other way round."""
    ratios, n, shortcut = c.get("upsampling_ratios"), c.get("num_residual_layers"), bool(c.get("use_conv_shortcut"))
    d = c.count("num_filters") * 2 ** len(ratios)
    found: list[Doc] = [plain | {"d": d, "kernel": c.count("kernel_size")}]
    for ratio in ratios:
        d //= 2
        found += [plain | {"d": d, "kernel": 2 * ratio}, *block(n, bottleneck(c, plain, d, shortcut))]
    return [*found, plain | {"d": c.count("audio_channels"), "kernel": c.count("last_kernel_size")}]
