"""A path from one architecture to another, one decision at a time, every step a model that can be built."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from archsim.base.errors import AnswerNo, ArchsimError
from archsim.base.number import Num
from archsim.evolution.figures import ArchitectureCost, ArchitectureFigures
from archsim.evolution.mix import ArchitectureMix
from archsim.evolution.words import describe_change
from archsim.spec.model import Model

TOGETHER = 4
"""The most decisions that are taken as one step."""

Taken = frozenset[str]


class Mixture(NamedTuple):
    """A mixture that can be built: what tells it from others, and its figures."""

    key: str
    figures: ArchitectureFigures


class PathStep(NamedTuple):
    """One step: the decisions it takes (several only where none is possible alone), and the figures around it."""

    decisions: tuple[str, ...]
    before: ArchitectureFigures
    after: ArchitectureFigures

    @property
    def delta(self) -> dict[str, Num | None]:
        """What the step changes."""
        return self.after.minus(self.before)


@dataclass(slots=True)
class EvolutionPath:
    """Paths from A to B in any order of decisions; each mixture on the way is built and priced once."""

    mix: ArchitectureMix
    cost: ArchitectureCost
    keys: dict[Taken, str] = field(default_factory=dict)
    figures: dict[str, ArchitectureFigures | None] = field(default_factory=dict)

    @property
    def decisions(self) -> tuple[str, ...]:
        """What A and B differ in, in the order of the story."""
        return self.mix.decisions

    def key(self, taken: Taken) -> str:
        """What tells the mixture that takes these decisions from B from others."""
        if taken not in self.keys:
            document = self.mix.document(taken)
            key = self.keys[taken] = json.dumps(document, sort_keys=True, default=repr)
            if key not in self.figures:
                self.figures[key] = self._figures(document)
        return self.keys[taken]

    def _figures(self, document: dict[str, object]) -> ArchitectureFigures | None:
        """The figures of a spec; None where there can be no such model."""
        try:
            return self.cost(Model.model_validate(document))
        except (ArchsimError, ValueError):
            return None

    def mixture(self, taken: Taken) -> Mixture | None:
        """A mixture; None if there can be no such model."""
        key = self.key(taken)
        figures = self.figures[key]
        return None if figures is None else Mixture(key, figures)

    def steps(self, order: Sequence[str]) -> tuple[PathStep, ...]:
        """The steps of one order. Decisions that would give an invalid or unchanged model are postponed, and tried
        again after each step. Raises AnswerNo where no few decisions lead on.
        """
        taken: Taken = frozenset()
        goal, here = self.end(frozenset(order)), self.end(taken)
        waiting, steps = list(order), []
        while here.key != goal.key:
            group, found = self._next(taken, here, waiting)
            steps.append(PathStep(group, here.figures, found.figures))
            taken, here = taken | set(group), found
            waiting = [name for name in waiting if name not in group]
        return tuple(steps)

    def end(self, taken: Taken) -> Mixture:
        """A or B in normal form."""
        found = self.mixture(taken)
        if found is None:
            which = "the first" if not taken else "the second"
            raise AnswerNo(f"{which} model of {self.mix.name} cannot be written layer by layer")
        return found

    def _next(self, taken: Taken, here: Mixture, waiting: Sequence[str]) -> tuple[tuple[str, ...], Mixture]:
        for group in _groups(waiting):
            found = self.mixture(taken | set(group))
            if found is not None and found.key != here.key:
                return group, found
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
