"""`archsim sweep`: models, devices, formats and plans crossed, and every workload of three ranges priced at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from archsim.base.diagnostics import quote
from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, InvalidPlan, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.ranges import parse_range
from archsim.cost.price import Price
from archsim.cost.price_choice import choose_price
from archsim.cost.served_cost import checked_share
from archsim.counts.engine_formats import engine_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.workload import Workload
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors
from archsim.memory.plan_search import PlanSearch
from archsim.predict.estimate import price_phases
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.sweeps.chunk import Axes, Chunk
from archsim.sweeps.columns import BY_NAME, COLUMNS, Asked, Column, check_priced, chosen
from archsim.sweeps.energy_columns import without_power
from archsim.sweeps.grid import SweepSlice, evaluate, keep_memory
from archsim.sweeps.pareto import Front, Objective, objectives
from archsim.sweeps.where import Condition
from archsim.timing.device import DeviceRates
from archsim.timing.step_pricer import StepPricer, engine_overheads

BLOCK = 65_536
"""Points priced at once: more, and their arrays leave a core's cache; fewer, and graphs are lowered more often."""

MOST_POINTS = 1_000_000_000
"""Points of one sweep at most: a core prices about a million a second, so that these take a quarter of an hour."""

MOST_NAMED = 8
"""Names that a note lists."""

LEFT_OUT = (InvalidPlan.default_code, "E121")
"""Codes of what leaves a combination out: no valid plan, and a device without a peak for the format."""

