"""Encoder-decoders: the original Transformer, BART, T5, Switch."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import GATED, activation, heads, mlp, moe, rmsnorm
from archsim.importers.hf.pattern import stack

Doc = JsonObject
BART = {
    "vocab_size": 50265, "max_position_embeddings": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096,
    "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096,
    "decoder_attention_heads": 16,
    "activation_function": "gelu", "d_model": 1024, "scale_embedding": False, "tie_word_embeddings": True,
}  # fmt: skip
"""BartConfig; the classes derived from it differ in the keys given beside it."""
NORM = {"kind": "layernorm", "eps": 1e-5}


# MarianConfig
@family("marian", **{**BART, "vocab_size": 58101, "share_encoder_decoder_embeddings": True})
def marian(c: Config) -> Doc:
    """The original Transformer as Marian has it: post-norm, sinusoids, one table for all three uses."""
    c.only("share_encoder_decoder_embeddings", True)
    c.only("static_position_embeddings", True)
    c.only("normalize_before", False)
    c.only("decoder_vocab_size", c.count("vocab_size"))
    c.skip("num_hidden_layers", "extra_pos_embeddings")
    embedding = _scaled(c) | {"positions": {"kind": "sinusoidal"}}
    return _document(c, embedding, "post", None)


# PegasusConfig
@family("pegasus", **BART)
def pegasus(c: Config) -> Doc:
    """Pegasus: sinusoids, norms before the branches and one at the end of both sides."""
    c.only("static_position_embeddings", True)
    c.only("normalize_before", True)
    c.skip("num_hidden_layers", "extra_pos_embeddings", "add_final_layer_norm")
    return _document(c, _scaled(c) | {"positions": {"kind": "sinusoidal"}}, "pre", NORM)


# M2M100Config
@family("m2m_100", **{**BART, "vocab_size": 128112, "activation_function": "relu", "scale_embedding": True})
def m2m_100(c: Config) -> Doc:
    """M2M-100 and NLLB: Pegasus' layer, over many languages."""
    c.skip("num_hidden_layers")
    return _document(c, _scaled(c) | {"positions": {"kind": "sinusoidal"}}, "pre", NORM)


# BlenderbotConfig
@family("blenderbot", **{**BART, "vocab_size": 8008, "max_position_embeddings": 128, "encoder_layers": 2,
        "encoder_ffn_dim": 10240, "encoder_attention_heads": 32, "decoder_layers": 24, "decoder_ffn_dim": 10240,
        "decoder_attention_heads": 32, "d_model": 2560})  # fmt: skip
def blenderbot(c: Config) -> Doc:
    """Blenderbot: learned positions, norms before the branches, few encoder layers."""
    c.only("static_position_embeddings", False)
    c.skip("num_hidden_layers", "normalize_before", "layernorm_variant", "extra_layer_norm",
           "do_blenderbot_90_layernorm", "extra_pos_embeddings")  # fmt: skip
    positions = {"kind": "learned", "max": c.count("max_position_embeddings")}
    return _document(c, _scaled(c) | {"positions": positions}, "pre", NORM)


# BartConfig
@family("bart", **BART)
def bart(c: Config) -> Doc:
    """BART: learned positions and a norm on the embedding of both sides, post-norm."""
    c.only("normalize_before", False)
    c.only("static_position_embeddings", False)
    c.skip("num_hidden_layers", "extra_pos_embeddings")
    return _document(c, _learned(c), "post", None)


# MBartConfig
@family("mbart", **BART)
def mbart(c: Config) -> Doc:
    """mBART: BART with the norms before the branches, and one at the end."""
    c.only("static_position_embeddings", False)
    c.skip("num_hidden_layers", "extra_pos_embeddings", "normalize_before")
    return _document(c, _learned(c), "pre", NORM)


def _scaled(c: Config) -> Doc:
    return {"scale": "sqrt_d_model"} if c.get("scale_embedding") else {}


def _learned(c: Config) -> Doc:
    positions = {"kind": "learned", "max": c.count("max_position_embeddings"), "offset": 2}
    return _scaled(c) | {"norm": NORM, "positions": positions}


def _document(c: Config, embedding: Doc, placement: str, final_norm: Doc | None) -> Doc:
    c.only("is_decoder", False)
    c.only("tie_word_embeddings", True)
    final = {"final_norm": final_norm} if final_norm else {}
    encoder, decoder = (
        stack([("layers", _bart_layer(c, side, placement))] * c.count(f"{side}_layers"))
        for side in ("encoder", "decoder")
    )
    return {
        "architecture": "encoder-decoder",
        "d_model": c.count("d_model"),
        "vocab_size": c.count("vocab_size"),
        "max_context": c.count("max_position_embeddings"),
        "embedding": embedding,
        "encoder": {"embedding": embedding, **final, **encoder},
        **final,
        **decoder,
        "head": {"tied": True},
    }


