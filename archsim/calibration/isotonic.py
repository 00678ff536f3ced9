"""Corrections under which more work never takes less time: isotonic regression along one axis of a surface."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from archsim.accuracy.table import Group
from archsim.timing.classes.model import KernelModel
from archsim.timing.classes.surface import Surface
from archsim.timing.roofline import Machine


def risen(
    model: KernelModel, group: Group, machine: Machine, constants: Mapping[str, float], surface: Surface
) -> Surface:
    """The surface nearest to `surface` with which the model's time does not fall along `model.rising`.

    Only lines of nodes that the group has rows near are changed; elsewhere the surface is nothing or an extension.
    """
    names = [axis.name for axis in surface.axes]
    shape = [axis.nodes for axis in surface.axes]
    along = names.index(model.rising)
    values = np.moveaxis(np.array(surface.values).reshape(shape), along, -1)
    weights = np.moveaxis(_weights(model, group, machine, surface).reshape(shape), along, -1)
    others = [axis for axis in surface.axes if axis.name != model.rising]
    line = _nodes(surface.axes[along])
    for place in np.ndindex(*values.shape[:-1]):
        if not weights[place].any():
            continue
        at = {axis.name: np.full(len(line), _nodes(axis)[i]) for axis, i in zip(others, place, strict=True)}
        call = model.probe(group.call, {**at, model.rising: line})
        plain = np.log(model.formula(call, machine, constants))
        values[place] = isotonic(plain + values[place], weights[place] + 1e-3) - plain
    return Surface(surface.axes, np.moveaxis(values, -1, along).ravel().tolist())


def _nodes(axis: Any) -> Any:
    return axis.start + axis.step * np.arange(axis.nodes)


def _weights(model: KernelModel, group: Group, machine: Machine, surface: Surface) -> Any:
    """How many rows lie near each node."""
    found = np.zeros(int(np.prod([axis.nodes for axis in surface.axes])))
    for index, height in surface.corners(model.coordinates(group.call, machine)):
        np.add.at(found, index, height)
    return found


def isotonic(values: Any, weights: Any) -> Any:
    """The non-decreasing sequence nearest to `values` in weighted squares: neighbours that fall are pooled."""
    pools: list[list[float]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        pools.append([value, weight, 1])
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            value, weight, count = pools.pop()
            mean = (pools[-1][0] * pools[-1][1] + value * weight) / (pools[-1][1] + weight)
            pools[-1] = [mean, pools[-1][1] + weight, pools[-1][2] + count]
    return np.concatenate([np.full(int(count), value) for value, _, count in pools])
