"""`archsim sweep`: models, devices, formats and plans crossed, and every workload of three ranges priced at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from archsim.base.errors import InvalidPlan, UsageError
from archsim.cost import count as c
from archsim.sim.engines import canonical, named
from archsim.sim.estimate import Estimator, Workload, _linked
from archsim.sim.formats import choose_formats
from archsim.sim.plan import Plan, candidates, check_degrees, plan_for
from archsim.sim.profile import profile_of
from archsim.sim.sweep_axes import Axes
from archsim.sim.sweep_chunk import Chunk
from archsim.sim.sweep_columns import COLUMNS, Column, chosen, priced
from archsim.sim.sweep_evaluate import Structure, evaluate
from archsim.sim.sweep_pareto import Front, Objective, objectives
from archsim.sim.sweep_range import parse_range
from archsim.sim.sweep_where import Condition
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

BLOCK = 32_768
"""Points priced at once: the arrays of a few of them stay in a core's cache."""

Degrees = dict[str, int]
"""Parallel degrees that were asked for, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What is swept: structures, the grid that each is priced over, and what is kept of it.

    where: of the points. pareto: of those that fit; empty: all. notes: what was left out, one sentence each.
    """

    structures: tuple[Structure, ...]
    axes: Axes
    columns: tuple[Column, ...] = COLUMNS
    where: Condition | None = None
    pareto: tuple[Objective, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def points(self) -> int:
        """Points that are priced."""
        return len(self.structures) * self.axes.points

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the answer."""
        return tuple(column.name for column in self.columns)

    def priced(self) -> Iterator[Chunk]:
        """Every point with all that is asked about it, block by block."""
        wanted = [*self.columns, *(o.column for o in self.pareto)]
        wanted += self.where.columns if self.where is not None else []
        for structure in self.structures:
            for block in self.axes.blocks(BLOCK):
                yield evaluate(structure, block, priced(wanted))

    def chunks(self, watch: Callable[[int], bool] = lambda _: False) -> Iterator[Chunk]:
        """The answer block by block; a Pareto set is one block at the end.

        watch: is told how many points are done after each block; when it says True the sweep ends with those.
        """
        front, done = Front(self.pareto), 0
        for chunk in self.priced():
            kept = chunk if self.where is None else chunk.kept(self.where(chunk.values))
            if self.pareto:
                front.add(kept)
            elif kept.points:
                yield kept.only(self.names)
            done += chunk.points
            if watch(done):
                break
        if front.best is not None and front.best.points:
            yield front.best.only(self.names)

    def to_dict(self) -> dict[str, Any]:
        """The `archsim.sweep/1` object. All rows are in memory: for large sweeps take `chunks`."""
        rows = [row for chunk in self.chunks() for row in chunk.rows()]
        names, notes = list(self.names), list(self.notes)
        return {"schema": "archsim.sweep/1", "columns": names, "rows": rows, "notes": notes}


def sweep(
    models: Sequence[tuple[Model, str | None]],
    hardware: Sequence[Hardware],
    *,
    weights: Sequence[str | None] = (None,),
    kv_cache_dtype: Sequence[str | None] = (None,),
    engine: Sequence[str] = ("generic",),
    devices: str | int | Iterable[int] = "auto",
    tp: str | int | Iterable[int] | None = None,
    pp: str | int | Iterable[int] | None = None,
    ep: str | int | Iterable[int] | None = None,
    dp: str | int | Iterable[int] | None = None,
    batch: str | int | Iterable[int] = 1,
    input_len: str | int | Iterable[int] = 2048,
    output_len: str | int | Iterable[int] = 256,
    columns: Iterable[str] = (),
    where: str | None = None,
    pareto: Iterable[str] = (),
) -> Sweep:
    """The sweep of every combination; ranges as in `parse_range`. models: each with the format that its name implies,
    which stands where `weights` says None.

    Combinations that no plan is valid for are left out and noted. Raises InvalidPlan where that leaves nothing.
    """
    axes = Axes(
        parse_range(batch, "batch"),
        parse_range(input_len, "input-len"),
        parse_range(output_len, "output-len"),
    )
    degrees = list(_degrees(tp=tp, pp=pp, ep=ep, dp=dp))
    counts = _counts(devices)
    found: list[Structure] = []
    refused: dict[str, InvalidPlan] = {}
    for (model, implied), device in product(models, hardware):
        for stored, cache, name in product(weights, kv_cache_dtype, engine):
            base = Case(model, device, stored or implied, cache, name)
            for count, given in product(counts, degrees):
                try:
                    found.append(base.structure(count, given))
                except InvalidPlan as error:
                    refused.setdefault(f"{model.name} on {device.id}: {error.message}", error)
    if not found:
        raise next(iter(refused.values()), None) or UsageError(
            "a sweep wants at least one model and one device"
        )
    return Sweep(
        structures=tuple(found), axes=axes, columns=chosen(columns), where=Condition.of(where) if where else None,
        pareto=objectives(pareto), notes=tuple(f"left out: {text}" for text in refused),
    )  # fmt: skip


def _counts(devices: str | int | Iterable[int]) -> tuple[int | None, ...]:
    """Numbers of devices; None where the degrees or the memory decide."""
    if isinstance(devices, str) and devices.lower() == "auto":
        return (None,)
    return parse_range(devices, "devices")


def _degrees(**ranges: str | int | Iterable[int] | None) -> Iterator[Degrees]:
    """Every combination of the degrees that were asked for."""
    asked = {name: parse_range(value, name) for name, value in ranges.items() if value is not None}
    for values in product(*asked.values()):
        yield dict(zip(asked, values, strict=True))


@dataclass(frozen=True, slots=True)
class Case:
    """A model on a device in one choice of formats and engine."""

    model: Model
    hardware: Hardware
    weights: str | None
    kv_cache: str | None
    engine: str

    def structure(self, count: int | None, given: Degrees) -> Structure:
        """The plan of these degrees, or the candidates for the smallest that fits. Raises InvalidPlan."""
        model, device = self.model, self.hardware
        engine = canonical(self.engine)[0]
        formats, profile = choose_formats(model, self.weights, self.kv_cache), profile_of(*named(self.engine))
        start = Plan(**given, engine=engine)
        check_degrees(model, start)
        worker = Estimator(model, device, formats, Workload(), profile=profile)
        if count is None and not {"tp", "pp"} & given.keys():
            plans = tuple(_held(worker, start, frozenset(given)))
        else:
            number = start.devices if count is None else count
            plans = (plan_for(model, number, device.max_domain, start, frozenset(given)),)
            _check_links(worker, plans[0])
        auto = count is None and not {"tp", "pp"} & given.keys()
        return Structure(
            model=model, hardware=device, formats=formats, profile=profile, plans=plans, auto=auto,
            engine=engine,
        )  # fmt: skip


def _held(worker: Estimator, start: Plan, fixed: frozenset[str]) -> Iterator[Plan]:
    """Candidates whose devices together hold the weights and are linked."""
    weights = c.weight_bytes(worker.graph("one", Plan()))
    usable = worker.hardware.working_set_bytes * worker.usable
    for plan in candidates(worker.model, worker.hardware.max_domain, start, fixed):
        if weights <= usable * plan.devices and _linked(worker, plan):
            yield plan


def _check_links(worker: Estimator, plan: Plan) -> None:
    """Raises InvalidPlan where no link of the device joins the plan's groups."""
    for ranks, stride in ((plan.tp, 1), (plan.dp, plan.tp), (plan.pp, plan.tp * plan.dp)):
        worker.rates.hops(ranks, stride)
