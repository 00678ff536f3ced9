"""`archsim diff`: what sets two architectures apart, decision by decision, and what each of them changes by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from archsim.base.displayed import Tabular
from archsim.base.number import Num
from archsim.base.positive import check_positive
from archsim.evolution.evolve import trains_in
from archsim.evolution.figures import ArchitectureCost, ArchitectureFigures
from archsim.evolution.mix import ArchitectureMix
from archsim.evolution.path import EvolutionPath
from archsim.evolution.words import describe_change
from archsim.spec.model import Model

GROUPS: Mapping[str, tuple[str, ...]] = {
    "parameters": ("params", "active_params"),
    "flops": ("flops_per_token",),
    "cache": ("kv_bytes", "state_bytes"),
    "storage": ("weight_bytes",),
}
"""What a change may change -> the figures that show it; one that changes none of them is wiring."""

COUNTED = tuple(name for names in GROUPS.values() for name in names)
TRAINED = ("train_flops_per_token", "train_bytes")
"""What training takes, which is counted where it is asked for."""


class Effect(NamedTuple):
    """One decision and what it changes by itself: made in A, or, where A cannot have it alone, undone in B.

    measured: where; None if it is possible in neither, and then there is no delta.
    """

    decision: str
    change: str
    measured: Literal["a", "b"] | None
    delta: dict[str, Num | None]

    @property
    def groups(self) -> tuple[str, ...]:
        """What it changes: parameters, flops, cache; else storage; else wiring."""
        if self.measured is None:
            return ("wiring",)
        found = [name for name, figures in GROUPS.items() if any(self.delta[figure] for figure in figures)]
        found += ["training"] if any(self.delta.get(figure) for figure in TRAINED) else []
        if len(found) > 1 and "storage" in found and "parameters" in found:
            found.remove("storage")  # bytes that follow from parameters
        return tuple(found) or ("wiring",)

    def to_dict(self) -> dict[str, object]:
        """Raw numbers."""
        return {
            "decision": self.decision, "change": self.change, "groups": list(self.groups),
            "measured_in": self.measured, "delta": self.delta if self.measured else None,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(Tabular):
    """Everything in which B differs from A. Effects of single decisions do not add up to the whole: they interact."""

    __repr__ = Tabular.__repr__

    a: Model
    b: Model
    context_len: int
    first: ArchitectureFigures
    last: ArchitectureFigures
    effects: tuple[Effect, ...]

    @property
    def same(self) -> bool:
        """Whether both are one architecture."""
        return not self.effects

    def to_dict(self) -> dict[str, object]:
        """The `archsim.diff/1` object."""
        return {
            "schema": "archsim.diff/1",
            "from": {"name": self.a.name, **_counted(self.first)},
            "to": {"name": self.b.name, **_counted(self.last)},
            "context_len": self.context_len, "same": self.same,
            "changes": [effect.to_dict() for effect in self.effects],
            "total": _difference(self.last, self.first),
        }  # fmt: skip


def difference(a: Model, b: Model, *, context_len: int = 8192, phase: str = "inference") -> Difference:
    """What sets B apart from A. phase: `train` for what training takes too."""
    check_positive(context_len=context_len)
    path = EvolutionPath(ArchitectureMix(a, b), ArchitectureCost(context_len=context_len, trains=trains_in(phase)))
    whole = frozenset(path.decisions)
    effects = tuple(_effect(path, name, whole) for name in path.decisions)
    first, last = path.end(frozenset()).figures, path.end(whole).figures
    return Difference(a=a, b=b, context_len=context_len, first=first, last=last, effects=effects)


def _effect(path: EvolutionPath, name: str, whole: frozenset[str]) -> Effect:
    change = describe_change(name, path.mix.changes)
    sides: tuple[tuple[Literal["a", "b"], frozenset[str], frozenset[str]], ...] = (
        ("a", frozenset(), frozenset({name})),
        ("b", whole - {name}, whole),
    )
    for side, before, after in sides:
        one, two = path.mixture(before), path.mixture(after)
        if one is not None and two is not None and one.key != two.key:
            return Effect(name, change, side, _difference(two.figures, one.figures))
    return Effect(name, change, None, dict.fromkeys(COUNTED))


def _counted(figures: ArchitectureFigures) -> dict[str, Num]:
    return {name: value for name in (*COUNTED, *TRAINED) if (value := getattr(figures, name)) is not None}


def _difference(last: ArchitectureFigures, first: ArchitectureFigures) -> dict[str, Num]:
    one, two = _counted(first), _counted(last)
    return {name: two[name] - one[name] for name in two if name in one}
