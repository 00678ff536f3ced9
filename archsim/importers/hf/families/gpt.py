"""GPT and the families that vary its layer: biases, learned or ALiBi positions, parallel branches."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import activation, decoder, head, heads, layernorm, mlp, rope

Doc = JsonObject


# OpenAIGPTConfig
@family("openai-gpt", vocab_size=40478, n_positions=512, n_embd=768, n_layer=12, n_head=12, afn="gelu",
        layer_norm_epsilon=1e-5, tie_word_embeddings=True)  # fmt: skip
def gpt1(c: Config) -> Doc:
    """GPT: post-norm, learned positions."""
    c.skip("n_ctx", "predict_special_tokens")
    # The file's "gelu" is the tanh approximation in this family.
    act = {"gelu": "gelu_tanh"}.get(c.get("afn")) or activation(c, "afn")
    layer = {"norm": layernorm(c, "layer_norm_epsilon"), "placement": "post", **_gpt_blocks(c, act)}
    return _gpt_frame(c, layer, None)


# GPT2Config
@family("gpt2", vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12,
        activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=True)  # fmt: skip
def gpt2(c: Config) -> Doc:
    """GPT-2: pre-norm, biases everywhere."""
    c.only("add_cross_attention", False)
    c.only("scale_attn_weights", True)
    c.only("scale_attn_by_inverse_layer_idx", False)
    c.skip("n_ctx", "reorder_and_upcast_attn")
    norm = layernorm(c, "layer_norm_epsilon")
    return _gpt_frame(c, {"norm": norm, **_gpt_blocks(c, activation(c, "activation_function"))}, norm)


def _gpt_blocks(c: Config, act: str) -> Doc:
    d, n = c.count("n_embd", "hidden_size"), c.count("n_head", "num_attention_heads")
    return {"attention": heads(n, n, d // n, bias=True), "ffn": mlp(act, c.count("n_inner", default=4 * d), True)}


def _gpt_frame(c: Config, layer: Doc, final_norm: Doc | None) -> Doc:
    n = c.count("n_layer", "num_hidden_layers")
    positions = {"kind": "learned", "max": c.count("n_positions")}
    embedding = {"positions": positions}
    entries = [("layers", layer)] * n
    return decoder(c, entries, final_norm, embedding=embedding, context="n_positions", width="n_embd")


# GPTBigCodeConfig
@family("gpt_bigcode", vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12,
        activation_function="gelu_pytorch_tanh", layer_norm_epsilon=1e-5, multi_query=True,
        tie_word_embeddings=True)  # fmt: skip
def gpt_bigcode(c: Config) -> Doc:
    """StarCoder: GPT-2 with one head for keys and values."""
    c.only("scale_attn_weights", True)
    c.skip("scale_attention_softmax_in_fp32", "inference_runner", "max_batch_size", "max_sequence_length",
           "pad_key_length", "pre_allocate_kv_cache", "validate_runner_input", "n_ctx")  # fmt: skip
    norm, blocks = layernorm(c, "layer_norm_epsilon"), _gpt_blocks(c, activation(c, "activation_function"))
    n, size = blocks["attention"]["n_heads"], blocks["attention"]["d_head"]
    blocks["attention"] = heads(n, 1 if c.get("multi_query") else n, size, bias=True)
    c.skip("num_key_value_heads")
    return _gpt_frame(c, {"norm": norm, **blocks}, norm)


# GPTNeoConfig
@family("gpt_neo", vocab_size=50257, max_position_embeddings=2048, hidden_size=2048, num_layers=24,
        num_heads=16, window_size=256, activation_function="gelu_new", layer_norm_epsilon=1e-5,
        attention_types=[[["global", "local"], 12]], tie_word_embeddings=True)  # fmt: skip
def gpt_neo(c: Config) -> Doc:
    """GPT-Neo: every second layer local, scores without a scale, no bias on queries, keys and values."""
    c.skip("attention_layers", "embed_dropout", "summary_last_dropout")
    d, n = c.count("hidden_size"), c.count("num_heads", "num_attention_heads")
    norm = layernorm(c, "layer_norm_epsilon")
    block = heads(n, n, d // n, scale=1.0, qkv_bias=False, out_bias=True)
    width = c.count("intermediate_size", default=4 * d)
    base = {"norm": norm, "attention": block, "ffn": mlp(activation(c, "activation_function"), width, True)}
    near = {"mask": {"kind": "sliding", "window": c.count("window_size")}}
    kinds = {"global": ("global", base), "local": ("local", base | {"attention": block | near})}
    positions = {"kind": "learned", "max": c.count("max_position_embeddings")}
    entries = [kinds[kind] for kind in _neo_types(c)]
    return decoder(c, entries, norm, embedding={"positions": positions})


def _neo_types(c: Config) -> list[str]:
    """Global or local, layer by layer: periods with how often each runs."""
    n, found = c.count("num_layers", "num_hidden_layers"), []
    for part in c.get("attention_types") or []:
        names, times = part
        if not set(names) <= {"global", "local"} or len(names) * times > n:
            raise c.error("attention_types", "not a list of [[global or local, ...], times] for all layers")
        found += list(names) * times
    if len(found) != n:
        raise c.error("attention_types", f"{len(found)} layers, not {n}")
    return found


# CodeGenConfig
@family("codegen", vocab_size=50400, n_positions=2048, n_embd=4096, n_layer=28, n_head=16, rotary_dim=64,
        activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=False)  # fmt: skip
def codegen(c: Config) -> Doc:
    """CodeGen: GPT-J."""
    c.skip("n_ctx")
    return gptj(c)


# GPTJConfig
@family("gptj", vocab_size=50400, n_positions=2048, n_embd=4096, n_layer=28, n_head=16, rotary_dim=64,
        activation_function="gelu_new", layer_norm_epsilon=1e-5, tie_word_embeddings=False)  # fmt: skip
def gptj(c: Config) -> Doc:
    """GPT-J: attention and feed-forward in parallel behind one norm; the head has a bias."""
    c.only("rotary", True)
    c.only("scale_attn_weights", True)
    d, n = c.count("n_embd"), c.count("n_head")
    position = rope(c, d // n) | {"dim": c.count("rotary_dim", default=d // n), "interleaved": True}
    norm = layernorm(c, "layer_norm_epsilon")
    layer = {
        "norm": norm,
        "parallel": "one_norm",
        "attention": heads(n, n, d // n, position=position),
        "ffn": mlp(activation(c, "activation_function"), c.count("n_inner", default=4 * d), True),
    }
    entries = [("layers", layer)] * c.count("n_layer")
    return decoder(c, entries, norm, output=head(c, bias=True), context="n_positions", width="n_embd")


# GPTNeoXConfig
@family("gpt_neox", vocab_size=50432, hidden_size=6144, num_hidden_layers=44, num_attention_heads=64,
        intermediate_size=24576, hidden_act="gelu", max_position_embeddings=2048, layer_norm_eps=1e-5,
        use_parallel_residual=True, attention_bias=True, tie_word_embeddings=False,
        rotary_pct=0.25)  # fmt: skip
def gpt_neox(c: Config) -> Doc:
    """GPT-NeoX and Pythia: two norms in parallel, rotary positions on a quarter of each head."""
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    theta = c.first("rotary_emb_base", "rope_theta") or 10000
    position = rope(c, d // n) | {"theta": int(theta), "dim": int(d // n * c.number("rotary_pct"))}
    norm, bias = layernorm(c), bool(c.get("attention_bias"))
    layer = {
        "norm": norm,
        **({"parallel": "two_norms"} if c.get("use_parallel_residual") else {}),
        "attention": heads(n, n, d // n, **({"bias": True} if bias else {}), position=position),
        "ffn": mlp(activation(c, "hidden_act"), c.count("intermediate_size"), True),
    }
    return decoder(c, [("layers", layer)] * c.count("num_hidden_layers"), norm)


# GPTNeoXJapaneseConfig
@family("gpt_neox_japanese", vocab_size=32000, hidden_size=2560, num_hidden_layers=32, num_attention_heads=32,
        intermediate_multiple_size=4, hidden_act="gelu", max_position_embeddings=2048, layer_norm_eps=1e-5,
        tie_word_embeddings=True)  # fmt: skip
def gpt_neox_japanese(c: Config) -> Doc:
    """GPT-NeoX in Japanese: one branch after the other, no biases but one behind the last layer's attention."""
    d, n, norm = c.count("hidden_size"), c.count("num_attention_heads"), layernorm(c)
    depth, width = c.count("num_hidden_layers"), int(d * c.number("intermediate_multiple_size"))
    block = heads(n, n, d // n, position=rope(c, d // n))
    layer = {"norm": norm, "attention": block, "ffn": mlp(activation(c, "hidden_act"), width, False)}
    last = layer | {"attention": block | {"out_bias": True}}
    return decoder(c, [("layers", layer)] * (depth - 1) + [("last", last)], norm)


# OPTConfig
@family("opt", vocab_size=50272, hidden_size=768, num_hidden_layers=12, ffn_dim=3072,
        max_position_embeddings=2048, do_layer_norm_before=True, num_attention_heads=12,
        activation_function="relu", enable_bias=True, layer_norm_elementwise_affine=True,
        tie_word_embeddings=True, layer_norm_eps=1e-5)  # fmt: skip
def opt(c: Config) -> Doc:
    """OPT: GPT-3's layer with ReLU; the 350M one is post-norm with a narrower embedding."""
    c.only("layer_norm_elementwise_affine", True)
    c.only("_remove_final_layer_norm", False)
    c.only("enable_bias", True)
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    norm, before = layernorm(c), bool(c.get("do_layer_norm_before"))
    layer = {
        "norm": norm,
        **({} if before else {"placement": "post"}),
        "attention": heads(n, n, d // n, bias=True),
        "ffn": mlp(activation(c, "activation_function"), c.count("ffn_dim"), True),
    }
    positions: Doc = {"kind": "learned", "max": c.count("max_position_embeddings"), "offset": 2}
    embedding: Doc = {"positions": positions}
    width = c.count("word_embed_proj_dim", default=d)
    if width != d:
        c.only("tie_word_embeddings", True)
        embedding = {"factor": width, "positions": positions | {"after_projection": True}}
    return decoder(c, [("layers", layer)] * c.count("num_hidden_layers"), norm if before else None, embedding=embedding)


# BloomConfig
@family("bloom", vocab_size=250880, hidden_size=64, n_layer=2, n_head=8, layer_norm_epsilon=1e-5,
        tie_word_embeddings=True)  # fmt: skip
def bloom(c: Config) -> Doc:
    """BLOOM: ALiBi, and a norm on the embedding."""
    c.only("apply_residual_connection_post_layernorm", False)
    c.skip("slow_but_exact", "n_inner", "seq_length")
    d, n = c.count("hidden_size", "n_embed"), c.count("n_head", "num_attention_heads")
    norm = layernorm(c, "layer_norm_epsilon")
    attention = heads(n, n, d // n, bias=True, position={"kind": "alibi"})
    layer = {"norm": norm, "attention": attention, "ffn": mlp("gelu_tanh", 4 * d, True)}
    entries = [("layers", layer)] * c.count("n_layer", "num_hidden_layers")
    doc = decoder(c, entries, norm, embedding={"norm": norm}, context="seq_length", width="hidden_size")
    return doc | {"d_model": d}


# MptConfig
@family("mpt", d_model=2048, n_heads=16, n_layers=24, expansion_ratio=4, max_seq_len=2048, vocab_size=50368,
        layer_norm_epsilon=1e-5, tie_word_embeddings=True, attn_config={"alibi": True})  # fmt: skip
def mpt(c: Config) -> Doc:
    """MPT: ALiBi, no bias anywhere, norms included."""
    c.only("no_bias", True)
    c.only("logit_scale", None)
    c.skip("norm_type", "embedding_fraction", "ffn_config", "learned_pos_emb")
    spec = c.child("attn_config") or Config(c.defaults["attn_config"], {})
    spec.skip("attn_impl", "attn_pdrop", "attn_uses_sequence_id", "alibi_bias_max", "dtype", "is_encoder_decoder")
    spec.only("attn_type", "multihead_attention")
    spec.only("prefix_lm", False)
    spec.only("qk_ln", False)
    d, n = c.count("d_model"), c.count("n_heads")
    norm = layernorm(c, "layer_norm_epsilon", bias=False)
    attention = heads(n, n, d // n, **({"position": {"kind": "alibi"}} if spec.get("alibi", True) else {}))
    for key, field in (("clip_qkv", "clip"), ("softmax_scale", "scale")):
        if spec.get(key) is not None:
            attention[field] = spec.number(key)
    layer = {"norm": norm, "attention": attention, "ffn": mlp("gelu", c.count("expansion_ratio") * d, False)}
    return decoder(c, [("layers", layer)] * c.count("n_layers"), norm, context="max_seq_len", width="d_model")


# FalconConfig
@family("falcon", "RefinedWeb", "RefinedWebModel", vocab_size=65024, hidden_size=4544, num_hidden_layers=32,
        num_attention_heads=71, layer_norm_epsilon=1e-5, multi_query=True, parallel_attn=True, alibi=False,
        bias=False, new_decoder_architecture=False, max_position_embeddings=2048, activation="gelu",
        tie_word_embeddings=True)  # fmt: skip
def falcon(c: Config) -> Doc:
    """Falcon: MQA (7B) or grouped heads (the later architecture), branches in parallel."""
    d, n = c.count("hidden_size"), c.count("num_attention_heads", "n_head")
    later, norm = bool(c.get("new_decoder_architecture")), layernorm(c, "layer_norm_epsilon")
    c.only("apply_residual_connection_post_layernorm", False)
    # `num_kv_heads` counts in the later architecture alone; before it the choice is one head or all.
    c.skip("num_kv_heads", "n_head_kv", "multi_query", "num_ln_in_parallel_attn")
    n_kv = c.count("num_kv_heads", "n_head_kv", default=n) if later else (1 if c.get("multi_query") else n)
    bias = {"bias": True} if c.get("bias") else {}
    position = {"kind": "alibi"} if c.get("alibi") else rope(c, d // n)
    norms = c.get("num_ln_in_parallel_attn") or (2 if later else 1)
    parallel = {"parallel": "two_norms" if norms == 2 else "one_norm"} if c.get("parallel_attn") or later else {}
    attention = heads(n, n_kv, d // n, **bias, position=position)
    d_ff = c.count("ffn_hidden_size", default=4 * d)
    ffn = mlp(activation(c, "activation"), d_ff, bool(bias))
    entries = [("layers", {"norm": norm, **parallel, "attention": attention, "ffn": ffn})]
    return decoder(c, entries * c.count("num_hidden_layers", "n_layer"), norm)


# PhiConfig
@family("phi", vocab_size=51200, hidden_size=2048, intermediate_size=8192, num_hidden_layers=24,
        num_attention_heads=32, hidden_act="gelu_new", max_position_embeddings=2048, layer_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def phi(c: Config) -> Doc:
    """Phi-1 and Phi-2: one norm before both branches, biases everywhere, the head included."""
    c.only("qk_layernorm", False)
    d, n = c.count("hidden_size"), c.count("num_attention_heads")
    norm, n_kv = layernorm(c), c.count("num_key_value_heads", default=n)
    layer = {
        "norm": norm,
        "parallel": "one_norm",
        "attention": heads(n, n_kv, d // n, bias=True, position=rope(c, d // n)),
        "ffn": mlp(activation(c, "hidden_act"), c.count("intermediate_size"), True),
    }
    return decoder(c, [("layers", layer)] * c.count("num_hidden_layers"), norm, output=head(c, bias=True))
