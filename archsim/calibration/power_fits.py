"""Constants of power from tables of measured watts, device by device.

Watts are linear in the constants (see `archsim.energy.power`), which are none of them negative. Relative errors are
minimised with the weight of large ones reduced (Huber), as some public rows were measured on servers that ran without
captured graphs. Errors are of architectures left out of the fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy.energy import power_point
from archsim.accuracy.files import Table
from archsim.accuracy.question import device_of
from archsim.accuracy.times import RunTimes
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonObject
from archsim.base.version import version_of
from archsim.energy.activity import Activity
from archsim.energy.power import MOST
from archsim.engines.names import engine_and_version

if TYPE_CHECKING:
    from archsim.base.arrays import Floats

NAMES = ("idle", "host", "busy", "compute", "collective")

OLD = {"vllm": "0.6"}
"""Engines and the version from which on their steps no longer wait for the host most of the time: rows of older ones
have constants of their own."""

HUBER = 0.1
"""Relative error from which on a row weighs less."""

PRIOR = 0.3
"""Weight of the prior that activity draws nothing beyond idle, in rows."""

ROUNDS = 12
FEWEST = 20
"""Rows of a device that are fitted."""

ANY_OFF = (-0.5, 0.45)
"""Logs of the ends of the interval of devices of other architectures."""


class MeasuredPower(NamedTuple):
    """One row: whose it is, what the device does as predicted, and its measured power over TDP."""

    device: str
    old: bool
    architecture: str
    active: Activity
    share: float


def fit_power(tables: Sequence[Table]) -> tuple[JsonObject, tuple[str, ...]]:
    """The document of `hardware/calibration/power.yaml`, and a line for each fit."""
    points, times = [], RunTimes()
    for table in tables:
        for row in range(len(table)):
            try:
                points.append(_point(table, row, times))
            except (ArchsimError, ArithmeticError, LookupError):
                continue
    groups = sorted({(point.device, point.old) for point in points})
    fits, lines = [], []
    for device, old in groups:
        rows = [point for point in points if (point.device, point.old) == (device, old)]
        if len(rows) >= FEWEST:
            fits.append(_fit(device, old, rows))
            error = " and ".join(f"{100 * value:.1f} %" for value in fits[-1]["left_out"])
            lines.append(f"{device}{' before ' + fits[-1]['before'] if old else ''}: {len(rows)} rows, watts of "
                         f"architectures left out err {error} (mean, median)")  # fmt: skip
    current = [fit for fit in fits if not fit["before"]] or fits
    mean = {name: _round(float(np.mean([fit[name] for fit in current]))) for name in NAMES}
    return {"fits": fits, "any": {**mean, "off": list(ANY_OFF)}}, tuple(lines)


def _point(table: Table, row: int, times: RunTimes) -> MeasuredPower:
    """A row. Raises ArchsimError, LookupError for one that has no watts or cannot be predicted."""
    asked, watts = table.question(row), table.measured["power_w"][row]
    if watts is None:
        raise LookupError("no watts")
    point = power_point(asked, times)
    hardware = device_of(point.run.device)
    if hardware.tdp_w is None:
        raise LookupError("no power limit")
    engine, version = engine_and_version(point.run.engine)
    stated, bound = version_of(version), version_of(OLD.get(engine, ""))
    old = stated is not None and bound is not None and stated < bound
    share = watts / point.run.devices / hardware.tdp_w
    return MeasuredPower(hardware.id, old, str(asked.get("arch") or asked.get("model")), point.active, share)


def _fit(device: str, old: bool, rows: Sequence[MeasuredPower]) -> JsonObject:
    """The constants of one device, with errors of architectures left out."""
    shares = np.array([features(row.active) for row in rows], dtype=float)
    measured = np.array([row.share for row in rows])
    whose = np.array([row.architecture for row in rows])
    left_out = np.zeros(len(rows))
    for name in dict.fromkeys(whose.tolist()):
        others = whose != name
        left_out[~others] = np.clip(shares[~others] @ constants(shares[others], measured[others]), 0, MOST)
    off = np.log(measured / left_out)
    error = np.abs(left_out / measured - 1)
    engine = next(iter(OLD)) if old else ""
    return {
        "device": device, "family": device_of(device).arch.family, "engine": engine,
        "before": OLD.get(engine, ""), "rows": len(rows), "architectures": len(set(whose.tolist())),
        **{name: _round(value) for name, value in zip(NAMES, constants(shares, measured), strict=True)},
        "off": [_round(float(np.quantile(off, end))) for end in (0.1, 0.9)],
        "left_out": [_round(float(error.mean())), _round(float(np.median(error)))],
    }  # fmt: skip


def features(active: Activity) -> tuple[float, ...]:
    """What the constants multiply."""
    seconds = float(active.seconds)
    host, busy, collective = (float(v) / seconds for v in (active.host_s, active.busy_s, active.collective_s))
    return 1.0, host, busy, (float(active.compute_s) / seconds) ** 0.5, collective


def constants(shares: Floats, measured: Floats) -> Floats:
    """The constants, none negative, that minimise the Huber sum of relative errors."""
    weight, found = np.ones(len(measured)), np.zeros(shares.shape[1])
    for _ in range(ROUNDS):
        found = _non_negative(shares, measured, np.sqrt(weight) / measured)
        weight = HUBER / np.maximum(np.abs(shares @ found / measured - 1), HUBER)
    return found


def _non_negative(shares: Floats, measured: Floats, weight: Floats) -> Floats:
    """Weighted least squares with a ridge, dropping the most negative constant until none is."""
    size = shares.shape[1]
    kept = list(range(size))
    while True:
        rows = np.vstack([shares[:, kept] * weight[:, None], np.sqrt(PRIOR) * np.eye(size)[:, kept]])
        solved, *_ = np.linalg.lstsq(rows, np.concatenate([measured * weight, np.zeros(size)]), rcond=None)
        if not (solved < 0).any():
            found = np.zeros(size)
            found[kept] = solved
            return found
        kept.pop(int(np.argmin(solved)))


def _round(value: float) -> float:
    return float(f"{value:.3g}")
