"""Gemma 1 to 4, Gemma 3n with its AltUp, LAuReL and embeddings per layer among them."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import capped, d_head, layers, uniform
from archsim.importers.hf.families.registry import DEFAULTS, family
from archsim.importers.hf.parts import (
    attention,
    decoder,
    every,
    every_layer,
    glu,
    head,
    heads,
    layer_types,
    moe,
    rmsnorm,
    rope,
    sliding,
)
from archsim.importers.hf.pattern import Entry, difference, pattern, runs, shared

Doc = JsonObject
SCALED = {"scale": "sqrt_d_model"}
FULL = "full_attention"
LOCAL_THETA, GLOBAL_THETA, GLOBAL_SHARE = 10_000.0, 1_000_000.0, 0.25


def gelu(c: Config, **more: object) -> Doc:
    """The gated feed-forward layer. Old files say "gelu" and mean its tanh approximation."""
    c.only("hidden_act", "gelu", "gelu_pytorch_tanh")
    c.only("hidden_activation", "gelu_pytorch_tanh")
    return glu("gelu_tanh", c.count("intermediate_size"), **more)


def causal(c: Config) -> None:
    """Families without a bidirectional variant."""
    c.only("use_bidirectional_attention", False)
    c.only("attention_bias", False)


def looking_both_ways(c: Config, doc: Doc) -> Doc:
    """The document with masks that look both ways where the config says so; windows reach half as far to each side."""
    c.only("attention_bias", False)
    if not c.get("use_bidirectional_attention"):
        return doc

    def turned(block: Doc) -> Doc:
        mask = block.get("mask")
        near = {"kind": "sliding", "window": mask["window"] // 2 + 1, "bidirectional": True} if mask else None
        return block | {"mask": near or {"kind": "bidirectional"}}

    def changed(layer: Doc) -> Doc:
        return layer | ({"attention": turned(layer["attention"])} if "attention" in layer else {})

    return every_layer(doc, changed)


# GemmaConfig
@family("gemma", vocab_size=256000, hidden_size=3072, intermediate_size=24576, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=16, head_dim=256, max_position_embeddings=8192,
        rms_norm_eps=1e-6, tie_word_embeddings=True)  # fmt: skip
def gemma(c: Config) -> Doc:
    """Gemma: wide heads, GeGLU, embedding scaled by the root of the width. PaliGemma's looks both ways over a prompt,
    whose images and texts are all there before the answer.
    """
    c.skip("num_image_tokens")
    block = attention(c, position=rope(c, d_head(c)))
    return looking_both_ways(c, uniform(c, rmsnorm(c, offset=True), block, gelu(c), embedding=SCALED))


# Gemma2Config
@family("gemma2", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=8192,
        rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=4096, final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0, tie_word_embeddings=True)  # fmt: skip
def gemma2(c: Config) -> Doc:
    """Gemma 2: every second layer local, norms on both sides of a branch, capped scores and logits."""
    c.skip("cache_implementation")
    position = rope(c, d_head(c))
    block = _scaled(c) | capped(c, "attn_logit_softcapping") | {"position": position}
    types = layer_types(c, layers(c), every(layers(c), 2, "full_attention", "sliding_attention"))
    return _sandwich(c, {"full_attention": block, "sliding_attention": block | _near(c)}, types)


# Gemma3TextConfig
@family("gemma3_text", vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=131072,
        rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=4096, sliding_window_pattern=6,
        rope_local_base_freq=10000.0, rope_theta=1000000.0, tie_word_embeddings=True)  # fmt: skip
def gemma3(c: Config) -> Doc:
    """Gemma 3: five local layers to one global, each kind with rotary positions of its own."""
    c.skip("cache_implementation", "mm_tokens_per_image")
    block = _scaled(c) | {"qk_norm": rmsnorm(c, offset=True)} | capped(c, "attn_logit_softcapping")
    near, far = local_and_global(c)
    step = c.count("sliding_window_pattern", "_sliding_window_pattern")
    types = layer_types(c, layers(c), every(layers(c), step, "full_attention", "sliding_attention"))
    blocks = {"full_attention": block | {"position": far}, "sliding_attention": block | _near(c) | {"position": near}}
    if c.get("use_bidirectional_attention"):
        return _embedder(_sandwich(c, blocks, types))
    return _sandwich(c, blocks, types)


def _embedder(doc: Doc) -> Doc:
    """The same as an encoder (EmbeddingGemma): without an output matrix."""
    return {"architecture": "encoder", **{key: value for key, value in doc.items() if key != "head"}}


def local_and_global(c: Config) -> tuple[Doc, Doc]:
    """Rotary positions of local and global layers: nested by layer type, or two bases and one scaling."""
    nested = "full_attention" in (c.data.get("rope_parameters") or {})
    if nested:
        c.skip("rope_theta", "rope_local_base_freq")
        plain = Config({"rope_parameters": c.data["rope_parameters"]}, {})
        c.get("rope_parameters")
        return rope(plain, d_head(c), "sliding_attention"), rope(plain, d_head(c), "full_attention")
    theta = c.number("rope_local_base_freq")
    return {"kind": "rope", "theta": int(theta)}, rope(c, d_head(c))


def _scaled(c: Config) -> Doc:
    return attention(c) | {"scale": c.positive("query_pre_attn_scalar") ** -0.5}


def _near(c: Config) -> Doc:
    return {"mask": sliding(c.count("sliding_window"))}


def _sandwich(c: Config, blocks: dict[str, Doc], types: Sequence[str]) -> Doc:
    norm = rmsnorm(c, offset=True)
    base = {"norm": norm, "placement": "pre+post"}
    kinds = {t: base | {"attention": block, "ffn": gelu(c)} for t, block in blocks.items()}
    names = {"full_attention": "global", "sliding_attention": "local"}
    output = head(c) | capped(c, "final_logit_softcapping")
    doc = decoder(c, [(names[t], kinds[t]) for t in types], norm, embedding=SCALED, output=output)
    return looking_both_ways(c, doc)


# T5GemmaConfig
@family("t5gemma", vocab_size=256000)
def t5gemma(c: Config) -> Doc:
    """T5Gemma: Gemma 2 on both sides, with a table of tokens for each."""
    c.skip("classifier_dropout_rate", "dropout_rate")
    source, doc = (
        gemma2(Config(_gemma2_like(c, c.get(key) or {}), DEFAULTS["gemma2"])) for key in ("encoder", "decoder")
    )
    if source["d_model"] != doc["d_model"]:
        raise c.error("encoder", "the encoder is not as wide as the decoder")
    if source["vocab_size"] != doc["vocab_size"]:
        raise c.error("encoder", "the encoder's vocabulary is not as large as the decoder's")
    encoder = looking_both_ways(Config({"use_bidirectional_attention": True}, {}), source)
    halves = {key: encoder[key] for key in ("layer", "layers", "final_norm") if key in encoder}
    return {
        **doc,
        "architecture": "encoder-decoder",
        "encoder": {"own_table": True, "embedding": SCALED, **halves},
        **_with_cross_attention(doc),
    }


def _gemma2_like(c: Config, side: JsonMapping) -> Doc:
    """The config of a side, with what the outer one says of both."""
    names = ("vocab_size", "tie_word_embeddings")
    more = ("cross_attention_hidden_size", "model_type", "is_decoder", "use_cache", "dropout_rate")
    return {key: c.get(key) for key in names if c.get(key) is not None} | {
        key: value for key, value in side.items() if key not in more and value is not None
    }


def _with_cross_attention(doc: Doc) -> Doc:
    """Decoder layers that also attend to the encoder's output: as to themselves, without positions and windows."""

    def crossed(layer: Doc) -> Doc:
        if "layers" in layer:
            return layer | {"layers": [crossed(one) for one in layer["layers"]]}
        own = layer.get("attention") or doc.get("layer", {}).get("attention")
        if own is None:
            return layer
        return layer | {"cross_attention": {k: v for k, v in own.items() if k not in ("position", "mask")}}

    if "layer" in doc:
        return {"layer": crossed(doc["layer"])}
    return {"layers": [crossed(layer) for layer in doc["layers"]]}


