"""Isotonic regression, on which rising corrections rest."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.calibration.fitting import isotonic

SERIES = st.lists(st.tuples(st.floats(-10, 10), st.floats(0.1, 5)), min_size=1, max_size=12)


def fitted(series: list[tuple[float, float]]) -> list[float]:
    """The regression of values and weights given as pairs."""
    values, weights = (np.array(part) for part in zip(*series, strict=True))
    found: list[float] = isotonic(values, weights).tolist()
    return found


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        ([(1, 1), (2, 1), (3, 1)], [1, 2, 3]),
        ([(1, 1), (4, 1), (2, 1)], [1, 3, 3]),
        ([(4, 3), (0, 1), (5, 1)], [3, 3, 5]),
        ([(3, 1), (2, 1), (1, 1)], [2, 2, 2]),
    ],
)
def test_neighbours_that_fall_share_their_mean(series: list[tuple[float, float]], expected: list[float]) -> None:
    """Worked by hand."""
    assert fitted(series) == pytest.approx(expected)


@given(SERIES)
def test_it_rises_and_keeps_the_mean(series: list[tuple[float, float]]) -> None:
    """No fall, the same weighted mean, and nothing changes the second time."""
    found = fitted(series)
    assert all(after >= before - 1e-9 for before, after in pairwise(found))
    weights = [weight for _, weight in series]
    assert np.dot(found, weights) == pytest.approx(np.dot([v for v, _ in series], weights), abs=1e-6)
    assert fitted(list(zip(found, weights, strict=True))) == pytest.approx(found)
