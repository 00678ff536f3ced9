"""File types that mix formats: which format every weight of a model takes, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from archsim.graph.tensor import Format, mixed_format
from archsim.spec.format import FormatSpec, Mixture, Rule, load_format, stored_format
from archsim.spec.model import Model
from archsim.spec.stored_weights import Shape, Stored, stored_weights

ORDERED = ("attn_v", "attn_qkv")
"""Classes whose rules count the layers that have one, not all layers (llama-quant.cpp, `i_attention_wv`)."""


def formats_of(spec: FormatSpec, model: Model, imatrix: bool | None = None) -> dict[str, Format]:
    """Tensor name -> format, for a file type and a model. imatrix: None for what the file type needs."""
    mixture = spec.mixture
    assert mixture is not None
    shape, weights = stored_weights(model)
    with_imatrix = mixture.needs_imatrix if imatrix is None else imatrix or mixture.needs_imatrix
    values = [w for w in weights if w.cls in ORDERED and w.tensor.name.endswith("w_v")]
    places = _Places.of(i for w in values for i in w.layers)
    native = model.weights.get("expert")
    kept = stored_format(native) if native is not None and native in mixture.keeps else None
    result = {}
    for weight in weights:
        if kept is not None and weight.tensor.role == "expert":
            result[weight.tensor.name] = kept
            continue
        result[weight.tensor.name] = _mixed(mixture, weight, shape, with_imatrix, places)
    return result


class _Places(NamedTuple):
    """Matrices of values in the order of their layers: the place of each layer's first one, and how many there are."""

    first: Mapping[int, int]
    total: int

    @classmethod
    def of(cls, layers: Iterable[int]) -> _Places:
        """Of the layers of all copies, in any order."""
        order, first = sorted(layers), dict[int, int]()
        for place, layer in enumerate(order):
            first.setdefault(layer, place)
        return cls(first, len(order))


def _mixed(mixture: Mixture, weight: Stored, shape: Shape, imatrix: bool, places: _Places) -> Format:
    """The format of one weight, over its copies."""
    if weight.cls in ("", "kept"):
        return stored_format(mixture.kept if weight.cls else mixture.vectors)
    rules = [rule for rule in mixture.rules if _covers(rule, weight, shape)]
    rules = [rule for rule in rules if _holds(rule, mixture, weight, shape, imatrix)]
    found: Counter[str] = Counter()
    for layer in weight.layers:
        ordered = weight.cls in ORDERED and layer in places.first
        at, count = (places.first[layer], places.total) if ordered else (layer, shape.layers)
        found[next((rule.use for rule in rules if in_layers(rule.layers, at, count)), mixture.default)] += 1
    return mixed_format(tuple((n, fitting(use, weight.inner)) for use, n in found.items()))


def _covers(rule: Rule, weight: Stored, shape: Shape) -> bool:
    """Whether a rule speaks of a weight; a table that serves as output matrix too is the output matrix."""
    classes = {"output"} if weight.cls == "token_embd" and shape.tied else {weight.cls}
    if weight.tensor.role == "expert":
        classes.add("expert")
    return not classes.isdisjoint(rule.tensors)


def _holds(rule: Rule, mixture: Mixture, weight: Stored, shape: Shape, imatrix: bool) -> bool:
    """Whether all conditions of a rule are met."""
    when, default = rule.when, stored_format(mixture.default)
    checks = (
        (when.gqa_at_least, lambda least: shape.gqa >= least),
        (when.experts, lambda n: shape.experts == n),
        (when.experts_at_least, lambda least: shape.experts >= least),
        (when.size, lambda _: shape.layers == 80 and shape.gqa > 1 and shape.experts == 0),
        (when.family, lambda _: shape.falcon),
        (when.divides, lambda wanted: (weight.inner % default.block[0] == 0) == wanted),
        (when.imatrix, lambda wanted: imatrix == wanted),
    )
    return all(check(asked) for asked, check in checks if asked is not None)


def in_layers(pattern: str, i: int, n: int) -> bool:
    """Whether layer `i` of `n` is among those that a rule names."""
    if pattern == "all" or i < 0:
        return pattern == "all"
    if pattern == "inner":
        return 0 < i < n - 1
    if pattern == "more_bits":
        return i < n // 8 or i >= 7 * n // 8 or (i - n // 8) % 3 == 2
    word, size = pattern.split()
    top, _, below = size.partition("/")
    first = int(top) * n // int(below) if below else int(top)
    return i < first if word == "first" else first <= i < n - n // 8


def fitting(name: str, inner: int) -> Format:
    """A format, or the one that stands in for it where its block does not divide a row of `inner` elements."""
    for candidate in _chain(name):
        if inner % candidate.block[0] == 0 or candidate.parts:
            return candidate
    return stored_format("fp16")


def _chain(name: str) -> Iterator[Format]:
    """A format and the one it falls back to."""
    yield stored_format(name)
    if "*" in name or name.endswith("bit"):
        return
    fallback = load_format(name).fallback
    if fallback is not None:
        yield stored_format(fallback)
