"""Runs with drafts, whose tables do not say how many are accepted: one row of each group says so by its TPOT.

That row is not predicted. The others of its group take its acceptance: how much is accepted depends on model, drafter
and text, not on the load.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from archsim.accuracy.files import Table
from archsim.accuracy.launch_flags import drafts_of, run_engine, tree_of
from archsim.accuracy.question import text
from archsim.accuracy.sweep_limits import completed_flags
from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping
from archsim.serving.acceptance import Drafting, Method, with_tree

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
    known: dict[tuple[str, ...], float] = field(default_factory=dict)

    def states(self, row: int, asked: JsonMapping) -> bool:
        """Whether a row is the one that states its group's acceptance."""
        return self._first(asked)[0] == row

    def drafting(self, asked: JsonMapping, tpot_ms: Callable[[JsonMapping], TpotMs]) -> Drafting:
        """Drafts of a row's group. tpot_ms: what a row's TPOT is under some acceptance. Raises UsageError where no row
        states a TPOT, or its way to draft is not known.
        """
        group, way = _group(asked), text(asked, "speculative") or ""
        method = METHODS.get(way)
        if method is None:
            raise UsageError(f"drafts made by {quote(way)} are not modelled in runs under load")
        row, measured = self._first(asked)
        if row < 0:
            raise UsageError("how many drafts are accepted is not known: no row of the group has a TPOT")
        if group not in self.known:
            stating = self.table.question(row)
            tpot = tpot_ms(stating)
            self.known[group] = accepted_share(measured, lambda share: tpot(drafts_by(method, share, stating)))
        return drafts_by(method, self.known[group], asked)

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


def drafts_by(method: Method, share: float, asked: JsonMapping) -> Drafting:
    """Drafts of a step, accepted to a share: as many, in a row or in a tree, as the command of a row says, or the
    scripts of its sweep; else the usual number.
    """
    pool = "decode" if text(asked, "disaggregated") == "yes" else ""
    engine, command = run_engine(asked)[0].partition("@")[0], completed_flags(asked, pool)
    return with_tree(geometric(method, share, drafts_of(engine, command) or DRAFTS), *tree_of(engine, command))


def accepted_share(measured_ms: float, tpot_ms: Callable[[float], float]) -> float:
    """The share of drafts with which a TPOT is the measured one; none or all where it is beyond them."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if tpot_ms(middle) > measured_ms:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def geometric(method: Method, share: float, drafts: int = DRAFTS) -> Drafting:
    """Drafts each of which is accepted with the same chance, once those before it are."""
    return Drafting(method, drafts, tuple(share**position for position in range(1, drafts + 1)))
