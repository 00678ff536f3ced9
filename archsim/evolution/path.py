"""A path from one architecture to another, one decision at a time, every step a model that can be built."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

from archsim.base.errors import AnswerNo, ArchsimError
from archsim.evolution.figures import ArchitectureCost, ArchitectureFigures
from archsim.evolution.mix import ArchitectureMix
from archsim.evolution.words import describe_change
from archsim.spec.model import Model

TOGETHER = 4
"""The most decisions that are taken as one step."""

Taken = frozenset[str]


class State(NamedTuple):
    """A mixture that can be built: what tells it from others, and what it costs."""

    key: str
    costs: ArchitectureFigures


class Step(NamedTuple):
    """One step: the decisions it takes (several only where none of them is possible alone), and the costs around it."""

    decisions: tuple[str, ...]
    before: ArchitectureFigures
    after: ArchitectureFigures

    @property
    def delta(self) -> dict[str, Any]:
        """What the step changes."""
        return self.after.minus(self.before)


@dataclass(slots=True)
class EvolutionPath:
    """Walks from A to B in any order; remembers every mixture that it has met, and prices each spec once."""

    mix: ArchitectureMix
    cost: ArchitectureCost
    keys: dict[Taken, str] = field(default_factory=dict)
    costs: dict[str, ArchitectureFigures | None] = field(default_factory=dict)

    @property
    def decisions(self) -> tuple[str, ...]:
        """What A and B differ in, in the order of the story."""
        return self.mix.decisions

    def key(self, taken: Taken) -> str:
        """What tells the mixture that takes these decisions from B from others."""
        if taken not in self.keys:
            document = self.mix.document(taken)
            key = self.keys[taken] = json.dumps(document, sort_keys=True, default=repr)
            if key not in self.costs:
                self.costs[key] = self._priced(document)
        return self.keys[taken]

    def _priced(self, document: dict[str, Any]) -> ArchitectureFigures | None:
        """The costs of a spec; None where there can be no such model."""
        try:
            return self.cost(Model.model_validate(document))
        except (ArchsimError, ValueError):
            return None

    def state(self, taken: Taken) -> State | None:
        """A mixture; None if there can be no such model."""
        key = self.key(taken)
        costs = self.costs[key]
        return None if costs is None else State(key, costs)

    def steps(self, order: Sequence[str]) -> tuple[Step, ...]:
        """The steps of one order. A decision that is not possible yet, or that would change nothing yet, waits for the
        first step after which it is. Raises AnswerNo where no few decisions lead on.
        """
        taken: Taken = frozenset()
        goal, here = self.end(frozenset(order)), self.end(taken)
        waiting, steps = list(order), []
        while here.key != goal.key:
            group, state = self._next(taken, here, waiting)
            steps.append(Step(group, here.costs, state.costs))
            taken, here = taken | set(group), state
            waiting = [name for name in waiting if name not in group]
        return tuple(steps)

    def end(self, taken: Taken) -> State:
        """A or B in normal form."""
        state = self.state(taken)
        if state is None:
            which = "the first" if not taken else "the second"
            raise AnswerNo(f"{which} model of {self.mix.name} cannot be written layer by layer")
        return state

    def _next(self, taken: Taken, here: State, waiting: Sequence[str]) -> tuple[tuple[str, ...], State]:
        for group in _groups(waiting):
            state = self.state(taken | set(group))
            if state is not None and state.key != here.key:
                return group, state
        names = "; ".join(describe_change(name, self.mix.changes) for name in waiting)
        raise AnswerNo(
            f"no path of single decisions: none of these, nor {TOGETHER} of them together, can be changed next",
            details=names,
            hints=("`archsim diff` shows what differs, `archsim compare` what it costs as a whole",),
        )


def _groups(waiting: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """What may be the next step: one decision if possible, then few together."""
    for size in range(1, min(TOGETHER, len(waiting)) + 1):
        yield from combinations(waiting, size)
