"""Hugging Face config.json to a spec document."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.importers.hf_config import Config
from archsim.importers.hf_families import deepseek, encoder, gemma, gemma3n, gpt, hybrid, llama, moe, seq2seq
from archsim.importers.hf_families.registry import DEFAULTS, READERS
from archsim.importers.hf_weights import weights

MODULES = (deepseek, encoder, gemma, gemma3n, gpt, hybrid, llama, moe, seq2seq)
"""Importing these registers their families."""

TEXT = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "llama4": "llama4_text", "mistral3": "mistral",
        "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "qwen3_vl": "qwen3_vl_text",
        "qwen3_vl_moe": "qwen3_vl_moe_text", "kimi_k25": "kimi_k2"}  # fmt: skip
"""Type of the language model inside a multimodal config, where its `text_config` does not say."""


def from_config(config: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """The document of a config.json, in the shape of a spec file.

    A multimodal config gives its language model. Raises SpecError for an unknown `model_type`, a missing or
    impossible value, and a key that could change the cost and is not understood.
    """
    if not isinstance(config, Mapping):
        raise SpecError("a config.json is a mapping", code="E109")
    text, model_type = language_model(config)
    reader = READERS.get(model_type)
    if reader is None:
        raise _unknown(model_type)
    c = Config(text, DEFAULTS[model_type])
    document = reader(c)
    c.skip("is_encoder_decoder", "tie_word_embeddings", "tie_encoder_decoder", "layer_types")
    stored = weights(c)
    unread = c.unread()
    if unread:
        listed = ", ".join(quote(key) for key in unread)
        raise SpecError(
            f"model_type {quote(model_type)} has config keys that are not understood: {listed}",
            code="E103",
            hints=["it could change the cost; remove it if it does not, or write a spec by hand"],
        )
    own = str(config.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    return {"name": name or own or model_type, **document, "weights": stored}


def language_model(config: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The part of a config that describes the language model, and its type."""
    outer = str(config.get("model_type"))
    inner = config.get("text_config")
    if not isinstance(inner, Mapping):
        return dict(config), outer
    text = dict(inner)
    for key in ("quantization_config", "torch_dtype", "dtype"):
        if config.get(key) is not None:
            text.setdefault(key, config[key])
    model_type = TEXT.get(outer) or str(inner.get("model_type"))
    return text, model_type if model_type in READERS else str(inner.get("model_type") or outer)


def _unknown(model_type: str) -> SpecError:
    close = difflib.get_close_matches(model_type, READERS, n=3)
    hints = [f"did you mean {' or '.join(quote(name) for name in close)}?"] if close else []
    listed = ", ".join(sorted(READERS))
    return SpecError(
        f"unknown model_type {quote(model_type)}", code="E112", hints=[*hints, f"known: {listed}"]
    )
