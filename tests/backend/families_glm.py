"""GLM-5.3-Flash: groups of keys chosen by a pooled indexer, bounded forget gates, streams that end as their mean."""

from __future__ import annotations

from collections.abc import Callable

import backend_families_delta as delta_families
import backend_families_sparse as stream_families
import torch
from backend_parity import COMMON, NORMS, SWIGLU, UNTIED, Entry, Family, N, Table, imported, renamed
from torch import Tensor
from transformers import AutoConfig, AutoModel

NOPE, VALUE, RANK, KEYS, WIDE, POOL = 8, 6, 12, 2, 6, 4
VISION = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 32,
          "projection_intermediate_size": 32, "image_size": 28}  # fmt: skip


def _heads(start: int, stop: int) -> Callable[[Tensor], Tensor]:
    """(rank, heads, size) of the keys or the values that come out of one matrix."""
    return lambda w: w.reshape(N, NOPE + VALUE, -1)[:, start:stop].permute(2, 0, 1)


def _attention(a: str) -> dict[str, Entry]:
    """Latent attention without positions, and its indexer."""
    table: dict[str, Entry] = {
        "w_q_down": a + "q_a_proj.weight", "q_norm": a + "q_a_layernorm.weight", "w_q_nope": a + "q_b_proj.weight",
        "w_kv_down": a + "kv_a_proj_with_mqa.weight", "kv_norm": a + "kv_a_layernorm.weight",
        "w_uk": (a + "kv_b_proj.weight", _heads(0, NOPE)), "w_o": a + "o_proj.weight",
        "w_uv": (a + "kv_b_proj.weight", _heads(NOPE, NOPE + VALUE)),
    }  # fmt: skip
    index: dict[str, Entry] = {
        "w_q": "wq_b.weight", "w_k": "wk.weight", "w_weights": "weights_proj.weight", "k_norm": "k_norm.weight",
        "k_norm_bias": "k_norm.bias", "w_gate": "index_kpool_compress_gate",
        "position_bias": "index_kpool_compress_ape",
    }  # fmt: skip
    return renamed(table | renamed(index, "indexer.", a + "indexer."), "attention.", "")


def _mixer(m: str) -> dict[str, Entry]:
    """Kimi delta attention."""
    names = {
        "q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "beta": "b_proj", "z_down": "g_a_proj",
        "z": "g_b_proj", "decay_down": "forget_gate.f_a_proj", "decay": "forget_gate.f_b_proj",
    }  # fmt: skip
    mixer: dict[str, Entry] = {f"w_{ours}": f"{m}{theirs}.weight" for ours, theirs in names.items()}
    mixer |= {"dt_bias": m + "forget_gate.dt_bias", "A_log": m + "forget_gate.A_log", "norm": m + "o_norm.weight"}
    size = KEYS * WIDE
    for i, n in enumerate("qkv"):
        mixer[f"conv_{n}_w"] = (m + "conv1d.weight", _rows(i * size, (i + 1) * size))
    return renamed(mixer, "mixer.", "")


def _rows(start: int, stop: int) -> Callable[[Tensor], Tensor]:
    """Rows start to stop."""
    return lambda w: w[start:stop]


def inside(table: Table) -> dict[str, Entry]:
    """A table of a text model that stands inside of another."""

    def moved(entry: Entry) -> Entry:
        if isinstance(entry, list):
            return entry
        name, *rest = entry if isinstance(entry, tuple) else (entry,)
        name = name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name
        return (name, rest[0]) if rest else name

    return {ours: moved(entry) for ours, entry in table.items()}


def _glm() -> Family:
    """Two groups of four keys, and those of the group that is not complete."""
    layers, mlp = "model.layers.{i}.", "model.layers.{i}.mlp."
    text = {k: v for k, v in COMMON.items() if k not in ("rope_parameters", "attn_implementation")} | {
        "num_hidden_layers": 4, "num_key_value_heads": N, "q_lora_rank": 10, "kv_lora_rank": RANK,
        "qk_nope_head_dim": NOPE, "v_head_dim": VALUE, "index_topk": 2 * POOL, "index_n_heads": 2, "index_head_dim": 8,
        "index_kpool": POOL, "linear_head_dim": WIDE, "linear_num_heads": KEYS, "moe_intermediate_size": 24,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "swiglu_limit": 0.5, "hc_mult": stream_families.STREAMS,
        "hc_sinkhorn_iters": 4, "pad_token_id": 0, "layer_types": ["linear_attention", "indexed_attention"] * 2,
        "mlp_layer_types": ["dense"] + ["sparse"] * 3, "indexer_types": ["full"] * 4,
    }  # fmt: skip
    settings = {"text_config": text, "vision_config": VISION, "attn_implementation": "eager"}
    with torch.device("meta"):
        vision = AutoModel.from_config(AutoConfig.for_model("glm5_next_vision", **VISION))
    return imported(
        "Glm5NextForConditionalGeneration", "glm5_next", settings, inside(UNTIED),
        *(inside(table) for table in (
            _attention(layers + "self_attn."), _mixer(layers + "self_attn."), SWIGLU, NORMS,
            {"mixer_norm": NORMS["attention_norm"]}, delta_families.ROUTER, delta_families.SHARED,
            stream_families.routed(mlp + "experts."),
            stream_families.hyper_site("attention_hyper", layers + "attn_hc."),
            stream_families.hyper_site("mixer_hyper", layers + "attn_hc."),
            stream_families.hyper_site("ffn_hyper", layers + "ffn_hc."),
        )),
        unused=frozenset("model.visual." + name for name, _ in vision.named_parameters()),
    )  # fmt: skip


FAMILIES: dict[str, Family] = {"glm-5-next": _glm()}
"""Every family by name."""
