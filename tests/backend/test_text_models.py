"""Language models inside of multimodal ones, which have no head: their last hidden states against transformers'."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
import torch
import transformers
from backend_families_usual import DEEPSEEK, PADDED, ROUTED, SANDWICH, TOP, WIDE, _candidates, held
from backend_parity import COMMON, D, Table, copy_weights, imported, unhidden

from archsim.backend.module import build

pytestmark = pytest.mark.oracle

SMALL = COMMON | PADDED | {"vocab_size": D}
"""As many words as the width: with the identity for a head, logits are the hidden states."""


def positions(*sections: int, **more: Any) -> dict[str, Any]:
    """Rotary positions whose pairs follow time, height and width."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "mrope_section": list(sections), **more}}


CASES: dict[str, tuple[Any, ...]] = {
    "deepseek_ocr2_text": (
        "deepseek_ocr2", "DeepseekOcr2TextModel", DEEPSEEK | {"mlp_layer_types": ["dense", "sparse", "sparse"]}),
    "glm4v_moe_text": (
        "glm4v_moe", "Glm4vMoeTextModel",
        DEEPSEEK | {"first_k_dense_replace": 1, "head_dim": 8} | positions(1, 1, 0, partial_rotary_factor=0.5)),
    "glm4v_text": ("glm4v", "Glm4vTextModel", positions(1, 1, 0, partial_rotary_factor=0.5), SANDWICH),
    "glm_ocr_text": ("glm_ocr", "GlmOcrTextModel", WIDE | positions(2, 1, 1, partial_rotary_factor=1.0), SANDWICH),
    "granite4_vision_text": ("granite4_vision", "Granite4VisionTextModel", {}),
    "molmo2_text": ("molmo2", "Molmo2TextModel", WIDE),
    "muse_glimmer_text": (
        "muse_glimmer", "MuseGlimmerTextModel",
        WIDE | {"num_hidden_layers": 6, "sliding_window": 5, "output_multiplier": 1.0, "final_logit_softcapping": 1e9}),
    "paddleocr_vl_text": ("paddleocr_vl", "PaddleOCRTextModel", WIDE | positions(2, 1, 1)),
    "qwen2_5_vl_text": ("qwen2_5_vl", "Qwen2_5_VLTextModel", positions(2, 1, 1)),
    "qwen2_vl_text": ("qwen2_vl", "Qwen2VLTextModel", positions(2, 1, 1)),
    "qwen3_vl_moe_text": ("qwen3_vl_moe", "Qwen3VLMoeTextModel", WIDE | ROUTED),
    "qwen3_vl_text": ("qwen3_vl", "Qwen3VLTextModel", WIDE),
}  # fmt: skip
"""Type -> folder and class in transformers, settings beside the usual ones, and tables of other names."""


@pytest.mark.parametrize("model_type", CASES)
def test_hidden_states(model_type: str) -> None:
    """The module computes what transformers computes, from every one of its weights."""
    folder, name, more, *tables = CASES[model_type]
    kind = getattr(import_module(f"transformers.models.{folder}.modeling_{folder}"), name)
    settings = SMALL | deepcopy(more)
    model = unhidden(kind, transformers.AutoConfig.for_model(model_type, **deepcopy(settings)))
    state = {f"model.{weight}": value for weight, value in model.state_dict().items()}
    top: Table = {ours: entry for ours, entry in held(TOP, set(state)).items() if ours != "head.w_logits"}
    family = imported(name, model_type, settings, top, held(_candidates(), set(state)), *tables)
    net = build(family.spec, "cpu")  # type: ignore[arg-type]
    heads = {"head.w_logits": "identity"} if "head.w_logits" in net.weights() else {}
    used = copy_weights(net, replace(family, top={**family.top, **heads}), {**state, "identity": torch.eye(D)})
    ids = torch.randint(3, D, (2, 11))
    torch.testing.assert_close(net(ids), model(input_ids=ids)[0], atol=1e-4, rtol=0)
    assert {f"model.{weight}" for weight, _ in model.named_parameters()} <= used
