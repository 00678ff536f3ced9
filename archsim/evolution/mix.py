"""An architecture between two others: some decisions taken from B, the others still from A.

A mixture is defined by which decisions are taken, not by the order in which they were, so that paths through the same
mixture meet there, and that attributions over orders are well defined.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple, get_args

from archsim.blocks.dispatch import CLASS, Spec
from archsim.evolution.decisions import WHOLE, decision_of, decision_of_class, in_order
from archsim.evolution.normal_form import Tree, document, is_tree, tree
from archsim.evolution.stack import Pattern, compress, expand
from archsim.spec.model import Embedding, Head, Model, Stack

IDENTITY = frozenset({
    "name", "title", "org", "released", "aliases", "hf_ids", "extends", "lineage", "dropout", "confidence",
    "published", "notes", "unused", "read_as", "sources", "layer", "layers",
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
        stack = {field: top["encoder"][field] for field in (CLASS, "final_norm", "embedding", "front", "own_table")}
        stack["embedding"] = stack["embedding"] or tree(Embedding())
        top["encoder"] = stack
    encoder = None if model.encoder is None else Pattern(expand(model.encoder.layers))
    return Whole(top, Pattern(expand(model.layers)), encoder)


class Change(NamedTuple):
    """One field that a decision changes: what it is, its class, and its values in A and in B.

    pair: the two kinds of layers that differ in it, as a number; 0 for what is not in a layer. layers: how many layers
    of B are such a pair, of all that B has.
    """

    decision: str
    field: str
    owner: type[Spec]
    old: object
    new: object
    pair: int = 0
    layers: int = 0
    of: int = 0


class ArchitectureMix:
    """Mixtures of two models."""

    def __init__(self, a: Model, b: Model) -> None:
        self.a, self.b = normal(a), normal(b)
        self.name = f"{a.name}..{b.name}"
        self.changes = tuple(self._changes())
        self.decisions = in_order({change.decision for change in self.changes})

    def document(self, taken: Collection[str]) -> dict[str, object]:
        """The spec of the mixture that takes these decisions from B. It need not be a valid one."""
        top = mix_trees(self.a.top, self.b.top, taken)
        layers = stack(self.a.layers, self.b.layers, taken, "depth")
        found = {"name": self.name, **document(top), "layers": compress(layers)}
        if top.get("encoder") is not None:
            inner = stack(self.a.encoder, self.b.encoder, taken, "encoder_depth")
            found["encoder"] = {**document(top["encoder"]), "layers": compress(inner)}
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
                yield Change(name, "layers", Stack, *depths)
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
            made[pair] = mix_trees(one, two, taken)
        found.append(made[pair])
    return found


def mix_trees(a: Tree, b: Tree, taken: Collection[str], holder: str = "") -> Tree:
    """Two specs of one class, field by field from the side that the field's decision takes.

    A field that only one of them has is taken from it. holder: the decision of the field that holds both.
    """
    found: Tree = {CLASS: a[CLASS]}
    for field in (*a, *(field for field in b if field not in a)):
        if field != CLASS:
            found[field] = _mixed_field(a, b, field, taken, holder)
    return found


def _mixed_field(a: Tree, b: Tree, field: str, taken: Collection[str], holder: str) -> object:
    if field not in a or field not in b:
        return a[field] if field in a else b[field]
    owner, one, two = a[CLASS], a[field], b[field]
    presence = decision_of(owner, field, holder)
    value, other = (two, one) if presence in taken else (one, two)
    if not is_tree(value) or not is_tree(other) or field in WHOLE:
        return value
    new = presence
    if one[CLASS] is not two[CLASS]:
        new = decision_of_class(owner, field, one[CLASS], two[CLASS], presence)
    kept = two if new in taken else one
    cls: type[Spec] = kept[CLASS]
    whole = mix_trees(convert(one, cls), convert(two, cls), taken, presence)
    return {name: whole[name] for name in kept}


def differences(a: Tree, b: Tree, holder: str = "") -> Iterator[Change]:
    """Fields in which two specs of one class differ, with the decision behind each."""
    owner: type[Spec] = a[CLASS]
    for field in a:
        if field == CLASS or field not in b or a[field] == b[field]:
            continue
        one, two = a[field], b[field]
        presence = decision_of(owner, field, holder)
        if not is_tree(one) or not is_tree(two) or field in WHOLE:
            yield Change(presence, field, owner, one, two)
        elif one[CLASS] is two[CLASS]:
            yield from differences(one, two, presence)
        else:
            yield Change(decision_of_class(owner, field, one[CLASS], two[CLASS], presence), field, owner, one, two)
            yield from differences(convert(one, two[CLASS]), two, presence)
            yield from differences(one, convert(two, one[CLASS]), presence)


def convert(value: Tree, cls: type[Spec]) -> Tree:
    """What a spec says about one of another class: the fields that mean the same in both."""
    if value[CLASS] is cls:
        return value
    found = cls.fields_from(value[CLASS].comparable_fields(value))
    return {CLASS: cls} | {field: item for field, item in found.items() if _holds(cls, field, item)}


def _holds(cls: type[Spec], field: str, value: object) -> bool:
    """Whether a field that holds specs may hold this one, or none; any other field holds any value."""
    if field == CLASS:
        return False
    if field not in cls.all_fields or not (is_tree(value) or value is None):
        return True
    kinds = list(_types(cls.field_infos()[field].annotation))
    specs = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Spec)]
    if is_tree(value):
        return not specs or issubclass(value[CLASS], tuple(specs))
    return type(None) in kinds


def _types(annotation: object) -> Iterator[object]:
    """The types inside an annotation, itself among them."""
    yield annotation
    for part in get_args(annotation):
        yield from _types(part)
