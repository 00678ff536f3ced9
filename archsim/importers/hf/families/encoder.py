"""Encoders: BERT and its relatives. The base model, its pooler, and the pre-training head as an option."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, glu, heads, layer_types, layernorm, mlp, rope, sliding
from archsim.importers.hf.pattern import Entry, stack

Doc = JsonObject
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
    return bert_like(c, offset=0)


# RobertaConfig
@family("roberta", **{**BERT, "vocab_size": 50265})
def roberta(c: Config) -> Doc:
    """RoBERTa: positions count from the padding index on, so two rows of the table are not used by tokens."""
    return bert_like(c, offset=2)


# CamembertConfig and XLMRobertaConfig
@family("camembert", "xlm-roberta", **BERT)
def camembert(c: Config) -> Doc:
    """CamemBERT and XLM-R: RoBERTa over other texts."""
    return bert_like(c, offset=2)


# ElectraConfig
@family("electra", **{**BERT, "hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024},
        embedding_size=128)  # fmt: skip
def electra(c: Config) -> Doc:
    """ELECTRA: BERT with an embedding that may be narrower than the model, without a pooler."""
    c.skip("summary_last_dropout", "generator_size", "generator_hidden_size")
    doc = bert_like(c, offset=0)
    del doc["mlm_head"], doc["pooler"]
    narrow = c.count("embedding_size")
    if narrow != doc["d_model"]:
        doc["embedding"] |= {"factor": narrow, "factor_bias": True}
    return doc


MODERN_BESIDE = (
    "initializer_cutoff_factor", "mlp_dropout", "classifier_pooling", "deterministic_flash_attn",
    "sparse_prediction", "sparse_pred_ignore_index", "reference_compile", "repad_logits_with_grad",
    "layer_norm_eps", "position_embedding_type", "tie_word_embeddings",
)  # fmt: skip
"""Keys of ModernBERT that no cost depends on."""


# ModernBertConfig
@family("modernbert", vocab_size=50368, hidden_size=768, intermediate_size=1152, num_hidden_layers=22,
        num_attention_heads=12, hidden_activation="gelu", max_position_embeddings=8192, norm_eps=1e-5,
        norm_bias=False, attention_bias=False, mlp_bias=False, local_attention=128, decoder_bias=True,
        classifier_bias=False, classifier_activation="gelu", global_attn_every_n_layers=3,
        global_rope_theta=160000.0, local_rope_theta=10000.0)  # fmt: skip
def modernbert(c: Config) -> Doc:
    """ModernBERT: one layer in three attends to everything, the others to a band; gated, pre-norm, rotary."""
    c.skip(*MODERN_BESIDE)
    norm = layernorm(c, "norm_eps") | ({} if c.get("norm_bias") else {"bias": False})
    n, far, near = c.count("num_hidden_layers"), *_modern_attention(c)
    kinds = {"full_attention": ("global", far), "sliding_attention": ("local", near)}
    step = c.count("global_attn_every_n_layers")
    default = ["sliding_attention" if i % step else "full_attention" for i in range(n)]
    mlp_bias = {"bias": True} if c.get("mlp_bias") else {}
    ffn = glu(activation(c, "hidden_activation"), c.count("intermediate_size"), **mlp_bias)
    entries: list[Entry] = []
    for i, kind in enumerate(layer_types(c, n, default)):
        name, block = kinds[kind]
        first = {} if i else {"attention_norm": False}  # the embedding's norm stands in for it
        entries.append(("first" if i == 0 else name, {"norm": norm, **first, "attention": block, "ffn": ffn}))
    mlm = {"activation": activation(c, "classifier_activation"), "norm": norm, "bias": bool(c.get("decoder_bias"))}
    return {
        "architecture": "encoder",
        "d_model": c.count("hidden_size"),
        "vocab_size": c.count("vocab_size"),
        "max_context": c.count("max_position_embeddings"),
        "embedding": {"norm": norm},
        "final_norm": norm,
        **stack(entries),
        **({} if c.get("classifier_bias") is False else {"mlm_head": mlm}),
    }


def _modern_attention(c: Config) -> tuple[Doc, Doc]:
    """Attention of the global and of the local layers."""
    n, d = c.count("num_attention_heads"), c.count("hidden_size")
    block = heads(n, n, d // n, **({"bias": True} if c.get("attention_bias") else {}))
    if "rope_parameters" in c.data:
        far, near = (rope(c, d // n, kind) for kind in ("full_attention", "sliding_attention"))
        c.skip("global_rope_theta", "local_rope_theta")
    else:
        far, near = ({"kind": "rope", "theta": int(c.number(k))} for k in ("global_rope_theta", "local_rope_theta"))
    band = {"kind": "sliding", "window": c.count("local_attention") // 2 + 1, "bidirectional": True}
    return (block | {"position": far, "mask": {"kind": "bidirectional"}}, block | {"position": near, "mask": band})


# LongformerConfig
@family("longformer", attention_window=512, **BERT)
def longformer(c: Config) -> Doc:
    """Longformer: a band around each token; global tokens have projections of their own."""
    c.skip("onnx_export", "attention_mode", "autoregressive", "ignore_attention_mask", "attention_dilation")
    n, windows = c.count("num_hidden_layers"), c.get("attention_window")
    windows = windows if isinstance(windows, list) else [windows] * n
    doc = bert_like(c, offset=2)
    layer = doc.pop("layers")[0]
    layer.pop("repeat", None)
    entries: list[Entry] = []
    for window in windows:
        mask = {"kind": "sliding", "window": window // 2, "bidirectional": True}
        attention = layer["attention"] | {"mask": mask, "global_projections": True}
        entries.append(("layers", layer | {"attention": attention}))
    return doc | stack(entries)


def bert_like(c: Config, offset: int) -> Doc:
    """BERT's encoder, with positions that count from `offset` on."""
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
    doc = encoder(c, embedding, norm, attention, ffn, c.count("num_hidden_layers"))
    return doc | {"pooler": True, "mlm_head": {"activation": act, "norm": norm}}


