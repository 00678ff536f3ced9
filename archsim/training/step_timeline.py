"""A training step as a timeline for Perfetto and chrome://tracing: every pass of every pipeline rank.

The format is the Trace Event Format: complete events with times in microseconds (Duffy, "Trace Event Format", Google,
2016).
"""

from __future__ import annotations

from collections.abc import Iterator

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.training.data_exchange import DataExchange
from archsim.training.pipeline import TimedPass, timeline
from archsim.training.pricer import Priced, TrainingPricer
from archsim.training.stage_times import PICOSECONDS
from archsim.training.stages import stage_layers
from archsim.training.step import StepRules, send_comm, stage_costs

MOST = 400_000
"""Events of one file: viewers grow slow beyond."""

NAMES = {"F": "forward", "B": "backward", "I": "backward of inputs", "W": "backward of weights"}
MICROSECOND = PICOSECONDS / 1e6


def step_timeline(pricer: TrainingPricer, priced: Priced) -> JsonObject:
    """The passes of a step, then what is not hidden of the exchange between data ranks, and the update.

    Raises UsageError (E107) where there are more passes than a viewer shows.
    """
    layout, step = priced.choice.layout, priced.step
    if 2 * layout.micro_batches * layout.stages > MOST:
        raise UsageError(
            f"a step has {2 * layout.micro_batches * layout.stages:,} passes, of which a timeline holds {MOST:,}",
            hints=("a smaller --global-batch has the same pattern",),
        )
    events = [*_names(layout.pp), *map(_event, _passes(pricer, priced))]
    begin = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
    exchange = step.comm["dp"].exposed_s * 1e6 if "dp" in step.comm else 0.0
    for rank in range(layout.pp):
        if exchange:
            events.append(_slice(rank, "gradients and weights between data ranks", begin, exchange))
        events.append(_slice(rank, "optimizer", begin + exchange, step.parts.optimizer_s * 1e6))
    about = {
        "schema": "archsim.trace/1", "model": pricer.model.name, "hardware": pricer.hardware.id, "phase": "train",
        "schedule": layout.schedule, "micro_batches": layout.micro_batches, "expected_s": step.expected_s,
    }  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}


def _passes(pricer: TrainingPricer, priced: Priced) -> list[TimedPass]:
    """Every pass of every rank."""
    layout, setup = priced.choice.layout, pricer.setup
    rank, micro = pricer.rank(priced.choice)[0], priced.micro
    rules = StepRules(layout, setup.recipe, setup.optimizer, pricer.timer, pricer.factors, pricer.model.d_model)
    exchange = DataExchange(pricer.timer, layout, setup.recipe)
    costs = stage_costs(rank, micro, stage_layers(rank.order, layout.stages), exchange, rules)
    send = round(send_comm(rules).exposed_s * PICOSECONDS)
    times = [cost.times() for cost in costs]
    return timeline(layout.schedule, layout.pp, layout.micro_batches, times, send, layout.vpp)


def _names(ranks: int) -> Iterator[JsonObject]:
    """One process a pipeline rank."""
    for rank in range(ranks):
        name = f"rank {rank + 1} of {ranks}" if ranks > 1 else "every rank"
        yield {"ph": "M", "name": "process_name", "pid": rank + 1, "tid": 0, "args": {"name": name}}


def _event(done: TimedPass) -> JsonObject:
    name = f"{NAMES[done.kind]} {done.micro_batch + 1}"
    args = {"stage": done.stage + 1, "micro_batch": done.micro_batch + 1}
    start, end = done.start / MICROSECOND, done.end / MICROSECOND
    return _slice(done.rank, name, start, end - start) | {"args": args}


def _slice(rank: int, name: str, start: float, duration: float) -> JsonObject:
    """A complete event on the only track of a rank."""
    track = {"pid": rank + 1, "tid": 100 * (rank + 1)}
    return {"ph": "X", "name": name, "cat": "pass", **track, "ts": start, "dur": duration, "args": {}}
