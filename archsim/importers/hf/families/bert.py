"""Encoders that vary BERT's layer: norms before the branches, rotary or relative positions, gated networks."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.encoder import BERT, DEBERTA, bert, bert_like, camembert, encoder
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, attention, glu, heads, layer_types, layernorm, mlp, rmsnorm, rope
from archsim.importers.hf.pattern import Entry, stack

Doc = JsonObject
GELU_HEAD = "gelu"
"""Activation of a pre-training head that does not follow the config's."""


# ErnieConfig
@family("ernie", **BERT)
def ernie(c: Config) -> Doc:
    """ERNIE 1 to 3: BERT; a table of tasks is not supported."""
    c.only("use_task_id", False)
    c.skip("task_type_vocab_size")
    return bert(c)


# Data2VecTextConfig and IBertConfig
@family("data2vec-text", "ibert", **BERT)
def data2vec(c: Config) -> Doc:
    """data2vec's text encoder and I-BERT: RoBERTa's layer."""
    c.only("quant_mode", False)
    c.skip("force_dequant")
    return camembert(c)


# BigBirdConfig
@family("big_bird", **{**BERT, "vocab_size": 50358, "hidden_act": "gelu_new", "max_position_embeddings": 4096},
        attention_type="block_sparse", block_size=64, num_random_blocks=3, use_bias=True)  # fmt: skip
def big_bird(c: Config) -> Doc:
    """BigBird where it attends to everything, as the class does to short texts; blocks of long ones are not priced."""
    c.skip("attention_type", "block_size", "num_random_blocks", "rescale_embeddings")
    c.only("use_bias", True)
    return bert_like(c, offset=0)


# BertGenerationConfig
@family("bert-generation", **{**BERT, "vocab_size": 50358, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 4096, "type_vocab_size": 0})  # fmt: skip
def bert_generation(c: Config) -> Doc:
    """BERT without segments and pooler; its head is the tied table with a bias."""
    doc = bert_like(c, offset=0)
    del doc["pooler"]
    return doc | {"mlm_head": {"dense": False}}


def pre_norm(doc: Doc, norm: Doc) -> Doc:
    """The same encoder with norms before the branches and one at the end."""
    layers = [{k: v for k, v in layer.items() if k != "placement"} for layer in doc["layers"]]
    return doc | {"layers": layers, "final_norm": norm}


def _without_embedding_norm(doc: Doc) -> Doc:
    return doc | {"embedding": {k: v for k, v in doc["embedding"].items() if k != "norm"}}


# MegatronBertConfig
@family("megatron-bert", **{**BERT, "vocab_size": 29056, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 4096})  # fmt: skip
def megatron_bert(c: Config) -> Doc:
    """Megatron's BERT: norms before the branches, none on the embedding."""
    return _without_embedding_norm(pre_norm(bert(c), layernorm(c)))


# RobertaPreLayerNormConfig
@family("roberta-prelayernorm", **{**BERT, "vocab_size": 50265})
def roberta_prelayernorm(c: Config) -> Doc:
    """RoBERTa with norms before the branches."""
    return pre_norm(camembert(c), layernorm(c))


# XLMRobertaXLConfig
@family("xlm-roberta-xl", **{**BERT, "vocab_size": 250880, "hidden_size": 2560, "num_hidden_layers": 36,
        "num_attention_heads": 32, "intermediate_size": 10240, "max_position_embeddings": 514, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5})  # fmt: skip
def xlm_roberta_xl(c: Config) -> Doc:
    """XLM-R XL and XXL: norms before the branches, none on the embedding."""
    return _without_embedding_norm(pre_norm(camembert(c), layernorm(c)))


# RemBertConfig
@family("rembert", **{**BERT, "vocab_size": 250300, "hidden_size": 1152, "num_hidden_layers": 32,
        "num_attention_heads": 18, "intermediate_size": 4608}, input_embedding_size=256)  # fmt: skip
def rembert(c: Config) -> Doc:
    """RemBERT: a narrow embedding at the input. Its pre-training head has a wide table of its own and is left out."""
    c.skip("output_embedding_size")
    doc = bert(c)
    del doc["mlm_head"]
    doc["embedding"] |= {"factor": c.count("input_embedding_size"), "factor_bias": True}
    return doc


