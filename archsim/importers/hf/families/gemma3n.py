"""Gemma 3n: AltUp, LAuReL, per-layer embeddings, and last layers without keys and values of their own."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.gemma import SCALED, causal, local_and_global
from archsim.importers.hf.families.llama import layers
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import attention, decoder, every, glu, head, layer_types, rmsnorm, sliding
from archsim.importers.hf.pattern import Entry, difference, pattern, runs, shared

Doc = JsonObject


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
    entries = _entries(c, norm)
    doc = decoder(c, entries[:1], norm, output=_head(c), embedding=SCALED | {"per_layer": _table(c, norm)})
    base = shared([layer for _, layer in entries])
    own = layers(c) - (c.get("num_kv_shared_layers") or 0)
    stacks = segments([(name, difference(layer, base)) for name, layer in entries], own)
    return {k: v for k, v in doc.items() if k != "head"} | {"layer": base, "layers": stacks, "head": doc["head"]}


def segments(entries: list[Entry], own: int) -> list[Doc]:
    """Groups of one pattern each: sparse activations, dense ones, readers of the second group's caches."""
    sparse = sum("sparsity" in layer.get("ffn", {}) for _, layer in entries[:own])
    result = [_segment("sparse", entries[:sparse])] if 0 < sparse < own else []
    result.append(_segment("own", entries[sparse if sparse < own else 0 : own]))
    last = result[-1]["layers"]
    readers = [(kind, _reading(layer, _owner(last, kind))) for kind, layer in entries[own:]]
    return result + ([_segment("shared", readers)] if readers else [])


def _segment(name: str, entries: list[Entry]) -> Doc:
    parts = pattern(entries)
    if len(parts) == 1 and "layers" in parts[0]:
        return {"name": name, **parts[0]}
    return {"name": name, "layers": runs(entries)}


def _reading(layer: Doc, owner: str) -> Doc:
    return layer | {"attention": layer.get("attention", {}) | {"kv_from": owner}}


def _owner(last: list[Doc], kind: str) -> str:
    """Path of the last layer of one kind that has a cache."""
    names: list[str] = [layer["name"] for layer in last if layer["name"].startswith(kind)]
    return "own." + names[-1]


def _entries(c: Config, norm: Doc) -> list[Entry]:
    """Every layer in full, as if each had its own keys and values."""
    n = layers(c)
    block = attention(c, scale=1.0, qk_norm=norm | {"value": True})
    near, far = local_and_global(c)
    kinds = {
        "full_attention": ("global", {"position": far}),
        "sliding_attention": ("local", {"position": near, "mask": sliding(c.count("sliding_window"))}),
    }
    types = layer_types(c, n, every(n, 5, "full_attention", "sliding_attention"))
    ffns, result = _ffns(c, n), []
    for i, kind in enumerate(types):
        name, more = kinds[kind]
        result.append((name, _layer(c, norm, block | more, ffns[i])))
    return result


def _layer(c: Config, norm: Doc, block: Doc, ffn: Doc) -> Doc:
    return {
        "norm": norm,
        "placement": "pre+post",
        "attention": block,
        "ffn": ffn,
        "altup": {"n": c.count("altup_num_inputs"), "norm": norm},
        "laurel": {"rank": c.count("laurel_rank"), "norm": norm},
        "per_layer_input": {"d": c.count("hidden_size_per_layer_input"), "norm": norm},
    }


def _ffns(c: Config, n: int) -> list[Doc]:
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


def _head(c: Config) -> Doc:
    return head(c, softcap=c.number("final_logit_softcapping"))
