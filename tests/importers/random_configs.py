"""Configs of a model type with other values in the fields that its class reads."""

from __future__ import annotations

import json
import random
from typing import Any

from archsim.importers.hf.class_keys import HARMLESS_NAMES, class_keys
from archsim.importers.hf.config import HARMLESS, LAYERS

HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "decoder_attention_heads",
         "attention_heads")  # fmt: skip
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "num_global_key_value_heads")
WIDTHS = ("hidden_size", "d_model", "n_embd", "dim", "emb_dim", "embed_dim")
DEPTHS = (*LAYERS, "encoder_num_hidden_layers", "decoder_num_hidden_layers", "depth", "num_block_layers")
FUNCTIONS = ("silu", "gelu", "gelu_new", "relu", "gelu_pytorch_tanh")
SPECIAL = ("is_decoder", "is_encoder_decoder", "add_cross_attention", "return_dict", "use_cache", "model_type",
           "tie_encoder_decoder", "cross_attention_hidden_size", "transformers_version", "architectures")  # fmt: skip
"""Keys that choose a class or a task."""


def default_config(model_type: str) -> dict[str, Any]:
    """The default config of a type, as a file has it."""
    from transformers import CONFIG_MAPPING

    found: dict[str, Any] = json.loads(CONFIG_MAPPING[model_type]().to_json_string(use_diff=False))
    return found


def random_config(model_type: str, seed: int) -> dict[str, Any]:
    """One config: few layers, small widths, some switches the other way round, some fields left out."""
    rng = random.Random(f"{model_type} {seed}")
    keys = class_keys()
    reads = keys.reads.get(keys.folder(model_type), frozenset())
    found = {**_changed(default_config(model_type), reads, rng), "model_type": model_type}
    _tie_alike(found, found.get("tie_word_embeddings"))
    return found


def _tie_alike(found: dict[str, Any], tied: Any) -> None:
    """The language model inside says of its tables what the config around it says, as saved files do."""
    for inner in [value for value in found.values() if isinstance(value, dict) and "model_type" in value]:
        if tied is not None and "tie_word_embeddings" in inner:
            inner["tie_word_embeddings"] = tied
        _tie_alike(inner, tied)


def overwritten(config: dict[str, Any]) -> list[str]:
    """Keys to which the class of a config gives other values than the file does."""
    from transformers import CONFIG_MAPPING

    made = CONFIG_MAPPING[config["model_type"]].from_dict(dict(config))
    return [key for key, value in config.items()
            if isinstance(value, bool | int) and getattr(made, key, value) != value]  # fmt: skip


def _changed(held: dict[str, Any], reads: frozenset[str], rng: random.Random) -> dict[str, Any]:
    """A mapping of a config with other values, and so what it holds inside."""
    found = dict(held)
    for key in [key for key, value in held.items() if isinstance(value, dict) and "model_type" in value]:
        found[key] = _changed(held[key], reads, rng)
    _shape(found, rng)
    _depth(found, rng)
    for key, value in found.items():
        if key not in reads or key in SPECIAL or key in HARMLESS or HARMLESS_NAMES.search(key):
            continue
        found[key] = _value(key, value, rng)
    for key in [key for key in found if key in reads and found[key] is None and rng.random() < 0.5]:
        del found[key]
    return found


def _shape(found: dict[str, Any], rng: random.Random) -> None:
    """Heads that divide the width, and key/value heads that divide the heads."""
    heads, head_dim = rng.choice((4, 6, 8)), rng.choice((16, 32))
    groups = rng.choice([n for n in range(1, heads + 1) if heads % n == 0])
    names = [key for key in HEADS if isinstance(found.get(key), int)]
    widths = [key for key in WIDTHS if isinstance(found.get(key), int)]
    found |= dict.fromkeys(names, heads)
    found |= {key: groups for key in KV_HEADS if isinstance(found.get(key), int)}
    found |= dict.fromkeys(widths, heads * head_dim)
    if isinstance(found.get("head_dim"), int):
        found["head_dim"] = rng.choice((head_dim, head_dim, 64))


def _depth(found: dict[str, Any], rng: random.Random) -> None:
    """A number of layers, to which lists with an entry for each are cut or repeated."""
    for key in [key for key in DEPTHS if isinstance(found.get(key), int) and found[key] > 0]:
        before, now = found[key], rng.randint(3, 7)
        found[key] = now
        for name, value in found.items():
            if isinstance(value, list) and len(value) == before and before > 3:
                kinds = sorted(set(value), key=str) if all(isinstance(v, str) for v in value) else value
                found[name] = [rng.choice(kinds) for _ in range(now)]


SHAPED = frozenset({*HEADS, *KV_HEADS, *WIDTHS, *DEPTHS, "head_dim"})


def _value(key: str, value: Any, rng: random.Random) -> Any:
    """Another value of the same kind, or the same."""
    if key in SHAPED or rng.random() < 0.4:
        return value
    if isinstance(value, bool):
        return rng.random() < 0.5
    if isinstance(value, str) and value in FUNCTIONS:
        return rng.choice(FUNCTIONS)
    if isinstance(value, int) and value > 16:
        return rng.choice((16, 24, 32, 48, 64, 96, 128))
    if isinstance(value, int) and value > 1:
        return rng.randint(1, 8)
    return value