# RoFormerConfig
@family("roformer", **{**BERT, "vocab_size": 50000, "max_position_embeddings": 1536})
def roformer(c: Config) -> Doc:
    """RoFormer: BERT with neighbouring pairs of queries and keys rotated in place of a table of positions."""
    c.only("rotary_value", False)
    doc = bert(c)
    del doc["embedding"]["positions"], doc["pooler"]
    narrow = c.count("embedding_size", default=doc["d_model"])
    if narrow != doc["d_model"]:
        doc["embedding"] |= {"factor": narrow, "factor_bias": True}
    for layer in doc["layers"]:
        layer["attention"] = layer["attention"] | {"position": {"kind": "rope", "theta": 10000, "interleaved": True}}
    return doc


# MPNetConfig
@family("mpnet", **{**BERT, "vocab_size": 30527, "type_vocab_size": 0}, relative_attention_num_buckets=32)
def mpnet(c: Config) -> Doc:
    """MPNet and the all-mpnet embedders: RoBERTa with T5's relative biases, one table for all layers."""
    doc = camembert(c)
    position = {"kind": "t5", "buckets": c.count("relative_attention_num_buckets"), "max_distance": 128}
    for layer in doc["layers"]:
        layer["attention"] = layer["attention"] | {"position": position}
    return doc


