"""Families whose parameters and FLOP were compared first: encoders of text, A.X K1, Japanese GPT-NeoX."""

from __future__ import annotations

from backend_families_delta import latent_tables
from backend_parity import (
    COMMON,
    NORMS,
    PLAIN,
    SWIGLU,
    UNTIED,
    D,
    Entry,
    Family,
    N,
    affine,
    attention,
    dense,
    imported,
    per_head,
    renamed,
    stacked,
)

LAYERS, MLP, WIDTH = "model.layers.{i}.", "model.layers.{i}.mlp.", 24


def _axk1() -> Family:
    """A norm on what the experts give, behind one dense layer."""
    settings = COMMON | {
        "kv_lora_rank": 12, "q_lora_rank": 10, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1, "num_key_value_heads": N,
        "moe_intermediate_size": WIDTH, "first_k_dense_replace": 1,
    }  # fmt: skip
    moe: dict[str, Entry] = {
        "w_router": "gate.weight", "selection_bias": "gate.e_score_correction_bias",
        "output_norm": "post_mlp_layernorm.weight",
        "w_gate": ("experts.gate_up_proj", stacked(0, WIDTH)),
        "w_up": ("experts.gate_up_proj", stacked(WIDTH, 2 * WIDTH)),
        "w_down": ("experts.down_proj", lambda w: w.transpose(1, 2)),
    }  # fmt: skip
    moe |= {f"shared.w_{n}": f"shared_experts.{n}_proj.weight" for n in ("gate", "up", "down")}
    return imported("AXK1ForCausalLM", "axk1", settings, UNTIED, latent_tables(10, 12, 8, 4, 8), SWIGLU, NORMS,
                    renamed(moe, "moe.", MLP))  # fmt: skip


def _ultrabert() -> Family:
    """LLaMA's layer, looking both ways."""
    own: dict[str, Entry] = {}
    for table in (attention(), SWIGLU, NORMS):
        own |= {ours: str(theirs).removeprefix("model.") for ours, theirs in table.items()}
    top: dict[str, Entry] = {"embedding.tokens": "embed_tokens.weight", "final_norm": "norm.weight"}
    settings = {k: v for k, v in COMMON.items() if k != "rope_parameters"} | {"pad_token_id": 0, "sliding_window": 3}
    return imported("UltrabertModel", "ultrabert", settings, top, own)


def _clip_text() -> Family:
    """CLIP's text encoder, causal."""
    h = "encoder.layers.{i}."
    settings = PLAIN | {"max_position_embeddings": 40, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
                        "hidden_act": "gelu"}  # fmt: skip
    top: dict[str, Entry] = {
        "embedding.tokens": "embeddings.token_embedding.weight",
        "embedding.positions": "embeddings.position_embedding.weight", **affine("final_norm", "final_layer_norm"),
    }  # fmt: skip
    names = {n: f"{h}self_attn.{n}_proj" for n in "qkv"} | {"o": h + "self_attn.out_proj"}
    return imported(
        "CLIPTextModel", "clip_text_model", settings, top, dense("attention.", names),
        dense("ffn.", {"up": h + "mlp.fc1", "down": h + "mlp.fc2"}),
        affine("attention_norm", h + "layer_norm1"), affine("ffn_norm", h + "layer_norm2"),
    )  # fmt: skip


def _gpt_neox_japanese() -> Family:
    """Queries, keys and values of each head side by side, a bias in the last layer's attention alone."""
    h = "gpt_neox_japanese.layers.{i}."
    settings = {
        "hidden_size": D, "vocab_size": 64, "num_attention_heads": N, "num_hidden_layers": 3,
        "intermediate_multiple_size": 2, "max_position_embeddings": 40, "attn_implementation": "eager",
    }  # fmt: skip
    top: dict[str, Entry] = {
        "embedding.tokens": "gpt_neox_japanese.embed_in.weight",
        **affine("final_norm", "gpt_neox_japanese.final_layer_norm"),
    }  # fmt: skip
    qkv: dict[str, Entry] = {
        f"attention.w_{n}": (h + "attention.query_key_value.weight", per_head(i, 3)) for i, n in enumerate("qkv")
    }  # fmt: skip
    names = {"attention.w_o": h + "attention.dense.weight", "attention.b_o": h + "attention.dense_bias",
             "ffn.w_up": h + "mlp.dense_h_to_4h.weight", "ffn.w_down": h + "mlp.dense_4h_to_h.weight"}  # fmt: skip
    return imported(
        "GPTNeoXJapaneseForCausalLM", "gpt_neox_japanese", settings, top, qkv, names,
        affine("attention_norm", h + "input_layernorm"), affine("ffn_norm", h + "post_attention_layernorm"),
    )  # fmt: skip


FAMILIES: dict[str, Family] = {
    "axk1": _axk1(), "ultrabert": _ultrabert(), "clip-text": _clip_text(), "gpt-neox-japanese": _gpt_neox_japanese()
}  # fmt: skip
"""Every family by name."""
