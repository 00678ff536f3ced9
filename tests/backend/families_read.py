"""Encoders, encoder-decoders and Gemma 3n, with specs read from their configuration where that says it all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from backend_parity import (
    COMMON,
    FOUR_NORMS,
    HEAD_NORMS,
    MLP,
    PLAIN,
    SWIGLU,
    TIED,
    VOCAB,
    D,
    Entry,
    F,
    Family,
    N,
    Table,
    affine,
    attention,
    dense,
    groups,
    imported,
    layer,
    mha,
    one,
    per_head,
    projections,
    renamed,
    spec,
)
from torch import Tensor

from archsim.spec.model import Model

H = "encoder.layer.{i}."
EMBEDDINGS: Table = {
    "embedding.tokens": "embeddings.word_embeddings.weight",
    "embedding.positions": "embeddings.position_embeddings.weight",
    "embedding.token_types": "embeddings.token_type_embeddings.weight",
    **affine("embedding.norm", "embeddings.LayerNorm"),
}
POOLED: Table = EMBEDDINGS | dense("pooler.", {"dense": "pooler.dense"})


def _blocks(prefix: str = H) -> Table:
    """What surrounds BERT's three projections."""
    return {
        **dense("attention.", {"o": prefix + "attention.output.dense"}),
        **affine("attention_norm", prefix + "attention.output.LayerNorm"),
        **affine("ffn_norm", prefix + "output.LayerNorm"),
        **dense("ffn.", {"up": prefix + "intermediate.dense", "down": prefix + "output.dense"}),
    }


OWN = {"q": "query", "k": "key", "v": "value"}


def _roberta() -> Family:
    settings = PLAIN | {"max_position_embeddings": 34, "pad_token_id": 1, "type_vocab_size": 1}
    own = dense("attention.", {a: f"{H}attention.self.{b}" for a, b in OWN.items()})
    return imported("RobertaModel", "roberta", settings, POOLED, own, _blocks())


def _albert() -> Family:
    h = "encoder.albert_layer_groups.0.albert_layers.0."
    settings = PLAIN | {"max_position_embeddings": 32, "embedding_size": 16}
    names = OWN | {"o": "dense"}
    table = {
        **dense("attention.", {a: f"{h}attention.{b}" for a, b in names.items()}),
        **affine("attention_norm", h + "attention.LayerNorm"),
        **affine("ffn_norm", h + "full_layer_layer_norm"),
        **dense("ffn.", {"up": h + "ffn", "down": h + "ffn_output"}),
    }
    top = {
        **EMBEDDINGS, **dense("pooler.", {"dense": "pooler"}),
        **dense("embedding.", {"project_in": "encoder.embedding_hidden_mapping_in"}),
    }  # fmt: skip
    return imported("AlbertModel", "albert", settings, top, layers={"layers": ((0,), table)})


def _deberta() -> Family:
    a = H + "attention.self."
    settings = PLAIN | {
        "relative_attention": True, "max_relative_positions": 6, "pos_att_type": ["c2p", "p2c"],
        "position_biased_input": False, "type_vocab_size": 0, "max_position_embeddings": 32,
    }  # fmt: skip
    own: dict[str, Entry] = {
        **{f"attention.w_{n}": (a + "in_proj.weight", per_head(i, 3)) for i, n in enumerate("qkv")},
        "attention.b_q": a + "q_bias", "attention.b_v": a + "v_bias",
        "attention.core.w_pos_k": a + "pos_proj.weight", **dense("attention.core.", {"pos_q": a + "pos_q_proj"}),
    }  # fmt: skip
    top = {
        "embedding.tokens": "embeddings.word_embeddings.weight",
        **affine("embedding.norm", "embeddings.LayerNorm"),
        "relative_embedding": "encoder.rel_embeddings.weight",
    }
    return imported("DebertaModel", "deberta", settings, top, own, _blocks())