def _positions(c: Config, offset: int) -> Doc:
    """A table whose published size includes the offset."""
    rows = c.count("max_position_embeddings")
    return {"kind": "learned", "max": rows - offset} | ({"offset": offset} if offset else {})


def encoder(c: Config, embedding: Doc, norm: Doc, attention: Doc, ffn: Doc, n: int, width: str = "hidden_size") -> Doc:
    """Post-norm layers, all alike, that look both ways."""
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
    doc = encoder(c, embedding, norm, attention, ffn, c.count("n_layers"), "dim")
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
        if len(off) == 2:
            raise c.error("pos_att_type", "relative attention with neither `c2p` nor `p2c` is not supported")
        attention["position"] = {"kind": "deberta", "span": span} | off
    embedding: Doc = {"norm": norm}
    if c.get("position_biased_input"):
        embedding["positions"] = _positions(c, 0)
    if c.get("type_vocab_size"):
        embedding["token_types"] = c.count("type_vocab_size")
    ffn = mlp(act, c.count("intermediate_size"), True)
    doc = encoder(c, embedding, norm, attention, ffn, c.count("num_hidden_layers"))
    return doc | {"mlm_head": {"activation": act, "norm": norm}}


# AlbertConfig
@family("albert", **{**BERT, "vocab_size": 30000, "hidden_size": 4096, "num_attention_heads": 64,
        "intermediate_size": 16384, "hidden_act": "gelu_new"}, embedding_size=128)  # fmt: skip
def albert(c: Config) -> Doc:
    """ALBERT: one layer run again and again, and an embedding narrower than the model."""
    c.only("num_hidden_groups", 1)
    c.only("inner_group_num", 1)
    c.skip("net_structure_type", "gap_size", "num_memory_blocks", "down_scale_factor", "pooler_type")
    doc = bert_like(c, offset=0)
    doc["embedding"] |= {"factor": c.count("embedding_size"), "factor_bias": True}
    (layer,) = doc["layers"]
    return doc | {"layers": [layer | {"shared_weights": True}]}


# XLNetConfig
@family("xlnet", vocab_size=32000, d_model=1024, n_layer=24, n_head=16, d_inner=4096, ff_activation="gelu",
        layer_norm_eps=1e-12)  # fmt: skip
def xlnet(c: Config) -> Doc:
    """XLNet, run both ways: relative positions and segments as keys. Its pre-training head is the tied table with a
    bias.
    """
    c.skip("attn_type", "mem_len", "reuse_len", "use_mems_eval", "use_mems_train", "bi_data", "same_length",
           "summary_last_dropout", "start_n_top", "end_n_top", "untie_r", "d_head")  # fmt: skip
    c.only("attn_type", "bi")
    c.only("clamp_len", -1)
    d, n, norm = c.count("d_model"), c.count("n_head"), layernorm(c)
    own = heads(n, n, d // n, position={"kind": "xlnet"}, mask={"kind": "bidirectional"})
    ffn = mlp(activation(c, "ff_activation"), c.count("d_inner"), True)
    layer = {"norm": norm, "placement": "post", "attention": own, "ffn": ffn}
    return {
        "architecture": "encoder",
        "d_model": d,
        "vocab_size": c.count("vocab_size"),
        "embedding": {"mask_token": True},
        "mlm_head": {"dense": False},
        **stack([("layers", layer)] * c.count("n_layer")),
    }


# ModernBertDecoderConfig
@family("modernbert-decoder", vocab_size=50368, hidden_size=768, intermediate_size=1152, num_hidden_layers=22,
        num_attention_heads=12, hidden_activation="gelu", max_position_embeddings=8192, norm_eps=1e-5,
        norm_bias=False, attention_bias=False, mlp_bias=False, local_attention=128, decoder_bias=True,
        classifier_bias=False, classifier_activation="gelu", global_attn_every_n_layers=3,
        global_rope_theta=160000.0, local_rope_theta=10000.0, tie_word_embeddings=True)  # fmt: skip
def modernbert_decoder(c: Config) -> Doc:
    """Ettin's decoders: ModernBERT's layers behind a causal mask, and its dense step before the logits."""
    c.skip("sliding_window")
    doc = modernbert(c)
    for layer in [doc["layer"]] * ("layer" in doc) + _leaves(doc["layers"]):
        if "attention" in layer:
            layer["attention"] = {k: _causal(c, k, v) for k, v in layer["attention"].items()}
    norm = doc["final_norm"]
    dense = {"activation": activation(c, "classifier_activation"), "norm": norm}
    dense |= {"bias": True} if c.get("classifier_bias") else {}
    head = {"tied": bool(c.get("tie_word_embeddings")), "dense": dense}
    head |= {"bias": True} if c.get("decoder_bias") else {}
    doc = {k: v for k, v in doc.items() if k not in ("architecture", "mlm_head")}
    return doc | {"head": head}


def _leaves(layers: list[Doc]) -> list[Doc]:
    return [leaf for layer in layers for leaf in (_leaves(layer["layers"]) if "layers" in layer else [layer])]


def _causal(c: Config, key: str, value: object) -> object:
    """A mask that looks both ways as the one that looks back; half of the band lies there."""
    if key != "mask" or not isinstance(value, dict):
        return value
    return sliding(c.count("local_attention") // 2) if value["kind"] == "sliding" else {"kind": "causal"}
