"""Speeds of the search behind `archsim design`: specs counted and shapes priced per second, on one core.

python benchmarks/speed/design.py
"""

from __future__ import annotations

import time

import numpy as np

import archsim
from archsim.candidates.base_spec import usual_spec
from archsim.candidates.space import Space, axes_of
from archsim.candidates.structure import Structure
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import PopulationGraphs
from archsim.graph.step import Step
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan
from archsim.timing.step_pricer import StepPricer, engine_overheads

COUNTED, PRICED = 200_000, 50_000


def columns(count: int) -> dict[str, np.ndarray]:
    """Legal combinations of a dense decoder with full attention, drawn evenly."""
    space = Space(structure=Structure(), axes=axes_of(Structure(), {}, {}))
    values = space.values(np.concatenate(list(space.chunks())))
    legal = np.flatnonzero(space.legal(values))
    chosen = np.random.default_rng(0).choice(legal, count)
    return {name: column[chosen].astype(np.int64) for name, column in values.items()}


def counting() -> float:
    """Specs per second of parameters, weight bytes, cache bytes and FLOP."""
    model = Structure().population(usual_spec(), columns(COUNTED)).model
    start = time.process_time()
    graph = lower(model, step_for(model, 1, 1, 4096))
    for quantity in (c.params(graph), c.weight_bytes(graph), c.state_bytes(graph), c.flops(graph)):
        assert len(quantity) == COUNTED
    return COUNTED / (time.process_time() - start)


def pricing() -> float:
    """Shapes per second of the expected time of a decode step."""
    model = Structure().population(usual_spec(), columns(PRICED)).model
    formats = choose_formats(model)
    pricer = StepPricer.of(
        model, archsim.load_hardware("rtx-4090"), formats, engine_overheads("generic"), Plan(),
        graphs=PopulationGraphs(model, formats),
    )  # fmt: skip
    start = time.process_time()
    assert len(pricer.price(Step.decode(1, 32768)).expected_s) == PRICED
    return PRICED / (time.process_time() - start)


if __name__ == "__main__":
    counting()  # tables and formats are read once
    print(f"counted: {counting():,.0f} specs/s; priced: {pricing():,.0f} shapes/s")
