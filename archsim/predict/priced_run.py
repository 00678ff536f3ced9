"""What a simulated load costs: the devices are paid whether they serve or wait, and requests share the bill."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from archsim.base.errors import UsageError
from archsim.base.options import CostArguments
from archsim.cost.priced_work import priced_work
from archsim.cost.served_cost import ServedWork
from archsim.predict.served_work import cached_read_s
from archsim.predict.simulation import Simulation
from archsim.serving.steady_state import served_load, steady_state


def with_run_cost(s: Simulation, **asked: Unpack[CostArguments]) -> Simulation:
    """The simulation with what its load costs. Raises UsageError for a price that there is not."""
    decode = s.server.decode
    if decode is not None and decode.server.hardware.id != s.hardware.id:
        raise UsageError("two pools on different devices have no single price", hints=("price each pool separately",))
    if asked.get("power_price") is not None:
        raise UsageError("`--power-price` goes with `estimate`: the power of simulated loads is not predicted")
    priced = priced_work(run_work(s), s.hardware, **asked)
    return replace(
        s, cost=priced, assumptions=(*s.assumptions, *priced.assumptions), warnings=(*s.warnings, *priced.warnings)
    )


def run_work(s: Simulation) -> ServedWork:
    """Seconds of the whole system per request: one over the requests of a second. Raises UsageError where no request
    ends in the measured time, with the expected steps or with the longest.
    """
    rate = s.throughput()["requests_per_s"]
    if min(rate.low, rate.value) <= 0:
        hint = "raise --requests, or lower the load"
        raise UsageError("no request ends in the measured time: there is no cost per token", hints=(hint,))
    prompt, answer = round(s.usual.input_len), round(s.usual.output_len)
    cached = min(round((s.state.get("prefix_hit_share") or 0.0) * prompt), prompt - 1)
    read_s = cached_read_s(s.server.pricer, prompt, cached) if prompt > 1 else 0.0
    return ServedWork(
        paid_devices(s), prompt, answer, 1 / rate.value, 1 / rate.high, 1 / rate.low, prompt_share(s, cached), cached,
        min(read_s, prompt_share(s, cached) / rate.value / max(cached, 1)),
    )  # fmt: skip


def paid_devices(s: Simulation) -> float:
    """Devices of all replicas; on average where their number follows the load."""
    if s.server.fleet.scaling is None:
        return s.server.devices
    return float(s.server.plan.devices * s.state["replicas"]["mean"])


def prompt_share(s: Simulation, cached: int) -> float:
    """The share of the work that prompts cause: with pools the devices of theirs, else their share of steps with as
    many requests as ran on average.
    """
    server, fleet = s.server, s.server.fleet
    if server.decode is not None:
        return fleet.replicas * server.plan.devices / server.devices
    running = max(1.0, float(s.state["running"]["mean"]) / max(fleet.replicas, 1))
    load = served_load(
        server.pricer, max(1, round(running)), round(s.usual.input_len), round(s.usual.output_len), running
    )
    return steady_state(server.pricer, replace(load, cached_len=cached)).utilisation
