"""model_type to the function that reads its config, or to why no spec can express it."""

from __future__ import annotations

from collections.abc import Callable

from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config

Reader = Callable[[Config], JsonObject]

READERS: dict[str, Reader] = {}
DEFAULTS: dict[str, JsonMapping] = {}


def family(*model_types: str, **defaults: object) -> Callable[[Reader], Reader]:
    """Register a reader. `defaults`: those of the first type's class, for keys that a file lacks; `partial_theta`
    for the base of rotary positions in a file whose `rope_parameters` name none, where that is another.
    """

    def register(reader: Reader) -> Reader:
        for model_type in model_types:
            if model_type in READERS:
                raise ValueError(f"two importers for model_type {model_type}")
            READERS[model_type] = reader
            DEFAULTS[model_type] = defaults
        return reader

    return register


REFUSED = {
    "blt": "the length of its patches depends on the text",
    "jetmoe": "mixtures of attention heads cannot be expressed",
    "reformer": "LSH attention cannot be expressed",
    "rwkv": "its WKV recurrence and token shift cannot be expressed in a spec",
    "rwkv5": "its WKV recurrence and token shift cannot be expressed in a spec",
    "rwkv6": "its WKV recurrence and token shift cannot be expressed in a spec",
    "dory": "a stack that runs several times with residuals of unit length cannot be expressed",
    **dict.fromkeys(
        ("inkling2", "inkling2_text", "inkling2_loop", "inkling2_loop_text"),
        "short convolutions whose taps depend on the token, and clipped projections, cannot be expressed",
    ),
    **dict.fromkeys(
        ("qwen4_exp", "qwen4_exp_text"),
        "vectors of n-grams inside layers, low-rank hyper-connections and an indexer with a budget cannot be expressed",
    ),
    "zamba": "a shared attention layer with a projection for each place where it is used cannot be expressed",
    "zamba2": "shared attention layers with low-rank adapters cannot be expressed",
}
"""Families that no spec can express: model_type to why it is refused."""
