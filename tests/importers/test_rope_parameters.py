"""What `rope_parameters` lacks is filled as transformers does: from keys beside it, then from the class's own base."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from archsim.importers.hf import describe
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import DEFAULTS, READERS
from archsim.importers.hf.parts import rope

SIZE = 64
assert describe.MODULES  # importing it registers the readers
PARTIAL: dict[str, dict[str, Any]] = {
    "without a base": {"rope_parameters": {"rope_type": "default"}},
    "a base beside it": {"rope_parameters": {"rope_type": "default"}, "rope_theta": 77777.0},
    "a base in both": {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}, "rope_theta": 77777.0},
    "the older key": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "both keys": {
        "rope_scaling": {"rope_type": "linear", "factor": 2.0, "rope_theta": 3e4},
        "rope_parameters": {"rope_type": "default", "rope_theta": 5e5},
    },
    "nothing": {},
}
APART = {
    "cosmos3_edge_text": "its class asks for sections",
    "gpt_neox": "the share is `rotary_pct`, which its reader has",
    "mistral4": "the share is of the head's part that is rotated anyway",
    "ultrabert": "a file without any has a base for each kind of layer",
}


def ours(model_type: str, keys: dict[str, Any]) -> tuple[float, int]:
    """Base and rotated dimensions of the head, as a reader that asks for them gets them."""
    found = rope(Config(keys, DEFAULTS[model_type]), SIZE)
    return float(found["theta"]), found.get("dim", SIZE)


@pytest.mark.slow
@pytest.mark.oracle
@pytest.mark.parametrize("name", PARTIAL)
def test_as_transformers_fills_them(name: str) -> None:
    """Of every class with one set of rotary positions: the base, and the share of the head."""
    pytest.importorskip("transformers")
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    compared = 0
    for model_type in sorted(READERS):
        if model_type not in CONFIG_MAPPING or model_type in APART:
            continue
        try:
            read = CONFIG_MAPPING[model_type](**deepcopy(PARTIAL[name])).to_dict().get("rope_parameters")
        except Exception:  # classes that refuse such a file
            continue
        if not isinstance(read, dict) or "rope_theta" not in read or any(isinstance(v, dict) for v in read.values()):
            continue
        if "rope_parameters" not in DEFAULTS[model_type] and "rope_theta" not in DEFAULTS[model_type]:
            continue
        turned = int(SIZE * (read.get("partial_rotary_factor") or 1.0))
        assert ours(model_type, PARTIAL[name]) == (read["rope_theta"], turned + turned % 2), (model_type, read)
        compared += 1
    assert compared >= 25


def test_order() -> None:
    """The inner base before the one beside it, that before the class's; the older key before the newer one."""
    assert ours("llama", PARTIAL["a base in both"]) == (5e5, SIZE)
    assert ours("llama", PARTIAL["a base beside it"]) == (77777, SIZE)
    assert ours("ministral3", PARTIAL["without a base"]) == (1e4, SIZE) and ours("ministral3", {}) == (1e6, SIZE)
    assert ours("llama", PARTIAL["both keys"]) == (3e4, SIZE)