def _bart_layer(c: Config, side: str, placement: str) -> Doc:
    n = c.count(f"{side}_attention_heads")
    block = heads(n, n, c.count("d_model") // n, bias=True)
    layer: Doc = {"norm": NORM, **({} if placement == "pre" else {"placement": placement})}
    if side == "encoder":
        layer["attention"] = block | {"mask": {"kind": "bidirectional"}}
    else:
        layer |= {"attention": block, "cross_attention": block}
    return layer | {"ffn": mlp(activation(c, "activation_function"), c.count(f"{side}_ffn_dim"), True)}


T5 = {
    "vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8,
    "relative_attention_num_buckets": 32, "relative_attention_max_distance": 128, "layer_norm_epsilon": 1e-6,
    "feed_forward_proj": "relu", "tie_word_embeddings": True,
}  # fmt: skip
"""T5Config; the classes derived from it differ in the keys given beside it."""


# T5Config
@family("t5", **T5)
def t5(c: Config) -> Doc:
    """T5: one table of relative biases per stack, no scale on the scores, no bias elsewhere."""
    ffn = _t5_ffn(c)
    n = c.count("num_layers", "num_hidden_layers")
    return _t5_document(c, [ffn] * n, [ffn] * c.count("num_decoder_layers", default=n))


MT5 = {
    **T5, "vocab_size": 250112, "d_ff": 1024, "num_layers": 8, "num_heads": 6,
    "feed_forward_proj": "gated-gelu", "tie_word_embeddings": True,
}  # fmt: skip


# MT5Config
@family("mt5", **MT5)
def mt5(c: Config) -> Doc:
    """mT5: T5 v1.1 over many languages. The released checkpoints have an output table of their own."""
    return t5(c)


# UMT5Config
@family("umt5", **MT5)
def umt5(c: Config) -> Doc:
    """UMT5: mT5 with a table of relative biases in every layer."""
    return t5(c.changed(_table_per_layer=True))


SWITCH = {
    **T5, "d_model": 768, "num_layers": 12, "num_sparse_encoder_layers": 3, "num_decoder_layers": 12,
    "num_sparse_decoder_layers": 3, "num_heads": 12, "num_experts": 8, "expert_capacity": 64,
    "router_bias": False, "dense_act_fn": "relu",
}  # fmt: skip


# SwitchTransformersConfig
@family("switch_transformers", **SWITCH)
def switch(c: Config) -> Doc:
    """Switch: T5 with one of several experts in every so many feed-forward layers of both stacks."""
    c.skip("router_dtype", "router_ignore_padding_tokens", "router_type", "add_router_probs",
           "batch_prioritized_routing", "num_selected_experts")  # fmt: skip
    c.only("router_bias", False)
    c.only("tie_word_embeddings", True)
    dense = _t5_ffn(c)
    experts = moe(c.count("num_experts"), 1, dense, {"normalize": False}, capacity=c.count("expert_capacity"))
    sides = []
    for n, key in ((c.count("num_layers"), "encoder"), (c.count("num_decoder_layers"), "decoder")):
        sparse, step = c.get(f"num_sparse_{key}_layers") or 0, c.get(f"{key}_sparse_step")
        step = (n // sparse if sparse else n) if step is None else step
        sides.append([experts if step and (i % step == 1 or step == 1) else dense for i in range(n)])
    return _t5_document(c, *sides)


def _t5_ffn(c: Config) -> Doc:
    name, stated = c.get("feed_forward_proj"), c.get("is_gated_act")
    gated = name.startswith("gated-") if stated is None else bool(stated)
    # "gated-gelu" has always meant the tanh approximation.
    act = {"gated-gelu": "gelu_tanh"}.get(name) or activation(Config({"act": name.removeprefix("gated-")}, {}), "act")
    c.skip("dense_act_fn")
    if not gated:
        return mlp(act, c.count("d_ff"), False)
    return {"kind": GATED[act], **({"activation": act} if act == "gelu_tanh" else {}), "d_ff": c.count("d_ff")}


def _t5_document(c: Config, encoder: list[Doc], decoder: list[Doc]) -> Doc:
    c.skip("is_decoder", "n_positions", "scale_decoder_outputs", "num_hidden_layers", "add_cross_attention")
    d, norm, tied = c.count("d_model"), rmsnorm(c, "layer_norm_epsilon"), bool(c.get("tie_word_embeddings"))
    sides = [
        stack([("moe" if f["kind"] == "moe" else "dense", _t5_layer(c, norm, f, cross)) for f in ffns])
        for ffns, cross in ((encoder, False), (decoder, True))
    ]
    return {
        "architecture": "encoder-decoder",
        "d_model": d,
        "vocab_size": c.count("vocab_size"),
        "encoder": {"final_norm": norm, **sides[0]},
        "final_norm": norm,
        **sides[1],
        "head": {"tied": tied} | ({"scale": d**-0.5} if tied else {}),
    }


def _t5_layer(c: Config, norm: Doc, ffn: Doc, cross: bool) -> Doc:
    n = c.count("num_heads")
    block = heads(n, n, c.count("d_kv"), scale=1.0)
    distance = {"kind": "t5", "buckets": c.count("relative_attention_num_buckets"),
                "max_distance": c.count("relative_attention_max_distance")}  # fmt: skip
    if c.get("_table_per_layer"):
        distance["shared"] = False
    own = block | {"position": distance}
    if cross:
        return {"norm": norm, "attention": own, "cross_attention": block, "ffn": ffn}
    return {"norm": norm, "attention": own | {"mask": {"kind": "bidirectional"}}, "ffn": ffn}
