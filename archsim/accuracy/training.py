"""Training runs: step times, throughput, FLOP/s as a stack prints them, and peak memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import exp
from typing import NamedTuple

from archsim.accuracy.files import Table
from archsim.accuracy.question import reason_of
from archsim.accuracy.rows import Refused
from archsim.accuracy.runs import RowPrediction, columns
from archsim.accuracy.times import Prediction, RunTimes
from archsim.accuracy.training_run import TrainingRun, training_run
from archsim.accuracy.validation import Validation
from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping
from archsim.base.progress import counted
from archsim.spec.parallelism import expert_counts
from archsim.training.layout import check_layout
from archsim.training.methods import tuning_of
from archsim.training.model_flops import ModelFlops, model_flops
from archsim.training.optimizers import load_optimizer
from archsim.training.pricer import Choice, Priced, Setup, TrainingPricer

GIB = 2.0**30
ASSUMED = 1.5
"""Factor on the log of the interval where something that the row does not say is assumed."""
HOUR = 3600.0
GOODPUT = 0.9
"""Share of a long run's time that its steps take (Llama 3, arXiv 2407.21783: above 0.9)."""


class Answered(NamedTuple):
    """A run with its price."""

    run: TrainingRun
    priced: Priced
    flops: ModelFlops
    interval: float

    @property
    def step(self) -> Prediction:
        """Seconds of a step with its interval; the speed of light is what a roofline says."""
        step, factor = self.priced.step, exp(self.interval)
        bound = max(step.comm, key=lambda kind: step.comm[kind].exposed_s, default="compute")
        expected = step.expected_s
        return Prediction(
            expected, max(expected / factor, step.ideal_s), expected * factor, step.ideal_s,
            self.priced.micro.evidence, bound,
        )  # fmt: skip

    @property
    def tokens_per_s(self) -> Prediction:
        """Of one device."""
        return self.step.inverse(self.run.layout.tokens / self.run.layout.devices)

    @property
    def printed_flops(self) -> float:
        """FLOP of a token as the stack prints them."""
        return self.flops.printed(self.run.stack.convention, self.priced.choice.recompute)

    def memory(self, reserved: bool) -> Prediction:
        """GiB of the fullest device at its peak."""
        held = self.priced.memory
        expected = held.most.reserved if reserved else held.most.allocated
        low, high = expected * exp(-held.width), expected * exp(held.width)
        return Prediction(
            expected / GIB, low / GIB, high / GIB, held.most.states.total / GIB, "datasheet", "memory"
        )  # fmt: skip


Figure = Callable[[Answered, JsonMapping], Prediction]


def _gpu_hours(one: Answered, row: JsonMapping) -> Prediction:
    if one.run.tokens is None:
        raise UsageError("GPU hours need tokens_trained")
    return one.tokens_per_s.inverse(one.run.tokens / HOUR / GOODPUT)


def _reserved(one: Answered, row: JsonMapping) -> bool:
    """Whether a peak is what the allocator reserved: as the row says, else as the stack prints it."""
    unit = str(row.get("unit") or "")
    return "reserved" in unit or ("alloc" not in unit and one.run.stack.prints_memory == "reserved")


METRICS: Mapping[str, Figure] = {
    "tokens_per_s_per_gpu": lambda one, row: one.tokens_per_s,
    "step_time_s": lambda one, row: one.step,
    "tflops_per_gpu": lambda one, row: one.tokens_per_s.scaled(one.printed_flops / 1e12),
    "mfu": lambda one, row: one.tokens_per_s.scaled(one.printed_flops / one.run.hardware.peak_flops("bf16").flops),
    "peak_memory_gb": lambda one, row: one.memory(_reserved(one, row)),
    "gpu_hours": _gpu_hours,
}
"""Metrics of lists of training runs, in their units: rates per device, memory in GiB."""


