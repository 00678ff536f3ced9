"""Modules that a quantised checkpoint leaves as they were, found among the weights of its spec."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.spec.load import model_from
from archsim.spec.stored_weights import Stored, stored_weights

PARTS: Mapping[str, tuple[str, ...]] = {
    "w_q": ("q_proj", "qkv_proj", "query"),
    "w_k": ("k_proj", "qkv_proj", "key"),
    "w_v": ("v_proj", "qkv_proj", "value"),
    "w_o": ("o_proj", "out_proj", "dense"),
    "w_gate": ("gate_proj", "gate_up_proj", "w1"),
    "w_up": ("up_proj", "gate_up_proj", "w3", "fc1"),
    "w_down": ("down_proj", "w2", "fc2"),
    "w_q_down": ("q_a_proj",),
    "w_q_nope": ("q_b_proj",),
    "w_q_rope": ("q_b_proj",),
    "w_kv_down": ("kv_a_proj_with_mqa",),
    "w_k_rope": ("kv_a_proj_with_mqa",),
    "w_uk": ("kv_b_proj",),
    "w_uv": ("kv_b_proj",),
}
"""Name of a weight here to the names that its module has in checkpoints."""

HOMES: Mapping[str, tuple[str, ...]] = {
    "attention": ("self_attn", "attn", "attention"),
    "mixer": ("linear_attn", "mamba", "mixer", "conv", "self_attn"),
    "ffn": ("mlp", "feed_forward", "mixer"),
    "moe": tuple(f"{home}.experts.0" for home in ("mlp", "block_sparse_moe", "feed_forward", "mixer")),
    "shared": (
        "mlp.shared_expert",
        "mlp.shared_experts",
        "feed_forward.shared_expert",
        "mixer.shared_experts",
    ),
    "dense": ("mlp",),
    "indexer": ("self_attn.indexer",),
}
"""Name of a block here to the names that it has in checkpoints."""

ELSEWHERE = re.compile(
    r"head|embed|wte|router|\.gate\b|gate\$?$|vis(ion|ual)|audio|projector|connector|norm|mtp|eh_proj|conv1d"
    r"|\bbias\b|tower|shared_expert_gate"
)
"""Words in names of modules that are quantised nowhere, or are no part of the language model."""


NESTED = re.compile(r"[+*}]\)[+*{]|.{300}", re.S)
"""Repeated repetitions, whose matching can take for ever, and overlong patterns: not followed."""


def kept(document: Mapping[str, Any], ignored: Sequence[str]) -> dict[str, str]:
    """The `weights` of a document with those that stay in the default format named one by one.

    Raises SpecError for a module that is found nowhere.
    """
    formats = dict(document["weights"])
    every = [
        w for w in stored_weights(model_from(dict(document)))[1] if w.tensor.role in ("linear", "expert")
    ]
    found = [w for w in every if w.tensor.role in formats]
    last = max((i for w in every for i in w.layers), default=0)
    used: set[str] = set()
    named: dict[str, str] = {}
    for weight in every:
        stays = [_matched(_modules(weight, i), ignored, used) for i in weight.layers]
        if any(stays) and weight.tensor.role in formats:
            named[weight.tensor.name] = _parts(stays, formats["default"], formats[weight.tensor.role])
    for pattern in ignored:
        if pattern not in used and not ELSEWHERE.search(pattern) and not _beyond(pattern, last):
            raise SpecError(
                f"config key `quantization_config`: no module {quote(pattern)} among the model's matrices",
                code="E102",
            )
    for role in {w.tensor.role for w in found}:
        own = [w.tensor.name for w in found if w.tensor.role == role]
        if all(named.get(name) == formats["default"] for name in own):
            del formats[role]
            named = {name: fmt for name, fmt in named.items() if name not in own}
    return formats | named


def _beyond(pattern: str, last: int) -> bool:
    """Whether a name is of a layer behind the last: a prediction module."""
    numbers = re.findall(r"layers\.(\d{1,9})\b", pattern)
    return bool(numbers) and all(int(n) > last for n in numbers)


def _modules(weight: Stored, layer: int) -> list[str]:
    """Names that the module of a weight may have in a checkpoint."""
    *path, name = weight.tensor.name.split(".")
    home = next((HOMES[part] for part in reversed(path) if part in HOMES), ("",))
    leaves = PARTS.get(name, (name.removeprefix("w_") + "_proj", "in_proj"))
    return [f"model.layers.{layer}.{block}.{leaf}" for block in home for leaf in leaves]


def _matched(modules: list[str], ignored: Sequence[str], used: set[str]) -> bool:
    """Whether a pattern speaks of the module; those that do are added to `used`."""
    hits = [pattern for pattern in ignored if any(_speaks(pattern, name) for name in modules)]
    used.update(hits)
    return bool(hits)


def _speaks(pattern: str, name: str) -> bool:
    """Regular expressions begin with `re:`; `*` is any text; a bare name is a module or one that holds it."""
    if pattern.startswith("re:"):
        try:
            return NESTED.search(pattern) is None and re.match(pattern[3:], name) is not None
        except (re.error, OverflowError, RecursionError):
            return False
    if "*" in pattern:
        return any(
            fnmatchcase(text, p) for text in (name, f"language_{name}") for p in (pattern, pattern + ".*")
        )
    return re.search(rf"(^|\.){re.escape(pattern.removeprefix('language_model.'))}(\.|$)", name) is not None


def _parts(stays: list[bool], default: str, quantised: str) -> str:
    """One format, or how many copies have which."""
    if all(stays):
        return default
    counts = {True: stays.count(True), False: stays.count(False)}
    order = [key for key, _ in groupby(stays)]
    return "+".join(f"{counts[k]}*{default if k else quantised}" for k in dict.fromkeys(order))