# Gemma3nTextConfig
@family("gemma3n_text", vocab_size=262400, hidden_size=2048, intermediate_size=16384, num_hidden_layers=35,
        num_attention_heads=8, num_key_value_heads=2, head_dim=256, max_position_embeddings=32768,
        rms_norm_eps=1e-6, sliding_window=512, final_logit_softcapping=30.0,
        vocab_size_per_layer_input=262144, hidden_size_per_layer_input=256, altup_num_inputs=4,
        num_kv_shared_layers=15, laurel_rank=64, rope_theta=1000000.0, rope_local_base_freq=10000.0,
        tie_word_embeddings=True)  # fmt: skip
def gemma3n(c: Config) -> Doc:
    """Gemma 3n's text decoder."""
    causal(c)
    c.skip("altup_active_idx", "altup_coef_clip", "altup_correct_scale", "query_pre_attn_scalar",
           "altup_lr_multiplier", "attn_logit_softcapping")  # fmt: skip
    norm = rmsnorm(c)
    entries = _gemma3n_entries(c, norm)
    output = head(c, softcap=c.number("final_logit_softcapping"))
    doc = decoder(c, entries[:1], norm, output=output, embedding=SCALED | {"per_layer": _table(c, norm)})
    return _with_readers(doc, entries, _own_caches(c, [name for name, _ in entries]))


