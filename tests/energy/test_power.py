"""Watts: bounds, sums over steps, choice of constants, limits, and published arithmetic."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim import load_hardware
from archsim.base.errors import UsageError
from archsim.energy.activity import Activity, activity_of
from archsim.energy.energy_use import EnergyUse, Span, run_kwh, run_tonnes
from archsim.energy.limit import PowerLimit
from archsim.energy.power import MOST, load_power_fits, power_model
from archsim.timing.duration import Duration
from archsim.timing.step_time import StepTime

shares = st.floats(0, 1)
activities = st.builds(
    lambda t, h, b, c, w: Activity(t, h * t, b * t, c * t, w * t), st.floats(1e-4, 10), shares, shares, shares, shares
)


@pytest.mark.slow
@settings(deadline=None)
@given(activities)
def test_watts_lie_between_idle_and_the_limit(active: Activity) -> None:
    """Whatever a device does; twice as much of it draws the same."""
    for name in ("h100-sxm", "b200-sxm", "h200-sxm", "rtx-4090"):
        model = power_model(load_hardware(name))
        watts = model.watts(active)
        assert model.idle_w <= watts <= MOST * model.tdp_w * (1 + 1e-12)
        assert math.isclose(model.watts(active.times(2)), watts)
        low, high = model.interval(watts)
        assert low <= watts <= high


def test_more_work_draws_more() -> None:
    """At the same time, with kernels nearer to the peak."""
    model = power_model(load_hardware("h100-sxm"))
    light, heavy = Activity(1, 0, 0.3, 0.1, 0), Activity(1, 0, 0.6, 0.5, 0)
    assert model.watts(light) < model.watts(heavy)


def test_constants_are_the_nearest_that_are_known() -> None:
    """Of the device, of its architecture, or of any; those of old versions of an engine only where it is one."""
    h100, a100 = load_hardware("h100-sxm"), load_hardware("a100-sxm-40gb")
    evidence = [power_model(load_hardware(name)).evidence for name in ("h100-sxm", "h200-sxm", "mi300x")]
    assert evidence == ["calibrated", "transferred", "datasheet"]
    assert power_model(h100, "vllm", "0.5.4").idle_w < power_model(h100, "vllm", "0.11.1").idle_w
    assert power_model(h100, "sglang", "0.5").idle_w == power_model(h100).idle_w
    assert power_model(a100, "vllm", "0.5.4").evidence == "calibrated"
    assert power_model(a100, "vllm", "0.11").evidence == "datasheet"
    unknown = h100.model_copy(update={"power": None})
    unknown.__dict__.pop("tdp_w", None)
    with pytest.raises(UsageError, match="is not known"):
        power_model(unknown)


def test_left_out_errors_meet_their_bars() -> None:
    """Mean error of watts on architectures that the fit had not seen: H100 and A100 15 %, B200 20 %."""
    fits = {(fit.device, fit.before): fit.left_out for fit in load_power_fits().fits}
    assert fits["h100-sxm", ""][0] < 0.15 and fits["a100-sxm-40gb", "0.6"][0] < 0.15
    assert fits["b200-sxm", ""][0] < 0.20


def test_a_limit_slows_what_would_draw_more() -> None:
    """Time rises where power exceeds it, and only there; the lower the limit the more; host time stays."""
    model = power_model(load_hardware("h100-sxm"))
    heavy = Activity(1, 0, 0.8, 0.6, 0)
    drawn = model.watts(heavy)
    assert PowerLimit(model, drawn + 1).clock(heavy) == 1
    clocks = [PowerLimit(model, watts).clock(heavy) for watts in (300, 400, 500, drawn - 1)]
    assert clocks == sorted(clocks) and clocks[-1] < 1
    step = StepTime.of(Duration(1.0, 0.9, 1.2))
    assert activity_of(step).host_s == 1.0 and PowerLimit(model, 300).limited_step(step).expected_s == 1.0
    with pytest.raises(UsageError, match="of 50 W is too low: with an engine loaded"):
        PowerLimit(model, 50)


def test_scopes_grow_and_grams_follow() -> None:
    """Nodes draw more than devices, the facility more than nodes; CO2 is kWh of the facility times the grid."""
    use = EnergyUse(8, Span(500, 400, 600), Span(2, 1.5, 2.5), Span(2 / 3.6, 1.5 / 3.6, 2.5 / 3.6), pue=1.1, grid=400)
    gpu, node, facility = (use.in_scope(use.joules, scope) for scope in ("gpu", "node", "facility"))
    assert gpu.expected < node.expected < facility.expected and facility.expected == pytest.approx(node.expected * 1.1)
    grams = use.grams
    assert grams is not None and grams.expected == use.in_scope(use.kwh, "facility").expected * 400
    found = use.to_dict()
    assert found["power_w"] == 4000 and found["scope"] == "gpu" and found["scopes"][0]["scope"] == "gpu"
    assert use._replace(grid=None).carbon_dict()["g_per_m_tokens"] is None


def test_published_arithmetic() -> None:
    """Llama 3.1's card: 39.3 M hours of H100 at 700 W and 11,390 t; DeepSeek-V3: 2.788 M hours of H800 at 2 dollars."""
    kwh = run_kwh(39.3e6, 700)
    assert kwh == pytest.approx(27.5e6, rel=0.002)
    assert run_tonnes(kwh, 414) == pytest.approx(11_390, rel=0.001)
    assert 2_788_000 * 2 == 5_576_000
