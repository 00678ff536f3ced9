"""A list of layers, one by one, to the shortest nested pattern that says the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from archsim.base.json_types import JsonObject

Entry = tuple[str, JsonObject]
"""A layer and what it is called in its pattern (local, global, dense, moe, ...)."""

LONGEST_PERIOD = 24
WHOLE = ("position", "mask")
"""Blocks that a layer states in full or not at all: half a mask is hard to read."""


def stack(entries: Sequence[Entry]) -> JsonObject:
    """`layer` (what all layers share, where they differ) and `layers` of a stack."""
    every = [layer for _, layer in entries]
    if all(layer == every[0] for layer in every):
        return {"layers": [repeated(len(entries), {}, every[0])]}
    base = shared(every)
    return {"layer": base, "layers": pattern([(name, difference(layer, base)) for name, layer in entries])}


def shared(layers: Sequence[JsonObject]) -> JsonObject:
    """What the layers agree on. Of a block with several kinds the most frequent one: others replace it."""
    result: JsonObject = {}
    for key, first in layers[0].items():
        values = [layer[key] for layer in layers if key in layer]
        if len(values) < len(layers):
            continue
        if all(value == first for value in values):
            result[key] = first
        elif all(isinstance(value, dict) for value in values) and key not in WHOLE:
            usual = Counter(value.get("kind") for value in values).most_common(1)[0][0]
            inner = shared([value for value in values if value.get("kind") == usual])
            if inner:
                result[key] = inner
    return result


def difference(layer: JsonObject, base: JsonObject) -> JsonObject:
    """What `layer` adds to `base`, so that merging it over `base` gives `layer` again."""
    result = {}
    for key, value in layer.items():
        below = base.get(key)
        if isinstance(value, dict) and isinstance(below, dict) and value.get("kind") == below.get("kind"):
            inner = difference(value, below)
            if inner:
                result[key] = inner
        elif value != below:
            result[key] = value
    return result


def pattern(entries: Sequence[Entry]) -> list[JsonObject]:
    """Runs of equal layers, and one repeated group where that is shorter, best with nothing after it."""
    plain = _runs(entries)
    best, cost = plain, (len(plain), 0)
    kinds = _numbered(entries)
    for start in range(min(len(entries), LONGEST_PERIOD)):
        for period in range(2, LONGEST_PERIOD + 1):
            times = _repetitions(kinds, start, period)
            if times < 2:
                continue
            end = start + times * period
            head, body, tail = (_runs(entries[:start]), _runs(entries[start : start + period]), _runs(entries[end:]))
            price = (len(head) + len(body) + len(tail), len(tail))
            if price < cost:
                best, cost = [*head, {"repeat": times, "layers": _unique(body)}, *tail], price
    return _unique(best)


def _numbered(entries: Sequence[Entry]) -> list[int]:
    """A number for each entry, the same for equal ones."""
    seen: list[Entry] = []
    numbers = []
    for entry in entries:
        if entry not in seen:
            seen.append(entry)
        numbers.append(seen.index(entry))
    return numbers


def _repetitions(kinds: Sequence[int], start: int, period: int) -> int:
    """How often the `period` entries from `start` on follow each other."""
    end = start + period
    while end < len(kinds) and kinds[end] == kinds[end - period]:
        end += 1
    return (end - start) // period


def runs(entries: Sequence[Entry]) -> list[JsonObject]:
    """Neighbours that are equal, as one entry with `repeat`."""
    return _unique(_runs(entries))


def _runs(entries: Sequence[Entry]) -> list[JsonObject]:
    """The same, with names that may be there more than once."""
    result: list[JsonObject] = []
    i = 0
    while i < len(entries):
        j = i
        while j < len(entries) and entries[j] == entries[i]:
            j += 1
        result.append(repeated(j - i, {"name": entries[i][0]}, entries[i][1]))
        i = j
    return result


def repeated(times: int, first: JsonObject, layer: JsonObject) -> JsonObject:
    """A layer with its name and, if it is there more than once, how often."""
    return first | ({"repeat": times} if times > 1 else {}) | layer


def _unique(layers: list[JsonObject]) -> list[JsonObject]:
    """The same layers, later ones of the same name numbered."""
    seen: dict[str, int] = {}
    for i, layer in enumerate(layers):
        name = layer.get("name")
        if name is None:
            continue
        seen[name] = seen.get(name, 0) + 1
        if seen[name] > 1:
            layers[i] = layer | {"name": f"{name}_{seen[name]}"}
    return layers
