"""What enumeration cannot make a column of: the kind of attention, the pattern of windows, dense layers or experts.

A structure is a spec with places for numbers: it says which dimensions it has, which combinations are models, and where
each number goes.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from archsim.base.arrays import Array
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.spec.population import Population

Values = Mapping[str, Array]
"""Dimension -> one value of each candidate, as an array."""

MLA_HEAD = {"d_nope": 128, "d_rope": 64, "d_v": 128}
"""Sizes of a head of latent attention, those of DeepSeek-V2 and V3."""

WINDOWS = {"1/2": 2, "3/4": 4, "5/6": 6}
"""Share of the layers with a window -> layers of one period, of which the last sees everything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """One structure. window: tokens that most layers see, 0 for all; period: layers of which one sees everything.
    latent: rank of latent attention, 0 for heads with keys of their own. experts: whether the layers have experts.
    """

    window: int = 0
    period: int = 1
    latent: int = 0
    experts: bool = False

    @property
    def name(self) -> str:
        """In words."""
        attention = f"latent attention of rank {self.latent}" if self.latent else "full attention"
        if self.window:
            attention = f"window {self.window:,} on {self.period - 1} of {self.period} layers"
        return f"{attention}, {'experts' if self.experts else 'dense'}"

    @property
    def choices(self) -> tuple[str, ...]:
        """Choices that say something about quality, by the names of `specs/quality`."""
        found = [("window", self.window), ("latent", self.latent), ("experts", self.experts)]
        return tuple(name for name, taken in found if taken)

    @property
    def dimensions(self) -> tuple[str, ...]:
        """Numbers that candidates of this structure differ in."""
        heads = ("n_heads",) if self.latent else ("d_head", "n_heads", "n_kv_heads")
        return ("d_model", "n_layers", *heads, *(("n_experts", "top_k", "d_expert") if self.experts else ("d_ff",)))

    def population(self, base: JsonObject, values: Values) -> Population:
        """The candidates as one spec. base: the spec whose norms, positions and tables they have."""
        document = self._document(base)
        columns: dict[str, Array] = {"d_model": values["d_model"], "layers.0.repeat": values["n_layers"] // self.period}
        places = [f"layers.0.layers.{i}" for i in (0, 1)] if self.period > 1 else ["layers.0"]
        for place in places:
            columns |= {f"{place}.{path}": values[name] for name, path in self._paths()}
        if "vocab_size" in values:
            columns["vocab_size"] = values["vocab_size"]
        return Population(document, columns)

    def legal(self, values: Values) -> Array:
        """Which combinations are models: whole periods, heads that share keys evenly."""
        mask = values["n_layers"] % self.period == 0
        if not self.latent:
            mask &= (values["n_heads"] % values["n_kv_heads"] == 0) & (values["d_head"] % 2 == 0)
        if self.experts:
            mask &= values["top_k"] <= values["n_experts"]
        return np.asarray(mask & (values["n_heads"] > 0))

    def _paths(self) -> Iterator[tuple[str, str]]:
        """Dimension, and where in a layer it goes."""
        heads = ("n_heads",) if self.latent else ("d_head", "n_heads", "n_kv_heads")
        yield from ((name, f"attention.{name}") for name in heads)
        if self.experts:
            yield from (("n_experts", "ffn.n_experts"), ("top_k", "ffn.top_k"), ("d_expert", "ffn.expert.d_ff"))
        else:
            yield "d_ff", "ffn.d_ff"

    def _document(self, base: JsonObject) -> JsonObject:
        document = copy.deepcopy(base)
        layer = document.pop("layer")
        layer["attention"] = self._attention(layer["attention"])
        layer["ffn"] = self._ffn(layer["ffn"])
        layers = [{**layer, "repeat": 2}]
        if self.period > 1:
            near = copy.deepcopy(layer)
            near["attention"]["mask"] = {"kind": "sliding", "window": self.window}
            layers = [{"repeat": 2, "layers": [{**near, "repeat": self.period - 1}, {**layer, "repeat": 1}]}]
        return document | {"layers": layers}

    def _attention(self, own: JsonObject) -> JsonObject:
        """Attention of the base with the structure's heads; latent attention brings positions of its own."""
        if self.latent:
            return {"kind": "mla", "n_heads": 8, "kv_rank": self.latent, **MLA_HEAD}
        return {**own, "kind": "gqa", "n_heads": 8, "n_kv_heads": 8, "d_head": 128}

    def _ffn(self, own: JsonObject) -> JsonObject:
        if self.experts:
            return {"kind": "moe", "n_experts": 8, "top_k": 2, "expert": {**own, "d_ff": 1024}}
        return {**own, "d_ff": 1024}


def structures(attention: Sequence[str], ffn: Sequence[str]) -> tuple[Structure, ...]:
    """All structures of some kinds of attention (`full`, `window`, `window:1024:5/6`, `mla`, `mla:512`) and layers
    (`dense`, `moe`). Raises UsageError.
    """
    kinds = [fields for word in attention for fields in _attention_fields(word)]
    unknown = [word for word in ffn if word not in ("dense", "moe")]
    if unknown:
        raise UsageError(f"no kind of layer `{unknown[0]}`", hints=("known: dense, moe",))
    return tuple(Structure(**fields, experts=word == "moe") for fields in kinds for word in ffn)


def _attention_fields(word: str) -> list[dict[str, int]]:
    kind, _, rest = word.partition(":")
    if kind == "full" and not rest:
        return [{}]
    if kind == "mla":
        return [{"latent": _size(rank, word)} for rank in ([rest] if rest else ["256", "512"])]
    if kind == "window":
        size, _, share = rest.partition(":")
        if share and share not in WINDOWS:
            raise UsageError(f"`{word}`: a window on {share} of the layers is not known",
                             hints=(f"known: {', '.join(WINDOWS)}",))  # fmt: skip
        sizes = [_size(size, word)] if size else [512, 1024, 4096]
        return [{"window": n, "period": WINDOWS[s]} for n in sizes for s in ([share] if share else WINDOWS)]
    hint = "known: full, window, window:1024:5/6, mla, mla:512"
    raise UsageError(f"no kind of attention `{word}`", hints=(hint,))


def _size(text: str, word: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 10**7:
        raise UsageError(f"`{word}`: {text[:40]!r} is not a number of tokens or dimensions")
    return int(text)
