"""What the devices of every point of a block draw."""

from __future__ import annotations

from collections.abc import Iterable

from archsim.base.errors import UsageError
from archsim.counts.workload import Workload
from archsim.energy.activity import Activity, batch_activity
from archsim.energy.energy_use import joules_per_token
from archsim.energy.power import DevicePowerModel, power_model
from archsim.engines.overhead import EngineOverheads
from archsim.spec.hardware import Hardware
from archsim.sweeps.chunk import Values
from archsim.sweeps.columns import ENERGY_COLUMNS, Column
from archsim.sweeps.cost_columns import batch_work


def energy_columns(hardware: Hardware, overheads: EngineOverheads, load: Workload, values: Values) -> Values:
    """The columns of a block from what its devices do; None where there is no answer, or the device's power limit is
    not known.
    """
    found: Values = dict.fromkeys(column.name for column in ENERGY_COLUMNS)
    work, prefill = batch_work(load, values.get("devices"), values), _activity("prefill", values)
    if work is None or prefill is None or hardware.tdp_w is None:
        return found
    model: DevicePowerModel = power_model(hardware, overheads.name, overheads.version)
    decode = _activity("decode", values)
    watts = model.watts(batch_activity(prefill, decode, load.output_len))
    tokens = load.input_len if decode is None else load.output_len
    joules = joules_per_token(watts, work.devices, work.request_s, tokens)
    return found | {"power_w_per_device": watts, "j_per_output_token": joules}


def _activity(phase: str, values: Values) -> Activity | None:
    """What a device does in a phase; None where there is none."""
    parts = [values.get(f"{phase}_{part}") for part in Activity._fields]
    return None if any(part is None for part in parts) else Activity(*parts)


def without_power(columns: Iterable[Column], devices: Iterable[Hardware]) -> tuple[str, ...]:
    """The devices whose power is not known, in words, where columns of energy are asked for. Raises UsageError where
    that is all of them.
    """
    if set(columns).isdisjoint(ENERGY_COLUMNS):
        return ()
    missing: dict[str, UsageError] = {}
    known = False
    for hardware in devices:
        try:
            power_model(hardware)
            known = True
        except UsageError as error:
            missing[hardware.id] = error
    if not known and missing:
        raise next(iter(missing.values()))
    return tuple(error.message for error in missing.values())
