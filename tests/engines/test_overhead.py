"""What an engine does around its kernels: whose host work stands for the version asked for, and what TTFT holds."""

from __future__ import annotations

import pytest

from archsim.engines.names import choose_engine
from archsim.engines.overhead import FIRST_TOKEN, USUAL_HOST, FirstToken, HostWork, overheads_of
from archsim.spec.catalog import files

WORK = {"step_us": (700.0, 500.0, 900.0), "sequence_us": (40.0, 30.0, 60.0)}
ASYNC = {"step_us": (100.0, 50.0, 200.0), "sequence_us": (2.0, 1.0, 4.0)}
MEASURED = {"vllm": {"host": {"in_turn": WORK, "async": ASYNC}}}


@pytest.mark.parametrize(
    ("version", "step_us"), [("0.8.5", 700), ("0.12.0", 700), ("0.13", 700), ("0.14", 100), ("0.24", 100), ("", 100)]
)
def test_versions_that_drive_the_device_alike_share_the_host_work(version: str, step_us: float) -> None:
    """Not a number for each version; without a version the newest is assumed, as everywhere."""
    host = overheads_of("vllm", version, measured=MEASURED).host
    assert host.step_s[0] == pytest.approx(step_us * 1e-6)


def test_nothing_is_borrowed_across_a_rewrite() -> None:
    """vLLM 0.7 is another engine than 0.8: without runs of its own it has usual figures and a wide interval."""
    host = overheads_of("vllm", "0.7.3", measured=MEASURED).host
    assert host == USUAL_HOST and host.step_s[2] / host.step_s[1] > 5


def test_host_work_grows_with_the_sequences() -> None:
    host = overheads_of("vllm", "0.12", measured=MEASURED).host
    assert [host.time(n) for n in (0, 1, 100)] == pytest.approx([700e-6, 740e-6, 4700e-6])
    assert (host.time(100, 1), host.time(100, 2)) == pytest.approx((3500e-6, 6900e-6))


def test_engines_without_a_host_wait_for_none() -> None:
    """And the spread of composed steps is that of the calibration, whatever the engine."""
    found = overheads_of("hf", measured={"composition": {"interval": (-0.2, 0.3)}})
    assert found.host == HostWork()
    assert found.composition == (-0.2, 0.3)
    assert overheads_of("vllm", measured={}).composition == (0.0, 0.0)


def test_steps_of_a_stack_have_its_own_spread() -> None:
    """Where an engine's way to drive the device was measured; else that of all engines."""
    own = {"composition": {"in_turn": {"interval": (-0.1, 0.4)}}}
    measured = {"vllm": own, "composition": {"interval": (-0.2, 0.3)}}
    assert overheads_of("vllm", "0.12", measured=measured).composition == (-0.1, 0.4)
    assert overheads_of("vllm", "0.18", measured=measured).composition == (-0.2, 0.3)


def test_first_tokens_are_those_that_runs_of_the_engine_show() -> None:
    """Without runs, requests of one length start together where prompts are not mixed with decodes."""
    shown = {"front_ms": 20.0, "interval": (-0.3, 0.4)}
    found = overheads_of("vllm", measured={"vllm": {"first_token": shown}}).first_token
    assert found == FirstToken(0.02, FIRST_TOKEN.line, (-0.3, 0.4))
    found = overheads_of("sglang", measured={"sglang": {"first_token": shown}}).first_token
    assert found == FirstToken(0.02, 1.0, (-0.3, 0.4))
    assert overheads_of("vllm", measured={}).first_token == FIRST_TOKEN
    assert overheads_of("sglang", measured={}).first_token.line == 1.0


@pytest.mark.parametrize("name", files("engines"))
def test_every_document_states_what_sets_its_engine_apart(name: str) -> None:
    """Launches, fusion and scheduling come from the document; measured kernels are of an engine that there is."""
    rules, found = choose_engine(name).rules, overheads_of(name, measured={})
    assert found.name == name and found.launch_s == pytest.approx(rules.time.launch_us * 1e-6)
    assert found.fused_qkv == rules.time.fused_qkv
    assert found.chunked_prefill_with_decode == rules.scheduler.chunked_prefill_with_decode
    assert not found.kernels or found.kernels in files("engines")
    assert not found.version or found.kernels == name