def _longformer() -> Family:
    a, norm, first = H + "attention.self.", {"kind": "layernorm", "eps": 1e-12}, 2
    own = {f"{n}{suffix}": f"{a}{name}{suffix}" for n, name in OWN.items() for suffix in ("", "_global")}
    mask = {"kind": "sliding", "window": 2, "bidirectional": True, "global_tokens": first}
    positions = {"kind": "learned", "max": 32, "offset": 2}
    block = mha(bias=True, mask=mask, global_projections=True)

    def extra(ids: Tensor) -> dict[str, Any]:
        return {"global_attention_mask": (torch.arange(ids.shape[1]) < first).long().expand(ids.shape)}

    return Family(
        config="LongformerConfig",
        model="LongformerModel",
        top=POOLED,
        layers=one(dense("attention.", own), _blocks()),
        settings=PLAIN | {"max_position_embeddings": 34, "attention_window": 4, "pad_token_id": 1},
        extra=extra,
        spec=spec(
            layer(norm=norm, placement="post", attention=block, ffn=MLP),
            architecture="encoder",
            pooler=True,
            final_norm=None,
            embedding={"positions": positions, "token_types": 2, "norm": norm},
        ),
    )  # fmt: skip


def _xlnet() -> Family:
    a = "layer.{i}.rel_attn."
    settings = {"d_model": D, "n_layer": 3, "n_head": N, "d_inner": F, "vocab_size": VOCAB}
    table: dict[str, Entry] = {
        **{f"attention.w_{n}": a + n for n in "qkv"},
        "attention.w_o": (a + "o", lambda w: w.permute(1, 2, 0)), "attention.core.w_r": a + "r",
        "attention.core.r_u": a + "r_w_bias", "attention.core.r_v": a + "r_r_bias",
        "attention.core.r_segment": a + "r_s_bias", "attention.core.segment_embedding": a + "seg_embed",
        **affine("attention_norm", a + "layer_norm"), **affine("ffn_norm", "layer.{i}.ff.layer_norm"),
        **dense("ffn.", {"up": "layer.{i}.ff.layer_1", "down": "layer.{i}.ff.layer_2"}),
    }  # fmt: skip
    return imported(
        "XLNetModel", "xlnet", settings,
        {"embedding.tokens": "word_embedding.weight", "embedding.mask_token": "mask_emb"}, table,
        extra=lambda ids: {"token_type_ids": torch.zeros_like(ids)},
    )  # fmt: skip


def _with_encoder(family: Family, table: Table) -> Family:
    model = family.spec
    assert isinstance(model, Model) and model.encoder is not None
    found = groups(model, model.encoder.layers, table, "encoder.")
    return replace(family, layers={**family.layers, **found})


def _bart() -> Family:
    settings = {
        "d_model": D, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": N, "vocab_size": VOCAB,
        "decoder_attention_heads": N, "encoder_ffn_dim": F, "decoder_ffn_dim": F, "max_position_embeddings": 32,
        "attn_implementation": "eager", "scale_embedding": True,
    }  # fmt: skip

    def side(name: str) -> Table:
        h = f"model.{name}.layers.{{i}}."
        own = dense("attention.", {n: f"{h}self_attn.{n}_proj" for n in "qkv"} | {"o": h + "self_attn.out_proj"})
        return {
            **own, **affine("attention_norm", h + "self_attn_layer_norm"),
            **affine("ffn_norm", h + "final_layer_norm"), **dense("ffn.", {"up": h + "fc1", "down": h + "fc2"}),
        }  # fmt: skip

    c = "model.decoder.layers.{i}.encoder_attn"
    cross = {
        **dense("cross_attention.", {"q": c + ".q_proj", "o": c + ".out_proj"}),
        **dense("cross_attention.source.", {"k": c + ".k_proj", "v": c + ".v_proj"}),
        **affine("cross_attention_norm", c + "_layer_norm"),
    }
    top = {"embedding.tokens": "model.shared.weight"}
    for ours, theirs in (("embedding.", "model.decoder."), ("encoder.embedding.", "model.encoder.")):
        top[ours + "positions"] = theirs + "embed_positions.weight"
        top |= affine(ours + "norm", theirs + "layernorm_embedding")
    family = imported("BartForConditionalGeneration", "bart", settings, top, side("decoder"), cross)
    return _with_encoder(family, side("encoder"))


