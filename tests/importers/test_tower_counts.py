"""Encoders of vision-language and audio models have the parameters of the classes of transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from archsim.counts.graph_counts import flops
from archsim.counts.images import one_image
from archsim.counts.towers import tower_size
from archsim.importers.hf import describe  # registers the families
from archsim.importers.hf.towers.registry import stages
from archsim.spec.model import Tower
from archsim.spec.tower import lower_tower, tokens_of

ROWS = json.loads(Path(__file__).with_name("towers.json").read_text("utf-8"))["towers"]


def tower_of(row: Any) -> Tower:
    """The tower of a row of the file."""
    return Tower.model_validate(stages(row["tower"], row["own"], row["config"], row["model_type"], row["width"]))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row['model_type']}-{row['params']}")
def test_as_many_parameters_as_the_class(row: Any) -> None:
    """Projectors, tables of positions and class tokens included."""
    tower = tower_of(row)
    assert tower.note is None
    assert tower_size(tower) == row["params"]


def test_what_is_not_understood_is_said() -> None:
    """A key that nobody knows leaves the size unknown, with the reason; the text part is read as before."""
    row = ROWS[0]
    odd = Tower.model_validate(
        stages("vision", row["own"] | {"n_experts": 4}, row["config"], row["model_type"], row["width"])
    )
    assert tower_size(odd) is None
    assert "vision_config.n_experts" in (odd.note or "")
    assert describe.ENCODERS
    assert stages("vision", {}, {}, "some_new_type", 64) == {"name": "vision"}


def own_size(family: str, own: dict[str, Any], config: dict[str, Any] | None = None) -> int | None:
    """Parameters of an encoder beside a language model of width 64."""
    found = Tower.model_validate(stages("vision", own, config or {}, family, 64))
    assert found.note is None
    return tower_size(found)


def test_released_names_of_kimi() -> None:
    """Released files name the encoder's sizes otherwise than the class."""
    sizes = {"hidden_size": 48, "num_hidden_layers": 3, "intermediate_size": 70, "num_attention_heads": 4}
    released = {f"vt_{key}": value for key, value in sizes.items()} | {
        "init_pos_emb_height": 8, "init_pos_emb_width": 8, "init_pos_emb_time": 4, "mm_hidden_size": 48,
        "mm_projector_type": "patchmerger", "projector_hidden_act": "gelu", "text_hidden_size": 64,
    }  # fmt: skip
    named = sizes | {"pos_emb_height": 8, "pos_emb_width": 8}
    assert own_size("kimi_k25", released) == own_size("kimi_k25", named)


def test_kimi_k3_by_hand() -> None:
    """Heads wider in all than the stream, no biases, a norm behind the projector."""
    d, wide, inner, rows = 32, 48, 70, 8 * 8
    own = {
        "vt_hidden_size": d, "qkv_hidden_size": wide, "vt_intermediate_size": inner, "vt_num_attention_heads": 4,
        "vt_num_hidden_layers": 3, "init_pos_emb_height": 8, "init_pos_emb_width": 8, "mm_hidden_size": d,
    }  # fmt: skip
    layer = 2 * d + 4 * d * wide + 2 * d * inner
    projector = (4 * d) ** 2 + 4 * d * 64 + 64
    assert own_size("kimi_k3", own) == 3 * 14**2 * d + rows * d + 3 * layer + d + projector


def test_internvl_by_its_own_names() -> None:
    """The config of the checkpoint's own class gives what that of transformers gives."""
    shared = {"hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 70, "num_hidden_layers": 3,
              "image_size": 56, "patch_size": 14, "norm_type": "rms_norm"}  # fmt: skip
    chat = own_size("internvl_chat", shared | {"qkv_bias": True, "qk_normalization": True, "drop_path_rate": 0.1})
    plain = shared | {"attention_bias": True, "use_qk_norm": True, "model_type": "internvl_vision"}
    assert chat == own_size("internvl", plain)


INKLING = {"vision_encoder_type": "hmlp", "patch_size": 40, "temporal_patch_size": 2, "n_channels": 3}


@pytest.mark.parametrize(
    ("layers", "width", "params", "work"),
    [(4, 6144, 83_743_232, 1_375_272_960), (3, 64, 3_123_968, 261_292_032), (5, 64, 25_698_048, 794_787_840),
     (6, 64, 25_698_060, 795_133_440)],
)  # fmt: skip
def test_inkling_folds_as_its_class_plans(layers: int, width: int, params: int, work: int) -> None:
    """Parameters of `InklingVisionModel` in transformers 5.24, and what FlopCounterMode counts for six pieces of 40 x
    40 pixels; the first row is the released config.
    """
    own = INKLING | {"n_layers": layers, "decoder_dmodel": width}
    tower = Tower.model_validate(stages("vision", own, {}, "inkling_mm_model", width))
    assert tower.note is None and tower_size(tower) == params
    side = 40 // tower.patch_size
    step = one_image((2 * side, 3 * side))
    assert flops(lower_tower(tower, step)) == work
    assert tokens_of(tower, step) == 6


def test_inkling_hears_codes() -> None:
    """A table of sixteen levels for each of 80 mel bins, and a norm."""
    own = {"decoder_dmodel": 64, "n_mel_bins": 80, "mel_vocab_size": 16, "bias": False, "audio_mode": "dmel"}
    tower = Tower.model_validate(stages("audio", own, {}, "inkling_mm_model", 64))
    assert tower_size(tower) == 80 * 16 * 64 + 64
