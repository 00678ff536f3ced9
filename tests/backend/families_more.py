"""Families that differ from Llama in wiring or positions."""

from __future__ import annotations

from collections.abc import Callable

from backend_parity import (
    COMMON,
    HALF,
    HALF_ROPE,
    LAYER,
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
    affine,
    attention,
    columns,
    dense,
    gqa,
    layer,
    mha,
    one,
    per_head,
    projections,
    renamed,
    spec,
    split,
)
from torch import Tensor


def same(x: Tensor) -> Tensor:
    """As it is stored."""
    return x


def _gpt2() -> Family:
    h = "transformer.h.{i}."
    table: dict[str, Entry] = {
        **affine("attention_norm", h + "ln_1"),
        **affine("ffn_norm", h + "ln_2"),
        **split("attention.", h + "attn.c_attn", lambda i: lambda w: w[..., i * D : (i + 1) * D]),
        "attention.w_o": (h + "attn.c_proj.weight", same),
        "attention.b_o": h + "attn.c_proj.bias",
        "ffn.w_up": (h + "mlp.c_fc.weight", same),
        "ffn.b_up": h + "mlp.c_fc.bias",
        "ffn.w_down": (h + "mlp.c_proj.weight", same),
        "ffn.b_down": h + "mlp.c_proj.bias",
    }
    top = {
        "embedding.tokens": "transformer.wte.weight",
        "embedding.positions": "transformer.wpe.weight",
        **affine("final_norm", "transformer.ln_f"),
    }
    return Family(
        config="GPT2Config",
        model="GPT2LMHeadModel",
        top=top,
        layers=one(table),
        settings={
            "n_embd": D,
            "n_head": N,
            "n_layer": 3,
            "vocab_size": VOCAB,
            "n_positions": 32,
            "n_inner": F,
            "attn_implementation": "eager",
        },
        spec=spec(
            layer(norm=LAYER, attention=mha(bias=True), ffn=MLP | {"activation": "gelu_tanh"}),
            final_norm=LAYER,
            head={"tied": True},
            embedding={"positions": {"kind": "learned", "max": 32}},
        ),
    )


def _neox() -> Family:
    h = "gpt_neox.layers.{i}."
    table = {
        **affine("norm", h + "input_layernorm"),
        **affine("ffn_norm", h + "post_attention_layernorm"),
        **split("attention.", h + "attention.query_key_value", lambda i: per_head(i, 3)),
        **dense("attention.", {"o": h + "attention.dense"}),
        **dense("ffn.", {"up": h + "mlp.dense_h_to_4h", "down": h + "mlp.dense_4h_to_h"}),
    }
    top = {
        "embedding.tokens": "gpt_neox.embed_in.weight",
        **affine("final_norm", "gpt_neox.final_layer_norm"),
        "head.w_logits": "lm_head.weight",
    }
    own = mha(bias=True, position=HALF_ROPE)
    return Family(
        config="GPTNeoXConfig",
        model="GPTNeoXForCausalLM",
        top=top,
        layers=one(table),
        settings=PLAIN | {"rope_parameters": HALF},
        spec=spec(layer(norm=LAYER, parallel="two_norms", attention=own, ffn=MLP), final_norm=LAYER),
    )


def _phi() -> Family:
    h = "model.layers.{i}."
    table = {
        **affine("norm", h + "input_layernorm"),
        **dense("ffn.", {"up": h + "mlp.fc1", "down": h + "mlp.fc2"}),
        **renamed(projections("q k v", bias="q k v"), "attention.", h + "self_attn."),
        **dense("attention.", {"o": h + "self_attn.dense"}),
    }
    top = {
        "embedding.tokens": "model.embed_tokens.weight",
        **affine("final_norm", "model.final_layernorm"),
        "head.w_logits": "lm_head.weight",
        "head.b_logits": "lm_head.bias",
    }
    ffn = MLP | {"activation": "gelu_tanh"}
    return Family(
        config="PhiConfig",
        model="PhiForCausalLM",
        top=top,
        layers=one(table),
        settings=PLAIN | {"rope_parameters": HALF},
        spec=spec(
            layer(norm=LAYER, parallel="one_norm", attention=mha(bias=True, position=HALF_ROPE), ffn=ffn),
            final_norm=LAYER,
            head={"bias": True},
        ),
    )


def _falcon(new: bool) -> Family:
    h, head, groups = "transformer.h.{i}.", D // N, 2

    def grouped(i: int) -> Callable[[Tensor], Tensor]:
        rows = (slice(0, groups), slice(groups, groups + 1), slice(groups + 1, groups + 2))[i]
        return lambda w: w.reshape(N // groups, groups + 2, head, D)[:, rows].reshape(-1, D).T

    def single(i: int) -> Callable[[Tensor], Tensor]:
        return columns(*((0, D), (D, D + head), (D + head, D + 2 * head))[i])

    norms = (
        {**affine("norm", h + "ln_attn"), **affine("ffn_norm", h + "ln_mlp")}
        if new
        else affine("norm", h + "input_layernorm")
    )
    names = {"up": h + "mlp.dense_h_to_4h", "down": h + "mlp.dense_4h_to_h"}
    table = {
        **norms,
        **dense("ffn.", names, bias=False),
        **split("attention.", h + "self_attention.query_key_value", grouped if new else single, bias=False),
        **dense("attention.", {"o": h + "self_attention.dense"}, bias=False),
    }
    own = gqa() if new else {"kind": "mqa", "n_heads": N, "d_head": head, "position": {"kind": "rope"}}
    wiring = "two_norms" if new else "one_norm"
    return Family(
        config="FalconConfig",
        model="FalconForCausalLM",
        layers=one(table),
        top={"embedding.tokens": "transformer.word_embeddings.weight", **affine("final_norm", "transformer.ln_f")},
        settings=PLAIN | {"new_decoder_architecture": new, "num_kv_heads": 2, "ffn_hidden_size": F, "alibi": False},
        spec=spec(
            layer(norm=LAYER, parallel=wiring, attention=own, ffn=MLP | {"bias": False}),
            final_norm=LAYER,
            head={"tied": True},
        ),
    )


def _cohere() -> Family:
    plain = {"kind": "layernorm", "bias": False, "eps": 1e-5}
    own = gqa(position={"kind": "rope", "interleaved": True}, qk_norm=plain | {"over": "heads"})
    normed = attention(q_norm="q_norm.weight", k_norm="k_norm.weight")
    table = {**normed, **SWIGLU, "norm": "model.layers.{i}.input_layernorm.weight"}
    return Family(
        config="CohereConfig",
        model="CohereForCausalLM",
        top=TIED,
        layers=one(table),
        settings=COMMON | {"use_qk_norm": True, "logit_scale": 0.25, "tie_word_embeddings": True},
        spec=spec(
            layer(norm=plain, parallel="one_norm", attention=own), final_norm=plain, head={"tied": True, "scale": 0.25}
        ),
    )


FAMILIES: dict[str, Family] = {
    "gpt2": _gpt2(),
    "gpt-neox": _neox(),
    "phi": _phi(),
    "falcon-7b": _falcon(False),
    "falcon-40b": _falcon(True),
    "cohere": _cohere(),
}
"""Every family by name."""
