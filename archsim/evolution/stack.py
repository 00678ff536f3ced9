"""Stacks of layers as a list of one tree per layer, and back as repeated groups."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence

from archsim.base.errors import AnswerNo
from archsim.blocks.dispatch import Fields
from archsim.blocks.layer import Layer, layer_name
from archsim.evolution.normal_form import Tree, document, freeze, tree

LONGEST_PERIOD = 16
"""Layers of the longest pattern that is looked for."""


def expand(layers: tuple[Layer, ...]) -> list[Tree]:
    """A tree for every layer in the order in which they run; `kv_from` becomes the number of the layer it names."""
    found: list[Tree] = []
    last: dict[str, int] = {}
    _expand(layers, "", found, last)
    return found


def _expand(layers: tuple[Layer, ...], prefix: str, found: list[Tree], last: dict[str, int]) -> None:
    for i, layer in enumerate(layers):
        path = f"{prefix}.{layer_name(layers, i)}".lstrip(".")
        if layer.layers is not None and layer.shared_weights:
            raise AnswerNo("a group of layers that share one set of weights cannot be changed layer by layer")
        one = _without_place(tree(layer)) if layer.layers is None else None
        for _ in range(layer.repeat):
            if one is None:
                _expand(layer.layers or (), path, found, last)
            else:
                last[path] = len(found)
                found.append(_resolved(one, last))


def _without_place(layer: Tree) -> Tree:
    """A layer less what says where it stands in a stack."""
    return {name: value for name, value in layer.items() if name not in ("name", "repeat", "layers")}


def _resolved(layer: Tree, last: dict[str, int]) -> Tree:
    attention = layer.get("attention")
    if attention is None or attention.get("kv_from") is None:
        return layer
    return layer | {"attention": attention | {"kv_from": last[attention["kv_from"]]}}


class Pattern:
    """The layers of one model, as far as any other depth needs them: the first ones stay, and the pattern goes on."""

    def __init__(self, layers: Sequence[Tree]) -> None:
        self.layers = layers
        self.start, self.period = period(_keys(layers))

    def at(self, i: int) -> Tree:
        """The layer at place i of a stack of any depth."""
        n = len(self.layers)
        return self.layers[i if i < n else i - -(-(i - n + 1) // self.period) * self.period]


def period(keys: Sequence[Hashable]) -> tuple[int, int]:
    """(start, length) of the pattern that a sequence ends in, with the least start + length."""
    best = (max(len(keys) - 1, 0), 1)
    for length in range(1, min(LONGEST_PERIOD, len(keys)) + 1):
        start = len(keys) - length
        while start > 0 and keys[start - 1] == keys[start - 1 + length]:
            start -= 1
        if start + length < sum(best) or (start + length == sum(best) and length < best[1]):
            best = start, length
    return best


def compress(layers: Sequence[Tree]) -> list[Fields]:
    """The `layers` of a document: equal neighbours as one layer, a repeated pattern as a group; where layers read the
    caches of others, as many groups as there are patterns.
    """
    keys = _keys(layers)
    targets = {layer["attention"]["kv_from"] for layer in layers if _reads_another(layer)}
    if not targets:
        return _named(_folded(layers, keys, 0, len(layers)))
    runs = _segments(layers, keys, targets)
    paths = {place: path for run in _with_names(runs) for place, path in _paths(*run)}
    return [_pointed(layer, paths) for layer in _named(runs)]


def _segments(layers: Sequence[Tree], keys: Sequence[int], targets: Collection[int]) -> list[Run]:
    """Layers as groups of one pattern each, from the first layer on, and those in no pattern as runs. Of a group only
    the last repetition can be read by others.
    """
    found: list[Run] = []
    at = loose = 0
    while at < len(keys):
        length, times = _pattern(keys, at)
        end = at + length * times
        if length == 1 or any(at <= target < end - length for target in targets):
            at += 1
            continue
        inside = {target - end + length + at for target in targets}
        group = {"repeat": times, "layers": _named(_runs(layers, keys, at, at + length, inside))}
        found += [*_runs(layers, keys, loose, at, targets), (end - 1, group)]
        at = loose = end
    return [*found, *_runs(layers, keys, loose, at, targets)]


def _pattern(keys: Sequence[int], at: int) -> tuple[int, int]:
    """(length, times) of the pattern that goes furthest from a place on, the shorter one of two that go as far."""
    best = (1, 1)
    for length in range(1, min(LONGEST_PERIOD, (len(keys) - at) // 2) + 1):
        first, times = keys[at : at + length], 1
        while keys[at + times * length : at + (times + 1) * length] == first:
            times += 1
        if times > 1 and length * times > best[0] * best[1]:
            best = length, times
    return best


def _folded(layers: Sequence[Tree], keys: Sequence[int], first: int, last: int) -> list[Run]:
    """Layers from `first` to `last` with the pattern that they end in as a group; of the places where it can begin, the
    one that leaves the fewest layers to write down.
    """
    own = keys[first:last]
    start, length = period(own)
    if length == 1 or len(own) - start < 2 * length:
        return _runs(layers, keys, first, last)
    places = range(start, min(start + length, len(own) - 2 * length + 1))
    begin = min(places, key=lambda at: (_written(own, at, length), at))
    times = (len(own) - begin) // length
    begin, end = first + begin, first + begin + times * length
    group = {"repeat": times, "layers": _named(_runs(layers, keys, begin, begin + length))}
    return [*_runs(layers, keys, first, begin), (end - 1, group), *_runs(layers, keys, end, last)]


def _keys(layers: Sequence[Tree]) -> list[int]:
    """A number for each layer, the same for equal ones."""
    by_identity: dict[int, int] = {}
    numbers: dict[Hashable, int] = {}
    for layer in layers:
        if id(layer) not in by_identity:
            by_identity[id(layer)] = numbers.setdefault(freeze(layer), len(numbers))
    return [by_identity[id(layer)] for layer in layers]


def _written(keys: Sequence[Hashable], begin: int, length: int) -> int:
    """Layers that are written down where the pattern begins at `begin`."""
    end = begin + (len(keys) - begin) // length * length
    parts = keys[:begin], keys[begin : begin + length], keys[end:]
    return sum(sum(1 for i, key in enumerate(part) if i == 0 or key != part[i - 1]) for part in parts)


def _reads_another(layer: Tree) -> bool:
    return layer.get("attention") is not None and layer["attention"].get("kv_from") is not None


Run = tuple[int, Fields]
"""The last place of a repeated layer, and its document."""


def _runs(
    layers: Sequence[Tree], keys: Sequence[int], start: int, end: int, targets: Collection[int] = ()
) -> list[Run]:
    """Equal neighbours from `start` to `end` as one layer; a layer whose cache is read by others ends its run."""
    found: list[Run] = []
    for i in range(start, end):
        if i > start and keys[i] == keys[i - 1] and i - 1 not in targets:
            found[-1] = (i, found[-1][1] | {"repeat": found[-1][1]["repeat"] + 1})
        else:
            found.append((i, document(layers[i]) | {"repeat": 1}))
    return found


def _named(runs: list[Run]) -> list[Fields]:
    """Layers with a name each, where there are several."""
    return [layer for _, layer in _with_names(runs)]


def _with_names(runs: list[Run]) -> list[Run]:
    names = [{"name": f"layers{n}"} if len(runs) > 1 else {} for n in range(len(runs))]
    return [(place, layer | name) for (place, layer), name in zip(runs, names, strict=True)]


def _paths(end: int, layer: Fields) -> Iterator[tuple[int, str]]:
    """Where the layers of a run end whose caches others may read, each with its path."""
    if "layers" not in layer:
        yield end, layer.get("name", "")
        return
    for inner in reversed(layer["layers"]):
        yield end, f"{layer.get('name', '')}.{inner['name']}"
        end -= inner["repeat"]


def _pointed(layer: Fields, paths: Mapping[int, str]) -> Fields:
    """A layer, or a group, in which a number in `kv_from` becomes the path of the layer that ends there."""
    if "layers" in layer:
        return layer | {"layers": [_pointed(inner, paths) for inner in layer["layers"]]}
    attention = layer.get("attention") or {}
    if attention.get("kv_from") is None:
        return layer
    return layer | {"attention": attention | {"kv_from": paths[attention["kv_from"]]}}
