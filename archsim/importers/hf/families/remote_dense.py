"""Dense families whose class comes with the checkpoint. Their keys and tensors are those that vLLM's and SGLang's
model files read (vLLM 0.7.3, 0.19 and 0.33, SGLang 0.5.23)."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import biased, d_head, gated, layers, llama, two_kinds, uniform
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import (
    attention,
    decoder,
    every,
    glu,
    head,
    heads,
    layer_types,
    layernorm,
    rmsnorm,
    rope,
    sliding,
)

Doc = JsonObject

COMMON = {
    "hidden_act": "silu", "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip
"""Defaults that nearly all of these classes share."""


# configuration_qwen.py of Qwen/Qwen-7B
@family("qwen", vocab_size=151936, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
        intermediate_size=22016, kv_channels=128, layer_norm_epsilon=1e-6, rotary_emb_base=10000, rotary_pct=1.0,
        max_position_embeddings=8192, no_bias=True, scale_attn_weights=True, tie_word_embeddings=False)  # fmt: skip
def qwen(c: Config) -> Doc:
    """Qwen 1: LLaMA with biases on queries, keys and values; its feed-forward width counts gate and up together."""
    c.skip("use_dynamic_ntk", "use_logn_attn", "onnx_safe", "softmax_in_fp32", "seq_length", "bf16", "fp16", "fp32",
           "use_cache_kernel", "use_cache_quantization", "n_layer", "quantization")  # fmt: skip
    c.only("no_bias", True)
    c.only("scale_attn_weights", True)
    c.only("rotary_pct", 1.0)
    n_heads, width = c.count("num_attention_heads"), c.count("kv_channels")
    c = c.changed(rope_theta=c.get("rotary_emb_base"))
    block = heads(n_heads, n_heads, width, qkv_bias=True, position=rope(c, width))
    ffn = glu("silu", c.count("intermediate_size") // 2)
    return uniform(c, rmsnorm(c, "layer_norm_epsilon"), block, ffn)


# configuration_internlm.py of internlm/internlm-20b
@family("internlm", vocab_size=103168, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, bias=True, **COMMON)  # fmt: skip
def internlm(c: Config) -> Doc:
    """InternLM: LLaMA, in its first size with biases on all four projections of attention."""
    c.skip("rotary")
    block = attention(c, **biased(c, "bias", bias=True), position=rope(c, d_head(c)))
    return uniform(c, rmsnorm(c), block, gated(c))


# configuration_aquila.py of BAAI/AquilaChat2-34B, configuration_xverse.py of xverse/XVERSE-65B
@family("aquila", "xverse", vocab_size=100008, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, **COMMON)  # fmt: skip
def aquila(c: Config) -> Doc:
    """Aquila and XVERSE: LLaMA."""
    c.skip("max_tokenizer_truncation", "rope_is_neox_style")
    return llama(c)


# configuration_orion.py of OrionStarAI/Orion-14B-Base
@family("orion", vocab_size=84608, hidden_size=4096, intermediate_size=15360, num_hidden_layers=40,
        num_attention_heads=40, **COMMON)  # fmt: skip
def orion(c: Config) -> Doc:
    """Orion: LLaMA with LayerNorm."""
    block = attention(c, **biased(c, "attention_bias", bias=True), position=rope(c, d_head(c)))
    return uniform(c, layernorm(c, "rms_norm_eps"), block, gated(c))


# configuration_telechat2.py of Tele-AI/TeleChat2-35B
@family("telechat", vocab_size=160256, hidden_size=4096, n_layer=30, n_head=32, layer_norm_epsilon=1e-5,
        ffn_hidden_size=12288, max_position_embeddings=8192, tie_word_embeddings=True)  # fmt: skip
def telechat(c: Config) -> Doc:
    """TeleChat: LLaMA under BLOOM's names; the last projections of both blocks have biases."""
    c.skip("base_seqlen", "training_seqlen", "seq_length", "flash_attn", "logn", "unk_token_id", "start_token_id",
           "hidden_act")  # fmt: skip
    for key in ("embed_layernorm", "apply_residual_connection_post_layernorm"):
        c.only(key, False)
    c = c.changed(
        num_hidden_layers=c.first("n_layer", "num_hidden_layers"), rms_norm_eps=c.get("layer_norm_epsilon"),
        num_attention_heads=c.first("n_head", "num_attention_heads"),
        max_position_embeddings=c.first("max_position_embeddings", "seq_length"),
    )  # fmt: skip
    block = attention(c, out_bias=True, position=rope(c, d_head(c)))
    return uniform(c, rmsnorm(c), block, glu("silu", c.count("ffn_hidden_size"), out_bias=True))


