"""Op graphs of a model's steps before formats are applied and ranks are cut, kept from one question to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable
from dataclasses import field
from functools import lru_cache
from typing import Generic, TypeVar

from archsim.base.data_class import dataclass
from archsim.graph.graph import Block
from archsim.graph.step import Step
from archsim.spec.lower import lower
from archsim.spec.model import Model

T = TypeVar("T")

REMEMBERED_GRAPHS = 64
"""Graphs of one model that are kept: a plan search asks for few steps on many plans."""

REMEMBERED_ARRAYS = 8
"""Of steps of arrays, which take megabytes each and are seldom asked for again."""

REMEMBERED_MODELS = 4
"""Models, each in its formats, whose graphs are kept from one question to the next."""


class StepMemo(Generic[T]):
    """Results by step and plan, at most `size` of them, and a few of steps of arrays; the one unused for longest goes
    first.

    Steps of arrays have no hash: they are told apart by identity.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: OrderedDict[Hashable, tuple[Step, T]] = OrderedDict()
        self.arrays: OrderedDict[Hashable, tuple[Step, T]] = OrderedDict()

    def get(self, step: Step, plan: Hashable, make: Callable[[], T]) -> T:
        """The result for a step on a plan, made where it is not known."""
        key: Hashable = (step, step.kinds, plan)  # 4 == 4.0, and counts of whole numbers are whole
        kept, size = self.known, self.size
        try:
            found = kept.pop(key, None)
        except TypeError:  # arrays have no hash
            key, kept, size = (id(step), plan), self.arrays, min(size, REMEMBERED_ARRAYS)
            found = kept.pop(key, None)
        found = found or (step, make())
        kept[key] = found
        if len(kept) > size:
            kept.popitem(last=False)
        return found[1]


class LoweredSteps:
    """Graphs of one model before formats are applied, which questions about several formats share. parts: optional
    modules that run as well, as of `spec.lower`.
    """

    def __init__(self, model: Model, parts: Collection[str] = ()) -> None:
        self.model, self.parts = model, parts
        self._known = StepMemo[Block](REMEMBERED_GRAPHS)

    def forget_arrays(self) -> None:
        """Graphs of steps of arrays, which take much memory, are made again where they are asked for."""
        self._known.arrays.clear()

    def get(self, step: Step) -> Block:
        """The graph of a step, kept where its numbers are plain ones."""
        if not step.plain:
            return lower(self.model, step, self.parts)
        return self._known.get(step, None, lambda: lower(self.model, step, self.parts))


def shared_steps(model: Model) -> LoweredSteps:
    """The graphs before formats that all questions about a model share, for steps of numbers."""
    return _shared_steps(_Named(model.name, model))


@dataclass(frozen=True, slots=True)
class _Named:
    """A model by value, found by its name."""

    name: str
    model: Model = field(hash=False)


@lru_cache(maxsize=REMEMBERED_MODELS)
def _shared_steps(named: _Named) -> LoweredSteps:
    return LoweredSteps(named.model)
