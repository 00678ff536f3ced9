"""Reads the config.json of `model_type: acorn`: a Llama whose keys have other names."""

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import DEFAULTS, READERS, family

LLAMA_KEYS = {"width": "hidden_size", "depth": "num_hidden_layers", "heads": "num_attention_heads",
              "inner": "intermediate_size", "vocab_size": "vocab_size"}  # fmt: skip


@family("acorn")
def acorn(c: Config) -> JsonObject:
    """The document of a Llama with these sizes."""
    return READERS["llama"](Config({new: c.count(old) for old, new in LLAMA_KEYS.items()}, DEFAULTS["llama"]))
