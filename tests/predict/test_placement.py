"""What would fit where a model does not: placed as `estimate` places it, and not timed."""

from __future__ import annotations

from typing import Any

import pytest

from archsim import api
from archsim.base.errors import ArchsimError, UsageError
from archsim.predict import what_fits as module
from archsim.predict.estimate import estimate
from archsim.predict.placement import place
from archsim.predict.what_fits import Suggestion, what_fits
from archsim.spec.load import load_hardware, load_model
from archsim.timing.device import DeviceRates
from archsim.timing.step_pricer import StepPricer

ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("llama2-70b", "h100", {"devices": 1}),
    ("llama2-70b", "rtx-4090", {"devices": 2, "concurrency": 8}),
    ("deepseek-v3", "h100", {"devices": 8, "tp": 8}),
    ("mixtral-8x7b", "t4", {"devices": 1, "batch": 4}),
    ("gpt-oss-120b", "rtx-4090", {"devices": 1, "engine": "llamacpp"}),
]


@pytest.mark.parametrize(("model", "hw", "asked"), ASKED)
def test_what_fits_is_what_an_estimate_would_say(model: str, hw: str, asked: dict[str, Any]) -> None:
    """The same suggestions, devices, memory and room as of whole estimates."""
    spec, device = load_model(model), load_hardware(hw)
    found = what_fits(spec, device, asked)  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_placed", lambda m, h, options: _estimated(m, h, options))
        whole = what_fits(spec, device, asked)  # type: ignore[arg-type]
    assert list(map(_said, found)) == list(map(_said, whole))


def _said(s: Suggestion) -> tuple[object, ...]:
    return s.change, s.devices, s.memory.to_dict(), s.memory.needed, s.room


def _estimated(model: Any, hardware: Any, options: Any) -> Any:
    """Where a change puts it, as long as its estimate can be made; with the memory of that."""
    try:
        answer = estimate(model, hardware, **options)
    except ArchsimError:
        return None
    placed = place(model, hardware, **options)
    assert placed.plan.plan == answer.plan
    assert placed.memory.to_dict() == answer.memory.to_dict()
    assert placed.memory.stage.growth == answer.kv_bytes_per_token
    return placed


def test_a_refusal_times_no_step_of_what_would_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for those that plans on equally many devices are ranked by: of two formats on one device there are none."""
    spec, device = load_model("llama2-70b"), load_hardware("h100")
    api.estimate("llama2-70b", "h100", devices=1)
    priced: list[object] = []
    monkeypatch.setattr(StepPricer, "price", lambda self, step: priced.append(step))
    options: Any = {"devices": 1, "tp": 1}
    assert [s.change for s in what_fits(spec, device, options)] != []
    assert priced == []


def test_a_format_that_a_device_cannot_multiply_is_no_suggestion(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no time, for want of a peak, is left out without asking for one."""
    spec, device = load_model("llama2-70b"), load_hardware("h100")
    options: Any = {"devices": 1, "tp": 1}
    assert "--weights int4" in [s.change for s in what_fits(spec, device, options)]

    def without(self: DeviceRates, dtype: str) -> float:
        raise UsageError(f"no peak for {dtype}")

    monkeypatch.setattr(DeviceRates, "matrix_flops", without)
    assert what_fits(spec, device, options) == []
