"""A model on this machine: counts equal what was instantiated, and predictions know nothing of the timings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import archsim as package
from archsim.base.errors import UsageError

pytest.importorskip("torch")

from archsim.importers.opening import load_model
from archsim.measure.model_check import Line, compared
from archsim.measure.model_run import measure_model


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gemma3-27b", "bert-base", "t5-base"])
def test_every_count_is_what_was_instantiated(name: str) -> None:
    """Parameters, their bytes, cache bytes and FLOP of both phases, exactly."""
    found = compared(measure_model(load_model(name), "cpu"))
    counted = {line.what: line.verdict for line in found.lines if line.evidence == "exact"}
    assert {"parameters", "weights", "prefill work"} <= counted.keys()
    assert set(counted.values()) == {"equal"}
    assert found.exact


def test_predictions_do_not_see_the_timings() -> None:
    """A device a thousand times slower is predicted to be as fast."""
    seen = measure_model(load_model("llama3-8b"), "cpu")
    slower = replace(seen, phases=tuple(replace(phase, seconds=1e3 * phase.seconds) for phase in seen.phases))
    first, again = compared(seen), compared(slower)
    assert [line.predicted for line in first.lines] == [line.predicted for line in again.lines]
    assert [part.predicted for part in first.parts] == [part.predicted for part in again.parts]
    assert [line.measured for line in first.lines] != [line.measured for line in again.lines]


def test_blocks_hold_the_whole_prediction() -> None:
    """The parts of a phase add up to its time."""
    found = compared(measure_model(load_model("llama3-8b"), "cpu"))
    for name in ("prefill", "decode"):
        (whole,) = (line.predicted for line in found.lines if line.what == f"{name} time")
        assert sum(part.predicted for part in found.parts if part.phase == name) == pytest.approx(whole, rel=0.05)


@pytest.mark.parametrize(
    ("figures", "verdict"),
    [
        ({"predicted": 2, "measured": 2}, "equal"),
        ({"predicted": 2, "measured": 3}, "differs"),
        ({"predicted": 2, "measured": 3, "low": 1, "high": 4}, "inside"),
        ({"predicted": 2, "measured": 5, "low": 1, "high": 4}, "outside"),
        ({"predicted": None, "measured": 5}, "not predicted"),
        ({"predicted": 2, "measured": None, "low": 1, "high": 4}, "not measured"),
    ],
)
def test_verdicts(figures: dict[str, Any], verdict: str) -> None:
    """Counts are equal or not; predictions hold the figure in their interval or not."""
    assert Line(what="x", unit="s", **figures).verdict == verdict


def test_the_command_says_the_same_in_every_form(tmp_path: Path, archsim: Callable[..., Any]) -> None:
    """JSON, page and HTML; the exit code is 0 where every count is right."""
    result = archsim("validate", "qwen2.5-0.5b", "--device", "cpu", "--json")
    told = json.loads(result.out)
    assert (result.code, told["schema"], told["exact"]) == (0, "archsim.validate/1", True)
    out = tmp_path / "model.html"
    shown = archsim("validate", "qwen2.5-0.5b", "--html", str(out))
    assert shown.code == 0
    for words in ("parameters", "decode time", "Where decode time goes", "equal"):
        assert words in shown.out
        assert words in out.read_text("utf-8")


def test_unknown_options_are_refused() -> None:
    """With those that there are."""
    with pytest.raises(UsageError, match="colour"):
        package.validate("llama3-8b", device="cpu", colour="red")
