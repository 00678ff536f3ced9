"""Runs with drafts, whose tables do not say how many are accepted: one row of each group says so by its TPOT.

That row is not predicted. The others of its group take its acceptance: how much is accepted depends on model, drafter
and text, not on the load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from archsim.accuracy.files import Table
from archsim.accuracy.question import text
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping
from archsim.serving.acceptance import Drafting, Method

DRAFTS = 3
"""Drafts of a step where a row does not say (the recipes of SGLang and TensorRT-LLM for DeepSeek's module)."""

METHODS: dict[str, Method] = {"mtp": "mtp", "yes": "eagle"}
"""What a row says of its drafts -> who drafts."""

GROUP = ("source", "engine", "model", "weights", "device")
"""Columns of a group."""

STATES = ("tpot_mean_ms", "tpot_p50_ms")
"""Metrics that say how much is accepted: the first that a row has."""

HALVINGS = 7
"""Of the interval of shares, to 0.8 %."""

TpotMs = Callable[[Drafting], float]
"""TPOT of a row under some acceptance."""


@dataclass(frozen=True)
class StatedAcceptance:
    """Acceptance by group, found when it is first asked for."""

    table: Table
    known: dict[tuple[str, ...], Drafting] = field(default_factory=dict)

    def states(self, row: int, asked: JsonMapping) -> bool:
        """Whether a row is the one that states its group's acceptance."""
        return self._first(asked)[0] == row

    def drafting(self, asked: JsonMapping, tpot_ms: Callable[[JsonMapping], TpotMs]) -> Drafting:
        """Drafts of a row's group. tpot_ms: what a row's TPOT is under some acceptance. Raises UsageError where no row
        states a TPOT, or its way to draft is not known.
        """
        group = _group(asked)
        if group not in self.known:
            row, measured = self._first(asked)
            method = METHODS.get(text(asked, "speculative") or "")
            if method is None or row < 0:
                raise UsageError("how many drafts are accepted is not known: no row of the group has a TPOT")
            self.known[group] = accepted_as(method, measured, tpot_ms(self.table.question(row)))
        return self.known[group]

    def _first(self, asked: JsonMapping) -> tuple[int, float]:
        """The first row of a group with a TPOT, and that TPOT; -1 where there is none."""
        group = _group(asked)
        for row in range(len(self.table)):
            if _group(self.table.question(row)) == group:
                values = [self.table.measured[name][row] for name in STATES if name in self.table.measured]
                measured = next((value for value in values if value), None)
                if measured is not None:
                    return row, measured
        return -1, 0.0


def _group(asked: JsonMapping) -> tuple[str, ...]:
    return tuple(text(asked, name) or "" for name in (*GROUP, "speculative"))


def accepted_as(method: Method, measured_ms: float, tpot_ms: TpotMs) -> Drafting:
    """The geometric acceptance with which a TPOT is the measured one; none or all where it is beyond them."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if tpot_ms(_geometric(method, middle)) > measured_ms:
            low = middle
        else:
            high = middle
    return _geometric(method, (low + high) / 2)


def _geometric(method: Method, share: float) -> Drafting:
    return Drafting(method, DRAFTS, tuple(share**position for position in range(1, DRAFTS + 1)))
