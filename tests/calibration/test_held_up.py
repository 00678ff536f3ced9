"""Fits whose calls do not get shorter as they grow, and what a fit says nothing of."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import ArrayLike

from archsim.accuracy.table import Group, Key
from archsim.calibration.calibrate import fit, fit_data
from archsim.calibration.fitting import estimated_seconds, out_of_fold, steps_of_growth
from archsim.spec.load import load_hardware
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.model import kernel_seconds
from archsim.timing.device import DeviceRates

MACHINE = DeviceRates(load_hardware("h100-sxm"))


def rows(op: str, dims: Mapping[str, ArrayLike], us: ArrayLike, kernel: str = "k") -> Group:
    """Made-up measurements of one kernel."""
    seconds = np.asarray(us, float) * 1e-6
    columns = {n: np.broadcast_to(np.asarray(v, float), seconds.shape).copy() for n, v in dims.items()}
    key = Key(op, "H100-SXM", "bf16", "", "made-up 1.0", kernel)
    return Group(key=key, rows=np.arange(len(seconds)), dims=columns, seconds=seconds)


def plateau() -> Group:
    """Convolutions of 8 to 512 tokens that all take 14 us, and fewer of 1 to 4 that take 17."""
    tokens = np.repeat([1, 2, 4, 8, 16, 32, 64, 128, 256, 512], [2, 2, 2, *[6] * 7])
    us = np.where(tokens < 8, 17.0, 14.0) * np.random.default_rng(1).lognormal(sigma=0.01, size=len(tokens))
    channels = np.tile([1536.0, 1600.0], len(tokens) // 2)
    dims: dict[str, ArrayLike] = {"m": tokens, "n": channels, "k": [4], "batch": [1], "seq_q": tokens, "warm": [1]}
    return rows("conv1d_prefill", dims, us)


def test_a_few_slow_small_calls_do_not_lift_all_larger_ones() -> None:
    """Held up as it is read, a surface that falls puts larger calls halfway to the smaller; most rows are of these."""
    model, group = MODELS["conv1d_prefill"], plateau()
    found = fit(group, MACHINE).fitted
    large = group.dims["seq_q"] >= 8
    off = estimated_seconds(model, group.call, MACHINE, found)[large] / group.seconds[large] - 1
    assert np.median(np.abs(off)) < 0.06
    as_fitted = np.asarray(kernel_seconds(model, group.call, MACHINE, found))
    assert np.allclose(as_fitted, estimated_seconds(model, group.call, MACHINE, found), rtol=0.04)


def test_errors_are_of_what_estimates_read() -> None:
    """Of rows that were left out as well: never less than a smaller call."""
    model, group = MODELS["conv1d_prefill"], plateau()
    unseen = out_of_fold(model, group, MACHINE)
    at = group.dims["seq_q"]
    known = np.isfinite(unseen)
    assert known.any()
    for channels in np.unique(group.dims["n"]):
        here = known & (group.dims["n"] == channels)
        order = np.argsort(at[here], kind="stable")
        assert (np.diff(unseen[here][order]) > -0.02 * unseen[here][order][:-1]).all()


def test_steps_go_from_the_smallest_call_to_the_largest_row() -> None:
    """One step for each octave of each kind, along each growth that rows have."""
    group = plateau()
    steps = steps_of_growth(MODELS["conv1d_prefill"], group, MACHINE, fit(group, MACHINE).fitted.constants)
    assert len(steps.formula) == 9 * len(np.unique(group.dims["n"]))
    assert steps.after["seq"] - steps.before["seq"] == pytest.approx(np.ones(len(steps.formula)))
    assert (steps.formula >= 0).all()


@pytest.mark.parametrize(("ranks", "stated"), [((2, 4, 8), False), ((8, 16, 32), True)])
def test_the_network_is_stated_by_fits_whose_ranks_leave_a_node(ranks: tuple[int, ...], stated: bool) -> None:
    """A share that no row depends on is the prior's word, and the file says so."""
    grid = [(m, n) for n in ranks for m in (1, 4, 16, 64, 256, 1024)]
    m, n = np.array(grid, float).T
    dims = {"m": m, "n_gpus": n, "topk": [8], "hidden": [7168]}
    found = fit_data(fit(rows("moe_dispatch", dims, 10 + m), MACHINE)).get("unused", ())
    assert ("network" in found) != stated
    assert "link" not in found and "floor_us" not in found
