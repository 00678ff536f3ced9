"""The largest load that meets a service level: it holds there and not beyond, and says what binds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import archsim
from archsim.base.errors import AnswerNo, UsageError
from archsim.predict.simulation import Simulation

LOAD: dict[str, Any] = {"input_len": "uniform:200-600", "output_len": "uniform:20-60", "requests": 400,
                        "replications": 2, "engine": "vllm"}  # fmt: skip


def simulate(**options: Any) -> Simulation:
    return archsim.simulate("llama3.1-8b", "h100", **{**LOAD, **options})


@pytest.mark.slow
@pytest.mark.parametrize("what", ["rate", "concurrency"])
def test_the_largest_load_holds_and_a_larger_one_does_not(what: str) -> None:
    """Runs at 0.9 and 1.15 times the answer are on either side of the service level; the answer is simulated itself."""
    slo = {"slo": "ttft=0.2,tpot=0.02", "goodput": 0.9}
    answer = simulate(find=what, **slo)
    found = answer.found
    assert found is not None and found.size is not None and found.size.low <= found.size.value <= found.size.high
    below, above = (found.size.value * factor for factor in (0.9, 1.15))
    if what == "concurrency":
        below, above = int(below), int(above) + 1
        assert answer.load.concurrency == found.size.value
    for size, met in ((below, True), (above, False)):
        count = max(400, 10 * int(size)) + int(size) if what == "concurrency" else 400
        run = simulate(**{what: size}, **{**slo, "requests": count, "first_wave": "drop"})
        assert run.observed.met is met
    shown = answer.to_dict()["found"]
    assert set(shown) == {"rate_per_s" if what == "rate" else what, "is_floor", "binding", "next_binding", "tried"}
    assert shown["is_floor"] is False
    assert shown["binding"].rpartition("_p")[0] in ("ttft", "tpot") and len(shown["tried"]) > 4


@pytest.mark.slow
def test_a_load_that_is_found_does_not_depend_on_how_few_requests_follow_the_start() -> None:
    """A search leaves out the requests that start together and measures as many as were asked for; with them, a short
    run finds a fraction of the load.
    """
    slo: dict[str, Any] = {"slo": "ttft=0.5,tpot=0.03", "find": "concurrency", "replications": 1, "input_len": 1024,
                           "output_len": 256, "length_spread": 0.8, "expected_only": True}  # fmt: skip
    found = [simulate(**slo, requests=requests) for requests in (200, 1000, 4000)]
    sizes = [answer.found.size.value for answer in found if answer.found is not None and answer.found.size is not None]
    assert len(sizes) == 3 and max(sizes) < 1.1 * min(sizes)
    for answer, size in zip(found, sizes, strict=True):
        assert answer.workload["first_wave"] == "drop" and answer.workload["warmup"] == size
    with_start = simulate(**slo, requests=200, first_wave="keep").found
    assert with_start is not None and with_start.size is not None and with_start.size.value < sizes[0] / 2
    assert simulate(concurrency=4, requests=40, slo="ttft=0.5").workload["warmup"] == 0


@pytest.mark.slow
def test_what_cannot_be_found_is_refused() -> None:
    """No level, no such quantity, a load that is given already, a target that one request alone misses."""
    for options in (
        {"find": "rate"},
        {"find": "model", "slo": "ttft=1"},
        {"find": "rate", "slo": "ttft=1", "rate": 3.0},
    ):
        with pytest.raises(UsageError, match=r"--find|--rate"):
            simulate(**options)
    with pytest.raises(AnswerNo, match="p90 of TPOT"):
        simulate(find="rate", slo="tpot=0.001", goodput=0.9)
    with pytest.raises(UsageError, match="1,000"):
        simulate(find="rate", slo="tpot=1")


@pytest.mark.slow
def test_exit_codes(archsim: Callable[..., Any]) -> None:
    """1 where nothing is found, or with --check where the level is missed; else 0, and JSON that says so."""
    words = ["simulate", "llama3.1-8b", "--hw", "h100", "--requests", "200", "--replications", "1", "--json"]
    assert archsim(*words, "--find", "rate", "--slo", "ttft=0.0001", "--goodput", "0.9").code == 1
    missed = archsim(*words, "--rate", "1", "--slo", "ttft=0.0001", "--check")
    assert missed.code == 1 and json.loads(missed.out)["slo"]["met"] is False
    assert archsim(*words, "--rate", "1", "--slo", "ttft=1", "--check").code == 0
    assert archsim(*words, "--rate", "1", "--slo", "speed=1").code == 2
