"""An architecture between two others: some decisions taken from B, the others still from A.

A mixture is defined by which decisions are taken, not by the order in which they were, so that paths through the same
mixture meet there, and that attributions over orders are well defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from archsim.evolution.decisions import KIND, TITLES, WHOLE, decision
from archsim.evolution.normal_form import CLASS, Tree, document, is_tree, tree
from archsim.evolution.stack import Pattern, compressed, expanded
from archsim.spec.model import Embedding, Head, Model

IDENTITY = frozenset({
    "name", "title", "org", "released", "aliases", "hf_ids", "extends", "lineage", "dropout", "confidence",
    "published", "notes", "sources", "layer", "layers",
})  # fmt: skip
"""Fields of a model that are no part of its architecture, or are kept beside the tree."""


class Whole(NamedTuple):
    """A model in normal form: all but its layers, and the layers of its stacks."""

    top: Tree
    layers: Pattern
    encoder: Pattern | None


def normal(model: Model) -> Whole:
    """The model in normal form."""
    top = {field: value for field, value in tree(model).items() if field not in IDENTITY}
    if model.head is None and model.architecture != "encoder":
        top["head"] = tree(Head())
    if model.encoder is not None:
        stack = {field: top["encoder"][field] for field in (CLASS, "final_norm", "embedding")}
        stack["embedding"] = stack["embedding"] or tree(Embedding())
        top["encoder"] = stack
    encoder = None if model.encoder is None else Pattern(expanded(model.encoder.layers))
    return Whole(top, Pattern(expanded(model.layers)), encoder)


class Change(NamedTuple):
    """One field that a decision changes: what it is, its class, and its values in A and in B.

    pair: the two kinds of layers that differ in it, as a number; 0 for what is not in a layer. layers: how many layers
    of B are such a pair, of all that B has.
    """

    decision: str
    field: str
    owner: str
    old: Any
    new: Any
    pair: int = 0
    layers: int = 0
    of: int = 0


class Mixer:
    """Mixtures of two models."""

    def __init__(self, a: Model, b: Model) -> None:
        self.a, self.b = normal(a), normal(b)
        self.name = f"{a.name}..{b.name}"
        self.changes = tuple(self._changes())
        found = {change.decision for change in self.changes}
        self.decisions = tuple(name for name in TITLES if name in found)

    def document(self, taken: Collection[str]) -> dict[str, Any]:
        """The spec of the mixture that takes these decisions from B. It need not be a valid one."""
        top = mixed(self.a.top, self.b.top, taken)
        layers = stack(self.a.layers, self.b.layers, taken, "depth")
        found = {"name": self.name, **document(top), "layers": compressed(layers)}
        if top.get("encoder") is not None:
            inner = stack(self.a.encoder, self.b.encoder, taken, "encoder_depth")
            found["encoder"] = {**found["encoder"], "layers": compressed(inner)}
        return found

    def _changes(self) -> Iterator[Change]:
        yield from differences(self.a.top, self.b.top)
        stacks = [(self.a.layers, self.b.layers, "depth"), (self.a.encoder, self.b.encoder, "encoder_depth")]
        of = sum(len(own.layers) for _, own, _ in stacks if own is not None)
        number = 0
        for one, two, name in stacks:
            if one is None or two is None:
                continue
            depths = len(one.layers), len(two.layers)
            if depths[0] != depths[1]:
                yield Change(name, "layers", "Stack", *depths)
            places = [(one.at(i), two.at(i)) for i in range(max(depths))]
            met = Counter((id(x), id(y)) for x, y in places[: depths[1]])
            for x, y in {(id(x), id(y)): (x, y) for x, y in places}.values():
                number += 1
                for change in differences(x, y):
                    yield change._replace(pair=number, layers=met[id(x), id(y)], of=of)


def stack(a: Pattern | None, b: Pattern | None, taken: Collection[str], depth: str) -> list[Tree]:
    """The layers of a mixture: as deep as the side that the decision `depth` takes."""
    if a is None or b is None:
        own = a or b
        return list(own.layers) if own is not None else []
    n = len((b if depth in taken else a).layers)
    made: dict[tuple[int, int], Tree] = {}
    found = []
    for i in range(n):
        one, two = a.at(i), b.at(i)
        pair = id(one), id(two)
        if pair not in made:
            made[pair] = mixed(one, two, taken)
        found.append(made[pair])
    return found


def mixed(a: Tree, b: Tree, taken: Collection[str]) -> Tree:
    """Two specs of one class, field by field from the side that the field's decision takes.

    A field that only one of them has is taken from it.
    """
    found: Tree = {CLASS: a[CLASS]}
    for field in (*a, *(field for field in b if field not in a)):
        if field != CLASS:
            found[field] = _mixed_field(a, b, field, taken)
    return found


def _mixed_field(a: Tree, b: Tree, field: str, taken: Collection[str]) -> Any:
    if field not in a or field not in b:
        return a[field] if field in a else b[field]
    presence = decision(a[CLASS], field)
    here, there = (b, a) if presence in taken else (a, b)
    value, other = here[field], there[field]
    if not is_tree(value) or not is_tree(other) or field in WHOLE:
        return value
    if KIND.get(field, presence) in taken:
        value, other = b[field], a[field]
    else:
        value, other = a[field], b[field]
    other = seen_as(other, value[CLASS])
    whole = mixed(other, value, taken) if value is b[field] else mixed(value, other, taken)
    return {name: whole[name] for name in value}


def differences(a: Tree, b: Tree) -> Iterator[Change]:
    """Fields in which two specs of one class differ, with the decision behind each."""
    for field in a:
        if field == CLASS or field not in b or a[field] == b[field]:
            continue
        one, two = a[field], b[field]
        presence = decision(a[CLASS], field)
        if not is_tree(one) or not is_tree(two) or field in WHOLE:
            yield Change(presence, field, a[CLASS], one, two)
            continue
        if one[CLASS] != two[CLASS]:
            yield Change(KIND.get(field, presence), field, a[CLASS], one, two)
            yield from differences(seen_as(one, two[CLASS]), two)
            yield from differences(one, seen_as(two, one[CLASS]))
        else:
            yield from differences(one, two)


def seen_as(value: Tree, name: str) -> Tree:
    """What a block says about a block of another class: the fields that mean the same in both."""
    if value[CLASS] == name:
        return value
    pair = value[CLASS], name
    if pair == ("Attention", "Mla"):
        kept = {field: value[field] for field in ("n_heads", "mask")}
        rope = {"position": value["position"]} if _rotates(value) else {}
        return {CLASS: name, **kept, **rope, "bias": all(value["qkv_bias"]), "q_rank": None, "indexer": None}
    if pair == ("Mla", "Attention"):
        kept = {field: value[field] for field in ("n_heads", "mask", "position")}
        return {CLASS: name, **kept, "qkv_bias": (value["bias"],) * 3, "out_bias": value["bias"]}
    if pair == ("Ffn", "Moe"):
        return {CLASS: name, "expert": _without_width(value, "Expert"), "shared": None, "dense": None}
    if pair == ("Moe", "Ffn"):
        return _without_width(value["expert"], "Ffn")
    return {CLASS: name}


def _rotates(attention: Tree) -> bool:
    return attention["position"] is not None and attention["position"][CLASS] == "Rope"


def _without_width(network: Tree, name: str) -> Tree:
    return {field: value for field, value in network.items() if field != "d_ff"} | {CLASS: name}
