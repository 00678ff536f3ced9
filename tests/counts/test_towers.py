"""A config of a vision-language model counts the text part, and says so wherever a reader could take it for all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.counts.towers import tower_tp
from archsim.spec.model import Tower

CONFIG = {
    "model_type": "qwen3_vl", "tie_word_embeddings": False,
    "vision_config": {"depth": 27, "hidden_size": 1152, "out_hidden_size": 4096},
    "text_config": {
        "model_type": "qwen3_vl_text", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
        "max_position_embeddings": 262144, "num_attention_heads": 32, "num_hidden_layers": 36,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "vocab_size": 151936, "hidden_act": "silu",
    },
}  # fmt: skip
"""Qwen3-VL-8B: 8.77 B parameters, of which 8.19 B are the language model's."""

SIZE = 576_388_336
"""Of the encoder, as the class of transformers counts it and the checkpoint's index lists it."""

TEXT = "text part only"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A folder with the config."""
    folder = tmp_path / "qwen3-vl"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return folder


def test_pages_say_that_the_checkpoint_holds_more(archsim: Any, config: Path) -> None:
    """Count above the figures, estimate and fit beside the weights in memory, which hold the tower."""
    page = archsim("count", str(config)).out
    assert page.index(TEXT) < page.index("8,190,735,360")
    for command in ("estimate", "fit"):
        page = archsim(command, str(config), "--hw", "h100").out
        assert "with the vision tower" in page
        assert "with the vision tower" not in archsim(command, str(config), "--hw", "h100", "--without", "vision").out
        for line in page.splitlines():
            assert "exact" not in line or not line.strip().startswith(("weights", "parameters"))


def test_data_say_it_too(config: Path) -> None:
    """The towers are listed with their sizes, which follow from the config; counted on request."""
    counted = a.count(config).to_dict()
    assert counted["params"]["towers"] == {"vision": SIZE}
    assert counted["towers"]["vision"] == {"params": SIZE, "bytes": 2 * SIZE, "counted": False}
    estimate = a.estimate(config, "h100").to_dict()
    assert estimate["params"]["towers"] == {"vision": SIZE}
    assert a.count(config, parts=["vision"]).total == 8_767_123_696
    assert any(TEXT in text for text in counted["assumptions"])
    fit = a.fit(config, "h100", suggest=False).to_dict()
    for answer, device in ((estimate, estimate["memory"]["per_device"]), (fit, fit["per_device"])):
        assert any("include the vision tower" in text for text in answer["assumptions"])
        assert device["weights_bytes"] == 2 * (8_190_735_360 + SIZE)


def test_a_tower_of_unknown_size(config: Path) -> None:
    """Null where no class of the family's encoder is known, and why; it cannot be counted."""
    path = config / "config.json"
    path.write_text(json.dumps(CONFIG | {"vision_config": {"experts": 4}}))
    counted = a.count(path).to_dict()
    assert counted["params"]["towers"] == {"vision": None}
    assert any("vision_config.experts" in text for text in counted["assumptions"])
    with pytest.raises(UsageError, match="not known"):
        a.count(path, parts=["vision"])


def test_a_tower_of_known_size(archsim: Any) -> None:
    """It is named with its size, counted on request, and then nothing is left to be said."""
    plain, whole = a.count("gemma3-27b").to_dict(), a.count("gemma3-27b", parts=["vision"]).to_dict()
    assert plain["params"]["towers"] == whole["params"]["towers"] == {"vision": 423060336}
    assert whole["params"]["total"] - plain["params"]["total"] == 423060336
    assert plain["towers"]["vision"] == {"params": 423060336, "bytes": 846120672, "counted": False}
    assert whole["towers"]["vision"]["counted"]
    assert "with the vision tower" in archsim("fit", "gemma3-27b", "--hw", "h100").out
    assert TEXT not in archsim("fit", "gemma3-27b", "--hw", "h100", "--with", "vision").out


def test_a_model_without_towers_says_nothing(archsim: Any) -> None:
    """Nor do its JSON objects."""
    assert a.count("llama3-8b").to_dict()["towers"] == {}
    assert TEXT not in archsim("estimate", "llama3-8b", "--hw", "h100").out


def test_an_imported_spec_keeps_its_towers(archsim: Any, config: Path, tmp_path: Path) -> None:
    """What `import` writes says as much as the config."""
    path = tmp_path / "made.yaml"
    path.write_text(archsim("import", str(config)).out)
    assert a.count(path).to_dict()["towers"] == a.count(config).to_dict()["towers"] != {}


def test_a_tower_is_cut_by_the_heads_of_all_its_attentions() -> None:
    """Of a grid, of a memory, and of an attention of latents without layers (KOSMOS-2), as of layers."""
    heads = {"kind": "mha", "n_heads": 12, "d_head": 4}
    patches = {"kind": "patches", "d": 48, "size": 14}
    for stage in (
        {"kind": "residual", "stages": [{"kind": "grid_attention", "n_heads": 12, "d_head": 4}]},
        {"kind": "latents", "n": 64, "attention": heads},
        {"kind": "memory_attention", "d": 48, "n_heads": 12, "d_conv": 11},
        {"kind": "layers", "layers": [{"attention": heads}]},
        {
            "kind": "parallel",
            "ways": [{"stages": [{"kind": "memory_attention", "d": 48, "n_heads": 12, "d_conv": 1}]}] * 2,
        },
    ):
        tower = Tower.model_validate({"name": "vision", "stages": [patches, stage]})
        assert (tower_tp(tower, 4), tower_tp(tower, 8)) == (4, 1), stage["kind"]
