"""`archsim fit --hw HW` without a model: which models of the catalog a device holds, in which weight formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonObject
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.lowered_steps import LoweredSteps
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import Workload, WorkloadSteps
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.engines.overhead import overheads_of
from archsim.graph.graph import Block
from archsim.graph.step import Step
from archsim.memory.check_fit import FitChoices, FitRequest, chosen_plan, fit_choices, request_memory
from archsim.memory.engine_memory import EngineMemoryModel, Settings
from archsim.memory.engine_rules import visible_bytes
from archsim.memory.other_weights import OtherWeights
from archsim.memory.plan_search import device_count
from archsim.memory.tensors import HeldWeights, TensorCopies
from archsim.spec.catalog import Entry, names
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_model
from archsim.spec.model import Model
from archsim.spec.one_look import one_look
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import default_store
from archsim.timing.step_by_format import StepByFormat
from archsim.timing.step_pricer import StepPricer

ANSWER = 256
"""Tokens of the answer in a request, the rest of which is the prompt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRow:
    """One model in one weight format on the devices asked about. max_model_len, kv_tokens: as in `fit`, None
    where memory sets no limit or there is no cache. max_context: the model's context length; beyond_context: whether
    the request that must fit is longer. tpot_s: expected seconds of a decode step at batch 1, None where it does not
    fit or does not decode.
    """

    model: str
    params: int
    weights: str
    fits: bool
    max_model_len: int | None
    kv_tokens: int | None
    tpot_s: float | None
    max_context: int | None
    beyond_context: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits(Tabular):
    """The models of the catalog on so many devices: those that fit first, by parameters falling. refused: model and
    reason.
    """

    __repr__ = Tabular.__repr__

    hardware: Hardware
    devices: int
    engine: str
    context: int | None
    rows: tuple[FitRow, ...]
    refused: tuple[tuple[str, str], ...]

    def to_dict(self) -> JsonObject:
        """The `archsim.fits/1` object."""
        return {
            "schema": "archsim.fits/1", "hardware": self.hardware.id, "devices": self.devices,
            "engine": self.engine, "context": self.context,
            "rows": [asdict(row) for row in self.rows],
            "refused": [{"model": model, "reason": reason} for model, reason in self.refused],
        }  # fmt: skip


