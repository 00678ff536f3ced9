"""Encoders: BERT and its relatives. The base model, its pooler, and the pre-training head as an option."""

from __future__ import annotations

from typing import Any

from archsim.importers.hf_config import Config
from archsim.importers.hf_families.registry import family
from archsim.importers.hf_parts import activation, heads, layernorm, mlp
from archsim.importers.hf_pattern import Entry, stack

Doc = dict[str, Any]
BERT = {
    "vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "intermediate_size": 3072, "hidden_act": "gelu", "max_position_embeddings": 512, "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
}  # fmt: skip
"""BertConfig; the classes derived from it differ in the keys given beside it."""


# BertConfig
@family("bert", **BERT)
def bert(c: Config) -> Doc:
    """BERT."""
    return _bert_like(c, offset=0)


# RobertaConfig
@family("roberta", "xlm-roberta", **{**BERT, "vocab_size": 50265})
def roberta(c: Config) -> Doc:
    """RoBERTa: positions count from the padding index on, so two rows of the table are not used by tokens."""
    return _bert_like(c, offset=2)


# LongformerConfig
@family("longformer", attention_window=512, **BERT)
def longformer(c: Config) -> Doc:
    """Longformer: a band around each token; global tokens have projections of their own."""
    c.skip("onnx_export", "attention_mode", "autoregressive", "ignore_attention_mask", "attention_dilation")
    n, windows = c.count("num_hidden_layers"), c.get("attention_window")
    windows = windows if isinstance(windows, list) else [windows] * n
    doc = _bert_like(c, offset=2)
    layer = doc.pop("layers")[0]
    layer.pop("repeat", None)
    entries: list[Entry] = []
    for window in windows:
        mask = {"kind": "sliding", "window": window // 2, "bidirectional": True}
        attention = layer["attention"] | {"mask": mask, "global_projections": True}
        entries.append(("layers", layer | {"attention": attention}))
    return doc | stack(entries)


def _bert_like(c: Config, offset: int) -> Doc:
    c.only("position_embedding_type", "absolute")
    c.only("is_decoder", False)
    c.only("add_cross_attention", False)
    c.skip("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
           "pooler_type", "directionality")  # fmt: skip
    act, norm = activation(c, "hidden_act"), layernorm(c)
    n = c.count("num_attention_heads")
    attention = heads(n, n, c.count("hidden_size") // n, bias=True)
    ffn = mlp(act, c.count("intermediate_size"), True)
    embedding: Doc = {"norm": norm, "positions": _positions(c, offset)}
    if c.get("type_vocab_size"):
        embedding["token_types"] = c.count("type_vocab_size")
    doc = _encoder(c, embedding, norm, attention, ffn, c.count("num_hidden_layers"))
    return doc | {"pooler": True, "mlm_head": {"activation": act, "norm": norm}}


def _positions(c: Config, offset: int) -> Doc:
    """A table whose published size includes the offset."""
    rows = c.count("max_position_embeddings")
    return {"kind": "learned", "max": rows - offset} | ({"offset": offset} if offset else {})


def _encoder(
    c: Config, embedding: Doc, norm: Doc, attention: Doc, ffn: Doc, n: int, width: str = "hidden_size"
) -> Doc:
    attention = attention | {"mask": {"kind": "bidirectional"}}
    layer = {"norm": norm, "placement": "post", "attention": attention, "ffn": ffn}
    offset = embedding.get("positions", {}).get("offset", 0)
    return {
        "architecture": "encoder",
        "d_model": c.count(width),
        "vocab_size": c.count("vocab_size"),
        "max_context": c.count("max_position_embeddings") - offset,
        "embedding": embedding,
        **stack([("layers", layer)] * n),
    }


# DistilBertConfig
@family("distilbert", vocab_size=30522, max_position_embeddings=512, n_layers=6, n_heads=12, dim=768,
        hidden_dim=3072, activation="gelu")  # fmt: skip
def distilbert(c: Config) -> Doc:
    """DistilBERT: BERT with half the layers, without segments and pooler."""
    c.skip("sinusoidal_pos_embds", "tie_weights_")
    norm, n = {"kind": "layernorm", "eps": 1e-12}, c.count("n_heads")
    act = activation(c, "activation")
    embedding = {"norm": norm, "positions": _positions(c, 0)}
    attention = heads(n, n, c.count("dim") // n, bias=True)
    ffn = mlp(act, c.count("hidden_dim"), True)
    doc = _encoder(c, embedding, norm, attention, ffn, c.count("n_layers"), "dim")
    return doc | {"mlm_head": {"activation": act, "norm": norm}}


DEBERTA = {
    **BERT, "vocab_size": 50265, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "position_biased_input": True,
    "relative_attention": False,
}  # fmt: skip


# DebertaConfig
@family("deberta", **DEBERTA)
def deberta(c: Config) -> Doc:
    """DeBERTa: content and relative position apart, with projections of their own."""
    c.skip("pooler_hidden_act", "pooler_hidden_size", "padding_idx", "legacy", "position_embedding_type")
    c.only("talking_head", False)
    norm, n, act = layernorm(c), c.count("num_attention_heads"), activation(c, "hidden_act")
    attention = heads(n, n, c.count("hidden_size") // n, bias=True, qkv_bias={"q": True, "v": True})
    terms = c.get("pos_att_type") or []
    terms = terms.split("|") if isinstance(terms, str) else terms
    c.skip("max_relative_positions")
    if c.get("relative_attention"):
        span = c.get("max_relative_positions") or -1
        span = span if span > 0 else c.count("max_position_embeddings")
        off = {term: False for term in ("c2p", "p2c") if term not in terms}
        attention["position"] = {"kind": "deberta", "span": span} | off
    embedding: Doc = {"norm": norm}
    if c.get("position_biased_input"):
        embedding["positions"] = _positions(c, 0)
    if c.get("type_vocab_size"):
        embedding["token_types"] = c.count("type_vocab_size")
    ffn = mlp(act, c.count("intermediate_size"), True)
    doc = _encoder(c, embedding, norm, attention, ffn, c.count("num_hidden_layers"))
    return doc | {"mlm_head": {"activation": act, "norm": norm}}
