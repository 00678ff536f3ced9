"""Robust least squares with bounds, for fits of a few numbers: the one loop that all fits share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from archsim.base.arrays import Floats

SOFT = 0.1
"""Log-residual from which on a row counts less than quadratically."""


class Search(NamedTuple):
    """How a minimum is looked for. step: of the numerical slopes. damping: at the start. rounds: at most."""

    step: float = 1e-4
    damping: float = 1e-2
    rounds: int = 40


SEARCH = Search()


def minimise(
    residuals: Callable[[Floats], Floats], start: Floats, low: Floats, high: Floats, search: Search = SEARCH
) -> Floats:
    """The point between `low` and `high` at which the soft-L1 loss of the residuals is least, from `start` on.

    Levenberg-Marquardt, the residuals reweighted in each round (Madsen, Nielsen and Tingleff, Methods for Non-Linear
    Least Squares Problems, 2004).
    """
    x, damping = np.asarray(start, float), search.damping
    r = residuals(x)
    for _ in range(search.rounds):
        weights = 1 / np.sqrt(1 + (r / SOFT) ** 2)
        steps = search.step * np.eye(len(x))
        slopes = np.stack([(residuals(x + step) - r) / search.step for step in steps], axis=1)
        normal, gradient = slopes.T @ (slopes * weights[:, None]), slopes.T @ (r * weights)
        for _ in range(8):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-12), gradient)
            tried = np.clip(x - step, low, high)
            new = residuals(tried)
            if loss(new) < loss(r) - 1e-12:
                break
            damping *= 5
        else:
            return x
        damping, change = max(damping / 5, 1e-9), float(np.abs(tried - x).max())
        x, r = tried, new
        if change < 0.1 * search.step:
            break
    return x


def loss(residuals: Floats) -> float:
    """Sum of soft-L1: quadratic near zero, linear from `SOFT` on."""
    return float(np.sum(np.sqrt(1 + (residuals / SOFT) ** 2) - 1))
