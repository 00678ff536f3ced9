"""Tokens of sounds that the processors of transformers put in a prompt: Gemma, Qwen3, Phi-4-multimodal, Inkling."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from archsim.counts.sounds import Sounds, SoundWork
from archsim.importers.hf.describe import stages
from archsim.spec.model import Tower

LENGTHS = (0.5, 1.01, 7.3, 12.34, 29.99, 30.0)
OWN = {"inkling_mm_model": {"decoder_dmodel": 64}}


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
