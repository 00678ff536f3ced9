"""Devices that the catalog does not have: one of its own with other rates."""

from __future__ import annotations

from copy import copy

from archsim.timing.device import DeviceRates


def changed(rates: DeviceRates, **values: float) -> DeviceRates:
    """The device with some of its plain rates changed."""
    found = copy(rates)
    for name, value in values.items():
        setattr(found, name, value)
    return found
