"""What a reader asks next: why so many devices, and what would fit instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from archsim.base.data_class import dataclass
from archsim.base.errors import ArchsimError
from archsim.base.options import EstimateArguments
from archsim.counts import graph_counts as c
from archsim.counts.count import caches_of_token, kv_growth, step_for
from archsim.counts.engine_formats import engine_for
from archsim.counts.layer_columns import flops
from archsim.counts.lowered_steps import shared_steps
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import WorkloadSteps
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel
from archsim.memory.plan_search import PlanSearch
from archsim.predict.estimate import Estimate
from archsim.predict.placement import Placement, place
from archsim.spec.format import load_format
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.device import DeviceRates


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Figures of the whole model, not of one device.

    device_kv_per_token: what one more token of a sequence takes on each device. flops_per_token: contractions
    of one decode step at the mean context (an encoder: of a token of the input). ridge: FLOP per byte above
    which the weights' arithmetic is what limits. alone: memory on a single device, where more were chosen. enough:
    devices on which all requests in flight run at once, where some wait; None where there are none.
    """

    weight_bytes: int
    kv_per_token: int
    state_bytes: int
    device_kv_per_token: int
    flops_per_token: float
    ridge: float
    alone: DeviceMemory | None
    enough: int | None = None


def facts(e: Estimate) -> Facts:
    """The figures of the whole model behind an estimate."""
    alone = (
        EngineMemoryModel(e.tensors, e.workload, StepGraphs.shared(e.model, e.formats)).on(Plan()) if e.chosen else None
    )
    return Facts(
        weight_bytes=c.weight_bytes(e.tensors.rank(Plan())),
        kv_per_token=kv_growth(e.model, e.formats),
        state_bytes=c.state_bytes(caches_of_token(e.model, e.formats), role="recurrent"),
        device_kv_per_token=e.kv_bytes_per_token,
        flops_per_token=_flops_per_token(e),
        ridge=DeviceRates(e.hardware).matrix_flops(_compute_dtype(e)) / e.hardware.bandwidth,
        alone=alone,
        enough=_devices_for_all(e),
    )


def _devices_for_all(e: Estimate) -> int | None:
    """The fewest devices on which no request in flight waits for room; None where none does, or always some."""
    state = e.serving
    if state is None or state.running >= state.concurrency:
        return None
    memory = EngineMemoryModel(e.tensors, replace(e.workload, batch=state.concurrency))
    if memory.running(e.plan, state.concurrency).requests >= state.concurrency:
        return None
    search = PlanSearch(memory, DeviceRates(e.hardware))
    plans = search.linked(search.start(), frozenset())
    return next((p.devices for p in plans if memory.running(p, state.concurrency).requests >= state.concurrency), None)


def narrower_formats(e: Estimate) -> list[str]:
    """Formats of the engine that are clearly narrower than the weights are now, the widest first."""
    weights = e.formats.weights
    stored = next(weights[role] for role in ("expert", "linear", "default") if role in weights)
    return [name for name in e.tensors.rules.formats.weights if load_format(name).format().bits < 0.9 * stored.bits]


def _flops_per_token(e: Estimate) -> float:
    load = e.workload
    if e.decode is None:
        return float(c.flops(shared_steps(e.model).get(step_for(e.model, 1, load.input_len))) / load.input_len)
    steps = WorkloadSteps(e.model, replace(load, batch=1))  # whose graph the times of a batch of one were read from
    return float(flops(StepGraphs.shared(e.model, e.formats), steps.decode))


def _compute_dtype(e: Estimate) -> str:
    """What most weights are multiplied in."""
    weights = e.formats.weights
    return next(weights[role] for role in ("expert", "linear", "default") if role in weights).compute


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """A change under which it fits. room: tokens that the memory left over holds, None if they take none."""

    change: str
    devices: int
    memory: DeviceMemory
    room: int | None


def what_fits(model: Model, hardware: Hardware, options: EstimateArguments) -> list[Suggestion]:
    """Changes that would make it fit, each really placed, the cheapest first.

    options: of `estimate`, the device count that was too small among them.
    """
    return [found for change, answer in _tries(model, hardware, options) if (found := _kept(change, answer))]


def _tries(model: Model, hardware: Hardware, options: EstimateArguments) -> Iterator[tuple[str, Placement | None]]:
    free: EstimateArguments = {**options, "devices": "auto", "tp": None, "pp": None, "dp": None, "ep": None}
    more = _placed(model, hardware, free)
    yield f"--devices {more.plan.plan.devices}" if more else "", more
    if str(options.get("devices", "auto")) != "auto" and any(options.get(name) for name in DEGREES):
        same = _placed(model, hardware, {**free, "devices": options["devices"]})
        yield degrees_text(same.plan.plan) if same else "", same
    engine = engine_for(model, options.get("weights"), str(options.get("engine", DEFAULT_ENGINE))).engine
    offered = choose_engine(engine).rules.formats.weights
    for weights in (offered[0], offered[-1]):
        if options.get("weights") != weights:
            yield f"--weights {weights}", _placed(model, hardware, {**options, "weights": weights})


DEGREES = ("tp", "pp", "dp", "ep")


def degrees_text(plan: Plan) -> str:
    """A plan as it is typed."""
    return " ".join(f"--{name} {getattr(plan, name)}" for name in DEGREES if name == "tp" or getattr(plan, name) > 1)


def _placed(model: Model, hardware: Hardware, options: EstimateArguments) -> Placement | None:
    """Where the change puts it; None where it cannot run so. No step is timed but those that plans are ranked by."""
    try:
        placed = place(model, hardware, **options)
        placed.check_rates()
        return placed
    except ArchsimError:
        return None


def _kept(change: str, placed: Placement | None) -> Suggestion | None:
    if placed is None or not (memory := placed.memory).fits:
        return None
    grown = memory.stage.growth
    room = memory.free // grown if grown else None
    return Suggestion(change=change, devices=placed.plan.plan.devices, memory=memory, room=room)
