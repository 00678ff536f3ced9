"""FLOPs of families are those that torch counts of their classes in transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.graph.step import Seqs, Step
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.lower import lower

COUNTED: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "counted.json").read_text())["families"]
BATCH, LENGTH = 2, 16
CLASSES = {
    "bailing_hybrid": "BailingHybridForCausalLM", "beam": "BeamForCausalLM", "axk1": "AXK1ForCausalLM",
    "gemma4_unified_text": "Gemma4UnifiedForCausalLM", "mllama_text_model": "MllamaForCausalLM",
    "trocr": "TrOCRForCausalLM", "clip_text_model": "CLIPTextModel", "ultrabert": "UltrabertModel",
    "gpt_neox_japanese": "GPTNeoXJapaneseForCausalLM", "flaubert": "FlaubertModel", "layoutlm": "LayoutLMModel",
}  # fmt: skip
"""Families of 2026, and those with blocks of their own, with the class that runs them."""


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("name", CLASSES)
def test_flops_are_those_of_the_class(name: str) -> None:
    """Of a prompt, every pair of tokens counted."""
    torch = pytest.importorskip("torch", reason="the reference needs torch")
    transformers = pytest.importorskip("transformers", reason="the reference is transformers")
    from torch.utils.flop_counter import FlopCounterMode

    config = COUNTED[name]["config"]
    spec = transformers.AutoConfig.for_model(**config)
    spec._experts_implementation = "batched_mm"
    net = getattr(transformers, CLASSES[name])._from_config(spec, attn_implementation="eager").eval()
    ids = torch.ones(BATCH, LENGTH, dtype=torch.long)
    given = {"bbox": torch.zeros(BATCH, LENGTH, 4, dtype=torch.long)} if name == "layoutlm" else {}
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(input_ids=ids, **given)
    model = model_from(from_config(config))
    assert flops(lower(model, Step.of(BATCH, LENGTH, masked=False, last=False))) == counter.get_total_flops()


def test_sound_is_the_source_of_an_encoder_decoder() -> None:
    """Whisper: two frames to a vector, which the layers of the encoder and cross-attention see; keys have no bias."""
    config = COUNTED["whisper"]["config"]
    model = model_from(from_config(config))
    frames = 64

    def work(vectors: int) -> int:
        step = Step(seqs=(Seqs(1, 1, 0),), source=(Seqs(1, vectors, 0),), masked=False, last=False)
        return int(flops(lower(model, step)))

    d, bins, width, layers = config["d_model"], 80, config["encoder_ffn_dim"], config["encoder_layers"]
    convolutions = 2 * 3 * d * (bins * frames + d * frames // 2)
    each = 2 * (frames // 2) * (4 * d * d + 2 * d * width) + 4 * (frames // 2) ** 2 * d
    crossed = config["decoder_layers"] * (2 * (frames // 2) * 2 * d * d + 4 * (frames // 2) * d)
    assert work(frames // 2) - work(0) == convolutions + layers * each + crossed


def test_layers_for_images_are_held() -> None:
    """Llama 3.2 Vision: texts pass by the layers that attend to images, whose weights are there."""
    config = COUNTED["mllama_text_model"]["config"]
    whole, plain = (model_from(from_config(config | {"cross_attention_layers": c})) for c in ([1, 3], []))
    step = Step.of(1, 8)
    assert whole.n_layers == plain.n_layers
    assert flops(lower(whole, step)) < flops(lower(plain, step))