def _choice(run: TrainingRun, pricer: TrainingPricer) -> Choice:
    """The layout with the least recomputation that fits; with the least of all where none does."""
    choices = [Choice(run.layout, recompute) for recompute in run.recomputes]
    fitting = (choice for choice in choices[1:] if pricer.memory(choice).fits)
    return choices[0] if len(choices) == 1 or pricer.memory(choices[0]).fits else next(fitting, choices[0])


@dataclass(slots=True)
class TrainingTimes:
    """Prices runs; what several rows share is made once."""

    pricers: dict[tuple[str, ...], TrainingPricer] = field(default_factory=dict)
    counted: dict[tuple[str, int], ModelFlops] = field(default_factory=dict)

    def answer(self, run: TrainingRun) -> Answered:
        """The price of a run. Raises InvalidPlan for a layout that the model does not allow."""
        check_layout(run.model, run.layout)
        pricer = self.pricer(run)
        interval = pricer.factors.interval * (ASSUMED if run.assumed else 1.0)
        return Answered(run, pricer.price(_choice(run, pricer)), self.flops(run), interval)

    def pricer(self, run: TrainingRun) -> TrainingPricer:
        """The pricer of a model, device and setup."""
        key = (
            run.model.name, str(run.layout.seq_len), run.hardware.id, run.recipe, run.optimizer, run.stack.name,
            run.dialect, run.loss, run.method,
        )  # fmt: skip
        if key not in self.pricers:
            tuning = tuning_of(run.stack, run.method, run.recipe)
            setup = Setup(
                recipe=tuning.recipe, optimizer=load_optimizer(run.optimizer), stack=run.stack, dialect=run.dialect,
                loss=run.loss, trainable=tuning.trainable, adapters=tuning.adapters,
            )  # fmt: skip
            self.pricers[key] = TrainingPricer.of(run.model, run.hardware, setup)
        return self.pricers[key]

    def flops(self, run: TrainingRun) -> ModelFlops:
        """Model FLOP of a token."""
        key = (run.model.name, run.layout.seq_len)
        if key not in self.counted:
            self.counted[key] = model_flops(run.model, run.layout.seq_len)
        return self.counted[key]


def validate_table(table: Table, times: RunTimes) -> Validation:
    """Every row predicted or refused with a reason."""
    prices = TrainingTimes()
    found: list[RowPrediction] = []
    refused: list[Refused] = []
    for row in counted(range(len(table)), f"rows of {table.name}"):
        asked = table.question(row)
        try:
            found.append(predict_row(row, asked, table.models, prices))
        except (ArchsimError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            refused.append(Refused(table.ids[row], str(asked.get("metric", "")), reason_of(error)))
    return Validation(
        kind="training", rows=columns(table, found), refused=tuple(refused), files=(table.name,),
        notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
    )  # fmt: skip


def predict_row(row: int, asked: JsonMapping, models: JsonMapping, prices: TrainingTimes) -> RowPrediction:
    """The prediction of one row. Raises ArchsimError where there is none."""
    metric = str(asked.get("metric") or "")
    if metric not in METRICS:
        raise UsageError(f"no metric named {quote(metric)}; known: {', '.join(METRICS)}")
    run = training_run(asked, models)
    span = METRICS[metric](prices.answer(run), asked)
    labels = {
        "metric": metric, "device": run.hardware.id, "engine": run.stack.name, "model": run.model.name,
        "regime": regime(run, metric), "bound": span.bound, "source": str(asked.get("source") or ""),
    }  # fmt: skip
    return RowPrediction(row, span, labels, run.assumed)


def regime(run: TrainingRun, metric: str) -> str:
    """What errors are told apart by: memory, mixtures of experts, and generations of devices."""
    if metric == "peak_memory_gb":
        return "memory"
    family = run.hardware.arch.family
    experts = " with experts" if expert_counts(run.model) else ""
    return f"{'Ampere or Hopper' if family in ('Ampere', 'Hopper') else family.split()[0]}{experts}"
