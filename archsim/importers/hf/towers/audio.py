"""Encoders of sound in the manner of Whisper: two convolutions, then layers that look both ways."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.parts import act, layer, layernorm, layers, linear, mha, mlp, norm, two_layers
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject

WHISPER = {
    "num_mel_bins": 128, "encoder_layers": 32, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120,
    "d_model": 1280, "activation_function": "gelu", "max_source_positions": 1500,
}  # fmt: skip


def whisper(c: Config, table: bool = True) -> list[Doc]:
    """Whisper's encoder without its last norm; two frames of 10 ms become one vector."""
    d, n = c.count("d_model", "hidden_size"), c.count("encoder_attention_heads", "num_attention_heads")
    attention = mha(n, d, bias=True, qkv_bias={"q": True, "v": True})
    ffn = mlp(act(c, "activation_function"), c.count("encoder_ffn_dim", "intermediate_size"))
    return [
        {"kind": "conv", "d": d, "channels": c.count("num_mel_bins")},
        {"kind": "conv", "d": d, "stride": 2},
        *([{"kind": "positions", "rows": c.count("max_source_positions")}] if table else []),
        layers(c.count("encoder_layers", "num_hidden_layers"), layer(layernorm(1e-5), attention, ffn)),
    ]


@encoder("audio", "qwen2_audio", **WHISPER)
def qwen2_audio(c: Config, around: Around) -> list[Doc]:
    """Qwen2-Audio: pairs are averaged."""
    return [*whisper(c), {"kind": "pool", "tokens": 2}, norm(layernorm(1e-5)), linear(around.width)]


def _sound_projector(around: Around, bias: bool) -> list[Doc]:
    name = act(around.config, "projector_hidden_act") if around.config.get("projector_hidden_act") else "gelu"
    return two_layers(around.width, name, bias)


# AudioFlamingo3EncoderConfig
@encoder("audio", "audioflamingo3", "musicflamingo", num_mel_bins=128, num_hidden_layers=32, num_attention_heads=20,
         intermediate_size=5120, hidden_size=1280, activation_function="gelu", max_source_positions=1500)  # fmt: skip
def audioflamingo3(c: Config, around: Around) -> list[Doc]:
    """Audio Flamingo 3: pairs are averaged, two matrices."""
    return [*whisper(c), {"kind": "pool", "tokens": 2}, norm(layernorm(1e-5)), *_sound_projector(around, True)]


# VoxtralEncoderConfig
@encoder("audio", "voxtral", num_mel_bins=128, num_hidden_layers=32, num_attention_heads=20, intermediate_size=5120,
         hidden_size=1280, activation_function="gelu", max_source_positions=1500)  # fmt: skip
def voxtral(c: Config, around: Around) -> list[Doc]:
    """Voxtral: vectors are put side by side up to the width of the feed-forward layers."""
    n, d = c.count("num_attention_heads"), c.count("hidden_size")
    c.only("num_key_value_heads", n)
    c.only("head_dim", d // n)
    merge = {"kind": "merge", "tokens": c.count("intermediate_size") // d}
    return [*whisper(c), norm(layernorm(1e-5)), merge, *_sound_projector(around, False)]


# Qwen2_5OmniAudioEncoderConfig
@encoder("audio", "qwen2_5_omni", "qwen2_5_omni_thinker", **WHISPER, n_window=100, output_dim=3584)
def qwen2_5_omni(c: Config, around: Around) -> list[Doc]:
    """Qwen2.5-Omni: sinusoids for positions; a vector marks where a sound begins, another where it ends."""
    c.skip("max_source_positions", "n_window")
    pooled = [{"kind": "pool", "tokens": 2}, norm(layernorm(1e-5)), linear(c.count("output_dim"))]
    return [*whisper(c, table=False), *pooled, {"kind": "vectors", "n": 2}]


# Gemma4UnifiedAudioConfig
@encoder("audio", "gemma4_unified", audio_embed_dim=640)
def gemma4_unified(c: Config, around: Around) -> list[Doc]:
    """Gemma 4 12B: pieces of the waveform as they are, through one matrix."""
    c.skip("rms_norm_eps", "hidden_size", "output_proj_dims", "audio_samples_per_token")
    one: Doc = {"kind": "conv", "d": around.width, "channels": c.count("audio_embed_dim"), "kernel": 1}
    return [one | {"bias": False, "activation": None}]