# configuration_teleflm.py of CofeAI/Tele-FLM
@family("TeleFLM", "teleflm", vocab_size=80000, hidden_size=8192, intermediate_size=21824, num_hidden_layers=64,
        num_attention_heads=64, use_mup=False, mup_scale_factor=1.0, output_mult=1.0, input_mult=1.0,
        **COMMON)  # fmt: skip
def teleflm(c: Config) -> Doc:
    """Tele-FLM: LLaMA with muP's factors on embedding and logits."""
    if not c.get("use_mup"):
        c.skip("mup_scale_factor", "output_mult", "input_mult")
        return llama(c)
    block = attention(c, **biased(c, "attention_bias", bias=True), position=rope(c, d_head(c)))
    output = head(c, scale=c.number("output_mult") / c.number("mup_scale_factor"))
    embedding = {"scale": c.number("input_mult")}
    ffn = gated(c, **biased(c, "mlp_bias", bias=True))
    return uniform(c, rmsnorm(c), block, ffn, embedding=embedding, output=output)


# configuration_step1.py of stepfun-ai's Step-1 models
@family("step1", vocab_size=65536, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, num_attention_groups=1, **COMMON)  # fmt: skip
def step1(c: Config) -> Doc:
    """Step-1: LLaMA with distances subtracted from scores, after their root was taken, instead of rotations."""
    c.skip("rope_theta", "rope_parameters", "rope_scaling", "max_seq_len")
    groups = c.count("num_attention_groups", "num_key_value_heads", "num_groups")
    c = c.changed(num_key_value_heads=groups)
    block = attention(c, **biased(c, "attention_bias", bias=True), position={"kind": "alibi"})
    return uniform(c, rmsnorm(c), block, gated(c, **biased(c, "mlp_bias", bias=True)))


# configuration_openpangu_dense.py of FreedomIntelligence/openPangu-Embedded-7B
@family("PanguEmbedded", "pangu_embedded", vocab_size=153376, hidden_size=4096, intermediate_size=12800,
        num_hidden_layers=34, num_attention_heads=32, num_key_value_heads=8, bias=True, **COMMON)  # fmt: skip
def pangu_embedded(c: Config) -> Doc:
    """openPangu Embedded: LLaMA with biases on the projections of attention."""
    for key in ("param_sink_number", "sandwich_norm"):
        c.only(key, 0, False)
    biases = {"bias": True} if c.get("attention_bias") or c.get("bias") else {}
    if "qkv_bias" in c.data:
        biases["qkv_bias"] = bool(c.get("qkv_bias"))
    block = attention(c, **biases, position=rope(c, d_head(c)))
    return uniform(c, rmsnorm(c), block, gated(c, **biased(c, "mlp_bias", bias=True)))


# configuration_plamo.py of pfnet/plamo-3-nict-8b-base
@family("plamo3", vocab_size=32000, hidden_size=4096, intermediate_size=13312, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, rope_theta=1000000, rope_local_theta=10000,
        sliding_window_pattern=8, max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=False,
        window_size=2048)  # fmt: skip