def _switch_side(name: str, ffn: int) -> Table:
    """One stack, whose feed-forward is the sub-layer `ffn`."""
    h = f"{name}.block.{{i}}.layer."
    mlp, four = f"{h}{ffn}.mlp.", projections(suffix="")
    each = {n: [f"{mlp}experts.expert_{e}.{t}.weight" for e in range(3)] for n, t in (("up", "wi"), ("down", "wo"))}
    return {
        **renamed(four, "attention.", h + "0.SelfAttention."), "attention_norm": h + "0.layer_norm.weight",
        "ffn.w_up": mlp + "wi.weight", "ffn.w_down": mlp + "wo.weight",
        "ffn_norm": f"{h}{ffn}.layer_norm.weight", "moe.w_router": mlp + "router.classifier.weight",
        **{f"moe.w_{n}": names for n, names in each.items()},
    }  # fmt: skip


def _switch() -> Family:
    settings = {
        "d_model": D, "d_kv": D // N, "d_ff": F, "num_layers": 4, "num_decoder_layers": 4, "num_heads": N,
        "num_sparse_encoder_layers": 2, "num_sparse_decoder_layers": 2, "num_experts": 3, "expert_capacity": 2,
        "vocab_size": VOCAB, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 10,
        "attn_implementation": "eager",
    }  # fmt: skip
    c = "decoder.block.{i}.layer.1."
    cross = {("source." + k if k in ("w_k", "w_v") else k): v for k, v in projections(suffix="").items()}
    cross = renamed(cross, "cross_attention.", c + "EncDecAttention.")
    cross |= {"cross_attention_norm": c + "layer_norm.weight"}
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    top = {"embedding.tokens": "shared.weight"}
    for ours, theirs in (("", "decoder."), ("encoder.", "encoder.")):
        top |= {ours + "final_norm": theirs + "final_layer_norm.weight", ours + "relative_bias": theirs + bias}
    family = imported(
        "SwitchTransformersForConditionalGeneration",
        "switch_transformers",
        settings,
        top,
        _switch_side("decoder", 2),
        cross,
    )
    return _with_encoder(family, _switch_side("encoder", 1))


def _gemma3n() -> Family:
    h = "model.layers.{i}."
    a, streams = h + "altup.", {"altup_num_inputs": 3, "laurel_rank": 5, "hidden_size_per_layer_input": 6}
    settings = COMMON | streams | {
        "head_dim": 16, "tie_word_embeddings": True, "num_hidden_layers": 8, "vocab_size_per_layer_input": VOCAB,
        "num_kv_shared_layers": 2, "sliding_window": 5, "intermediate_size": [F] * 8,
        "layer_types": ["sliding_attention", "full_attention"] * 4,
        "activation_sparsity_pattern": [0.9] * 2 + [0.0] * 6, "final_logit_softcapping": 3.0,
    }  # fmt: skip
    thetas = {"sliding_attention": 1e4, "full_attention": 1e6}
    settings["rope_parameters"] = {k: {"rope_type": "default", "rope_theta": t} for k, t in thetas.items()}
    more: Table = {
        "router_norm": a + "router_norm.weight", "w_router": a + "modality_router.weight",
        "w_predict": a + "prediction_coefs.weight", "w_correct": a + "correction_coefs.weight",
        "output_scale": a + "correct_output_scale", "laurel.w_left": h + "laurel.linear_left.weight",
        "laurel.w_right": h + "laurel.linear_right.weight", "laurel.norm": h + "laurel.post_laurel_norm.weight",
        "per_layer.w_gate": h + "per_layer_input_gate.weight", "per_layer.w_up": h + "per_layer_projection.weight",
        "per_layer.norm": h + "post_per_layer_input_norm.weight",
    }  # fmt: skip
    top: Table = TIED | {
        "per_layer.tokens": "model.embed_tokens_per_layer.weight",
        "per_layer.w_context": "model.per_layer_model_projection.weight",
        "per_layer.norm": "model.per_layer_projection_norm.weight",
        "w_altup_in": [f"model.altup_projections.{n}.weight" for n in range(2)],
        "w_altup_out": [f"model.altup_unembed_projections.{n}.weight" for n in range(2)],
    }
    return imported(
        "Gemma3nForCausalLM", "gemma3n_text", settings, top, attention(**HEAD_NORMS), SWIGLU, FOUR_NORMS, more
    )


FAMILIES: dict[str, Family] = {
    "roberta": _roberta(), "albert": _albert(), "deberta": _deberta(), "longformer": _longformer(),
    "xlnet": _xlnet(), "bart": _bart(), "switch": _switch(), "gemma3n": _gemma3n(),
}  # fmt: skip
"""Every family by name."""
