"""LLaMA and the dense decoders that vary its layer."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import DEFAULTS, family
from archsim.importers.hf.parts import (  # fmt: skip
    activation,
    attention,
    decoder,
    every,
    glu,
    head,
    head_dim,
    layer_types,
    layernorm,
    mlp,
    rmsnorm,
    rope,
    sliding,
)
from archsim.importers.hf.pattern import Entry

Doc = JsonObject


def layers(c: Config) -> int:
    """How many layers."""
    return c.count("num_hidden_layers")


def d_head(c: Config) -> int:
    """Size of a head."""
    return head_dim(c, c.count("num_attention_heads"))


def gated(c: Config, **more: object) -> Doc:
    """The gated feed-forward layer of the whole family."""
    return glu(activation(c, "hidden_act", "hidden_activation"), c.count("intermediate_size"), **more)


def biased(c: Config, key: str, **to: object) -> Doc:
    """`to`, where the config switches a bias on."""
    return to if c.get(key) else {}


def rotary(c: Config, **more: object) -> Doc:
    """Attention with rotary positions, and with biases where `attention_bias` says so."""
    return attention(c, **biased(c, "attention_bias", bias=True), **more, position=rope(c, d_head(c)))


def plain(c: Config) -> Doc:
    """The feed-forward layer of two matrices."""
    return mlp(activation(c, "hidden_act"), c.count("intermediate_size"), bool(c.get("mlp_bias")))


def window(c: Config) -> Doc:
    """The mask of `sliding_window`, where there is one."""
    return {"mask": sliding(c.count("sliding_window"))} if c.get("sliding_window") else {}


def capped(c: Config, key: str) -> Doc:
    """A soft cap, where the config has one."""
    return {"softcap": c.number(key)} if c.get(key) is not None else {}


def uniform(
    c: Config, norm: Doc, block: Doc, ffn: Doc, *, output: Doc | None = None, embedding: Doc | None = None,
    **more: object,
) -> Doc:  # fmt: skip
    """A decoder whose layers are all alike; `more` is what else a layer has."""
    layer = {"norm": norm, **more, "attention": block, "ffn": ffn}
    return decoder(c, [("layers", layer)] * layers(c), norm, output=output, embedding=embedding)


def two_kinds(
    c: Config, base: Doc, near: Doc, far: Doc, types: list[str], *,
    output: Doc | None = None, embedding: Doc | None = None,
) -> Doc:  # fmt: skip
    """A decoder of local and global layers; `near` and `far` are what their attention has beside the base's."""
    block = base["attention"]
    kinds = {
        "sliding_attention": ("local", base | {"attention": block | near}),
        "full_attention": ("global", base | {"attention": block | far}),
    }
    return decoder(c, [kinds[t] for t in types], base["norm"], output=output, embedding=embedding)


def mtp(n: int | None, layer: Doc) -> Doc:
    """Multi-token prediction modules with one layer each, where there are any."""
    if not n:
        return {}
    return {"mtp": ({"n": n} if n > 1 else {}) | {"norm": layer["norm"], "layer": layer}}


# LlamaConfig
@family("llama", vocab_size=32000, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-6,
        tie_word_embeddings=False)  # fmt: skip
def llama(c: Config) -> Doc:
    """LLaMA: RMSNorm, rotary positions, SwiGLU."""
    return uniform(c, rmsnorm(c), rotary(c), gated(c, **biased(c, "mlp_bias", bias=True)))


# MistralConfig
@family("mistral", vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-6, sliding_window=4096, tie_word_embeddings=False)  # fmt: skip
def mistral(c: Config) -> Doc:
    """Mistral: LLaMA with a sliding window in every layer, unless it is null."""
    return uniform(c, rmsnorm(c), attention(c, position=rope(c, d_head(c))) | window(c), gated(c))


# Qwen2Config
@family("qwen2", vocab_size=151936, hidden_size=4096, intermediate_size=22016, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=32768, rms_norm_eps=1e-6,
        use_sliding_window=False, sliding_window=4096, max_window_layers=28,
        tie_word_embeddings=False)  # fmt: skip
def qwen2(c: Config) -> Doc:
    """Qwen 1.5 to 2.5: biases on the projections to queries, keys and values."""
    c.skip("dual_chunk_attention_config")  # other positions for the same keys
    return _qwen(c, attention(c, qkv_bias=True, position=rope(c, d_head(c))))


