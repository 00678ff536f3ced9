"""Tokens of sounds that the processors of transformers put in a prompt: Gemma, Qwen3, Phi-4-multimodal, Inkling."""

from __future__ import annotations

import importlib
import re
from types import SimpleNamespace
from typing import Any

import pytest

from archsim.counts.sounds import Sounds, SoundWork
from archsim.importers.hf.describe import stages
from archsim.spec.model import Tower

LENGTHS = (0.5, 1.01, 7.3, 12.34, 29.99, 30.0)
LONGER = (31.2, 61.75, 95.0, 250.05)
OWN = {"inkling_mm_model": {"decoder_dmodel": 64}, "nemotron_h_omni": {"projection_hidden_size": 64}}


def tokens(family: str, seconds: float) -> int:
    """Of one sound, for a model that has no other part."""
    tower = Tower.model_validate(stages("audio", OWN.get(family, {}), {}, family, 64))
    assert tower.note is None
    model: Any = SimpleNamespace(towers=(tower,), tower_names=("audio",), name="model", encoder=None)
    return SoundWork.of(model, Sounds(seconds)).tokens


TOLD = {
    "gemma3n": (188, 188, 188, 188, 188, 188), "gemma4": (13, 25, 183, 309, 750, 750),
    "gemma4_unified": (13, 26, 183, 309, 750, 750), "qwen3_asr": (7, 14, 95, 161, 390, 390),
    "qwen3_omni_moe": (7, 14, 95, 161, 390, 390), "phi4_multimodal": (6, 13, 91, 154, 375, 375),
    "inkling_mm_model": (10, 21, 146, 247, 600, 600),
}  # fmt: skip
"""As the processors of transformers 5.24 count them for as many samples of 16 kHz."""


@pytest.mark.parametrize("family", TOLD)
def test_tokens_of_sounds(family: str) -> None:
    """Of six lengths."""
    assert tuple(tokens(family, seconds) for seconds in LENGTHS) == TOLD[family]


WINDOWS = {
    "audioflamingo3": (12, 25, 182, 308, 750, 750, 780, 1544, 2375, 6251),
    "musicflamingo": (14, 27, 184, 310, 752, 752, 782, 1546, 2377, 6253),
    "glmasr": (6, 12, 91, 154, 375, 375, 390, 772, 1187, 3125),
    "moss_transcribe_diarize": (7, 13, 95, 163, 401, 401, 416, 828, 1278, 3448),
    "nemotron_h_omni": (9, 15, 94, 157, 377, 378, 393, 774, 1190, 3128),
}
"""As `replace_audio_token` of these families' processors counts them; MOSS with the digits of its seconds."""


@pytest.mark.parametrize("family", WINDOWS)
def test_tokens_of_sounds_in_windows(family: str) -> None:
    """Of ten lengths, up to nine windows of 30 s."""
    assert tuple(tokens(family, seconds) for seconds in LENGTHS + LONGER) == WINDOWS[family]


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("seconds", LENGTHS + LONGER)
@pytest.mark.parametrize("family", WINDOWS)
def test_as_the_processors_of_windows_count(family: str, seconds: float) -> None:
    """By the processors themselves, with their feature extractors and marks in place of a tokenizer."""
    pytest.importorskip("transformers")
    np = pytest.importorskip("numpy")
    pytest.importorskip("torch")
    samples = round(seconds * 16000)
    processor = _processor(family)
    if family == "nemotron_h_omni":
        replaced = processor.replace_audio_token({"num_tokens": [processor._estimate_audio_num_embeddings(samples)]}, 0)
    else:
        windows = {} if family.startswith("moss") else {"padding": "max_length", "return_attention_mask": True}
        sound = np.full(samples, 1e-3, dtype=np.float32)
        _, (replaced,) = processor._process_audio([sound], sampling_rate=16000, return_tensors="pt", **windows)
    assert len(re.findall(r"<[^>]+>|\d", replaced)) == tokens(family, seconds)


def _processor(family: str) -> Any:
    """A processor without a tokenizer: every token it writes is a mark in angle brackets."""
    import transformers
    from transformers.models.moss_transcribe_diarize import feature_extraction_moss_transcribe_diarize as moss

    module = importlib.import_module(f"transformers.models.{family}.processing_{family}")
    names = [name for name in module.__all__ if name.endswith("Processor")]
    made = object.__new__(getattr(module, names[0]))
    marks = ("audio_token", "audio_bos_token", "audio_eos_token", "audio_start_token", "audio_end_token")
    whisper = transformers.WhisperFeatureExtractor(feature_size=128)
    made.__dict__.update({mark: f"<{mark}>" for mark in marks}, feature_extractor=whisper)
    sizes: dict[str, dict[str, Any]] = {
        "audioflamingo3": {"max_audio_len": 600}, "musicflamingo": {"max_audio_len": 1200},
        "glmasr": {"max_audio_len": 655}, "nemotron_h_omni": {"audio_hop_length": 160, "audio_subsampling_factor": 8},
        "moss_transcribe_diarize": {
            "feature_extractor": moss.MossTranscribeDiarizeFeatureExtractor(), "audio_tokens_per_second": 12.5,
            "audio_merge_size": 4, "time_marker_every_seconds": 2,
        },
    }  # fmt: skip
    made.__dict__.update(sizes[family])
    return made


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("seconds", LENGTHS)
def test_as_the_processors_count(seconds: float) -> None:
    """By the functions of the processors themselves."""
    pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    from transformers.models.gemma4 import feature_extraction_gemma4, processing_gemma4
    from transformers.models.phi4_multimodal.feature_extraction_phi4_multimodal import Phi4MultimodalFeatureExtractor
    from transformers.models.qwen3_omni_moe.processing_qwen3_omni_moe import _get_feat_extract_output_lengths

    samples = round(seconds * 16000)
    gemma = processing_gemma4.Gemma4Processor.__new__(processing_gemma4.Gemma4Processor)
    gemma.feature_extractor = feature_extraction_gemma4.Gemma4AudioFeatureExtractor()
    gemma.audio_seq_length = 750
    assert tokens("gemma4", seconds) == gemma._compute_audio_num_tokens([0.0] * samples, 16000)
    frames = torch.tensor(samples // 160)
    lengths = int(_get_feat_extract_output_lengths(frames))
    assert tokens("qwen3_asr", seconds) == tokens("qwen3_omni_moe", seconds) == lengths
    phi = Phi4MultimodalFeatureExtractor()
    found = phi._compute_audio_embed_size(torch.tensor([(samples - phi.win_length) // phi.hop_length + 1]))
    assert tokens("phi4_multimodal", seconds) == int(found[0])