def _own_caches(c: Config, kinds: Sequence[str]) -> int:
    """The first layers, which have keys and values of their own; the others share those of the last of their kind."""
    own = len(kinds) - (c.get("num_kv_shared_layers") or 0)
    if not 0 < own <= len(kinds) or not set(kinds[own:]) <= set(kinds[:own]):
        raise c.error("num_kv_shared_layers", "no layer of the same kind has a cache to share")
    return own


def _with_readers(doc: Doc, entries: list[Entry], own: int) -> Doc:
    """The document with these layers, of which only the first `own` have keys and values of their own."""
    base = shared([layer for _, layer in entries])
    stacks = segments([(name, difference(layer, base)) for name, layer in entries], own)
    return {k: v for k, v in doc.items() if k != "head"} | {"layer": base, "layers": stacks, "head": doc["head"]}


def segments(entries: list[Entry], own: int) -> list[Doc]:
    """Groups of one pattern each: sparse activations, dense ones, readers of the second group's caches."""
    sparse = sum("sparsity" in layer.get("ffn", {}) for _, layer in entries[:own])
    result = [_segment("sparse", entries[:sparse])] if 0 < sparse < own else []
    result.append(_segment("own", entries[sparse if sparse < own else 0 : own]))
    last = result[-1]["layers"]
    readers = [
        (kind, layer | {"attention": layer.get("attention", {}) | {"kv_from": _owner(last, kind)}})
        for kind, layer in entries[own:]
    ]
    return result + ([_segment("shared", readers)] if readers else [])


def _segment(name: str, entries: list[Entry]) -> Doc:
    parts = pattern(entries)
    if len(parts) == 1 and "layers" in parts[0]:
        return {"name": name, **parts[0]}
    return {"name": name, "layers": runs(entries)}


def _owner(last: list[Doc], kind: str) -> str:
    """Path of the last layer of one kind that has a cache."""
    names: list[str] = [layer["name"] for layer in last if layer["name"].startswith(kind)]
    return "own." + names[-1]


def _gemma3n_entries(c: Config, norm: Doc) -> list[Entry]:
    """Every layer in full, as if each had its own keys and values."""
    n = layers(c)
    block = attention(c, scale=1.0, qk_norm=norm | {"value": True})
    near, far = local_and_global(c)
    kinds = {
        "full_attention": ("global", {"position": far}),
        "sliding_attention": ("local", {"position": near, "mask": sliding(c.count("sliding_window"))}),
    }
    more = {
        "altup": {"n": c.count("altup_num_inputs"), "norm": norm},
        "laurel": {"rank": c.count("laurel_rank"), "norm": norm},
        "per_layer_input": {"d": c.count("hidden_size_per_layer_input"), "norm": norm},
    }
    types = layer_types(c, n, every(n, 5, "full_attention", "sliding_attention"))
    result = []
    for kind, ffn in zip(types, _gemma3n_ffns(c, n), strict=True):
        name, own = kinds[kind]
        result.append((name, {"norm": norm, "placement": "pre+post", "attention": block | own, "ffn": ffn} | more))
    return result


