"""`archsim train`: memory, time, throughput and cost of a training run on one layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from math import exp
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.displayed import Displayed, Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict
from archsim.cost.price import Price
from archsim.energy.energy_use import EnergyUse
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.training.breakdown import StepPart
from archsim.training.budget import price_from
from archsim.training.layout import Layout
from archsim.training.offload import offload_text
from archsim.training.pricer import Priced, Setup, TrainingPricer

DAY = 86_400
"""Seconds of a day."""


class Outcome(NamedTuple):
    """What a scaling law says of a run. optimal_tokens: for a model of this size. loss: in nats of the law's own
    corpus; none far outside the runs that it was fitted to.
    """

    law: str
    tokens_per_parameter: float
    optimal_tokens: float
    ratio_to_optimum: float
    loss: float | None


class Metrics(NamedTuple):
    """Throughput and utilisation. causal, full, executed: FLOP of a token, as MFU counts attention, and as it ran."""

    tokens_per_s: float
    devices: int
    peak_flops: float
    peak_format: str
    causal: float
    full: float
    executed: float

    def utilisation(self, flops_per_token: float) -> float:
        """Share of the devices' peak."""
        return flops_per_token * self.tokens_per_s / (self.devices * self.peak_flops)

    def of_peak(self, flops: float, name: str) -> Metrics:
        """The same over another peak."""
        return self._replace(peak_flops=flops, peak_format=name)

    def to_dict(self) -> JsonObject:
        """The contract's `metrics`."""
        return {
            "tokens_per_s": self.tokens_per_s, "tokens_per_s_per_device": self.tokens_per_s / self.devices,
            "mfu_causal": self.utilisation(self.causal), "mfu_full": self.utilisation(self.full),
            "hfu": self.utilisation(self.executed), "peak_flops": self.peak_flops, "peak_format": self.peak_format,
        }  # fmt: skip


