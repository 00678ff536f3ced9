"""A model with letters in place of its numbers, so that counting it prints the formula of the count.

The letters are those of the field, and each class of the spec states its own (`Spec.letters`): L layers, D d_model,
V vocabulary, N heads, F feed-forward width. Where a letter has several values in one model they are numbered: F1, F2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeVar

from archsim.base.poly import Poly
from archsim.blocks.dispatch import Spec
from archsim.spec.model import Model

S = TypeVar("S", bound=Spec)

REPEAT = "L"
"""The letter of repetitions."""


def symbolic(model: Model, keep: Collection[str] = ()) -> tuple[Model, dict[str, int]]:
    """The model with `Poly` letters for its numbers, and the value of every letter; letters in `keep` stay numbers.

    `cost.count.params(lower(symbolic_model, Step.of(1, 1, 0)))` is then the polynomial of the count. The model is a
    copy that skipped validation: use it for lowering only.
    """
    letters = _Letters(frozenset(keep))
    letters.collect(model)
    return letters.apply(model), letters.values()


class _Letters:
    """Which letter each number of one model gets: collected in a first walk, put in place in a second.

    Where a letter has several values in a model they are numbered. Of layers, every repetition has a letter of its
    own, also where two are equal.
    """

    def __init__(self, keep: frozenset[str]) -> None:
        self.keep = keep
        self.seen: dict[str, list[int]] = {}
        self.repeats = 0

    def numbers(self, spec: Spec) -> dict[str, int]:
        """What becomes a letter in one spec."""
        return {letter: n for letter, n in spec.extents().items() if letter not in self.keep}

    def collect(self, spec: Spec) -> None:
        """Notes the values of every letter in a spec and in the specs inside it."""
        for letter, value in self.numbers(spec).items():
            known = self.seen.setdefault(letter, [])
            if letter == REPEAT or value not in known:
                known.append(value)
        for inner in specs_in(spec):
            self.collect(inner)

    def values(self) -> dict[str, int]:
        """Every letter with its number."""
        return {self._name(letter, i): n for letter, known in self.seen.items() for i, n in enumerate(known)}

    def apply(self, spec: S) -> S:
        """A copy of the spec with letters; repetitions take theirs in the order of the first walk."""
        letters = {letter: self._symbol(letter, n) for letter, n in self.numbers(spec).items()}
        update = spec.with_extents(letters)
        for name in spec.all_fields:
            value = getattr(spec, name)
            if name not in update and isinstance(value, Spec):
                update[name] = self.apply(value)
            elif name not in update and isinstance(value, tuple):
                update[name] = tuple(self.apply(item) if isinstance(item, Spec) else item for item in value)
        return spec.model_copy(update=update)

    def _symbol(self, letter: str, value: int) -> Poly:
        if letter != REPEAT:
            return Poly.symbol(self._name(letter, self.seen[letter].index(value)))
        self.repeats += 1
        return Poly.symbol(self._name(letter, self.repeats - 1))

    def _name(self, letter: str, index: int) -> str:
        return letter if len(self.seen[letter]) == 1 else f"{letter}{index + 1}"


def meanings(spec: Spec) -> dict[str, str]:
    """What the letters of a model, and of the specs inside it, stand for."""
    found = dict(spec.letters.values())
    for inner in specs_in(spec):
        found |= meanings(inner)
    return found


def specs_in(spec: Spec) -> Iterator[Spec]:
    """The specs that the fields of a spec hold, those in tuples one by one."""
    for name in spec.all_fields:
        held = getattr(spec, name)
        yield from (item for item in (held if isinstance(held, tuple) else (held,)) if isinstance(item, Spec))
