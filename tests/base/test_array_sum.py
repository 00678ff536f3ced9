"""Sums of products of arrays say what the arrays themselves say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from archsim.base.array_sum import Arrays, ArraySum
from archsim.base.number import above, ceil_div, divide, maximum, minimum, total, where

BATCH = np.array([1.0, 2.0, 5.0]).reshape(3, 1)
NEW = np.array([1.0, 64.0, 300.0, 8192.0]).reshape(1, 4)


def kinds() -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Two quantities as sums, and as plain arrays."""
    arrays = Arrays()
    return (arrays.sum_of(BATCH), arrays.sum_of(NEW)), (BATCH, NEW)


FORMULAS = {
    "extents": lambda b, n: b * n * 8192 * 2 / 8,
    "pairs": lambda b, n: b * divide(n * (n + 1), 2) - b,
    "difference that may be negative": lambda b, n: 3 - (b * n - 100),
    "the larger decided by factors": lambda b, n: maximum(b * n * 3, b * n * 2 + 0),
    "the larger decided by bounds": lambda b, n: maximum(b, n * 0 + 9),
    "the larger point by point": lambda b, n: maximum(b * n, n + 1000) + minimum(300, n),
    "whole parts": lambda b, n: ceil_div(b * n, 128) + n // 7 + n % 7 + 100 // n,
    "powers": lambda b, n: (b * n) ** 0.5 + 0.5**b + (1 / n),
    "a share": lambda b, n: (b * n * 3) / (b * n * 12) + b / n,
    "above a limit": lambda b, n: above(b * n, 600) + above(b, 0) + above(n, 1e9),
    "one of two": lambda b, n: where(b * n > 600, b, n) + where(b > 9, b, n) + (b * n <= 64) + (b < 0) + (n >= 1),
    "equal": lambda b, n: (b * n == 64) * 1 + (b != 2) * 1,
    "absolute": lambda b, n: abs(b - n) + abs(b) + -n,
    "with an array": lambda b, n: b * NEW + NEW * b + (NEW - n) + BATCH / n,
    "a total": lambda b, n: total([b * n, BATCH * 1.5, n, 7]),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMULAS)
def test_sums_are_what_arrays_are(name: str) -> None:
    sums, arrays = kinds()
    found, wanted = FORMULAS[name](*sums), FORMULAS[name](*arrays)
    assert np.broadcast_to(np.asarray(found, dtype=float), (3, 4)) == pytest.approx(
        np.broadcast_to(np.asarray(wanted, dtype=float), (3, 4)), rel=1e-14
    )


def test_sums_of_different_steps_mix() -> None:
    (batch, _), _ = kinds()
    (_, new), _ = kinds()
    assert np.array_equal(batch * new + batch, BATCH * NEW + BATCH)
    assert np.array_equal(maximum(batch, new), np.maximum(BATCH, NEW))


def test_factors_alone_decide_where_they_can() -> None:
    (batch, new), _ = kinds()
    tokens = batch * new
    larger = maximum(tokens * 3, tokens * 2)
    assert isinstance(larger, ArraySum) and larger._values is None, "no array was touched"
    assert (tokens * 2 > tokens * 3) is False
    assert tokens * 4 / (tokens * 8) == 0.5


def test_arrays_with_negative_values_stay_arrays() -> None:
    below = np.array([-1.0, 2.0])
    assert Arrays().sum_of(below) is below


def test_values_do_not_change_the_arrays() -> None:
    arrays = Arrays()
    one = arrays.sum_of(BATCH)
    (one + 1).values, (one * NEW.size + one).values, one.values
    assert np.array_equal(BATCH.ravel(), [1, 2, 5])
