"""Encoders, alone and with a decoder."""

from __future__ import annotations

from backend_parity import (
    MLP,
    PLAIN,
    RMS,
    VOCAB,
    D,
    F,
    Family,
    N,
    affine,
    dense,
    layer,
    mha,
    one,
    projections,
    renamed,
    spec,
)


def _bert() -> Family:
    h, norm = "encoder.layer.{i}.", {"kind": "layernorm", "eps": 1e-12}
    own = {
        "q": "attention.self.query",
        "k": "attention.self.key",
        "v": "attention.self.value",
        "o": "attention.output.dense",
    }
    table = {
        **dense("attention.", {a: h + b for a, b in own.items()}),
        **affine("attention_norm", h + "attention.output.LayerNorm"),
        **affine("ffn_norm", h + "output.LayerNorm"),
        **dense("ffn.", {"up": h + "intermediate.dense", "down": h + "output.dense"}),
    }
    top = {
        "embedding.tokens": "embeddings.word_embeddings.weight",
        "embedding.positions": "embeddings.position_embeddings.weight",
        "embedding.token_types": "embeddings.token_type_embeddings.weight",
        **affine("embedding.norm", "embeddings.LayerNorm"),
        **dense("pooler.", {"dense": "pooler.dense"}),
    }
    embedding = {"positions": {"kind": "learned", "max": 32}, "token_types": 2, "norm": norm}
    mask = {"kind": "bidirectional"}
    return Family(
        config="BertConfig",
        model="BertModel",
        top=top,
        layers=one(table),
        settings=PLAIN | {"max_position_embeddings": 32},
        spec=spec(
            layer(norm=norm, placement="post", attention=mha(bias=True, mask=mask), ffn=MLP),
            architecture="encoder",
            pooler=True,
            final_norm=None,
            embedding=embedding,
        ),
    )


def _t5() -> Family:
    enc, dec = "encoder.block.{i}.layer.", "decoder.block.{i}.layer."
    four = projections(suffix="")
    ffn = {"w_up": "DenseReluDense.wi.weight", "w_down": "DenseReluDense.wo.weight"}
    cross = {("source." + k if k in ("w_k", "w_v") else k): v for k, v in four.items()}
    encoder = {
        **renamed(four, "attention.", enc + "0.SelfAttention."),
        "attention_norm": enc + "0.layer_norm.weight",
        **renamed(ffn, "ffn.", enc + "1."),
        "ffn_norm": enc + "1.layer_norm.weight",
    }
    decoder = {
        **renamed(four, "attention.", dec + "0.SelfAttention."),
        "attention_norm": dec + "0.layer_norm.weight",
        **renamed(cross, "cross_attention.", dec + "1.EncDecAttention."),
        "cross_attention_norm": dec + "1.layer_norm.weight",
        **renamed(ffn, "ffn.", dec + "2."),
        "ffn_norm": dec + "2.layer_norm.weight",
    }
    bias = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"
    top = {
        "embedding.tokens": "shared.weight",
        "final_norm": "decoder.final_layer_norm.weight",
        "encoder.final_norm": "encoder.final_layer_norm.weight",
        "relative_bias": "decoder." + bias,
        "encoder.relative_bias": "encoder." + bias,
    }
    own = mha(scale=1.0, position={"kind": "t5", "buckets": 8, "max_distance": 10})
    relu = {"kind": "mlp", "activation": "relu", "d_ff": F}
    stack = {"layers": [layer(attention=own | {"mask": {"kind": "bidirectional"}}, ffn=relu)], "final_norm": RMS}
    return Family(
        config="T5Config",
        model="T5ForConditionalGeneration",
        top=top,
        settings={
            "d_model": D,
            "num_heads": N,
            "d_kv": D // N,
            "d_ff": F,
            "num_layers": 3,
            "vocab_size": VOCAB,
            "attn_implementation": "eager",
            "relative_attention_num_buckets": 8,
            "relative_attention_max_distance": 10,
        },
        spec=spec(
            layer(attention=own, cross_attention=mha(scale=1.0), ffn=relu),
            encoder=stack,
            architecture="encoder-decoder",
            head={"tied": True, "scale": D**-0.5},
        ),
        layers={"layers": (range(3), decoder), "encoder.layers": (range(3), encoder)},
    )


FAMILIES: dict[str, Family] = {"bert": _bert(), "t5": _t5()}
"""Every family by name."""
