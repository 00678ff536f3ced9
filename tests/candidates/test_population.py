"""A spec whose numbers are columns: every quantity of every candidate is that of its own spec."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import archsim as a
from archsim.candidates.space import Space, axes_of
from archsim.candidates.structure import Structure, structures
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import PopulationGraphs, StepGraphs
from archsim.counts.workload import Workload
from archsim.engines.names import choose_engine
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors
from archsim.memory.population_memory import PopulationTensors
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.spec.population import Population
from archsim.timing.step_pricer import StepPricer, engine_overheads
from archsim.training.model_flops import flops_per_token

NORM = {"kind": "rmsnorm"}
BASE: dict[str, Any] = {
    "name": "candidate", "d_model": 1024, "vocab_size": 128256, "head": {"tied": False}, "final_norm": NORM,
    "layer": {
        "norm": NORM, "attention": {"kind": "gqa", "position": {"kind": "rope", "theta": 500000.0}},
        "ffn": {"kind": "swiglu"},
    },
}  # fmt: skip
EVERY = structures(["full", "window", "mla"], ["dense", "moe"])
COUNTS = ("params", "active", "weights", "kv", "flops", "train")


def some(structure: Structure, count: int, seed: int) -> Population:
    """Legal candidates of a structure, drawn at random."""
    space = Space(structure=structure, axes=axes_of(structure, {}, {}))
    values = space.values(space.sample(400 * count, seed))
    legal = np.flatnonzero(space.legal(values))
    chosen = np.random.default_rng(seed).permutation(legal)[:count]
    return structure.population(BASE, {name: column[chosen].astype(np.int64) for name, column in values.items()})


def quantities(model: Model, weights: str | None, columns: bool) -> dict[str, Any]:
    """Counts, bytes and seconds of one spec, or of all candidates of a population."""
    hardware, formats = a.load_hardware("rtx-4090"), choose_formats(model, weights)
    graphs = (PopulationGraphs if columns else StepGraphs)(model, formats)
    tensors = (PopulationTensors if columns else EngineTensors)(model, hardware, formats, choose_engine("generic"))
    memory = EngineMemoryModel(tensors, Workload(batch=2, input_len=8000, output_len=192), graphs)
    one, held = lower(model, step_for(model, 1, 1)), memory.on(Plan())
    pricer = StepPricer.of(model, hardware, formats, engine_overheads("generic"), Plan(), graphs=graphs)
    decode, prefill = pricer.price(memory.steps.decode), pricer.prefill(memory.steps.prefill)
    return {
        "params": c.params(one), "active": c.active_params(one), "weights": held.weights, "kv": held.kv_cache,
        "flops": decode.flops, "train": flops_per_token(model), "activations": held.activations, "free": held.free,
        "decode": decode.expected_s, "low": decode.low_s, "high": decode.high_s, "ideal": decode.ideal_s,
        "prefill": prefill.expected_s, "bytes": decode.bytes,
    }  # fmt: skip


def check(structure: Structure, weights: str | None, count: int, seed: int = 3) -> None:
    """Counts equal as whole numbers, times within 1e-12."""
    population = some(structure, count, seed)
    together = quantities(population.model, weights, True)
    for i in range(len(population)):
        alone = quantities(population.at(i), weights, False)
        for name, value in alone.items():
            found = np.broadcast_to(together[name], (len(population),))[i]
            if name in COUNTS:
                assert found == value, (structure.name, name, i)
            else:
                assert found == pytest.approx(value, rel=1e-12), (structure.name, name, i)


def test_structures_are_all_there() -> None:
    """Full, nine windows and two latents, dense and with experts; words that are none are refused."""
    assert len(EVERY) == 24 and len({s.name for s in EVERY}) == 24
    for word in ("fulll", "window:0", "window:512:7/8", "mla:x"):
        with pytest.raises(a.ArchsimError):
            structures([word], ["dense"])


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["int4", None])
def test_a_few_candidates(weights: str | None) -> None:
    """One structure of each kind of attention, and experts."""
    for structure in structures(["full", "window:1024:5/6"], ["dense"]) + structures(["mla:512"], ["moe"]):
        check(structure, weights, 4)


@pytest.mark.slow
@pytest.mark.parametrize("structure", EVERY, ids=[s.name for s in EVERY])
def test_random_candidates_of_every_structure(structure: Structure) -> None:
    """200 of each."""
    check(structure, None, 200)
