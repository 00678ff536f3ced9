"""Older decoders and encoders, whose weights have names of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from backend_families_usual import LAYERS, NO_EPS, PADDED, usual
from backend_parity import (
    COMMON,
    NORMS,
    SWIGLU,
    VOCAB,
    D,
    Entry,
    F,
    Family,
    N,
    Table,
    affine,
    attention,
    columns,
    dense,
    imported,
    per_head,
    projections,
    renamed,
    split,
)
from torch import Tensor

H, T = "transformer.h.{i}.", "transformer."
TOP: Table = {
    "embedding.tokens": T + "wte.weight", "embedding.positions": T + "wpe.weight", **affine("final_norm", T + "ln_f"),
}  # fmt: skip
TWO_NORMS: Table = {**affine("attention_norm", H + "ln_1"), **affine("ffn_norm", H + "ln_2")}
SIZES: dict[str, Any] = {
    "n_embd": D, "n_layer": 3, "n_head": N, "vocab_size": VOCAB, "n_positions": 64, "attn_implementation": "eager",
}  # fmt: skip


def same(w: Tensor) -> Tensor:
    """As it is stored, (in, out)."""
    return w


def stored(prefix: str, names: dict[str, str]) -> Table:
    """Matrices that are stored as (in, out), and their biases."""
    table: dict[str, Entry] = {}
    for ours, theirs in names.items():
        table |= {f"{prefix}w_{ours}": (f"{theirs}.weight", same), f"{prefix}b_{ours}": f"{theirs}.bias"}
    return table


def _openai_gpt() -> Family:
    """GPT: post-norms, matrices stored the other way round."""
    top: Table = {"embedding.tokens": T + "tokens_embed.weight", "embedding.positions": T + "positions_embed.weight"}
    return imported(
        "OpenAIGPTLMHeadModel", "openai-gpt", SIZES, top, TWO_NORMS,
        split("attention.", H + "attn.c_attn", lambda i: lambda w: w[..., i * D : (i + 1) * D]),
        stored("attention.", {"o": H + "attn.c_proj"}),
        stored("ffn.", {"up": H + "mlp.c_fc", "down": H + "mlp.c_proj"}),
    )  # fmt: skip


def _gpt_neo() -> Family:
    """Every second layer local, scores not scaled."""
    settings = {
        "hidden_size": D, "num_layers": 4, "num_heads": N, "vocab_size": VOCAB, "max_position_embeddings": 64,
        "window_size": 5, "attention_types": [[["global", "local"], 2]], "attn_implementation": "eager",
    }  # fmt: skip
    a = H + "attn.attention."
    return imported(
        "GPTNeoForCausalLM", "gpt_neo", settings, TOP, TWO_NORMS, renamed(projections("q k v"), "attention.", a),
        dense("attention.", {"o": a + "out_proj"}), dense("ffn.", {"up": H + "mlp.c_fc", "down": H + "mlp.c_proj"}),
    )  # fmt: skip


def _gpt_bigcode() -> Family:
    """One key/value head behind the queries of all."""
    size, rows = D // N, {"q": (0, D), "k": (D, D + D // N), "v": (D + D // N, D + 2 * (D // N))}
    assert size * N == D
    own: dict[str, Entry] = {
        f"attention.{kind}_{n}": (f"{H}attn.c_attn.{end}", columns(*at))
        for n, at in rows.items() for kind, end in (("w", "weight"), ("b", "bias"))
    }  # fmt: skip
    return imported(
        "GPTBigCodeForCausalLM", "gpt_bigcode", SIZES, TOP, TWO_NORMS, own,
        dense("attention.", {"o": H + "attn.c_proj"}), dense("ffn.", {"up": H + "mlp.c_fc", "down": H + "mlp.c_proj"}),
    )  # fmt: skip


def _codegen() -> Family:
    """Queries, values and keys in four blocks of heads; attention and feed-forward side by side."""

    def part(i: int) -> Callable[[Tensor], Tensor]:
        return lambda w: w.reshape(4, 3, -1, D)[:, i].flatten(0, 1).T

    qkv: dict[str, Entry] = {f"attention.w_{n}": (H + "attn.qkv_proj.weight", part(i)) for i, n in enumerate("qvk")}
    top: Table = {
        "embedding.tokens": T + "wte.weight", **affine("final_norm", T + "ln_f"),
        "head.w_logits": "lm_head.weight", "head.b_logits": "lm_head.bias",
    }  # fmt: skip
    return imported(
        "CodeGenForCausalLM", "codegen", SIZES | {"rotary_dim": 4, "tie_word_embeddings": False}, top,
        affine("norm", H + "ln_1"), qkv, dense("attention.", {"o": H + "attn.out_proj"}, bias=False),
        dense("ffn.", {"up": H + "mlp.fc_in", "down": H + "mlp.fc_out"}),
    )  # fmt: skip


def _opt() -> Family:
    """Learned positions whose table begins with two rows that are never read."""
    d, h = "model.decoder.", "model.decoder.layers.{i}."
    settings = {
        "hidden_size": D, "ffn_dim": F, "num_hidden_layers": 3, "num_attention_heads": N, "vocab_size": VOCAB,
        "word_embed_proj_dim": D, "max_position_embeddings": 40, "pad_token_id": 0, "attn_implementation": "eager",
    }  # fmt: skip
    top: dict[str, Entry] = {
        "embedding.tokens": d + "embed_tokens.weight", **affine("final_norm", d + "final_layer_norm"),
        "embedding.positions": d + "embed_positions.weight",
    }  # fmt: skip
    names = {n: f"{h}self_attn.{n}_proj" for n in "qkv"} | {"o": h + "self_attn.out_proj"}
    return imported(
        "OPTForCausalLM", "opt", settings, top, dense("attention.", names),
        dense("ffn.", {"up": h + "fc1", "down": h + "fc2"}), affine("attention_norm", h + "self_attn_layer_norm"),
        affine("ffn_norm", h + "final_layer_norm"),
    )  # fmt: skip


def _persimmon() -> Family:
    """Queries, keys and values of each head side by side; norms of queries and keys with biases."""
    a, m = LAYERS + "self_attn.", LAYERS + "mlp."
    return usual(
        "PersimmonForCausalLM", "persimmon", {k: v for k, v in NO_EPS.items() if k != "num_key_value_heads"},
        split("attention.", a + "query_key_value", lambda i: per_head(i, 3)),
        affine("attention.q_norm", a + "q_layernorm"), affine("attention.k_norm", a + "k_layernorm"),
        dense("ffn.", {"up": m + "dense_h_to_4h", "down": m + "dense_4h_to_h"}),
        affine("ffn_norm", LAYERS + "post_attention_layernorm"), top=affine("final_norm", "model.final_layernorm"),
    )  # fmt: skip


def _distilbert() -> Family:
    """BERT without token types and pooler."""
    e, h = "embeddings.", "transformer.layer.{i}."
    settings = {
        "dim": D, "hidden_dim": F, "n_layers": 3, "n_heads": N, "vocab_size": VOCAB, "max_position_embeddings": 40,
        "attn_implementation": "eager",
    }  # fmt: skip
    top: dict[str, Entry] = {
        "embedding.tokens": e + "word_embeddings.weight", "embedding.positions": e + "position_embeddings.weight",
        **affine("embedding.norm", e + "LayerNorm"),
    }  # fmt: skip
    names = {n: f"{h}attention.{n}_lin" for n in "qkv"} | {"o": h + "attention.out_lin"}
    return imported(
        "DistilBertModel", "distilbert", settings, top, dense("attention.", names),
        dense("ffn.", {"up": h + "ffn.lin1", "down": h + "ffn.lin2"}),
        affine("attention_norm", h + "sa_layer_norm"), affine("ffn_norm", h + "output_layer_norm"),
    )  # fmt: skip


def apertus_table() -> Table:
    """xIELU, with two numbers of its own in every layer, and norms of other names."""
    act = LAYERS + "mlp.act_fn."
    norms = {f"{ours}_norm": f"{LAYERS}{theirs}_layernorm.weight"
             for ours, theirs in (("attention", "attention"), ("ffn", "feedforward"))}  # fmt: skip
    return {**norms, "ffn.xielu": [act + "alpha_p", act + "alpha_n"]}


def _apertus() -> Family:
    return usual("ApertusForCausalLM", "apertus", COMMON, apertus_table())


def _eurobert() -> Family:
    """LLaMA's layer, looking both ways."""
    own: dict[str, Entry] = {}
    for table in (attention(), SWIGLU, NORMS):
        own |= {ours: str(theirs).removeprefix("model.") for ours, theirs in table.items()}
    top: Table = {"embedding.tokens": "embed_tokens.weight", "final_norm": "norm.weight"}
    return imported("EuroBertModel", "eurobert", COMMON | PADDED, top, own)


READ: dict[str, Callable[[], Family]] = {
    "openai-gpt": _openai_gpt, "gpt-neo": _gpt_neo, "gpt-bigcode": _gpt_bigcode, "codegen": _codegen, "opt": _opt,
    "persimmon": _persimmon, "distilbert": _distilbert, "apertus": _apertus, "eurobert": _eurobert,
}  # fmt: skip
FAMILIES: dict[str, Family] = {name: make() for name, make in READ.items()}
"""Every family by name."""
