"""Families whose encoder begins with sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend_parity import D, Entry, F, Family, N, affine, dense, groups
from torch import Tensor
from transformers import AutoConfig

from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from

LENGTH = 11
"""Vectors that the encoder's layers see: Whisper takes sounds of one length alone."""


def taps(name: str) -> tuple[str, Callable[[Tensor], Tensor]]:
    """The weight of a convolution, (out, in, taps), as (taps, in, out)."""
    return name, lambda w: w.permute(2, 1, 0)


def _branches(side: str, *names: tuple[str, str, str]) -> dict[str, Entry]:
    """Attention branches of a layer, by our name, theirs and that of the norm; then the feed-forward network."""
    h = f"model.{side}.layers.{{i}}."
    found: dict[str, Entry] = {}
    for ours, theirs, norm in names:
        source = "source." if ours == "cross_attention" else ""
        parts = {"q": "q", "o": "out", source + "k": "k", source + "v": "v"}
        for name, other in parts.items():
            place, letter = (source, name.removeprefix(source)) if name.startswith("source.") else ("", name)
            found[f"{ours}.{place}w_{letter}"] = f"{h}{theirs}.{other}_proj.weight"
            if letter != "k":
                found[f"{ours}.{place}b_{letter}"] = f"{h}{theirs}.{other}_proj.bias"
        found |= affine(f"{ours}_norm", h + norm)
    return found | dense("ffn.", {"up": h + "fc1", "down": h + "fc2"}) | affine("ffn_norm", h + "final_layer_norm")


def _whisper() -> Family:
    """Two convolutions and a table of positions, then layers that look both ways."""
    settings: dict[str, Any] = {
        "d_model": D, "vocab_size": 64, "num_mel_bins": 6, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": N, "decoder_attention_heads": N, "encoder_ffn_dim": F, "decoder_ffn_dim": F,
        "max_source_positions": LENGTH, "max_target_positions": 40, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2, "decoder_start_token_id": 1, "attn_implementation": "eager",
    }  # fmt: skip
    known = {k: v for k, v in settings.items() if k != "attn_implementation"}
    model = model_from(from_config({"model_type": "whisper", **known}, "x"))
    assert model.encoder is not None
    top: dict[str, Entry] = {
        "embedding.tokens": "model.decoder.embed_tokens.weight",
        "embedding.positions": "model.decoder.embed_positions.weight",
        **affine("final_norm", "model.decoder.layer_norm"),
        **affine("encoder.final_norm", "model.encoder.layer_norm"),
        "encoder.front.conv.w_conv": taps("model.encoder.conv1.weight"),
        "encoder.front.conv.b_conv": "model.encoder.conv1.bias",
        "encoder.front.conv2.w_conv": taps("model.encoder.conv2.weight"),
        "encoder.front.conv2.b_conv": "model.encoder.conv2.bias",
        "encoder.front.positions.table": "model.encoder.embed_positions.weight",
    }
    own = ("attention", "self_attn", "self_attn_layer_norm")
    cross = ("cross_attention", "encoder_attn", "encoder_attn_layer_norm")
    layers = groups(model, model.layers, _branches("decoder", own, cross))
    layers |= groups(model, model.encoder.layers, _branches("encoder", own), "encoder.")
    return Family(
        config=type(AutoConfig.for_model("whisper")).__name__, model="WhisperForConditionalGeneration",
        settings=settings, spec=model, top=top, layers=layers,
        sound=lambda frames: {"input_features": frames.transpose(1, 2)},
    )  # fmt: skip


FAMILIES: dict[str, Family] = {"whisper": _whisper()}
"""Every family by name."""
