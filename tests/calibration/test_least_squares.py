"""The loop that all fits share."""

from __future__ import annotations

import numpy as np
import pytest

from archsim.calibration.least_squares import Search, minimise


def test_a_known_minimum_is_found() -> None:
    """A decay with rows thrown far off: they pull by their number, not by their size."""
    t = np.linspace(0, 4, 60)
    measured = np.log(2.0) - 0.7 * t
    found = []
    for far in (3.0, 30.0):
        measured[::10] += far
        found.append(minimise(lambda x: np.log(x[0]) - x[1] * t - measured, [8.0, 0.1], 0.1, 9.0))
        measured[::10] -= far
    assert found[0] == pytest.approx([2.0, 0.7], rel=0.03)
    assert found[1] == pytest.approx(found[0], rel=0.01)


def test_bounds_hold() -> None:
    """The end of the range where the minimum lies beyond it."""
    found = minimise(lambda x: x - np.array([2.0, -3.0]), [0.0, 0.0], np.array([-1.0, -1.0]), np.array([1.0, 1.0]))
    assert found.tolist() == pytest.approx([1.0, -1.0])


def test_a_minimum_is_left_alone_and_rounds_are_bounded() -> None:
    """Work: no residual is asked for more often than the rounds allow."""
    asked: list[float] = []

    def residuals(x: np.ndarray) -> np.ndarray:
        asked.append(float(x[0]))
        return np.array([np.cos(x[0] * 7) + 2, x[0] * 0.01])

    minimise(residuals, [0.1], -10, 10, Search(rounds=3))
    assert len(asked) <= 1 + 3 * (1 + 8)
    assert minimise(lambda x: x, [0.0], -1, 1).tolist() == [0.0]