def plamo3(c: Config) -> Doc:
    """PLaMo 3: norms on both sides of every block and on queries and keys, some layers with a window."""
    c.skip("linear_type", "hidden_act", "eval_attention_n_bit", "eval_mlp_n_bit", "mamba_chunk_size",
           "full_attention_idx", "interleaved_sliding_window", "use_predefined_initial_state", "use_cache")  # fmt: skip
    n, norm, step = layers(c), rmsnorm(c, offset=True), c.count("sliding_window_pattern")
    windows = c.get("sliding_window")
    if isinstance(windows, list):
        given = ["full_attention" if w is None else "sliding_attention" for w in c.listed("sliding_window", n) or ()]
        width = max((w for w in windows if isinstance(w, int)), default=0)
    else:
        given, width = every(n, step, "full_attention", "sliding_attention"), c.count("sliding_window", "window_size")
    c.skip("window_size")
    types = layer_types(c, n, given)
    base = {"norm": norm, "placement": "pre+post", "attention": attention(c, qk_norm=norm),
            "ffn": glu("silu", c.count("intermediate_size"))}  # fmt: skip
    local = {"kind": "rope", "theta": c.number("rope_local_theta")}
    far = {"position": rope(c, d_head(c), "full_attention")}
    return two_kinds(c, base, {"position": local, "mask": sliding(width)} if width else far, far, types)


# configuration_spark2_5.py in SGLang
@family("spark2_5", hidden_size=2048, intermediate_size=6656, num_attention_heads=8, num_key_value_heads=2,
        num_hidden_layers=28, head_dim=256, headwise_attn_output_gate=True, sliding_window=512, vocab_size=133120,
        rms_norm_eps=1e-6, max_position_embeddings=8192, hidden_act="silu", tie_word_embeddings=False,
        rope_parameters={"full_attention": {"rope_theta": 5000000, "partial_rotary_factor": 0.25},
                         "sliding_attention": {"rope_theta": 10000, "partial_rotary_factor": 1.0}})  # fmt: skip
def spark(c: Config) -> Doc:
    """Spark 2.5: a gate for each head, three layers with a window to one that rotates a quarter of each head."""
    for key in ("attention_bias", "mlp_bias"):
        c.only(key, False)
    c.only("gate_attn_act_mode", "sigmoid")
    n, norm = layers(c), rmsnorm(c)
    gate = {"gate": {"per": "head"}} if c.get("headwise_attn_output_gate") else {}
    base = {"norm": norm, "attention": attention(c, **gate), "ffn": gated(c)}
    near = {"position": rope(c, d_head(c), "sliding_attention"), "mask": sliding(c.count("sliding_window"))}
    far = {"position": rope(c, d_head(c), "full_attention")}
    types = layer_types(c, n, every(n, 4, "full_attention", "sliding_attention"))
    return two_kinds(c, base, near, far, types)


# configuration_phi3_small.py of microsoft/Phi-3-small-8k-instruct
@family("phi3small", vocab_size=100352, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, ff_intermediate_size=14336, gegelu_limit=20.0, max_position_embeddings=8192,
        layer_norm_epsilon=1e-5, rope_embedding_base=1000000, rope_position_scale=1.0, mup_use_scaling=True,
        mup_width_multiplier=8.0, mup_attn_multiplier=1.0, mup_embedding_multiplier=10.0,
        dense_attention_every_n_layers=2, blocksparse_block_size=64, blocksparse_num_local_blocks=16,
        blocksparse_vert_stride=8, tie_word_embeddings=True)  # fmt: skip