Degrees = dict[str, int]
"""Parallel degrees that were asked for, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Tabular):
    """What is swept: structures, the grid that each is evaluated on, and what is kept of it.

    where: of the points. pareto: of those that fit; empty: all. notes: what was left out and what to mind, one sentence
    each. prices: what each device costs, by which terms.
    """

    __repr__ = Tabular.__repr__

    structures: tuple[SweepSlice, ...]
    axes: Axes
    columns: tuple[Column, ...] = COLUMNS
    where: Condition | None = None
    pareto: tuple[Objective, ...] = ()
    notes: tuple[str, ...] = ()
    prices: tuple[str, ...] = ()

    @property
    def everything_said(self) -> tuple[str, ...]:
        """What files say above their rows: the notes, and the prices."""
        return (*self.notes, *self.prices)

    @property
    def points(self) -> int:
        """Points that are evaluated."""
        return len(self.structures) * self.axes.points

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the answer."""
        return tuple(column.name for column in self.columns)

    def priced(self) -> Iterator[Chunk]:
        """Every point with all its columns, block by block."""
        wanted = [*self.columns, *(o.column for o in self.pareto)]
        wanted += self.where.columns if self.where is not None else []
        wanted += [BY_NAME["fits"]] if self.pareto else []
        asked = Asked.of(wanted)
        keep_memory()
        for structure in self.structures:
            for block in self.axes.blocks(BLOCK):
                yield evaluate(structure, block, asked)

    def chunks(self, watch: Callable[[int], bool] = lambda _: False) -> Iterator[Chunk]:
        """The answer block by block; a Pareto set is one block at the end.

        watch: called after each block with the number of points done; where it returns True the sweep ends with those.
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

    def to_dict(self) -> JsonObject:
        """The `archsim.sweep/1` object. All rows are in memory: for large sweeps take `chunks`."""
        rows = [row for chunk in self.chunks() for row in chunk.rows()]
        names, notes = list(self.names), list(self.everything_said)
        return {"schema": "archsim.sweep/1", "columns": names, "rows": rows, "notes": notes}


def sweep(
    models: Sequence[tuple[Model, str | None]],
    hardware: Sequence[Hardware],
    *,
    weights: Sequence[str | None] = (None,),
    kv_cache_dtype: Sequence[str | None] = (None,),
    engine: Sequence[str] = (DEFAULT_ENGINE,),
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
    price: str | float | None = None,
    utilization: float | None = None,
) -> Sweep:
    """The sweep of every combination; ranges as in `parse_range`. models: each with the format that its name implies,
    which stands where `weights` says None. price: of each device, as `choose_price` reads it; without one there are no
    columns of dollars. utilization: share of the paid hours that serve.

    Combinations that no plan is valid for are left out and noted. Raises InvalidPlan where that leaves nothing.
    """
    axes = Axes(parse_range(batch, "batch"), parse_range(input_len, "input-len"), parse_range(output_len, "output-len"))
    degrees = list(_degrees(tp=tp, pp=pp, ep=ep, dp=dp))
    counts = _counts(devices)
    named = len(models) * len(hardware) * len(weights) * len(kv_cache_dtype) * len(engine)
    _check_size(axes, named * len(counts) * len(degrees))
    found: list[SweepSlice] = []
    refused: dict[str, ArchsimError] = {}
    notes: dict[str, None] = {}
    for (model, implied), device in product(models, hardware):
        for stored, cache, name in product(weights, kv_cache_dtype, engine):
            try:
                runs_on = engine_for(model, stored or implied, name)
            except UsageError as error:
                if error.code not in LEFT_OUT:
                    raise
                refused.setdefault(f"{model.name}: {error.message}", error)
                continue
            notes |= dict.fromkeys(note.text for note in (*runs_on.assumptions, *runs_on.warnings))
            formats = choose_formats(model, stored or implied, cache, engine=runs_on.engine)
            base = Case(model, device, formats, runs_on.engine)
            for count, given in product(counts, degrees):
                try:
                    found.append(base.structure(count, given))
                except UsageError as error:
                    if error.code not in LEFT_OUT:
                        raise
                    refused.setdefault(f"{model.name} on {device.id}: {error.message}", error)
    if not found:
        raise next(iter(refused.values()), None) or UsageError("a sweep needs at least one model and one device")
    condition = Condition.of(where) if where else None
    front, wanted = objectives(pareto), chosen(columns, price is not None)
    slices, unpriced, prices = _at_prices(found, price, utilization)
    used = condition.columns if condition is not None else ()
    every = [*wanted, *(objective.column for objective in front), *used]
    if price is None:
        check_priced(every)
    unknown = without_power(every, {s.hardware.id: s.hardware for s in found}.values())
    return Sweep(
        structures=tuple(slices), axes=axes, columns=wanted, where=condition, pareto=front,
        notes=(*notes, *(f"left out: {text}" for text in refused), *unpriced, *unknown, *_strangers(found, condition)),
        prices=prices,
    )  # fmt: skip


def _at_prices(
    slices: list[SweepSlice], price: str | float | None, utilization: float | None
) -> tuple[list[SweepSlice], list[str], tuple[str, ...]]:
    """The slices with the prices of their devices, what to mind about those, and the prices in words. Raises UsageError
    where no device has such a price.
    """
    if price is None:
        if utilization is not None:
            raise UsageError("`--utilization` goes with a price", hints=("give --price 2.5 or --price table",))
        return slices, [], ()
    share = checked_share(1.0 if utilization is None else utilization, "--utilization")
    prices: dict[str, Price] = {}
    missing: dict[str, UsageError] = {}
    for hardware in {s.hardware.id: s.hardware for s in slices}.values():
        try:
            prices[hardware.id] = choose_price(price, hardware).price
        except UsageError as error:
            missing[hardware.id] = error
    if not prices:
        raise next(iter(missing.values()))
    old = dict.fromkeys(note.text for one in prices.values() for note in one.warnings)
    return (
        [replace(s, price=prices.get(s.hardware.id), utilization=share) for s in slices],
        [*(error.message for error in missing.values()), *old],
        tuple(f"{name} at {one.in_words}" for name, one in prices.items()),
    )


def _check_size(axes: Axes, structures: int) -> None:
    """Refuses a sweep that nobody would wait for, before anything is priced. Raises UsageError with the number."""
    points = axes.points * structures
    if points <= MOST_POINTS:
        return
    parts = [(name.replace("_", "-"), len(values)) for name, values in zip(Axes._fields, axes, strict=True)]
    crossed = " x ".join([f"{count:,} of --{name}" for name, count in parts if count > 1])
    others = f" x {structures:,} combinations of the rest" if structures > 1 else ""
    hint = "take wider steps (`128-32768*2` doubles, `1-10000+100` steps by 100), or sweep one range at a time"
    raise UsageError(f"a sweep of {points:,} points ({crossed}{others}); at most {MOST_POINTS:,}", hints=(hint,))


def _strangers(structures: list[SweepSlice], condition: Condition | None) -> Iterator[str]:
    """What a condition calls by a name that no point has: a column holds full names, not what was typed."""
    for column, text in condition.words if condition is not None else ():
        held = list(dict.fromkeys(s.names[column.name] for s in structures if column.name in s.names))
        if held and text not in held:
            yield f"no point has {column.name} {quote(text)}; there is {', '.join(held[:MOST_NAMED])}"


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
    formats: Formats
    engine: str

    def structure(self, count: int | None, given: Degrees) -> SweepSlice:
        """The plan of these degrees, or the candidates for the smallest that fits. Raises InvalidPlan."""
        model, device = self.model, self.hardware
        overheads = engine_overheads(self.engine)
        tensors = EngineTensors(model, device, self.formats, choose_engine(self.engine))
        memory, rates = EngineMemoryModel(tensors, Workload()), DeviceRates(device)
        search = PlanSearch(memory, rates)
        start, fixed = search.start(**given), frozenset(given)
        auto = count is None and not {"tp", "pp"} & fixed
        plans = tuple(search.linked(start, fixed)) if auto else search.plans_on(count, start, fixed)
        if plans:  # raises what an estimate would: a format without a peak, groups without a link
            pricer = StepPricer.of(model, device, self.formats, overheads, plans[0], graphs=memory.graphs, rates=rates)
            price_phases(pricer, memory.steps, model.architecture != "encoder")
        return SweepSlice(tensors=tensors, overheads=overheads, plans=plans, auto=auto)
