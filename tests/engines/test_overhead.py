"""What an engine does around its kernels: which measured version stands for the one asked for."""

from __future__ import annotations

import pytest

from archsim.engines.names import choose_engine
from archsim.engines.overhead import UNSTATED, overheads_of
from archsim.spec.catalog import files

BY_VERSION = {"0.6": (3000.0, 2000.0, 4000.0), "0.9": (1000.0, 800.0, 1500.0), "0.11": (500.0, 400.0, 700.0)}
MEASURED = {"vllm": {"overhead_us": BY_VERSION}}


@pytest.mark.parametrize(
    ("version", "stands_for"),
    [("0.6", "0.6"), ("0.8.5", "0.6"), ("0.9.2", "0.9"), ("0.10", "0.9"), ("0.24", "0.11"), ("0.5", "0.6")],
)
def test_the_newest_version_not_above_the_one_asked_for(version: str, stands_for: str) -> None:
    """0.10 is above 0.9 and below 0.11; where all are above, the oldest stands for it."""
    found = overheads_of("vllm", version, measured=MEASURED)
    microseconds = [1e6 * value for value in (found.overhead_s, found.overhead_low_s, found.overhead_high_s)]
    assert microseconds == pytest.approx(BY_VERSION[stands_for])


def test_without_a_version_the_middle_value_or_that_of_runs_that_state_none() -> None:
    """Not the newest: nobody said that it is what ran."""
    assert overheads_of("vllm", measured=MEASURED).overhead_s == pytest.approx(1000e-6)
    unstated = {"vllm": {"overhead_us": {**BY_VERSION, UNSTATED: (42.0, 40.0, 44.0)}}}
    assert overheads_of("vllm", measured=unstated).overhead_s == pytest.approx(42e-6)


def test_nothing_measured_is_no_overhead() -> None:
    """And the spread of composed steps is that of the calibration, whatever the engine."""
    found = overheads_of("vllm", "0.11", measured={"composition": {"interval": (-0.2, 0.3)}})
    assert (found.overhead_s, found.overhead_low_s, found.overhead_high_s) == (0.0, 0.0, 0.0)
    assert found.composition == (-0.2, 0.3)
    assert overheads_of("vllm", measured={}).composition == (0.0, 0.0)


@pytest.mark.parametrize("name", files("engines"))
def test_every_document_states_what_sets_its_engine_apart(name: str) -> None:
    """Launches, fusion and scheduling come from the document; measured kernels are of an engine that there is."""
    rules, found = choose_engine(name).rules, overheads_of(name, measured={})
    assert found.name == name and found.launch_s == pytest.approx(rules.time.launch_us * 1e-6)
    assert found.fused_qkv == rules.time.fused_qkv
    assert found.chunked_prefill_with_decode == rules.scheduler.chunked_prefill_with_decode
    assert not found.kernels or found.kernels in files("engines")
    assert not found.version or found.kernels == name
