"""What serving points say of an engine: numbers that made the points are found again."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from archsim.calibration.serving_fits import HOST, ServedPoint, balance, fit_points, host_of, refit_serving
from archsim.serving.steady_state import ServedLoad
from archsim.timing.duration import Duration


def a_time(seconds: float) -> Duration:
    return Duration(seconds, 0.9 * seconds, 1.1 * seconds, 0.5 * seconds)


def made_points(step_s: float, sequence_s: float, front_s: float = 0.03) -> list[ServedPoint]:
    """Points of two models on a device whose host and first tokens are known."""
    found = []
    for (model, each), batch, prompt in itertools.product((("a", 3e-3), ("b", 9e-3)), (4, 16, 64), (1e-2, 4e-2)):
        load = ServedLoad(concurrency=batch, running=float(batch), input_len=1000, output_len=1000)
        step = a_time(each * (1 + batch / 100))
        point = ServedPoint(
            "vllm",
            "async",
            (model, "h100"),
            load,
            step,
            a_time(step.expected + prompt),
            True,
            float("nan"),
            float("nan"),
        )
        host = host_of((step_s, sequence_s))
        found.append(replace(point, tpot=point.tpot_with(host), ttft=point.ttft_with(host, front_s)))
    return found


def test_the_host_and_the_first_token_are_found_again() -> None:
    points = made_points(800e-6, 40e-6, 0.05)
    engines: dict[str, Any] = {}
    said: list[str] = []
    refit_serving(engines, points, said.append)
    host, first = engines["vllm"]["host"]["async"], engines["vllm"]["first_token"]
    for name, wanted in (("step_us", 800), ("sequence_us", 40)):
        value, low, high = host[name]
        assert value == pytest.approx(wanted, rel=0.05)
        assert low <= value <= high
    assert first["front_ms"] == pytest.approx(50, rel=0.05)
    assert first["errors"]["held_out"] == "pairs of model and device"
    assert first["errors"]["median"] < 0.05 and first["errors"]["rows"] == len(points)
    assert engines["vllm"]["host_errors"]["async"]["median"] < 0.03
    assert len(said) == 2


def test_a_single_family_has_an_interval_too() -> None:
    """One model on one device says nothing of others: half as much again either way."""
    points = [point for point in made_points(800e-6, 40e-6) if point.family[0] == "a"]
    engines: dict[str, Any] = {}
    refit_serving(engines, points, lambda _: None)
    value, low, high = engines["vllm"]["host"]["async"]["step_us"]
    assert (low, high) == pytest.approx((value / 1.5, value * 1.5), rel=1e-3)
    assert "host_errors" not in engines["vllm"]


def test_few_points_leave_the_prior() -> None:
    """A fit of two points of no weight stays near the middle of its prior."""
    points = made_points(300e-6, 10e-6)[:2]
    measured = np.array([point.tpot for point in points])
    found = fit_points(HOST, points, measured, lambda point, values: point.tpot_with(host_of(values)))
    assert found == pytest.approx([n.centre for n in HOST], rel=0.1)
    assert balance(points) == pytest.approx([1.0, 1.0])


def test_launches_that_prompts_wait_for_are_found_again() -> None:
    """Where no graph holds the prompts of enough points; else the host has two numbers."""
    host = host_of((800e-6, 10e-6, 40e-6))
    points = [
        replace(point, launches=1200.0, load=replace(point.load, output_len=200))
        for point in made_points(800e-6, 10e-6)
    ]
    points = [replace(p, tpot=p.tpot_with(host), ttft=p.ttft_with(host, 0.03)) for p in points]
    engines: dict[str, Any] = {}
    refit_serving(engines, points, lambda _: None)
    value, low, high = engines["vllm"]["host"]["async"]["launch_us"]
    assert value == pytest.approx(40, rel=0.1) and low <= value <= high
    refit_serving(engines, made_points(800e-6, 40e-6), lambda _: None)
    assert "launch_us" not in engines["vllm"]["host"]["async"]
