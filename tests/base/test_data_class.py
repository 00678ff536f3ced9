"""Data classes with shared methods are what the standard library's are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import field, replace

import pytest

from archsim.base.data_class import dataclass as ours


@ours(frozen=True, slots=True, kw_only=True)
class Named:
    """Of this module, so that it can be pickled."""

    size: int = 1
    parts: tuple[int, ...] = field(default_factory=tuple)


def pair(make: Callable[..., Callable[[type], type]], **options: bool) -> type:
    """The same class by one of the two decorators."""

    class Pair:
        first: int
        second: list[int] = field(default_factory=list)
        third: float = field(default=2.5, hash=False)
        noted: str = field(default="", compare=False, repr=False)
        made: int = field(init=False, default=7)

        def __post_init__(self) -> None:
            object.__setattr__(self, "made", self.first + 1)

    return make(**options)(Pair)


OPTIONS = [{"frozen": f, "slots": s, "kw_only": k} for f in (True, False) for s in (True, False) for k in (True, False)]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_as_the_standard_library_s(options: dict[str, bool]) -> None:
    mine, theirs = pair(ours, **options), pair(dataclasses.dataclass, **options)  # type: ignore[arg-type]
    a, b = mine(first=1), theirs(first=1)
    assert repr(a) == repr(b)
    assert dataclasses.asdict(a) == dataclasses.asdict(b)
    assert a == mine(first=1, noted="other") and a != mine(first=2) and a != b
    assert replace(a, first=5).made == 6 and a.second is not mine(first=1).second
    assert (mine.__hash__ is None) == (theirs.__hash__ is None)
    names = [p.replace(annotation=p.empty, default=None) for p in inspect.signature(theirs).parameters.values()]
    assert [p.replace(annotation=p.empty, default=None) for p in inspect.signature(mine).parameters.values()] == names
    with pytest.raises(TypeError):
        mine()
    if options["frozen"]:
        for change in (lambda: setattr(a, "first", 2), lambda: delattr(a, "first")):
            with pytest.raises(dataclasses.FrozenInstanceError):
                change()


def test_fields_left_out_of_the_hash_are_compared() -> None:
    """`hash=False` leaves a field out of the hash alone."""
    mine = pair(ours, frozen=True)
    a, b = mine(first=1, second=(), third=1.0), mine(first=1, second=(), third=2.0)
    assert hash(a) == hash(b) and a != b


def test_copies_and_pickles() -> None:
    value = Named(size=3, parts=(1, 2))
    assert pickle.loads(pickle.dumps(value)) == value == copy.deepcopy(value) == copy.copy(value)


def test_own_methods_stay() -> None:
    @ours(frozen=True)
    class Own:
        size: int = 1

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    assert repr(Own()) == "own" and Own() == 3

    @ours(frozen=True, eq=False)
    class Same:
        size: int = 1

    assert Same() != Same() and hash(Same()) != hash(Same())
