"""Single changes of a model or of how it runs, each as it is typed: `--set` assignments and options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from archsim.base.json_types import JsonObject
from archsim.blocks.attention import Attention
from archsim.blocks.ffn import Ffn
from archsim.blocks.layer import Layer
from archsim.blocks.moe import Moe
from archsim.candidates.structure import MLA_HEAD, WINDOWS
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.spec.engine import Engine
from archsim.spec.format import load_format
from archsim.spec.lower import lower
from archsim.spec.model import Model

Needs = Literal["training", "continued", "none"]
"""What a change asks for: training from scratch, continued training of what there is, or nothing."""

WINDOW = 4096
"""Tokens of the windows that are tried."""

RANK = 512
"""Latent of DeepSeek-V2 and V3."""

TILE = 256
"""Sizes that are multiples of this fill whole tiles of products on any usual number of devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change. sets: `--set` assignments. options: of `estimate`. choice: the document of `specs/quality` that says
    what is known of its price in quality; empty where it has none.
    """

    name: str
    needs: Needs
    choice: str = ""
    sets: tuple[str, ...] = ()
    options: Mapping[str, str | int] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", dict(self.options or {}))

    @property
    def touches(self) -> frozenset[str]:
        """Fields and options that it sets."""
        return frozenset({text.partition("=")[0] for text in self.sets} | set(self.options))

    @property
    def flags(self) -> tuple[str, ...]:
        """The command-line arguments that make this change."""
        return (*(f"--set {text}" for text in self.sets),
                *(f"--{name.replace('_', '-')} {value}" for name, value in self.options.items()))  # fmt: skip

    def combined_with(self, other: Change) -> Change | None:
        """Both changes at once, whole layers first; None where they set the same field."""
        if self.touches & other.touches:
            return None
        needs: tuple[Needs, ...] = ("training", "continued", "none")
        return Change(
            name=f"{self.name} + {other.name}", needs=min(self.needs, other.needs, key=needs.index),
            sets=tuple(sorted((*self.sets, *other.sets), key=lambda text: not text.startswith("layers="))),
            options={**self.options, **other.options},
        )  # fmt: skip


def changes_of(model: Model, rules: Engine, options: Mapping[str, object]) -> tuple[Change, ...]:
    """Every change that a model has room for, on an engine with options as they are now."""
    layer = _one_kind(model)
    found = list(_tables(model))
    if layer is not None:
        found += [*_heads(layer), *_mixing(model, layer), *_widths(model, layer), *_experts(model, layer)]
    return (*found, *_formats(model, rules, options), *_plans(options))


def _one_kind(model: Model) -> Layer | None:
    """The layer of a decoder whose layers are all alike."""
    if model.architecture != "decoder" or len(model.layers) != 1 or model.layers[0].layers is not None:
        return None
    return model.layers[0]


def _document(layer: Layer) -> JsonObject:
    return layer.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def _layers(layers: list[JsonObject]) -> str:
    """The layers of a model in one assignment."""
    return f"layers={json.dumps(layers)}"


def _heads(layer: Layer) -> Iterator[Change]:
    attention = layer.attention
    if not isinstance(attention, Attention):
        return
    for share, word in ((2, "halved"), (4, "quartered")):
        if attention.kv_heads % share == 0:
            count = attention.kv_heads // share
            yield Change(
                name=f"key/value heads {word}: {attention.kv_heads} to {count}", needs="continued", choice="kv_heads",
                sets=("attention.kind=gqa", f"attention.n_kv_heads={count}"),
            )  # fmt: skip


def _mixing(model: Model, layer: Layer) -> Iterator[Change]:
    """Windows on a share of the layers, and latent attention."""
    attention, own = layer.attention, _document(layer)
    if not isinstance(attention, Attention) or attention.mask.kind != "causal":
        return
    for share, period in WINDOWS.items():
        periods, rest = divmod(model.n_layers, period)
        if periods < 2 or (model.max_context or WINDOW + 1) <= WINDOW:
            continue
        near = {**own, "attention": {**own["attention"], "mask": {"kind": "sliding", "window": WINDOW}}}
        group = {"repeat": periods, "layers": [{**near, "repeat": period - 1}, {**own, "repeat": 1}]}
        first = [{**near, "repeat": rest, "name": "first"}] if rest else []
        count = model.n_layers - periods
        yield Change(
            name=f"window of {WINDOW:,} on {count} of {model.n_layers} layers ({share})", needs="continued",
            choice="window", sets=(_layers([*first, group]),),
        )  # fmt: skip
    latent = {"kind": "mla", "n_heads": attention.n_heads, "kv_rank": RANK, **MLA_HEAD}
    yield Change(
        name=f"latent attention ({RANK} + {MLA_HEAD['d_rope']})", needs="training", choice="latent",
        sets=(_layers([{**own, "attention": latent}]),),
    )  # fmt: skip


def _widths(model: Model, layer: Layer) -> Iterator[Change]:
    """Other depths at equal size, and sizes that fill whole tiles."""
    if not isinstance(layer.ffn, Ffn):
        return
    for share, word in ((0.75, "fewer and wider"), (1.25, "more and narrower")):
        depth = round(model.n_layers * share)
        width = _equal_width(model, layer.ffn, depth)
        if width >= TILE and depth != model.n_layers:
            yield Change(
                name=f"{word} layers: {depth}, d_ff {width:,}", needs="training", choice="depth",
                sets=(f"layers.repeat={depth}", f"ffn.d_ff={width}"),
            )  # fmt: skip
    if layer.ffn.d_ff % TILE:
        width = -(-layer.ffn.d_ff // TILE) * TILE
        yield Change(name=f"d_ff {layer.ffn.d_ff:,} to {width:,}: whole tiles", needs="training", choice="ffn_width",
                     sets=(f"ffn.d_ff={width}",))  # fmt: skip


def _equal_width(model: Model, ffn: Ffn, depth: int) -> int:
    """The feed-forward width, in whole tiles, with which so many layers come nearest to the model's parameters."""

    def params(layers: int, width: int) -> int:
        layer = model.layers[0].model_copy(update={"repeat": layers, "ffn": ffn.model_copy(update={"d_ff": width})})
        tried = model.model_copy(update={"layers": (layer,)})
        return int(c.params(lower(tried, step_for(tried, 1, 1))))

    each = (params(depth, 2 * TILE) - params(depth, TILE)) / TILE
    wanted = TILE + (params(model.n_layers, ffn.d_ff) - params(depth, TILE)) / each
    return max(round(wanted / TILE), 0) * TILE


