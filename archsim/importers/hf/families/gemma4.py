"""Gemma 4: wider global layers, keys that serve as values, embeddings per layer, last layers without a cache."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.gemma import SCALED
from archsim.importers.hf.families.gemma3n import segments
from archsim.importers.hf.families.llama import layers
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import decoder, every, glu, head, heads, layer_types, rmsnorm, sliding
from archsim.importers.hf.pattern import Entry, difference, shared

Doc = JsonObject
FULL = "full_attention"
LOCAL_THETA, GLOBAL_THETA, GLOBAL_SHARE = 10_000.0, 1_000_000.0, 0.25


# Gemma4TextConfig
@family("gemma4_text", vocab_size=262144, hidden_size=2304, intermediate_size=9216, num_hidden_layers=30,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, global_head_dim=512, rms_norm_eps=1e-6,
        max_position_embeddings=131072, sliding_window=512, vocab_size_per_layer_input=262144,
        hidden_size_per_layer_input=256, tie_word_embeddings=True)  # fmt: skip
def gemma4(c: Config) -> Doc:
    """The text decoders without experts. Layers carry a fixed factor, which is no parameter and changes no cost."""
    c.only("enable_moe_block", False)
    c.only("use_bidirectional_attention", "vision")
    c.skip("num_experts", "top_k_experts", "moe_intermediate_size", "cache_implementation")
    n, norm = layers(c), rmsnorm(c)
    own = n - (c.get("num_kv_shared_layers") or 0)
    entries = _entries(c, n, own, norm)
    capped = {"softcap": c.number("final_logit_softcapping")} if c.get("final_logit_softcapping") else {}
    table = _table(c, norm)
    embedding = SCALED | ({"per_layer": table} if table else {})
    if own == n:
        return decoder(c, entries, norm, output=head(c, **capped), embedding=embedding)
    doc = decoder(c, entries[:1], norm, output=head(c, **capped), embedding=embedding)
    base = shared([layer for _, layer in entries])
    stacks = segments([(name, difference(layer, base)) for name, layer in entries], own)
    return {k: v for k, v in doc.items() if k != "head"} | {"layer": base, "layers": stacks, "head": doc["head"]}


def _entries(c: Config, n: int, own: int, norm: Doc) -> list[Entry]:
    """Every layer, as if each had its own keys and values."""
    types = layer_types(c, n, every(n, 6, FULL, "sliding_attention"))
    types = [*types[:-1], FULL]
    if not 0 < own <= n or (own < n and not set(types[own:]) <= set(types[:own])):
        raise c.error("num_kv_shared_layers", "no layer of the same kind has a cache to share")
    wide = 2 if c.get("use_double_wide_mlp") else 1
    c.only("hidden_activation", "gelu_pytorch_tanh")
    blocks = {True: ("global", _global(c, types, norm)), False: ("local", _local(c, norm))}
    added = _per_layer(c, norm)
    entries = []
    for i, kind in enumerate(types):
        name, block = blocks[kind == FULL]
        ffn = glu("gelu_tanh", c.count("intermediate_size") * (wide if i >= own else 1))
        layer = {"norm": norm, "placement": "pre+post", "attention": block, "ffn": ffn} | added
        entries.append((name, layer))
    return entries


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
    if not given:
        return size, kv
    wanted = {i for i, kind in enumerate(types) if kind == FULL}
    alike = isinstance(given, dict) and {int(k) for k in given if str(k).isdecimal()} == wanted
    values = list(given.values()) if alike else []
    first = values[0] if values and isinstance(values[0], dict) else {}
    if not first or any(v != first for v in values) or not first.keys() <= {"head_dim", "num_key_value_heads"}:
        raise c.error("per_layer_config", "not one size for all global layers and no other")
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


def _table(c: Config, norm: Doc) -> Doc:
    if not c.get("hidden_size_per_layer_input"):
        c.skip("vocab_size_per_layer_input")
        return {}
    return {
        "d": c.count("hidden_size_per_layer_input"),
        "vocab_size": c.count("vocab_size_per_layer_input"),
        "norm": norm,
    }
