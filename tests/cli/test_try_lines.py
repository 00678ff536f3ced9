"""The commands that a page suggests answer the question that was asked."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

ASKED = (
    ("mixtral-8x7b", "--hw", "h100", "--tp", "4", "--ep", "4", "--engine", "vllm@0.9", "--concurrency", "16"),
    ("llama2-7b", "--hw", "h100", "--devices", "4", "--pp", "2", "--weights", "fp8", "--kv-cache-dtype", "fp8"),
    ("llama2-7b", "--hw", "h100", "--set", "max_context=4000", "--set", "ffn.d_ff=8192", "--batch", "3"),
    ("bert-base", "--hw", "t4", "--input-len", "512"),
)


def suggested(page: str, start: str) -> list[str]:
    """The words of the command under `Try` that begins so, without `archsim` and the comment."""
    line = next(x for x in page.partition("\nTry\n")[2].splitlines() if x.strip().startswith(f"archsim {start}"))
    return shlex.split(line, comments=True)[1:]


def answer(archsim: Any, words: list[str]) -> Any:
    """The answer of `estimate` as data."""
    result = archsim(*words, "--json")
    assert result.code == 0, result.err
    return json.loads(result.out)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("asked", ASKED)
def test_estimate_goes_on_with_what_was_asked(archsim: Any, asked: tuple[str, ...]) -> None:
    """`--by op` of the same question: the same plan, workload, figures and steady state."""
    first = answer(archsim, ["estimate", *asked])
    again = answer(archsim, suggested(archsim("estimate", *asked).out, "estimate"))
    again = {key: value for key, value in again.items() if key in first}
    again["phases"] = {
        name: {key: value for key, value in phase.items() if key != "ops"} if phase else None
        for name, phase in again["phases"].items()
    }
    assert again == first


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "asked",
    (
        ("llama2-70b", "--hw", "h100", "--tp", "4", "--engine", "vllm@0.9", "--batch", "8", "--set", "ffn.d_ff=8192"),
        ("llama2-7b", "--hw", "h100", "--weights", "fp8", "--input-len", "4096"),
        ("deepseek-v3", "--hw", "h200", "--tp", "8", "--enable-dp-attention", "--dp", "8", "--engine", "sglang"),
    ),
)
def test_fit_goes_on_to_an_estimate_of_its_plan(archsim: Any, asked: tuple[str, ...]) -> None:
    """The estimate is of the devices, degrees, formats and engine that `fit` answered for."""
    page = archsim("fit", *asked).out
    plan = json.loads(archsim("fit", *asked, "--json").out)["plan"]
    words = suggested(page, "estimate")
    result = archsim(*words, "--json")
    assert result.code in (0, 1), result.err
    found = json.loads(result.out)["plan"]
    assert found == {key: plan[key] for key in found}
    assert any(asked[i + 1] in words for i, word in enumerate(asked) if word == "--engine") == ("--engine" in asked)


def test_all_suggested_commands_parse(archsim: Any) -> None:
    """None of them ends in a usage error, and none is cut."""
    page = archsim("estimate", *ASKED[0]).out
    for line in page.partition("\nTry\n")[2].splitlines():
        assert "…" not in line
        assert archsim(*shlex.split(line, comments=True)[1:]).code == 0


def test_a_model_that_fits_one_device_is_not_called_too_large(archsim: Any) -> None:
    """Degrees that were asked for need no excuse; a device that is too small does."""
    assert "too small" not in archsim("estimate", "llama2-7b", "--hw", "h100", "--tp", "2").out
    assert "too small" not in archsim("estimate", "llama2-70b", "--hw", "h100", "--tp", "4").out
    assert "1 device is too small" in archsim("estimate", "llama2-70b", "--hw", "h100").out


def test_times_say_how_kernels_are_launched(archsim: Any) -> None:
    """An engine that captures no step is not said to use CUDA graphs."""

    def times(*more: str) -> str:
        words = archsim("estimate", "llama2-7b", "--hw", "h100", "-v", *more).out.partition("A08  ")[2].split("A09")[0]
        return " ".join(words.split())

    assert times("--engine", "vllm").startswith(
        "expected times: kernels of vLLM as measured on this device, CUDA graphs"
    )
    assert "CUDA graphs" not in times("--engine", "hf") and "µs of host time a launch" in times("--engine", "hf")