def _experts(model: Model, layer: Layer) -> Iterator[Change]:
    """Experts in place of a dense layer at equal active parameters, and finer experts."""
    ffn, own = layer.ffn, _document(layer)
    if isinstance(ffn, Ffn) and ffn.d_ff % 2 == 0:
        expert = {**own["ffn"], "d_ff": ffn.d_ff // 2}
        moe = {"kind": "moe", "n_experts": 16, "top_k": 2, "expert": expert}
        yield Change(name=f"16 experts of {ffn.d_ff // 2:,}, two for each token", needs="training", choice="experts",
                     sets=(_layers([{**own, "ffn": moe}]),))  # fmt: skip
    if isinstance(ffn, Moe) and ffn.expert.d_ff % 2 == 0:
        sets = (
            f"ffn.n_experts={2 * ffn.n_experts}",
            f"ffn.top_k={2 * ffn.top_k}",
            f"ffn.expert.d_ff={ffn.expert.d_ff // 2}",
        )
        yield Change(name="twice the experts at half the width", needs="training", choice="experts", sets=sets)


def _tables(model: Model) -> Iterator[Change]:
    """The vocabulary and its tables."""
    if model.architecture != "decoder" or model.embedding.rows or model.embedding.input_rows:
        return
    for size, word in ((model.vocab_size // 2, "halved"), (2 * model.vocab_size, "doubled")):
        yield Change(name=f"vocabulary {word}: {size:,}", needs="training", choice="vocabulary",
                     sets=(f"vocab_size={size}",))  # fmt: skip
    if model.head is not None:
        word = "untied output head" if model.head.tied else "tied input and output embeddings"
        yield Change(name=word, needs="training", choice="tied_head",
                     sets=(f"head.tied={str(not model.head.tied).lower()}",))  # fmt: skip


def _formats(model: Model, rules: Engine, options: Mapping[str, object]) -> Iterator[Change]:
    """Narrower weights and caches, as the engine has them."""
    asked = options.get("weights")
    present = load_format(str(asked)).format().bits if asked else 16.0
    for name in rules.formats.weights:
        if load_format(name).format().bits < 0.9 * present:
            yield Change(name=f"weights in {name}", needs="none", choice="precision", options={"weights": name})
    if options.get("kv_cache_dtype") is None and model.cached:
        yield Change(name=f"cache in {rules.formats.kv_cache}", needs="none", choice="cache_precision",
                     options={"kv_cache_dtype": rules.formats.kv_cache})  # fmt: skip


def _plans(options: Mapping[str, object]) -> Iterator[Change]:
    """Twice the devices, twice the batch."""
    devices, batch = int(str(options.get("devices", 1))), int(str(options.get("batch", 1)))
    yield Change(name=f"{2 * devices} devices", needs="none", options={"devices": 2 * devices})
    yield Change(name=f"batch {2 * batch}", needs="none", options={"batch": 2 * batch})
