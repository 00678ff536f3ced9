"""The search: every combination where they can all be looked at, else a stratified sample and steps from its front."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from archsim.base.arrays import Array
from archsim.base.json_types import JsonObject
from archsim.candidates.evaluate import Evaluator, Rows, Searched, joined
from archsim.candidates.question import Objective, Question
from archsim.candidates.space import CHUNK, Space
from archsim.sweeps.pareto import front

ALL_BELOW = 30_000_000
"""Combinations of a question up to which all are looked at."""

SAMPLE = 50_000
"""Combinations of each structure that a sample begins with."""

MOST_MOVES = 60
"""Rounds of steps from the front at most; each round that changes nothing is the last."""

KEPT_NATS = 0.02
"""Candidates whose loss is within this of the best so far are kept beside the front: the plateau is among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The candidates of one structure in one weight format that are left."""

    evaluator: Evaluator
    rows: Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a search leaves: `parts` by structure and format, and how many candidates reached each test."""

    parts: tuple[Part, ...]
    searched: Searched
    sampled: bool

    def table(self) -> Rows:
        """All candidates that are left, with the number of their part."""
        parts = [part.rows | {"part": np.full(len(part.rows["d_model"]), i)} for i, part in enumerate(self.parts)]
        return joined([{name: column for name, column in rows.items() if name != "position"} | {
            "place": np.arange(len(rows["d_model"]))} for rows in parts])  # fmt: skip


def search(question: Question, base: JsonObject, spaces: Sequence[Space], sample: int | None = None) -> Found:
    """Every structure in every format of the question. sample: combinations of each that a sampled search begins with;
    None: all combinations, or a sample where there are more than `ALL_BELOW`.
    """
    total = sum(space.size for space in spaces) * len(question.weights)
    sampled = sample is not None or total > ALL_BELOW
    searched = Searched()
    parts = []
    for space in spaces:
        for weights in question.weights:
            evaluator = Evaluator(question=question, base=base, space=space, weights=weights, searched=searched)
            rows = _sampled(evaluator, sample or SAMPLE) if sampled else _all(evaluator)
            if rows and len(rows["d_model"]):
                parts.append(Part(evaluator=evaluator, rows=rows))
    return Found(parts=tuple(parts), searched=searched, sampled=sampled)


def _all(evaluator: Evaluator) -> Rows:
    """Every combination, a chunk at a time; of each what may matter in the end."""
    kept: Rows = {}
    for positions in evaluator.space.chunks():
        kept = _worth_keeping(evaluator.question, joined([kept, evaluator.rows(positions)]))
    return kept


def _sampled(evaluator: Evaluator, count: int) -> Rows:
    """A stratified sample, then steps of one along each axis from the front until it stays."""
    space, question = evaluator.space, evaluator.question
    positions = space.sample(min(count, space.size))
    seen = {tuple(position) for position in positions.tolist()}
    kept = _worth_keeping(question, joined([evaluator.rows(chunk) for chunk in _chunks(positions)]))
    for _ in range(MOST_MOVES):
        if not kept:
            break
        around = space.neighbours(kept["position"][best_rows(kept, question.objectives)])
        new = np.asarray([p for p in around.tolist() if tuple(p) not in seen])
        if not len(new):
            break
        seen |= {tuple(position) for position in new.tolist()}
        kept = _worth_keeping(question, joined([kept, evaluator.rows(new)]))
    return kept


def _chunks(positions: Array) -> list[Array]:
    return [positions[i : i + CHUNK] for i in range(0, len(positions), CHUNK)]


def _worth_keeping(question: Question, rows: Rows) -> Rows:
    """The candidates of the front, and those whose first objective is near the best."""
    if not rows:
        return rows
    first = question.objectives[0]
    near = near_best(rows, first, KEPT_NATS if first.name == "loss" else 0.0)
    near[best_rows(rows, question.objectives)] = True
    return {name: column[near] for name, column in rows.items()}


def best_rows(rows: Rows, objectives: Sequence[Objective]) -> Array:
    """Positions of the Pareto front, in order of the first objective."""
    costs = [o.sign * np.asarray(rows[o.name], dtype=float) for o in objectives]
    return np.asarray(front(np.stack(costs, axis=1)))


def near_best(rows: Rows, objective: Objective, within: float) -> Array:
    """Which candidates are at most so much worse than the best in one objective."""
    cost = objective.sign * np.asarray(rows[objective.name], dtype=float)
    return np.asarray(cost <= cost.min() + within)