def phi3_small(c: Config) -> Doc:
    """Phi-3 Small: biases throughout, muP's factors, a gate whose operands are bounded; some layers attend to near
    blocks and to every so many of those before them.
    """
    c.skip("attention_bias", "blocksparse_homo_head_pattern", "blocksparse_triton_kernel_block_size",
           "gegelu_pad_to_256", "pad_sequence_to_multiple_of_64", "reorder_and_upcast_attn", "hidden_act")  # fmt: skip
    c.only("ff_dim_multiplier", None)
    c.only("mup_use_scaling", True)
    c.only("rope_position_scale", 1.0)
    n, norm, width = layers(c), layernorm(c, "layer_norm_epsilon"), d_head(c)
    c = c.changed(rope_theta=c.get("rope_embedding_base"))
    block = attention(c, bias=True, scale=c.number("mup_attn_multiplier") / width, position=rope(c, width))
    size = c.count("blocksparse_block_size")
    sparse = {"kind": "block_sparse", "window": size * c.count("blocksparse_num_local_blocks"), "block": size,
              "vertical": c.count("blocksparse_vert_stride")}  # fmt: skip
    ffn = {"kind": "geglu", "d_ff": c.count("ff_intermediate_size"), "bias": True, "clamp": c.number("gegelu_limit"),
           "alpha": 1.702}  # fmt: skip
    kinds = {
        True: ("dense", {"norm": norm, "attention": block, "ffn": ffn}),
        False: ("sparse", {"norm": norm, "attention": block | {"mask": sparse}, "ffn": ffn}),
    }
    step = n + 1
    if c.get("dense_attention_every_n_layers") is not None:
        step = c.count("dense_attention_every_n_layers")
    entries = [kinds[(i + 1) % step == 0] for i in range(n)]
    output = head(c, scale=1 / c.number("mup_width_multiplier"))
    return decoder(c, entries, norm, embedding={"scale": c.number("mup_embedding_multiplier")}, output=output)


# configuration_ouro.py of ByteDance/Ouro-1.4B
@family("ouro", vocab_size=49152, hidden_size=2048, intermediate_size=5632, num_hidden_layers=24,
        num_attention_heads=16, total_ut_steps=4, early_exit_threshold=1.0, use_sliding_window=False,
        hidden_act="silu", max_position_embeddings=65536, rms_norm_eps=1e-6, tie_word_embeddings=False)  # fmt: skip
def ouro(c: Config) -> Doc:
    """Ouro: all layers run several times with the same weights and caches of their own, a norm and the score of
    an exit behind each round.
    """
    c.skip("early_exit_threshold", "early_exit_step", "sliding_window", "max_window_layers", "layer_types")
    c.only("use_sliding_window", False)
    norm = rmsnorm(c)
    block = attention(c, position=rope(c, d_head(c)))
    layer = {"norm": norm, "placement": "pre+post", "attention": block, "ffn": gated(c)}
    return _looped(c, layer, c.count("total_ut_steps"), {"round_norm": norm, "exit_score": True})


# configuration_nanbeige.py in SGLang
@family("nanbeige", vocab_size=166144, hidden_size=3072, intermediate_size=10752, num_hidden_layers=22,
        num_attention_heads=48, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_theta=50000.0, num_loops=2, skip_loop_final_norm=False)  # fmt: skip
def nanbeige(c: Config) -> Doc:
    """Nanbeige: LLaMA whose layers run twice, with a norm after each round."""
    c.skip("loop_loss_weights")
    c.only("kv_channels", d_head(c))
    norm = rmsnorm(c)
    block = attention(c, **biased(c, "attention_bias", bias=True), position=rope(c, d_head(c)))
    layer = {"norm": norm, "attention": block, "ffn": gated(c)}
    again = {} if c.get("skip_loop_final_norm") else {"round_norm": norm}
    return _looped(c, layer, c.count("num_loops"), again)


def _looped(c: Config, layer: Doc, times: int, more: Doc) -> Doc:
    """A decoder whose layers run several times with the same weights."""
    doc = decoder(c, [("layers", layer)] * layers(c), None if "round_norm" in more else layer["norm"])
    inner = [{"name": "layers", **doc["layers"][0]}]
    return doc | {"layers": [{"name": "rounds", "repeat": times, "shared_weights": True, "layers": inner, **more}]}
