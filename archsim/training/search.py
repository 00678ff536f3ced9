"""Layouts of a number of devices: all that a model allows, and the fastest that fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from archsim.base.errors import InvalidPlan
from archsim.spec.model import Model
from archsim.spec.parallelism import expert_counts, tp_degrees
from archsim.training.layout import Layout, check_layout
from archsim.training.objective import OBJECTIVES, Objective, Score
from archsim.training.offload import NOTHING, Offload
from archsim.training.pricer import Choice, Held, Priced, TrainingPricer

MICRO_BATCHES = (1, 2, 4, 8)
RECOMPUTE = ("none", "selective", "full")
LONG = 32_768
"""Tokens of a sequence from which on context parallelism is tried."""


class Fixed(NamedTuple):
    """What was asked for: fields of a layout by name, what is recomputed, None where that is free, and what lies on the
    host.
    """

    fields: Mapping[str, object]
    recompute: str | None = None
    offload: Offload = NOTHING


def divisors(n: int) -> list[int]:
    """All divisors in order."""
    return [d for d in range(1, n + 1) if n % d == 0]


def candidates(model: Model, devices: int, domain: int, start: Layout, fixed: Fixed) -> Iterator[Choice]:
    """All layouts on so many devices that agree with what is asked for. domain: devices that links join."""
    given = fixed.fields
    experts = min(expert_counts(model), default=1)
    free: dict[str, Iterable[object]] = {
        "tp": [n for n in tp_degrees(model, domain) if devices % n == 0],
        "pp": divisors(devices),
        "cp": divisors(8) if start.seq_len >= LONG else [1],
        "ep": divisors(experts),
        "micro_batch": MICRO_BATCHES,
    }
    options = {name: [given[name]] if name in given else list(values) for name, values in free.items()}
    for tp, pp, cp, ep, micro in product(*options.values()):
        degrees = {"tp": tp, "pp": pp, "cp": cp, "ep": ep, "micro_batch": micro}
        yield from _with_details(model, devices, replace(start, **degrees), fixed)  # type: ignore[arg-type]


def _with_details(model: Model, devices: int, layout: Layout, fixed: Fixed) -> Iterator[Choice]:
    """The layouts of some degrees: data ranks from the rest, sharding, schedule, and what is recomputed."""
    group, given = layout.tp * layout.pp * layout.cp, fixed.fields
    if devices % group or given.get("dp", devices // group) != devices // group:
        return
    dp = devices // group
    shared = [1, 3] if layout.pp == 1 else [1]
    zeros = [given["zero"]] if "zero" in given else shared if dp * layout.cp > 1 else [0]
    etps = [given["etp"]] if "etp" in given else sorted({1, layout.tp} if layout.ep > 1 else {layout.tp})
    if not expert_counts(model):
        etps = [1]
    for zero, etp, (schedule, vpp) in product(zeros, etps, _schedules(layout, given)):
        sp = given.get("sp", layout.tp > 1)
        made = replace(layout, dp=dp, zero=zero, etp=etp, schedule=schedule, vpp=vpp, sp=sp)  # type: ignore[arg-type]
        try:
            check_layout(model, made)
        except InvalidPlan:
            continue
        for recompute in [fixed.recompute] if fixed.recompute else RECOMPUTE:
            yield Choice(made, recompute, fixed.offload)


def _schedules(layout: Layout, given: Mapping[str, object]) -> list[tuple[str, int]]:
    """Schedules and stages a rank that are tried."""
    if "schedule" in given or "vpp" in given:
        vpp = int(str(given.get("vpp", 1)))
        return [(str(given.get("schedule", "interleaved" if vpp > 1 else "1f1b")), vpp)]
    return [("1f1b", 1)] if layout.pp == 1 else [("1f1b", 1), ("interleaved", 2), ("interleaved", 4)]


class Found(NamedTuple):
    """The best layout; pareto: those that no other beats in both time and memory; tried: how many were looked at."""

    best: Priced
    pareto: tuple[Priced, ...]
    tried: int


def search(
    pricer: TrainingPricer, choices: Iterable[Choice], prune: bool = True, objective: Objective = OBJECTIVES["time"]
) -> Found:
    """The best layout that fits, else the one that needs the least memory. prune: what cannot win is not played.

    Raises InvalidPlan where there is no layout at all.
    """
    best: tuple[Score, Priced] | None = None
    smallest: Choice | None = None
    least, tried, front, held = float("inf"), 0, list[Priced](), None
    by_memory = objective is OBJECTIVES["memory"]
    for choice in choices:
        tried += 1
        if prune and choice.layout == held and not by_memory:  # it fits with less that is computed twice
            continue
        memory = _memory(pricer, choice)
        if memory is None:
            continue
        if memory.most.allocated < least:
            least, smallest = memory.most.allocated, choice
        if not memory.fits:
            continue
        held = choice.layout
        if prune and best is not None and objective.least(pricer, choice, memory) > best[0][0]:
            continue
        priced = pricer.price(choice, memory)
        front.append(priced)
        score = objective.score(pricer, priced)
        if best is None or score < best[0]:
            best = score, priced
    chosen = best[1] if best is not None else pricer.price(smallest) if smallest is not None else None
    if chosen is None:
        raise InvalidPlan(
            "no layout is possible on these devices", hints=("give --global-batch, or fewer degrees, or other devices",)
        )
    return Found(chosen, pareto(front), tried)


def _memory(pricer: TrainingPricer, choice: Choice) -> Held | None:
    try:
        return pricer.memory(choice)
    except InvalidPlan:  # no link joins a group
        return None


def pareto(found: Iterable[Priced]) -> tuple[Priced, ...]:
    """Those that nothing else beats in both time and memory, fastest first."""
    kept: list[Priced] = []
    for each in sorted(found, key=lambda p: p.step.expected_s):
        if not kept or each.memory.most.allocated < kept[-1].memory.most.allocated:
            kept.append(each)
    return tuple(kept)
