"""Candidates priced: counts, memory, times, loss and cost of all at once, the cheapest test first.

Every quantity is read off the same graphs, memory rules and time models as of a single spec; only numbers are columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from archsim.base.arrays import Array
from archsim.base.json_types import JsonObject
from archsim.base.number import Num
from archsim.candidates.question import Limits, Question, TrainingBudget
from archsim.candidates.space import Space
from archsim.cost.served_cost import ServedCost, ServedWork
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.engine_formats import engine_for
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.step_graphs import PopulationGraphs
from archsim.engines.names import choose_engine
from archsim.engines.overhead import overheads_of
from archsim.memory.engine_memory import EngineMemoryModel
from archsim.memory.population_memory import PopulationTensors
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.spec.population import Population
from archsim.timing.calibration import default_store
from archsim.timing.step_pricer import StepPricer
from archsim.training.model_flops import flops_per_token
from archsim.training.scaling import REFUSED_BEYOND

Rows = dict[str, Array]
"""Quantity -> one value of each candidate."""


@dataclass(slots=True)
class Searched:
    """How many candidates reached each test. beyond: that a law was not fitted for."""

    combinations: int = 0
    legal: int = 0
    fit: int = 0
    priced: int = 0
    beyond: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """Prices candidates of one structure in one weight format. base: the spec that structures are made from."""

    question: Question
    base: JsonObject
    space: Space
    weights: str | None
    searched: Searched = field(default_factory=Searched)

    def rows(self, positions: Array, limited: bool = True) -> Rows:
        """The candidates at positions of the space that keep all limits, with every quantity that the question is
        about; with `limited` false all legal ones, whatever the limits say.
        """
        space, searched = self.space, self.searched
        values = space.values(positions)
        legal = np.flatnonzero(space.legal(values))
        searched.combinations += len(positions)
        searched.legal += len(legal)
        found: Rows = {"position": positions[legal]}
        found |= {name: column[legal].astype(np.int64) for name, column in values.items()}
        for add in (self._count, self._learn, self._weigh, self._bound, self._time):
            if not len(found["d_model"]):
                return {}
            found = add(found, limited)
        return found

    # ------------------------------------------------------------------ one test after another
    def _count(self, rows: Rows, limited: bool) -> Rows:
        """Parameters."""
        one = lower(self._model(rows), step_for(self._model(rows), 1, 1))
        rows = self._with(rows, params=c.params(one), active=c.active_params(one))
        limits = self.question.limits
        return self._kept(rows, within(rows["params"], limits.params) & within(rows["active"], limits.active), limited)

    def _learn(self, rows: Rows, limited: bool) -> Rows:
        """What a law says of the training budget."""
        budget = self.question.training
        if budget is None:
            return rows
        per_token = flops_per_token(self._model(rows))
        rows = self._with(rows, train_flops_per_token=per_token)
        tokens = budget.tokens if budget.flops is None else budget.flops / rows["train_flops_per_token"]
        rows = self._with(rows, tokens=tokens)
        rows = self._with(rows, train_flops=rows["tokens"] * rows["train_flops_per_token"], **losses(budget, rows))
        near = rows["beyond"] < REFUSED_BEYOND
        self.searched.beyond += int(np.count_nonzero(~near))
        return rows if budget.extrapolate else self._kept(rows, near, limited)

    def _weigh(self, rows: Rows, limited: bool) -> Rows:
        """Memory on the device."""
        held = self._memory(rows).on(Plan())
        rows = self._with(
            rows, weights_bytes=held.weights, kv_bytes=held.kv_cache, memory_bytes=held.needed, free_bytes=held.free
        )
        most = self.question.limits.memory_bytes
        mask = rows["free_bytes"] >= 0
        rows = self._kept(rows, mask if most is None else mask & (rows["memory_bytes"] <= most), limited)
        self.searched.fit += len(rows["d_model"])
        return rows

    def _bound(self, rows: Rows, limited: bool) -> Rows:
        """The speed of light, which no expected time is below."""
        limit = self.question.limits.tpot_s
        if limit is None or not limited:
            return rows
        memory = self._memory(rows)
        ideal = self._pricer(memory).ideal_s(memory.steps.decode)
        return self._kept(rows, np.broadcast_to(ideal, rows["d_model"].shape) <= limit, limited)

    def _time(self, rows: Rows, limited: bool) -> Rows:
        """Expected times and their intervals, and what they cost."""
        limits, memory = self.question.limits, self._memory(rows)
        pricer = self._pricer(memory)
        self.searched.priced += len(rows["d_model"])
        time = pricer.price(memory.steps.decode)
        rows = self._with(rows, tpot_s=time.expected_s, tpot_low_s=time.low_s, tpot_high_s=time.high_s)
        rows = self._kept(rows, below(rows, "tpot", limits), limited)
        if (limited and not self.question.asks_for("ttft_s")) and self.question.price is None:
            return rows
        rows = self.with_prefill(rows)
        return self._kept(rows, below(rows, "ttft", limits), limited) if len(rows["d_model"]) else rows

    def with_prefill(self, rows: Rows) -> Rows:
        """The candidates with the time to the first token, and the cost of a million tokens of the answer."""
        if "ttft_s" in rows or not len(rows["d_model"]):
            return rows
        memory = self._memory(rows)
        first = self._pricer(memory).prefill(memory.steps.prefill)
        rows = self._with(rows, ttft_s=first.expected_s, ttft_low_s=first.low_s, ttft_high_s=first.high_s)
        price, load = self.question.price, self.question.load
        if price is None:
            return rows
        whole = (rows["ttft_s"] + (load.output_len - 1) * rows["tpot_s"]) / load.batch
        work = ServedWork(
            1, load.input_len, load.output_len, whole, whole, whole, rows["ttft_s"] / load.batch / whole
        )  # fmt: skip
        return self._with(rows, usd_per_m_output=ServedCost(work, price.usd_per_device_hour).usd_per_m_output)

    # ------------------------------------------------------------------ the model behind
    def population(self, rows: Rows) -> Population:
        """The candidates as one spec."""
        return self.space.structure.population(self.base, {name: rows[name] for name in self.space.axes})

    @property
    def formats(self) -> Formats:
        """The formats of every candidate."""
        return choose_formats(
            self._any_model(), self.weights, self.question.kv_cache_dtype, engine=self.question.engine.name
        )

    def _any_model(self) -> Model:
        values = {name: np.asarray([8]) for name in self.space.axes} | {"n_layers": np.asarray([2 * 12])}
        return self.space.structure.population(self.base, values).at(0)

    def _model(self, rows: Rows) -> Model:
        return self.population(rows).model

    def _memory(self, rows: Rows) -> EngineMemoryModel:
        question, model, formats = self.question, self._model(rows), self.formats
        engine = choose_engine(engine_for(self._any_model(), self.weights, question.engine.name).engine)
        tensors = PopulationTensors(model, question.hardware, formats, engine)
        return EngineMemoryModel(tensors, question.load, PopulationGraphs(model, formats))

    def _pricer(self, memory: EngineMemoryModel) -> StepPricer:
        engine, store = memory.tensors.engine, default_store()
        overheads = overheads_of(engine.name, engine.version, measured=store.engines, document=engine.rules)
        return StepPricer.of(
            memory.model, memory.hardware, memory.tensors.formats, overheads, Plan(), graphs=memory.graphs, store=store
        )

    # ------------------------------------------------------------------ rows
    def _with(self, rows: Rows, **columns: Num) -> Rows:
        """The rows with further quantities; one number stands for all."""
        count = len(rows["d_model"])
        return rows | {name: np.broadcast_to(np.asarray(value), (count,)) for name, value in columns.items()}

    def _kept(self, rows: Rows, mask: Array, limited: bool) -> Rows:
        return {name: column[mask] for name, column in rows.items()} if limited else rows


def within(column: Array, bounds: tuple[float, float] | None) -> Array:
    """Whether numbers lie between two others; all do without."""
    return np.ones(len(column), dtype=bool) if bounds is None else (column >= bounds[0]) & (column <= bounds[1])


def below(rows: Rows, name: str, limits: Limits) -> Array:
    """Whether times keep a limit: the expected ones, or with `sure` the upper ends of their intervals."""
    limit = getattr(limits, f"{name}_s")
    if limit is None:
        return np.ones(len(rows["d_model"]), dtype=bool)
    return np.asarray(rows[f"{name}_high_s" if limits.sure else f"{name}_s"] <= limit)


def losses(budget: TrainingBudget, rows: Rows) -> Rows:
    """The loss by the budget's law. Of a model with experts no law is at hand here: as of a dense model of as many
    parameters as one token uses, and at best as of one with all of them.
    """
    assert budget.law.loss is not None
    loss = budget.law.loss.of(rows["active"], rows["tokens"])
    least = budget.law.loss.of(rows["params"], rows["tokens"])
    return {"loss": loss, "loss_low": least, "beyond": beyond_runs(budget, rows)}


def beyond_runs(budget: TrainingBudget, rows: Rows) -> Array:
    """By which factor the candidates lie outside the runs that the law was fitted to; 1 inside."""
    fitted = budget.law.fitted
    assert fitted is not None
    found = np.ones(len(rows["d_model"]))
    for column, (low, high) in ((rows["active"], fitted.params), (rows["tokens"], fitted.tokens)):
        found = np.maximum(found, np.maximum(column / high, low / column))
    return found


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several parts, with the quantities that all have."""
    full = [part for part in parts if part and len(part["d_model"])]
    if not full:
        return {}
    names = [name for name in full[0] if all(name in part for part in full)]
    return {name: np.concatenate([part[name] for part in full]) for name in names}


def each_row(rows: Rows) -> Iterator[dict[str, Array]]:
    """Each candidate's quantities."""
    count = len(rows.get("d_model", ()))
    for i in range(count):
        yield {name: column[i] for name, column in rows.items()}
