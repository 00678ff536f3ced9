"""Tokens of sounds, against what the processors of transformers make of them."""

from __future__ import annotations

import pytest

from archsim.base.errors import UsageError
from archsim.counts.sounds import Sounds, SoundWork
from archsim.importers.hf.describe import from_config
from archsim.predict.estimate import estimate
from archsim.spec.load import load_hardware, load_model, model_from
from archsim.spec.model import Model

LENGTHS = (0.5, 7.3, 12.345, 29.99, 30.0, 45.0)
TEXT = {"model_type": "qwen2", "num_hidden_layers": 2}


def model(model_type: str) -> Model:
    """A model of a family, with the default encoder and a short language model."""
    audio = {"qwen2_audio": "qwen2_audio_encoder", "voxtral": "voxtral_encoder"}.get(
        model_type, "qwen2_5_omni_audio_encoder"
    )
    text = TEXT if model_type != "voxtral" else {"model_type": "llama", "num_hidden_layers": 2}
    return model_from(from_config({
        "model_type": model_type, "text_config": text, "audio_config": {"model_type": audio},
    }, "x"))  # fmt: skip


def tokens(model_type: str, seconds: float) -> int:
    return SoundWork.of(model(model_type), Sounds(seconds)).tokens


def frames(seconds: float, longest: int) -> int:
    """Frames of a sound as the feature extractor of Whisper marks them, which cuts it off at `longest` seconds."""
    transformers, numpy = pytest.importorskip("transformers"), pytest.importorskip("numpy")
    extractor = transformers.WhisperFeatureExtractor(feature_size=128, chunk_length=longest)
    found = extractor(
        numpy.zeros(round(seconds * 16000)), sampling_rate=16000, padding="max_length", return_attention_mask=True
    )
    return int(found["attention_mask"].sum())


@pytest.mark.parametrize(
    ("seconds", "cut", "whole"),
    [(0.5, 12, 12), (7.3, 182, 182), (12.345, 309, 309), (29.99, 750, 750), (30.0, 750, 750), (45.0, 750, 1125)],
)
def test_tokens_of_a_sound(seconds: float, cut: int, whole: int) -> None:
    """Qwen2-Audio, which cuts sounds off at 30 s, and Qwen2.5-Omni: as their processors gave them once."""
    assert (tokens("qwen2_audio", seconds), tokens("qwen2_5_omni_thinker", seconds)) == (cut, whole)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("seconds", LENGTHS)
def test_sound_alone(seconds: float) -> None:
    """Qwen2-Audio and Qwen2.5-Omni: half the frames, then half of those, rounded as their processors do."""
    qwen = pytest.importorskip("transformers.models.qwen2_5_omni.processing_qwen2_5_omni")
    lengths = qwen._get_feat_extract_output_lengths
    assert tokens("qwen2_audio", seconds) == lengths(frames(seconds, 30))
    assert tokens("qwen2_5_omni_thinker", seconds) == lengths(frames(seconds, 300))


@pytest.mark.parametrize(("seconds", "wanted"), [*[(s, 375) for s in LENGTHS if s <= 30], (30.5, 750), (45.0, 750)])
def test_whole_pieces(seconds: float, wanted: int) -> None:
    """Voxtral: 375 tokens for every 30 s begun (mistral-common fills sounds up to them)."""
    assert tokens("voxtral", seconds) == wanted


def test_the_encoder_runs_before_the_prompt() -> None:
    """Tokens of all sounds join the prompt, and the first token waits for the encoder."""
    plain, heard = (
        estimate(model("qwen2_audio"), load_hardware("h100"), input_len=100, audio=audio) for audio in (None, "20x2")
    )
    assert heard.workload.input_len == 100 + 2 * 500
    assert heard.encoder is not None and float(heard.encoder.time.expected_s) > 0
    assert heard.encoder.to_dict()["tokens_per_sound"] == 500
    assert (heard.metrics["ttft_s"] or 0) > (plain.metrics["ttft_s"] or 0)


@pytest.mark.parametrize("text", ["0", "-3", "30x0", "30x", "long", "1e9", "9999999"])
def test_what_is_no_length(text: str) -> None:
    with pytest.raises(UsageError, match="--audio"):
        Sounds.parse(text)


@pytest.mark.parametrize(("name", "reason"), [("llama3-8b", "no audio encoder"), ("t5-base", "no audio encoder")])
def test_models_without(name: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        estimate(load_model(name), load_hardware("h100"), audio="30")


def test_both_kinds_need_both_encoders() -> None:
    with pytest.raises(UsageError, match="no vision encoder"):
        estimate(model("qwen2_audio"), load_hardware("h100"), audio="30", image="64x64")
