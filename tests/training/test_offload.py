"""What lies on the host, and what its way over the host link takes."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.spec.load import load_hardware
from archsim.training.offload import host_rate, offload_of, offload_text
from archsim.training.train import Training

ASKED: dict[str, Any] = {"devices": 1, "seq_len": 2048, "global_batch": 4, "micro_batch": 1, "recompute": "none"}


def run(offload: str = "none", **options: Any) -> Training:
    return archsim.train("llama3.2-1b", "h100", offload=offload, **{**ASKED, **options})


def test_optimizer_states_leave_the_device_and_pass_the_link_once_a_step() -> None:
    here, there = run(), run("optimizer")
    states = here.priced.memory.most.states.optimizer
    assert there.priced.memory.most.allocated == here.priced.memory.most.allocated - states
    comm = there.priced.step.comm["host"]
    assert comm.total_s == pytest.approx(states / host_rate(load_hardware("h100")))
    update = here.priced.step.parts.optimizer_s
    assert comm.exposed_s == pytest.approx(comm.total_s - update)
    assert there.priced.step.expected_s == pytest.approx(here.priced.step.expected_s + comm.exposed_s)


def test_saved_tensors_pass_the_link_twice_a_micro_batch() -> None:
    here, there = run(), run("activations")
    assert here.pricer is not None
    rank, _ = here.pricer.rank(here.priced.choice)
    saved = sum(rank.kept.layers[name] for name in rank.order)
    comm = there.priced.step.comm["host"]
    assert comm.sent == pytest.approx(2 * saved * ASKED["global_batch"])
    assert there.priced.memory.most.saved == pytest.approx(2 * max(rank.kept.layers.values()))
    assert there.priced.memory.most.saved < here.priced.memory.most.saved
    # The link is behind the work of the layers as far as that is long enough.
    assert 0 <= comm.exposed_s < comm.total_s
    assert there.priced.step.expected_s == pytest.approx(here.priced.step.expected_s + comm.exposed_s)


def test_both_with_a_pipeline() -> None:
    both = run("activations,optimizer", devices=2, pp=2)
    assert both.to_dict()["plan"]["offload"] == "optimizer,activations"
    assert both.priced.memory.most.states.optimizer == 0
    kinds = {each["kind"] for each in both.to_dict()["step"]["communication"]}
    assert {"host", "pp"} <= kinds


def test_the_spelling() -> None:
    assert offload_text(offload_of("activations, optimizer")) == "optimizer,activations"
    assert offload_of(None) == offload_of("none") == frozenset()
    with pytest.raises(UsageError, match="`--offload` has no"):
        offload_of("weights")


def test_a_system_with_one_memory_has_nothing_to_offload_to() -> None:
    with pytest.raises(UsageError, match="one memory with its host"):
        host_rate(load_hardware("m3-max"))


def test_what_does_not_fit_is_told_to_offload() -> None:
    answer = archsim.train("llama3-8b", "h100", devices=1, global_batch=4, recompute="full")
    assert not answer.fits
    assert any(each.change.startswith("--offload") and each.fits for each in answer.suggestions)
