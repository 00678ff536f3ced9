"""Which fabric level joins a group of devices, and how much of it the group can use."""

from __future__ import annotations

from typing import NamedTuple

from archsim.base.errors import InvalidPlan
from archsim.base.units import parse_quantity
from archsim.spec.hardware_schema import Host, Level

TREE_DEVICES = 8
"""Devices assumed under the PCIe tree of one server."""


class Link(NamedTuple):
    """What joins a group of devices: the fabric level, and B/s per direction that each device can use."""

    devices: int
    fabric: Level
    bytes_per_s_per_direction: float

    @property
    def name(self) -> str:
        """Name of the fabric level."""
        return self.fabric.name


def with_host(fabric: tuple[Level, ...], host: Host | None) -> tuple[Level, ...]:
    """The levels innermost first, with the PCIe tree of one server where the fabric has no fixed inner level."""
    inner = tuple(level for level in fabric if level.level != "cluster")
    if host is None or any(not level.optional for level in inner):
        return fabric
    tree = Level(name=host.link, level="node", topology="host", domain=TREE_DEVICES, per_direction=host.per_direction)
    return (*inner, tree, *(level for level in fabric if level.level == "cluster"))


def scale_up(fabric: tuple[Level, ...], host: Host | None) -> tuple[Level, ...]:
    """The levels below the cluster network; the PCIe tree only where there is nothing else."""
    listed = tuple(level for level in fabric if level.level != "cluster")
    return listed or tuple(level for level in with_host(fabric, host) if level.level != "cluster")


def innermost(owner: str, levels: tuple[Level, ...], devices: int, *, bridges: bool) -> Link:
    """The first level whose domain holds the group (see `Hardware.link`)."""
    if devices < 2:
        raise InvalidPlan(f"a link needs at least 2 devices, not {devices}")
    usable = [level for level in levels if bridges or not level.optional]
    level = next((item for item in usable if item.domain is None or item.domain >= devices), None)
    if level is None:
        largest = max((item.domain or 1 for item in usable), default=1)
        raise InvalidPlan(f"no fabric level of {owner} joins {devices} devices: the largest holds {largest}")
    if level.per_direction is None:
        raise InvalidPlan(f"the bandwidth of {level.name} of {owner} is not published")
    rate = parse_quantity(level.per_direction, "B/s") * level.share(devices)
    return Link(devices=devices, fabric=level, bytes_per_s_per_direction=float(rate))