def fits(
    hardware: Hardware,
    *,
    devices: int | str = 1,
    context: int | None = None,
    engine: str = DEFAULT_ENGINE,
    weights: str | None = None,
    kv_cache_dtype: str | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Fits:
    """Every model of the catalog on so many devices, in its own format and in those that the engine offers.

    context: tokens of the request that must fit; None for the engine's default. weights: these formats alone,
    joined by commas. progress:
    told how many models are done, and of how many. Raises UnknownName for an unknown engine, UsageError for no
    number of devices.
    """
    if devices == "auto":
        raise UsageError("`--devices auto` is for one model: without a MODEL, say how many", hints=("`--devices 2`",))
    devices = device_count(devices)
    request = FitRequest(
        devices=devices, engine=engine, kv_cache_dtype=kv_cache_dtype, settings=Settings(max_model_len=context)
    )
    entries = names("models")
    rows: list[FitRow] = []
    refused: list[tuple[str, str]] = []
    with one_look():
        for done, entry in enumerate(entries):
            try:
                rows += _rows_of(entry, hardware, request, weights)
            except ArchsimError as error:
                refused.append((entry.name, error.message))
            progress(done + 1, len(entries))
    rows.sort(key=lambda row: (not row.fits, -row.params, row.model))
    title = choose_engine(engine).rules.name
    return Fits(
        hardware=hardware, devices=devices, engine=title, context=context, rows=tuple(rows), refused=tuple(refused)
    )


def _rows_of(entry: Entry, hardware: Hardware, request: FitRequest, only: str | None) -> list[FitRow]:
    """The rows of a model. Raises UnknownName for one without a spec."""
    catalog = CatalogModel(LoweredSteps(load_model(entry.name)), hardware)
    offered = (None, *choose_engine(request.engine).rules.formats.weights) if only is None else tuple(only.split(","))
    found: dict[str, FitRow] = {}
    refusal: ArchsimError | None = None
    for weights in offered:
        try:
            row = catalog.row(replace(request, weights=weights))
        except ArchsimError as error:
            refusal = error
            continue
        found.setdefault(row.weights, row)
    if not found and refusal is not None:
        raise refusal
    return list(found.values())


class CatalogModel:
    """A model on a device, asked about in one weight format after another: what does not hang on the weights is laid
    out once for each engine and serves all formats that it runs.
    """

    def __init__(self, lowered: LoweredSteps, hardware: Hardware) -> None:
        self.lowered, self.hardware, self.model = lowered, hardware, lowered.model
        self._laid_out: list[_LaidOut] = []

    def row(self, request: FitRequest) -> FitRow:
        """The model in one format. Weights that are larger than the devices need no further question."""
        model, choices = self.model, fit_choices(self.model, request)
        rules, weights = choices.engine.rules, choices.formats
        stored = self._inventory(rules.memory.embedding).bytes_in(weights)
        if stored > device_count(request.devices or 1) * visible_bytes(self.hardware, rules):
            return FitRow(
                model=model.name, params=self.params, weights=weights.name, fits=False, max_model_len=0, kv_tokens=0,
                tpot_s=None, max_context=model.max_context,
                beyond_context=_is_beyond(model, request.settings.max_model_len),
            )  # fmt: skip
        laid_out = self._like(request, choices)
        like = None if laid_out is None else laid_out.memory
        memory = request_memory(self.lowered, self.hardware, request, choices, like)
        if laid_out is None:
            laid_out = _LaidOut(memory, self.lowered)
            self._laid_out.append(laid_out)
        plan, held, _ = chosen_plan(memory, request)
        return FitRow(
            model=model.name, params=self.params, weights=weights.name, fits=bool(held.fits),
            max_model_len=memory.longest(plan), kv_tokens=held.kv_tokens,
            tpot_s=laid_out.tpot(memory, plan) if held.fits and model.cached else None,
            max_context=model.max_context, beyond_context=_is_beyond(model, int(memory.length)),
        )  # fmt: skip

    @cached_property
    def params(self) -> int:
        """Parameters of the model."""
        return int(c.params(self._one_token))

    @cached_property
    def _one_token(self) -> Block:
        return self.lowered.get(step_for(self.model, 1, 1))

    def _inventory(self, embedding: str) -> HeldWeights:
        """The weights that devices hold. embedding: where the input table is, as in the engine's document."""
        if embedding not in self._inventories:
            away = "embedding" if embedding == "host" else ""
            here = (item for item in c.inventory(self._one_token) if item.tensor.role != away)
            self._inventories[embedding] = HeldWeights(each=tuple(TensorCopies(i.tensor, i.copies) for i in here))
        return self._inventories[embedding]

    @cached_property
    def _inventories(self) -> dict[str, HeldWeights]:
        return {}

    def _like(self, request: FitRequest, choices: FitChoices) -> _LaidOut | None:
        """What was laid out for the same engine, caches and activations, on a single device."""
        if request.devices not in (None, 1):
            return None
        formats, engine = choices.formats, choices.engine
        return next((x for x in self._laid_out if OtherWeights.serves(x.memory.tensors, formats, engine)), None)


class _LaidOut:
    """A model on a single device under one engine's rules, and its decode step. memory: in the first format."""

    def __init__(self, memory: EngineMemoryModel, lowered: LoweredSteps) -> None:
        self.memory, self.lowered = memory, lowered
        self._step: StepByFormat | None = None

    def tpot(self, memory: EngineMemoryModel, plan: Plan) -> float:
        """Expected seconds of a decode step of one request of the length that must fit, in the formats of `memory`."""
        if self._step is not None:
            return float(self._step.price(memory.tensors.formats).expected_s)
        pricer, step = self._pricer(memory, plan), _decode(memory)
        if plan.devices == 1 and StepByFormat.serves(pricer):
            self._step = StepByFormat(pricer, step)
            return self.tpot(memory, plan)
        return float(pricer.price(step).expected_s)

    def _pricer(self, memory: EngineMemoryModel, plan: Plan) -> StepPricer:
        tensors, model = memory.tensors, memory.model
        engine, formats = tensors.engine, tensors.formats
        graphs = StepGraphs(model, formats, lowered=self.lowered)
        overheads = overheads_of(engine.name, engine.version, measured=default_store().engines, document=engine.rules)
        return StepPricer.of(model, memory.hardware, formats, overheads, plan, graphs=graphs)


def _decode(memory: EngineMemoryModel) -> Step:
    """The decode step of one request of the length that must fit."""
    length = int(memory.length)
    output = min(ANSWER, max(length - 1, 1))
    load = Workload(batch=1, input_len=max(length - output, 1), output_len=output)
    return WorkloadSteps(memory.model, load).decode


def _is_beyond(model: Model, length: int | None) -> bool:
    """Whether a request is longer than the model's context length."""
    return length is not None and model.max_context is not None and length > model.max_context


def widest(found: Fits) -> Iterator[FitRow]:
    """Of the rows that fit, the first of every model: in the widest weights."""
    seen: set[str] = set()
    for row in found.rows:
        if row.fits and row.model not in seen:
            seen.add(row.model)
            yield row