def _rotary(c: Config, ffn: Doc, *, bias: bool, pooler: bool = False) -> Doc:
    """A post-norm encoder with rotary positions and segments."""
    norm, n = layernorm(c), c.count("num_attention_heads")
    size = c.count("head_dim", default=c.count("hidden_size") // n)
    block = heads(n, n, size, **({"bias": True} if bias else {}), position=rope(c, size))
    embedding: Doc = {"norm": norm}
    if c.get("type_vocab_size"):
        embedding["token_types"] = c.count("type_vocab_size")
    doc = encoder(c, embedding, norm, block, ffn, c.count("num_hidden_layers"))
    head = {"mlm_head": {"activation": activation(c, "hidden_act"), "norm": norm}}
    return doc | ({"pooler": True} if pooler else {}) | head


# NomicBertConfig
@family("nomic_bert", **{**BERT, "vocab_size": 30528, "hidden_act": "silu", "max_position_embeddings": 2048},
        rope_parameters={"rope_theta": 1000.0})  # fmt: skip
def nomic_bert(c: Config) -> Doc:
    """nomic-embed-text: rotary positions and a gated network, no biases in the layers."""
    c = _nomic_released(c) if "n_embd" in c.data else c
    return _rotary(c, glu(activation(c, "hidden_act"), c.count("intermediate_size")), bias=False)


NOMIC = {
    "hidden_size": "n_embd", "num_attention_heads": "n_head", "intermediate_size": "n_inner",
    "num_hidden_layers": "n_layer", "max_position_embeddings": "n_positions", "layer_norm_eps": "layer_norm_epsilon",
    "rope_theta": "rotary_emb_base",
}  # fmt: skip
"""Names of transformers and those of the released files."""


def _nomic_released(c: Config) -> Config:
    """The config under the names of transformers; what the released files switch otherwise is refused."""
    c.skip("dense_seq_output", "fused_bias_fc", "fused_dropout_add_ln", "max_trained_positions", "use_flash_attn",
           "pad_vocab_size_multiple", "reorder_and_upcast_attn", "rotary_emb_interleaved", "rotary_emb_scale_base",
           "rotary_scaling_factor", "scale_attn_by_inverse_layer_idx", "scale_attn_weights", "use_xentropy",
           "parallel_block_tied_norm")  # fmt: skip
    for key in ("causal", "mlp_fc1_bias", "mlp_fc2_bias", "parallel_block", "prenorm", "qkv_proj_bias", "use_rms_norm"):
        c.only(key, False)
    c.only("rotary_emb_fraction", 1)
    c.only("activation_function", "swiglu")
    return c.changed(hidden_act="silu", **{new: c.get(old) for new, old in NOMIC.items() if old in c.data})


# GteConfig; configuration.py of Alibaba-NLP/new-impl, whose files say `new`
@family("gte", "new", **{**BERT, "vocab_size": 250048, "max_position_embeddings": 8192, "type_vocab_size": 1},
        rope_parameters={"rope_theta": 160000.0})  # fmt: skip
def gte(c: Config) -> Doc:
    """gte-multilingual and snowflake-arctic-embed-m-v2: rotary positions, a gated network with one bias."""
    c.skip("pack_qkv", "unpad_inputs", "use_memory_efficient_attention", "matryoshka_dimensions",
           "logn_attention_clip1")  # fmt: skip
    c.only("position_embedding_type", "rope", "absolute")
    c.only("layer_norm_type", "layer_norm")
    c.only("logn_attention_scale", False)
    scaling = c.data.get("rope_scaling")
    if isinstance(scaling, dict) and scaling.get("type") == "ntk":  # another base of the same positions
        c = c.changed(rope_scaling=None)
    ffn = glu(activation(c, "hidden_act"), c.count("intermediate_size"), out_bias=True)
    return _rotary(c, ffn, bias=True)


# JinaEmbeddingsV3Config
@family("jina_embeddings_v3", **{**BERT, "vocab_size": 250002, "hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 4096, "max_position_embeddings": 8194, "type_vocab_size": 1,
        "layer_norm_eps": 1e-5}, rope_parameters={"rope_theta": 20000.0})  # fmt: skip
def jina_embeddings_v3(c: Config) -> Doc:
    """jina-embeddings-v3: XLM-R with rotary positions. Its adapters per task are left out, as by the class."""
    ffn = mlp(activation(c, "hidden_act"), c.count("intermediate_size"), True)
    return _rotary(c, ffn, bias=True, pooler=True)


def _llama_encoder(c: Config, norm: Doc, block: Doc, **more: object) -> Doc:
    """LLaMA's layer looking both ways."""
    bias = {"bias": True} if c.get("mlp_bias") else {}
    ffn = glu(activation(c, "hidden_act"), c.count("intermediate_size"), **bias)
    doc = encoder(c, {}, norm, block, ffn, c.count("num_hidden_layers"))
    del doc["embedding"]
    doc = pre_norm(doc, norm)
    return doc | {"layers": [layer | more for layer in doc["layers"]]}


# EuroBertConfig
@family("eurobert", vocab_size=128256, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
        num_attention_heads=12, hidden_act="silu", max_position_embeddings=8192, rms_norm_eps=1e-5,
        rope_parameters={"rope_theta": 10000.0})  # fmt: skip
def eurobert(c: Config) -> Doc:
    """EuroBERT: LLaMA's layer looking both ways, with an output table of its own."""
    bias = {"bias": True} if c.get("attention_bias") else {}
    size = c.count("head_dim", default=c.count("hidden_size") // c.count("num_attention_heads"))
    block = attention(c, **bias, position=rope(c, size))
    tied = bool(c.get("tie_word_embeddings"))
    return _llama_encoder(c, rmsnorm(c), block) | {"mlm_head": {"dense": False, "tied": tied, "bias": False}}


# UltrabertConfig
@family("ultrabert", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=32768, rms_norm_eps=1e-6,
        sliding_window=128, rope_parameters={"sliding_attention": {"rope_theta": 10000.0},
                                             "full_attention": {"rope_theta": 2560000.0}})  # fmt: skip
def ultrabert(c: Config) -> Doc:
    """UltraBERT: LLaMA's layer looking both ways, in most layers over a window. Its pre-training head is left out."""
    c.skip("prediction_head_size", "classifier_pooling", "num_labels", "tie_word_embeddings")
    n, norm = c.count("num_hidden_layers"), rmsnorm(c)
    bias = {"bias": True} if c.get("attention_bias") else {}
    size = c.count("head_dim", default=c.count("hidden_size") // c.count("num_attention_heads"))
    block = attention(c, **bias)
    near = {"kind": "sliding", "window": c.count("sliding_window"), "bidirectional": True}
    ffn = glu(
        activation(c, "hidden_act"), c.count("intermediate_size"), **({"bias": True} if c.get("mlp_bias") else {})
    )
    entries: list[Entry] = []
    for kind in layer_types(c, n, ["sliding_attention" if (i + 1) % 3 else "full_attention" for i in range(n)]):
        far = kind == "full_attention"
        own = block | {"position": _rope_of(c, size, kind), "mask": {"kind": "bidirectional"} if far else near}
        entries.append(("global" if far else "local", {"norm": norm, "attention": own, "ffn": ffn}))
    sizes = {"d_model": c.count("hidden_size"), "vocab_size": c.count("vocab_size")}
    return {"architecture": "encoder", **sizes, "max_context": c.count("max_position_embeddings"),
            "final_norm": norm, **stack(entries)}  # fmt: skip


def _rope_of(c: Config, size: int, kind: str) -> Doc:
    """Rotary positions, of one kind of layer where the config has them apart."""
    given = c.get("rope_parameters")
    nested = isinstance(given, dict) and kind in given
    return rope(Config({"rope_parameters": given}, {}) if nested else c, size, kind if nested else None)


# EsmcConfig
@family("esmc", vocab_size=64, hidden_size=2560, intermediate_size=6912, num_hidden_layers=80,
        num_attention_heads=40, hidden_act="silu", max_position_embeddings=2048, layer_norm_eps=1e-5)  # fmt: skip
def esmc(c: Config) -> Doc:
    """ESM C: a protein encoder of LLaMA's shape with LayerNorm, branches divided by a root of the depth."""
    c.only("attention_bias", False)
    norm, n = layernorm(c), c.count("num_attention_heads")
    size = c.count("head_dim", default=c.count("hidden_size") // n)
    if size * n != c.count("hidden_size"):
        raise c.error("head_dim", "QK norms span the model width, but the heads together are not that wide")
    one = norm | {"bias": False, "over": "all"}
    block = attention(c, qk_norm=one, position=rope(c, size))
    doc = _llama_encoder(c, norm, block, branch_scale=(36 / c.count("num_hidden_layers")) ** 0.5)
    doc["final_norm"] = norm | {"bias": False}
    return doc | {"mlm_head": {"activation": GELU_HEAD, "norm": norm, "tied": False}}


# DebertaV2Config
@family("deberta-v2", **{**DEBERTA, "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24,
        "num_attention_heads": 24, "intermediate_size": 6144})  # fmt: skip
def deberta_v2(c: Config) -> Doc:
    """DeBERTa-v2 and v3: relative positions in buckets, which the projections of contents serve as well."""
    c.skip("pooler_hidden_act", "pooler_hidden_size", "padding_idx", "legacy", "position_embedding_type",
           "attention_head_size")  # fmt: skip
    c.only("conv_kernel_size", 0)
    norm, n, act = layernorm(c), c.count("num_attention_heads"), activation(c, "hidden_act")
    block = heads(n, n, c.count("hidden_size") // n, bias=True)
    if c.get("relative_attention"):
        block["position"] = _disentangled(c, norm)
    c.skip("max_relative_positions", "position_buckets", "pos_att_type", "norm_rel_ebd", "share_att_key")
    embedding: Doc = {"norm": norm}
    if c.get("position_biased_input"):
        embedding["positions"] = {"kind": "learned", "max": c.count("max_position_embeddings")}
    if c.get("type_vocab_size"):
        embedding["token_types"] = c.count("type_vocab_size")
    ffn = mlp(act, c.count("intermediate_size"), True)
    doc = encoder(c, embedding, norm, block, ffn, c.count("num_hidden_layers"))
    return doc | {"mlm_head": {"activation": act, "norm": norm}}


def _disentangled(c: Config, norm: Doc) -> Doc:
    """The relative positions: distances in buckets, projected by the matrices of contents."""
    c.only("share_att_key", True)
    terms = c.get("pos_att_type") or []
    terms = terms.split("|") if isinstance(terms, str) else terms
    span = c.get("max_relative_positions") or -1
    span = span if span > 0 else c.count("max_position_embeddings")
    buckets = c.get("position_buckets") or -1
    off = {term: False for term in ("c2p", "p2c") if term not in terms}
    if len(off) == 2:
        raise c.error("pos_att_type", "relative attention with neither `c2p` nor `p2c` is not supported")
    kinds = c.get("norm_rel_ebd") or "none"
    given = {"norm": norm} if "layer_norm" in kinds else {}
    size = {"span": buckets, "max_distance": span} if buckets > 0 else {"span": span}
    return {"kind": "deberta", "shared": True, **size, **off, **given}


# LayoutLMConfig
@family("layoutlm", **BERT, max_2d_position_embeddings=1024)
def layoutlm(c: Config) -> Doc:
    """LayoutLM: BERT with vectors for the place and the size of a word on its page."""
    doc = bert(c)
    return doc | {"embedding": doc["embedding"] | {"tables": [c.count("max_2d_position_embeddings")] * 4}}


# TapasConfig
@family("tapas", **{**BERT, "max_position_embeddings": 1024, "type_vocab_size": None},
        type_vocab_sizes=(3, 256, 256, 2, 256, 256, 10))  # fmt: skip
def tapas(c: Config) -> Doc:
    """TAPAS: BERT with vectors for columns, rows and ranks in a table."""
    beside = ("aggregation", "answer", "allow_empty", "average", "cell", "disable_per", "huber", "init_cell", "max_num",
              "num_aggregation", "positive_label", "reset_position", "select_one", "temperature", "use_", "no_agg",
              "average_logits")  # fmt: skip
    c.skip(*(key for key in c.data if key.startswith(beside)))
    doc = bert_like(c, offset=0)
    return doc | {"embedding": doc["embedding"] | {"tables": list(c.get("type_vocab_sizes"))}}


XLM = {
    "vocab_size": 30145, "emb_dim": 2048, "n_layers": 12, "n_heads": 16, "gelu_activation": True, "n_langs": 1,
    "max_position_embeddings": 512, "layer_norm_eps": 1e-12, "use_lang_emb": True, "tie_word_embeddings": True,
}  # fmt: skip


# XLMConfig and FlaubertConfig
@family("xlm", "flaubert", **XLM)
def xlm(c: Config) -> Doc:
    """XLM and FlauBERT: the original encoder, four times as wide inside; its head is the tied table with a bias."""
    c.skip("embed_init_std", "end_n_top", "start_n_top", "lang_id", "mask_index", "unk_index", "bos_index", "eos_index",
           "pad_index", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
           "summary_activation", "layerdrop", "n_words", "share_inout_emb", "max_vocab", "min_count",
           "sinusoidal_embeddings", "same_enc_dec", "amp", "fp16", "group_by_size", "input_length")  # fmt: skip
    for key, value in (("asm", False), ("causal", False), ("is_encoder", True)):
        c.only(key, value)
    norm, n, d = layernorm(c), c.count("n_heads"), c.count("emb_dim")
    embedding: Doc = {"norm": norm, "positions": {"kind": "learned", "max": c.count("max_position_embeddings")}}
    if c.get("use_lang_emb") and (c.get("n_langs") or 1) > 1:
        embedding["tables"] = [c.count("n_langs")]
    ffn = mlp("gelu" if c.get("gelu_activation") else "relu", 4 * d, True)
    doc = encoder(c, embedding, norm, heads(n, n, d // n, bias=True), ffn, c.count("n_layers"), "emb_dim")
    doc = pre_norm(doc, norm) if c.get("pre_norm") else doc
    if "final_norm" in doc:
        del doc["final_norm"]
    return doc | {"mlm_head": {"dense": False}}


# CLIPTextConfig
@family("clip_text_model", vocab_size=49408, hidden_size=512, intermediate_size=2048, num_hidden_layers=12,
        num_attention_heads=8, hidden_act="quick_gelu", max_position_embeddings=77, layer_norm_eps=1e-5)  # fmt: skip
def clip_text(c: Config) -> Doc:
    """CLIP's text encoder, as image generators use it: causal, norms before the branches. Its projection is left out,
    as by the class.
    """
    c.skip("projection_dim", "tie_word_embeddings")
    act, norm, n = c.only("hidden_act", "quick_gelu", "gelu"), layernorm(c), c.count("num_attention_heads")
    block = heads(n, n, c.count("hidden_size") // n, bias=True)
    ffn = mlp("silu" if act == "quick_gelu" else "gelu", c.count("intermediate_size"), True)
    embedding = {"positions": {"kind": "learned", "max": c.count("max_position_embeddings")}}
    doc = pre_norm(encoder(c, embedding, norm, block, ffn, c.count("num_hidden_layers")), norm)
    return doc | {"layers": [layer | {"attention": block} for layer in doc["layers"]]}


# XmodConfig
@family("xmod", **BERT, adapter_reduction_factor=2, adapter_layer_norm=False, adapter_reuse_layer_norm=True,
        ln_before_adapter=True, languages=("en_XX",), pre_norm=False)  # fmt: skip
def xmod(c: Config) -> Doc:
    """X-MOD: RoBERTa with a small network for every language behind each layer, of which a text uses one."""
    for key, value in (("pre_norm", False), ("adapter_layer_norm", False), ("ln_before_adapter", True)):
        c.only(key, value)
    c.skip("adapter_reuse_layer_norm", "default_language")
    doc = camembert(c)
    (layer,) = doc["layers"]
    n, own = layer["repeat"], {k: v for k, v in layer.items() if k != "repeat"}
    width, act = doc["d_model"] // c.count("adapter_reduction_factor"), activation(c, "hidden_act")
    adapter: Doc = {"ffn": mlp(act, width, True)}
    others = len(c.get("languages")) - 1
    held = [adapter | {"name": "languages", "repeat": others, "for_images": True}] if others else []
    group = [own | {"name": "layer"}, adapter | {"name": "language"}, *held]
    return doc | {"layers": [{"repeat": n, "layers": group}]}
