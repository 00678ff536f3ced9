"""Families that only the newest transformers has; with an older one there are none of them."""

from __future__ import annotations

from collections.abc import Callable

from backend_families_gpt import apertus_table
from backend_families_imported import GROUPS, KEYS, VALUE, delta_table
from backend_families_imported import WIDE as KEY_WIDTH
from backend_families_usual import DEEPSEEK, LATENT, LAYERS, PADDED, ROUTED, TABLES, WIDE, usual
from backend_parity import COMMON, Family
from transformers import CONFIG_MAPPING


def _lara_mini() -> Family:
    """Delta nets, local layers and a global one without positions, under experts and a shared one without a gate."""
    settings = COMMON | ROUTED | WIDE | PADDED | {
        "num_hidden_layers": 5, "sliding_window": 5, "shared_expert_intermediate_size": 20,
        "linear_num_key_heads": KEYS, "linear_key_head_dim": KEY_WIDTH, "linear_num_value_heads": KEYS * GROUPS,
        "linear_value_head_dim": VALUE, "tie_word_embeddings": False,
    }  # fmt: skip
    norm = {"mixer_norm": LAYERS + "input_layernorm.weight"}
    return usual("LaraMiniForCausalLM", "lara_mini", settings, delta_table(), norm)


def _apertus_1_5() -> Family:
    """Apertus with fewer rows in the output table than in the input table."""
    settings = COMMON | {"output_vocab_size": 48}
    return usual("Apertus1p5TextForCausalLM", "apertus1p5_text", settings, apertus_table())


def _sarvam_moe() -> Family:
    """GLM-4.5's layer, whole heads rotated."""
    settings = COMMON | DEEPSEEK | WIDE | {"first_k_dense_replace": 1, "use_qk_norm": True}
    return usual("Glm4MoeForCausalLM", "sarvam_moe", settings)


def _sarvam_mla() -> Family:
    """DeepSeek-V3's layer under the names of transformers."""
    settings = COMMON | DEEPSEEK | LATENT | {"first_k_dense_replace": 1}
    return usual("DeepseekV3ForCausalLM", "sarvam_mla", settings, TABLES["latent"])


READ: dict[str, tuple[str, Callable[[], Family]]] = {
    "lara-mini": ("lara_mini", _lara_mini), "apertus-1.5": ("apertus1p5_text", _apertus_1_5),
    "sarvam-moe": ("sarvam_moe", _sarvam_moe), "sarvam-mla": ("sarvam_mla", _sarvam_mla),
}  # fmt: skip
FAMILIES: dict[str, Family] = {name: make() for name, (kind, make) in READ.items() if kind in CONFIG_MAPPING}
"""Every family by name that the installed transformers has."""