# Qwen3Config
@family("qwen3", vocab_size=151936, hidden_size=4096, intermediate_size=22016,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=32, head_dim=128, hidden_act="silu",
        max_position_embeddings=32768, rms_norm_eps=1e-6, use_sliding_window=False, sliding_window=4096,
        max_window_layers=28, tie_word_embeddings=False)  # fmt: skip
def qwen3(c: Config) -> Doc:
    """Qwen3: normed queries and keys instead of biases."""
    return _qwen(c, rotary(c, qk_norm=rmsnorm(c)))


family("qwen3_vl_text", **DEFAULTS["qwen3"], rope_theta=500000.0)(qwen3)


def _qwen(c: Config, block: Doc) -> Doc:
    """Layers with and, from `max_window_layers` on, without full attention."""
    n, norm = layers(c), rmsnorm(c)
    windows = windowed(c, n)
    full = {"norm": norm, "attention": block, "ffn": gated(c)}
    local = full | {"attention": block | {"mask": sliding(windows[1])}} if windows[1] else full
    names = {"full_attention": ("full", full), "sliding_attention": ("local", local)}
    return decoder(c, [names[t] for t in windows[0]], norm)


def windowed(c: Config, n: int) -> tuple[list[str], int]:
    """Layer types and window: a window counts only beside `use_sliding_window`."""
    c.only("use_mrope", False)
    c.skip("sliding_window", "max_window_layers", "layer_types")
    if not c.get("use_sliding_window") or not c.get("sliding_window"):
        return ["full_attention"] * n, 0
    first = c.get("max_window_layers") or 0
    default = ["sliding_attention" if i >= first else "full_attention" for i in range(n)]
    return layer_types(c, n, default), c.count("sliding_window")


# OlmoConfig
@family("olmo", vocab_size=50304, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048,
        tie_word_embeddings=False)  # fmt: skip
def olmo(c: Config) -> Doc:
    """OLMo: LLaMA with a norm that has no parameters."""
    c.skip("rms_norm_eps")
    norm = {"kind": "layernorm", "eps": 1e-5, "affine": False}
    clip = {} if c.get("clip_qkv") is None else {"clip": c.number("clip_qkv")}
    return uniform(c, norm, rotary(c) | clip, gated(c))


# Olmo2Config
@family("olmo2", vocab_size=50304, hidden_size=4096, intermediate_size=11008, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-5,
        tie_word_embeddings=False)  # fmt: skip
def olmo2(c: Config) -> Doc:
    """OLMo 2: norms on the branches' outputs, and over the whole query and key projections."""
    norm = rmsnorm(c)
    return uniform(c, norm, rotary(c, qk_norm=norm | {"over": "all"}), gated(c), placement="post_inside")


# Phi3Config
@family("phi3", vocab_size=32064, hidden_size=3072, intermediate_size=8192, num_hidden_layers=32,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=4096, rms_norm_eps=1e-5,
        tie_word_embeddings=False)  # fmt: skip
def phi3(c: Config) -> Doc:
    """Phi-3 and Phi-4: LLaMA with fused projections, and a window in all layers of some."""
    position = rope(c, d_head(c))
    original = c.get("original_max_position_embeddings")
    if "scaling" in position and original:
        position["scaling"] = {"original_max": original} | position["scaling"]
    c.skip("attention_bias", "mlp_bias")
    for key in ("full_attn_mod", "interpolate_factor"):  # of Phi-4-mini: every layer attends to everything
        c.only(key, 1)
    return uniform(c, rmsnorm(c), attention(c, position=position) | window(c), gated(c))


# NemotronConfig
@family("nemotron", vocab_size=256000, hidden_size=6144, intermediate_size=24576, num_hidden_layers=32,
        num_attention_heads=48, hidden_act="relu2", max_position_embeddings=4096, norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def nemotron(c: Config) -> Doc:
    """Nemotron-4: LayerNorm whose weight is stored less one, squared ReLU without a gate."""
    c.skip("rope_percent", "rotary_percent")
    return uniform(c, layernorm(c, "norm_eps", offset=True), rotary(c), plain(c))


# GlmConfig
@family("glm", vocab_size=151552, hidden_size=4096, intermediate_size=13696, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=2, head_dim=128, hidden_act="silu",
        max_position_embeddings=131072, rms_norm_eps=1.5625e-07, attention_bias=True,
        tie_word_embeddings=False,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.5})  # fmt: skip