def _gemma3n_ffns(c: Config, n: int) -> list[Doc]:
    """Feed-forward layers: one width or a list of them, some with a share of activations zeroed."""
    c.only("hidden_activation", "gelu_pytorch_tanh")
    widths = c.get("intermediate_size")
    widths = widths if isinstance(widths, list) else [c.count("intermediate_size")] * n
    sparse = c.listed("activation_sparsity_pattern", n)
    if sparse is None:
        sparse = [0.95 if n > 10 and i < 10 else 0.0 for i in range(n)]
    return [glu("gelu_tanh", w, **({"sparsity": s} if s else {})) for w, s in zip(widths, sparse, strict=True)]


def _table(c: Config, norm: Doc) -> Doc:
    return {
        "d": c.count("hidden_size_per_layer_input"),
        "vocab_size": c.count("vocab_size_per_layer_input"),
        "norm": norm,
    }


# Gemma4UnifiedTextConfig
@family("gemma4_unified_text", vocab_size=262144, hidden_size=2304, intermediate_size=9216, num_hidden_layers=30,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, global_head_dim=512, rms_norm_eps=1e-6,
        max_position_embeddings=262144, sliding_window=1024, hidden_size_per_layer_input=0,
        tie_word_embeddings=True)  # fmt: skip
def gemma4_unified(c: Config) -> Doc:
    """Gemma 4 12B: the same layers without embeddings of their own, under patches that no encoder looks at."""
    return gemma4(c)


# Gemma4TextConfig
@family("gemma4_text", vocab_size=262144, hidden_size=2304, intermediate_size=9216, num_hidden_layers=30,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, global_head_dim=512, rms_norm_eps=1e-6,
        max_position_embeddings=131072, sliding_window=512, vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256, tie_word_embeddings=True)  # fmt: skip
def gemma4(c: Config) -> Doc:
    """The text decoders, some with experts beside the feed-forward layer. Layers carry a fixed factor, which is no
    parameter and changes no cost.
    """
    c.only("use_bidirectional_attention", "vision")
    c.skip("num_experts", "top_k_experts", "moe_intermediate_size", "cache_implementation")
    n, norm = layers(c), rmsnorm(c)
    types = layer_types(c, n, every(n, 6, FULL, "sliding_attention"))
    types = [*types[:-1], FULL]
    own = _own_caches(c, types)
    entries, output = _gemma4_entries(c, types, own, norm), head(c) | capped(c, "final_logit_softcapping")
    c.skip("vocab_size_per_layer_input")
    embedding = SCALED | ({"per_layer": _table(c, norm)} if c.get("hidden_size_per_layer_input") else {})
    if own == n:
        return decoder(c, entries, norm, output=output, embedding=embedding)
    return _with_readers(decoder(c, entries[:1], norm, output=output, embedding=embedding), entries, own)


def _gemma4_entries(c: Config, types: list[str], own: int, norm: Doc) -> list[Entry]:
    """Every layer, as if each had its own keys and values."""
    wide = 2 if c.get("use_double_wide_mlp") else 1
    c.only("hidden_activation", "gelu_pytorch_tanh")
    blocks = {True: ("global", _global(c, types, norm)), False: ("local", _local(c, norm))}
    added = _per_layer(c, norm)
    entries = []
    for i, kind in enumerate(types):
        name, block = blocks[kind == FULL]
        ffn = glu("gelu_tanh", c.count("intermediate_size") * (wide if i >= own else 1))
        layer: Doc = {"norm": norm, "placement": "pre+post", "attention": block, "ffn": ffn} | added
        if c.get("enable_moe_block"):
            layer |= {"ffn": _gemma4_experts(c, ffn, norm), "ffn_norm": False}
        entries.append((name, layer))
    return entries


