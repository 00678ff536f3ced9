"""Constants of power: recovered from watts that follow them, never negative, and little moved by outliers."""

from __future__ import annotations

import numpy as np

from archsim.calibration.power_fits import constants, features
from archsim.energy.activity import Activity
from archsim.energy.power import PowerConstants

TRUE = PowerConstants(idle=0.3, host=0.2, busy=0.4, compute=0.5, collective=0.1, off=(-0.1, 0.1))


def activities(count: int) -> list[Activity]:
    """Random ones, of which no share is above a half."""
    shares = np.random.default_rng(1).uniform(0, 0.5, (count, 4))
    return [Activity(2.0, *(2.0 * share for share in row)) for row in shares.tolist()]


def test_constants_are_recovered() -> None:
    """Of many rows nearly exactly; a tenth of rows measured at half their power moves them little."""
    made = activities(2000)
    shares = np.array([features(active) for active in made])
    measured = np.array([float(TRUE.share(active)) for active in made])
    wanted = [TRUE.idle, TRUE.host, TRUE.busy, TRUE.compute, TRUE.collective]
    kept = measured < 1.04  # below the limit of the board
    assert np.allclose(constants(shares[kept], measured[kept]), wanted, atol=0.01)
    spoilt = np.where(np.arange(len(measured)) % 10 == 0, measured / 2, measured)
    assert np.allclose(constants(shares[kept], spoilt[kept]), wanted, atol=0.06)


def test_no_constant_is_negative() -> None:
    """Where power falls with an activity, that constant is zero."""
    shares = np.array([features(active) for active in activities(200)])
    assert (constants(shares, 0.8 - 0.5 * shares[:, 2]) >= 0).all()