def glm(c: Config) -> Doc:
    """GLM-4: half of each head rotated in neighbouring pairs, biases on queries, keys and values."""
    position = rope(c, d_head(c), interleaved=True)
    block = attention(c, **biased(c, "attention_bias", qkv_bias=True), position=position)
    return uniform(c, rmsnorm(c), block, gated(c))


# CohereConfig
@family("cohere", vocab_size=256000, hidden_size=8192, intermediate_size=22528, logit_scale=0.0625,
        num_hidden_layers=40, num_attention_heads=64, hidden_act="silu", max_position_embeddings=8192,
        layer_norm_eps=1e-5, tie_word_embeddings=True, rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def cohere(c: Config) -> Doc:
    """Command R: parallel branches behind a norm without bias."""
    norm = layernorm(c, bias=False)
    block = attention(c, **biased(c, "attention_bias", bias=True))
    if c.get("use_qk_norm"):
        block["qk_norm"] = norm | {"over": "heads"}
    block["position"] = rope(c, d_head(c), interleaved=True)
    return uniform(c, norm, block, gated(c), parallel="one_norm", output=head(c, scale=c.number("logit_scale")))


COHERE = ("layer_switch", "order_of_interleaved_layers", "use_embedding_sharing", "use_parallel_block",
          "use_parallel_embedding", "cache_implementation", "sliding_window_pattern",
          "_sliding_window_pattern")  # fmt: skip
"""Keys of Cohere's released files that its classes do not read, or not beside `layer_types`."""


def cohere_usual(c: Config) -> None:
    """Refuse what Cohere's own code could do and no released file asks for."""
    c.skip(*COHERE)
    c.only("position_embedding_type", "rope_gptj")
    c.only("rotary_pct", 1.0)
    c.only("rope_style", "interleave")
    c.only("use_gated_activation", True)
    c.only("use_qk_norm", False)
    c.only("norm_type", "layer_norm")
    c.only("transformer_block_type", "parallel")


# Cohere2Config
@family("cohere2", vocab_size=256000, hidden_size=8192, intermediate_size=22528, logit_scale=0.0625,
        num_hidden_layers=40, num_attention_heads=64, hidden_act="silu", max_position_embeddings=8192,
        layer_norm_eps=1e-5, sliding_window=4096, sliding_window_pattern=4,
        tie_word_embeddings=True)  # fmt: skip
def cohere2(c: Config) -> Doc:
    """Command A: three layers with a window and rotary positions, one with neither."""
    cohere_usual(c)
    c.skip("rms_norm_eps")
    n, norm = layers(c), layernorm(c, bias=False)
    block = attention(c, **biased(c, "attention_bias", bias=True))
    base = {"norm": norm, "parallel": "one_norm", "attention": block, "ffn": gated(c)}
    near = {"position": rope(c, d_head(c), interleaved=True), "mask": sliding(c.count("sliding_window"))}
    step = c.count("sliding_window_pattern", "_sliding_window_pattern")
    types = layer_types(c, n, every(n, step, "full_attention", "sliding_attention"))
    return two_kinds(c, base, near, {}, types, output=head(c, scale=c.number("logit_scale")))


# SmolLM3Config
@family("smollm3", vocab_size=128256, hidden_size=2048, intermediate_size=11008, num_hidden_layers=36,
        num_attention_heads=16, num_key_value_heads=4, hidden_act="silu", max_position_embeddings=32768,
        rms_norm_eps=1e-6, tie_word_embeddings=True, no_rope_layer_interval=4, use_sliding_window=False,
        rope_parameters={"rope_theta": 2000000.0})  # fmt: skip
def smollm3(c: Config) -> Doc:
    """SmolLM3: every fourth layer without positions."""
    c.only("use_sliding_window", False)
    c.skip("sliding_window", "layer_types", "max_window_layers")
    n, norm = layers(c), rmsnorm(c)
    block = attention(c, **biased(c, "attention_bias", bias=True))
    base = {"norm": norm, "attention": block, "ffn": gated(c, **biased(c, "mlp_bias", bias=True))}
    rotated = base | {"attention": block | {"position": rope(c, d_head(c))}}
    entries = [("rope", rotated) if r else ("nope", base) for r in rotated_layers(c, n)]
    return decoder(c, entries, norm)


def rotated_layers(c: Config, n: int) -> list[bool]:
    """Which layers have rotary positions: a list of flags, else all but every so many."""
    c.skip("no_rope_layer_interval")
    flags = c.listed("no_rope_layers", n) if c.get("no_rope_layers") else None
    step = c.count("no_rope_layer_interval")
    return [bool(f) for f in flags] if flags else [(i + 1) % step != 0 for i in range(n)]


# DeciLMConfig, which checkpoints bring along
@family("nemotron-nas", num_attention_heads=64, hidden_act="silu", max_position_embeddings=131072, rms_norm_eps=1e-5,
        tie_word_embeddings=False, rope_theta=500000.0)  # fmt: skip
def nemotron_nas(c: Config) -> Doc:
    """LLaMA whose layers a search made unlike each other: fewer key/value heads, other widths, or no attention."""
    c.skip("intermediate_size", "num_key_value_heads")
    norm, act = rmsnorm(c), activation(c, "hidden_act")
    entries = []
    for i, given in enumerate(c.listed("block_configs", layers(c)) or ()):
        found = Config(given, {}, f"block_configs[{i}].")
        c.children.append(found)
        name, layer = _searched(c, found, norm, act)
        entries += [(name, layer)] if name else []
    return decoder(c, entries, norm)


def _searched(c: Config, block: Config, norm: Doc, act: str) -> Entry:
    """One layer of a search: its attention and its feed-forward network. Either may be missing; without both it has no
    name.
    """
    layer: Doc = {"norm": norm}
    parts = {name: block.child(name) for name in ("attention", "ffn")}
    names = []
    for name, part in parts.items():
        if part is None:
            raise block.error(name, "missing")
        part.only("replace_with_linear", False)
        part.only("sparsify", None)
        if part.get("no_op"):
            part.skip(*part.data)
        elif name == "attention":
            part.only("num_sink_tokens", None)
            part.only("window_length", None)
            part.skip("unshifted_sink", "use_prefill_window_in_sink_attention")
            groups = part.count("n_heads_in_group")
            found = c.changed(num_key_value_heads=c.count("num_attention_heads") // groups)
            layer["attention"] = rotary(found)
            names.append(f"groups_of_{groups}")
        else:
            wanted = int(2 * part.number("ffn_mult") * c.count("hidden_size") / 3)
            width = -(-wanted // WIDTHS) * WIDTHS
            layer["ffn"] = glu(act, width, **biased(c, "mlp_bias", bias=True))
            names.append(f"ffn_{width}")
    return "_".join(names), layer


WIDTHS = 256
"""What widths of searched feed-forward networks are multiples of."""


# MllamaTextConfig
@family("mllama_text_model", vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=40,
        num_attention_heads=32, num_key_value_heads=8, hidden_act="silu", max_position_embeddings=131072,
        rms_norm_eps=1e-5, tie_word_embeddings=False, cross_attention_layers=(3, 8, 13, 18, 23, 28, 33, 38),
        rope_parameters={"rope_theta": 500000.0})  # fmt: skip
def mllama(c: Config) -> Doc:
    """Llama 3.2 Vision: LLaMA, and layers between that attend to images, which texts pass by."""
    n, norm, across = layers(c), rmsnorm(c), set(c.get("cross_attention_layers"))
    plain = {"norm": norm, "attention": rotary(c), "ffn": gated(c)}
    looking = {"attention": attention(c, qk_norm=norm), "for_images": True, "layer_scale": "one"}
    entries = [("images", plain | looking) if i in across else ("layers", plain) for i in range(n)]
    return decoder(c, entries, norm, embedding={"input_rows": c.count("vocab_size") + 8})


# DiffLlamaConfig
@family("diffllama", vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
        num_attention_heads=32, hidden_act="silu", max_position_embeddings=2048, rms_norm_eps=1e-5,
        tie_word_embeddings=False, attention_bias=False)  # fmt: skip
def diffllama(c: Config) -> Doc:
    """LLaMA with differential attention."""
    c.skip("lambda_std_dev")
    n_heads = c.count("num_attention_heads")
    block = {
        "kind": "differential", "n_heads": n_heads, "n_kv_heads": c.count("num_key_value_heads", default=n_heads),
        "d_head": d_head(c), **biased(c, "attention_bias", bias=True), "eps": c.number("rms_norm_eps"),
        "position": rope(c, d_head(c)),
    }  # fmt: skip
    return uniform(c, rmsnorm(c), block, gated(c))