def _gemma4_experts(c: Config, ffn: Doc, norm: Doc) -> Doc:
    """Experts beside the feed-forward layer, each branch between norms of its own."""
    router: Doc = {"input_norm": norm, "expert_scale": True}
    expert = glu("gelu_tanh", c.count("moe_intermediate_size"))
    return moe(c.count("num_experts"), c.count("top_k_experts"), expert, router, dense=ffn, branch_norm=norm)


def _local(c: Config, norm: Doc) -> Doc:
    n = c.count("num_attention_heads")
    near = {"position": {"kind": "rope", "theta": _rope(c, "sliding_attention")[0]}}
    near["mask"] = sliding(c.count("sliding_window"))
    return heads(n, c.count("num_key_value_heads", default=n), c.count("head_dim"), **_normed(c, norm), **near)


def _global(c: Config, types: list[str], norm: Doc) -> Doc:
    """Global layers: heads of their own size, and fewer of keys where those serve as values."""
    n, kv = c.count("num_attention_heads"), c.count("num_key_value_heads")
    alike = bool(c.get("attention_k_eq_v"))
    size, own = c.count("global_head_dim"), c.get("num_global_key_value_heads")
    kv = c.count("num_global_key_value_heads") if alike and own is not None else kv
    size, kv = _listed(c, types, size, kv)
    theta, dim = _rope(c, FULL, size)
    position = {"kind": "rope", "theta": theta} | ({"dim": dim} if dim < size else {})
    same = {"keys_as_values": True} if alike else {}
    return heads(n, kv, size, **_normed(c, norm), position=position, **same)


def _listed(c: Config, types: list[str], size: int, kv: int) -> tuple[int, int]:
    """The same from `per_layer_config`, which newer files have: one entry for every global layer, all alike."""
    given = c.get("per_layer_config")
    if given is None and "per_layer_config" in c.data:
        raise c.error("per_layer_config", "null leaves the sizes of global layers undefined")
    if not given:
        return size, kv
    wanted = {i for i, kind in enumerate(types) if kind == FULL}
    alike = isinstance(given, dict) and {int(k) for k in given if str(k).isdecimal()} == wanted
    values = list(given.values()) if alike else []
    first = values[0] if values and isinstance(values[0], dict) else {}
    if not first or any(v != first for v in values) or not first.keys() <= {"head_dim", "num_key_value_heads"}:
        raise c.error(
            "per_layer_config", "only one size, the same for all global layers and for no others, is supported"
        )
    own = Config(first, {"head_dim": size, "num_key_value_heads": kv}, "per_layer_config.")
    return own.count("head_dim"), own.count("num_key_value_heads")


def _rope(c: Config, kind: str, size: int = 0) -> tuple[int, int]:
    """Base and rotated dimensions of one kind of layer; `proportional` leaves all but a share unrotated."""
    given = c.child("rope_parameters")
    own = given.child(kind) if given is not None and kind in given.data else None
    if given is not None:
        given.skip(FULL, "sliding_attention")
    usual = GLOBAL_THETA if kind == FULL else LOCAL_THETA
    if own is None:
        return int(usual), int(size * (GLOBAL_SHARE if kind == FULL else 1))
    own.only("rope_type", "default", "proportional")
    theta, share = own.get("rope_theta"), own.get("partial_rotary_factor")
    return int(usual if theta is None else theta), int(size * (1.0 if share is None else share))


def _normed(c: Config, norm: Doc) -> Doc:
    bias = {"bias": True} if c.get("attention_bias") else {}
    return {"scale": 1.0, "qk_norm": norm | {"value": True}} | bias


def _per_layer(c: Config, norm: Doc) -> Doc:
    size = c.get("hidden_size_per_layer_input")
    return {"per_layer_input": {"d": c.count("hidden_size_per_layer_input"), "norm": norm}} if size else {}
