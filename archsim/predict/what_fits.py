"""What a reader asks next: why so many devices, and what would fit instead."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from archsim.base.data_class import dataclass
from archsim.base.errors import ArchsimError
from archsim.base.options import EstimateArguments
from archsim.counts import graph_counts as c
from archsim.counts.count import kv_growth, step_for
from archsim.counts.engine_formats import engine_for
from archsim.counts.lowered_steps import shared_steps
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import WorkloadSteps
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.memory.engine_memory import DeviceMemory, EngineMemoryModel
from archsim.memory.plan_search import PlanSearch
from archsim.predict.estimate import Estimate, estimate
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
    one = e.formats.apply(shared_steps(e.model).get(step_for(e.model, 1, 1)))
    alone = (
        EngineMemoryModel(e.tensors, e.workload, StepGraphs.shared(e.model, e.formats)).on(Plan()) if e.chosen else None
    )
    return Facts(
        weight_bytes=c.weight_bytes(one),
        kv_per_token=kv_growth(e.model, e.formats),
        state_bytes=c.state_bytes(one, role="recurrent"),
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
    return float(c.flops(shared_steps(e.model).get(steps.decode)))


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
    """Changes that would make it fit, each really estimated, the cheapest first.

    options: of `estimate`, the device count that was too small among them.
    """
    return [found for change, answer in _tries(model, hardware, options) if (found := _kept(change, answer))]


def _tries(model: Model, hardware: Hardware, options: EstimateArguments) -> Iterator[tuple[str, Estimate | None]]:
    free: EstimateArguments = {**options, "devices": "auto", "tp": None, "pp": None, "dp": None, "ep": None}
    more = _estimated(model, hardware, free)
    yield f"--devices {more.plan.devices}" if more else "", more
    if str(options.get("devices", "auto")) != "auto" and any(options.get(name) for name in DEGREES):
        same = _estimated(model, hardware, {**free, "devices": options["devices"]})
        yield degrees_text(same.plan) if same else "", same
    engine = engine_for(model, options.get("weights"), str(options.get("engine", DEFAULT_ENGINE))).engine
    offered = choose_engine(engine).rules.formats.weights
    for weights in (offered[0], offered[-1]):
        if options.get("weights") != weights:
            yield f"--weights {weights}", _estimated(model, hardware, {**options, "weights": weights})


DEGREES = ("tp", "pp", "dp", "ep")


def degrees_text(plan: Plan) -> str:
    """A plan as it is typed."""
    return " ".join(f"--{name} {getattr(plan, name)}" for name in DEGREES if name == "tp" or getattr(plan, name) > 1)


def _estimated(model: Model, hardware: Hardware, options: EstimateArguments) -> Estimate | None:
    try:
        return estimate(model, hardware, **options)
    except ArchsimError:
        return None


def _kept(change: str, answer: Estimate | None) -> Suggestion | None:
    if answer is None or not answer.memory.fits:
        return None
    grown = answer.kv_bytes_per_token
    room = answer.memory.free // grown if grown else None
    return Suggestion(change=change, devices=answer.plan.devices, memory=answer.memory, room=room)