class TrainingRun(NamedTuple):
    """A whole run. goodput: share of the time that steps of it take. price: of one device and hour. energy:
    what the devices draw, whose kWh are of the run. outcome: what scaling laws say of the run, where they apply.
    """

    tokens: int
    tokens_per_step: int
    step_s: float
    devices: int
    goodput: float
    price: Price | None = None
    energy: EnergyUse | None = None
    outcome: Outcome | None = None

    @property
    def steps(self) -> int:
        """Steps until all tokens were seen."""
        return -(-self.tokens // self.tokens_per_step)

    @property
    def seconds(self) -> float:
        """Wall-clock time."""
        return self.steps * self.step_s / self.goodput

    @property
    def device_hours(self) -> float:
        """Hours of all devices."""
        return self.seconds / 3600 * self.devices

    @property
    def usd(self) -> float | None:
        """Dollars for the devices, at a price; storage and staff are not in it."""
        return None if self.price is None else self.device_hours * self.price.usd_per_device_hour

    @property
    def tonnes(self) -> float | None:
        """CO2 of the facility in tonnes, where grams per kWh are stated."""
        grams = None if self.energy is None else self.energy.grams
        return None if grams is None else grams.expected / 1e6

    def to_dict(self) -> JsonObject:
        """The contract's `run`."""
        hours = self.device_hours
        return {
            "tokens": self.tokens, "steps": self.steps, "days": self.seconds / DAY, "device_hours": hours,
            "goodput": self.goodput, "usd": self.usd,
            "mwh": None if self.energy is None else self.energy.kwh.expected / 1000, "tco2e": self.tonnes,
            "energy": None if self.energy is None else run_energy_dict(self.energy),
            "price_usd_per_hour": self.price.usd_per_device_hour if self.price else None,
            "price_from": price_from(self.price) if self.price else None,
            "price": self.price.to_dict() if self.price else None,
            "outcome": self.outcome._asdict() if self.outcome else None,
        }  # fmt: skip


def run_energy_dict(use: EnergyUse) -> JsonObject:
    """What a run draws: watts, and kWh of its devices, nodes and facility."""
    found = use.to_dict()
    kept = ("power_w_per_device", "power_w", "low_w", "high_w", "scope", "kwh", "pue", "evidence")
    scopes = [{"scope": each["scope"], "kwh": each["kwh"]} for each in found["scopes"]]
    return {**{name: found[name] for name in kept}, "scopes": scopes}


class Suggestion(NamedTuple):
    """A change of one option: how many bytes at the peak and seconds of a step it adds (or saves, below zero)."""

    change: str
    peak_bytes: float
    step_s: float
    fits: bool

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        effect = {"peak_allocated_bytes": self.peak_bytes, "expected_s": self.step_s}
        return {"change": self.change, "effect": effect, "fits": self.fits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Training(Tabular):
    """The answer of `archsim train`. objective: what the layout was chosen by. tried: layouts that were looked at; more
    than one where archsim chose. interval: log of both ends of the step's 80 % interval. suggestions: changes that
    would help; neighbours: other changes, and what they cost. options: those given, by name. parts: of the step, where
    they were asked for. pricer: what computed the answer.
    """

    __repr__ = Displayed.__repr__

    model: Model
    hardware: Hardware
    setup: Setup
    priced: Priced
    recipe_name: str
    optimizer_name: str
    stack_name: str
    method: str
    params: tuple[int, int, int]  # total, active, trainable
    metrics: Metrics
    run: TrainingRun | None
    interval: float
    tried: int = 1
    objective: str = "time"
    suggestions: tuple[Suggestion, ...] = ()
    neighbours: tuple[Suggestion, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    parts: tuple[StepPart, ...] = ()
    pricer: TrainingPricer | None = field(default=None, repr=False, compare=False)

    def timeline(self) -> JsonObject:
        """The step as Perfetto and chrome://tracing load it: every pass of every pipeline rank.

        Raises UsageError where there are more passes than a viewer shows, or where no pricer made the answer.
        """
        from archsim.training.step_timeline import step_timeline

        if self.pricer is None:
            raise UsageError("this answer was not made by a pricer")
        return step_timeline(self.pricer, self.priced)

    @property
    def layout(self) -> Layout:
        """The layout."""
        return self.priced.choice.layout

    @property
    def chosen(self) -> bool:
        """Whether archsim chose the layout."""
        return self.tried > 1

    @property
    def bound(self) -> tuple[str, float]:
        """What takes most of the step, and its share."""
        step, parts = self.priced.step, self.priced.step.parts
        shares = {
            "compute": parts.forward_s + parts.backward_s + parts.recompute_s + parts.head_and_loss_s,
            "communication": sum(comm.exposed_s for comm in step.comm.values()),
            "the pipeline bubble": parts.bubble_s, "the optimizer": parts.optimizer_s,
        }  # fmt: skip
        most = max(shares, key=lambda name: shares[name])
        return most, shares[most] / step.expected_s

    @property
    def low_s(self) -> float:
        """Lower end of the step's 80 % interval."""
        return max(self.priced.step.expected_s * exp(-self.interval), self.priced.step.ideal_s)

    @property
    def high_s(self) -> float:
        """Upper end of the step's 80 % interval."""
        return self.priced.step.expected_s * exp(self.interval)

    @property
    def fits(self) -> bool:
        """Whether every device holds its part."""
        return self.priced.memory.fits

    def to_dict(self) -> JsonObject:
        """The `archsim.train/1` object."""
        total, active, trainable = self.params
        return {
            "schema": "archsim.train/1",
            "model": {"name": self.model.name, "architecture": self.model.architecture},
            "hardware": {"name": self.hardware.id, "devices": self.layout.devices},
            "plan": self._plan(), "params": {"total": total, "active": active, "trainable": trainable},
            "flops": self._flops(), "memory": memory_to_dict(self.priced), "step": self._step(),
            "metrics": self.metrics.to_dict(), "run": self.run.to_dict() if self.run else None,
            "suggestions": [each.to_dict() for each in self.suggestions],
            "neighbours": [each.to_dict() for each in self.neighbours],
            **({"parts": [each.to_dict() for each in self.parts]} if self.parts else {}),
            **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip

    def _plan(self) -> JsonObject:
        x = self.layout
        names = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "sp", "zero", "hsdp", "schedule", "micro_batch",
                 "global_batch", "seq_len")  # fmt: skip
        return {
            **{name: getattr(x, name) for name in names}, "grad_accum": x.micro_batches, "recipe": self.recipe_name,
            "optimizer": self.optimizer_name, "recompute": self.priced.choice.recompute,
            "offload": offload_text(self.priced.choice.offload), "objective": self.objective,
            "dialect": self.setup.dialect, "loss": self.setup.loss, "stack": self.stack_name, "method": self.method,
        }  # fmt: skip

    def _flops(self) -> JsonObject:
        """Of one step over all devices; the optimizer's products among them."""
        flops, n = self.priced.graph.flops, tokens_of(self.priced)
        tokens = self.layout.tokens
        return {
            "per_token": {
                "model_causal": self.metrics.causal, "model_full": self.metrics.full, "executed": self.metrics.executed,
            },
            "forward": flops.forward / n * tokens, "backward": flops.backward / n * tokens,
            "recompute": flops.recompute / n * tokens, "optimizer": self.priced.step.update_flops * self.layout.devices,
        }  # fmt: skip

    def _step(self) -> JsonObject:
        step = self.priced.step
        return {
            "ideal_s": step.ideal_s, "expected_s": step.expected_s, "low_s": self.low_s, "high_s": self.high_s,
            "evidence": self.priced.micro.evidence, "bound": self.bound[0], "parts": step.parts._asdict(),
            "communication": [
                {"kind": kind, "total_s": comm.total_s, "exposed_s": comm.exposed_s, "bytes": comm.sent}
                for kind, comm in step.comm.items()
            ],
        }  # fmt: skip


def tokens_of(priced: Priced) -> float:
    """Tokens of the micro-batches that one training graph stands for."""
    return float(priced.graph.step.tokens)


def memory_to_dict(priced: Priced) -> JsonObject:
    """The contract's `memory`; parts of the fullest device add up to its peak."""
    held = priced.memory
    most, low, high = held.most, held.low, held.high
    return {
        "fits": held.fits, "worst_stage": held.worst,
        "per_device": {
            "capacity_bytes": held.capacity, "peak_allocated_bytes": most.allocated,
            "peak_reserved_bytes": most.reserved, "low_bytes": low, "high_bytes": high,
            "weights_bytes": most.states.weights, "gradients_bytes": most.states.gradients,
            "optimizer_bytes": most.states.optimizer, "saved_bytes": most.saved, "working_bytes": most.working,
            "logits_bytes": most.logits, "gathered_bytes": most.gathered, "runtime_bytes": held.runtime,
        },
        "stages": [
            {"stage": i, "in_flight": rank.in_flight, "peak_allocated_bytes": rank.allocated}
            for i, rank in enumerate(held.ranks)
        ],
    }  # fmt: skip
