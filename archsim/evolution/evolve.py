"""`archsim evolve`: from one architecture to another, one decision at a time, and what each of them figures."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from math import factorial
from typing import NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.displayed import Tabular
from archsim.base.errors import AnswerNo, UsageError
from archsim.base.notes import Note, notes_to_dict
from archsim.base.number import Num
from archsim.base.positive import check_positive
from archsim.base.progress import counted
from archsim.counts.formats import choose_formats
from archsim.counts.workload import Workload
from archsim.engines.names import DEFAULT_ENGINE, choose_engine
from archsim.evolution.figures import ArchitectureCost, ArchitectureFigures
from archsim.evolution.mix import ArchitectureMix, Change
from archsim.evolution.path import EvolutionPath, PathStep
from archsim.evolution.words import describe_change
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan

MOST_ORDERS = 10_000
"""Orders that an attribution averages over at most."""


class Attribution(NamedTuple):
    """The mean over orders. complete: over all orders that there are, which is Shapley's value."""

    shares: Shares
    orders: int
    seed: int
    complete: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution(Tabular):
    """A path from A to B: `steps` add up to the difference of both ends in every figure."""

    __repr__ = Tabular.__repr__

    a: Model
    b: Model
    hardware: Hardware | None
    context_len: int
    order: str
    first: ArchitectureFigures
    last: ArchitectureFigures
    steps: tuple[PathStep, ...]
    changes: tuple[Change, ...]
    attribution: Attribution | None
    assumptions: tuple[Note, ...]
    warnings: tuple[Note, ...]

    def change(self, step: PathStep) -> str:
        """A step in words."""
        return " + ".join(describe_change(name, self.changes) for name in step.decisions)

    def to_dict(self) -> dict[str, object]:
        """The `archsim.evolve/1` object."""
        return {
            "schema": "archsim.evolve/1",
            "from": {"name": self.a.name, **self.first.to_dict()},
            "to": {"name": self.b.name, **self.last.to_dict()},
            "hardware": None if self.hardware is None else {"name": self.hardware.id, "devices": 1},
            "context_len": self.context_len, "order": self.order,
            "steps": [
                {
                    "change": self.change(step), "decisions": list(step.decisions), "delta": step.delta,
                    "after": step.after.to_dict(),
                }
                for step in self.steps
            ],
            "attribution": self._attribution(),
            **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip

    def _attribution(self) -> dict[str, object] | None:
        found = self.attribution
        if found is None:
            return None
        shares = [
            {"decision": name, "change": describe_change(name, self.changes), "delta": delta}
            for name, delta in found.shares.items()
        ]
        return {"orders": found.orders, "seed": found.seed, "complete": found.complete, "shares": shares}


def evolve(
    a: Model,
    b: Model,
    hardware: Hardware | None = None,
    *,
    context_len: int = 8192,
    order: str = "story",
    orders: int = 0,
    seed: int = 0,
    phase: str = "inference",
) -> Evolution:
    """The path from A to B.

    hardware: of the times; none without one. order: `story`, `reverse`, `random:SEED`, or decisions that come first.
    orders: how many the attribution averages over; 0 for none.
    phase: `train` for figures of training too. Raises AnswerNo for pairs between which no path of
    single decisions leads, UsageError for options that mean nothing.
    """
    check_positive(context_len=context_len)
    if not isinstance(orders, int) or not 0 <= orders <= MOST_ORDERS:
        raise UsageError(f"`--orders` is a number up to {MOST_ORDERS:,}, not {orders!r}")
    both = "encoder" not in (a.architecture, b.architecture)
    path = EvolutionPath(
        ArchitectureMix(a, b),
        ArchitectureCost(context_len=context_len, hardware=hardware, decodes=both, trains=trains_in(phase)),
    )
    whole = frozenset(path.decisions)
    first, last = path.end(frozenset()).figures, path.end(whole).figures
    steps = path.steps(order_decisions(path.decisions, order)) if path.decisions else ()
    attribution = None
    if orders and path.decisions:
        found, complete = sample_orders(path.decisions, orders, seed)
        attribution = Attribution(attribute(path, found), len(found), seed, complete)
    return Evolution(
        a=a, b=b, hardware=hardware, context_len=context_len, order=order, first=first, last=last, steps=steps,
        changes=path.mix.changes, attribution=attribution,
        assumptions=(
            *assumed(hardware, context_len, path.decisions, a, b), *assumed_training(path.cost.trains, context_len)
        ),
        warnings=(*_unlike(path.cost, a, first), *_unlike(path.cost, b, last), *_too_big(hardware, a, b)),
    )  # fmt: skip


def assumed(
    hardware: Hardware | None, context_len: int, decisions: Collection[str], *models: Model
) -> tuple[Note, ...]:
    """What the figures mean."""
    encoders = [model for model in models if model.architecture == "encoder"]
    notes = [
        Note("A31", f"KV bytes: of one sequence of {context_len:,} tokens in 16 bits, windows applied"),
        Note("A33", "layers that one side does not have: the first layers stay, and the pattern goes on"),
    ]
    if hardware is not None:
        times = f"times: one sequence of {context_len:,} tokens on one {hardware.id}, fitting or not"
        notes.insert(1, Note("A32", times))
    if encoders:
        flops = "FLOPs per token of an encoder: those of the input over its tokens; it has no decode step"
        notes.insert(0, Note("A30", flops))
    if len(encoders) < len(models):
        flops = f"FLOPs per token: one decode step with {context_len:,} tokens of context, masked pairs left out"
        notes.insert(0, Note("A30", flops))
    if {"mtp", "towers", "mlm_head"} & set(decisions):
        parts = "prediction modules, towers and pre-training heads are named and not counted, as in `count`"
        notes.append(Note("A34", parts))
    return tuple(notes)


def trains_in(phase: str) -> bool:
    """Whether figures of training are asked for. Raises UsageError for a phase that there is not."""
    if phase not in ("inference", "train"):
        raise UsageError(f"`--phase` is inference or train, not {quote(phase)}")
    return phase == "train"


def assumed_training(trains: bool, context_len: int) -> tuple[Note, ...]:
    """What figures of training mean."""
    text = (
        f"training: forward and backward of one sequence of {context_len:,} tokens on one device; memory of its peak "
        "with weights and gradients in bf16, AdamW in fp32 (16 bytes a parameter), nothing recomputed or sharded"
    )
    return (Note("A51", text),) if trains else ()


def _unlike(cost: ArchitectureCost, model: Model, figures: ArchitectureFigures) -> list[Note]:
    """Refuses a model whose normal form is another one; says by how much times differ where only grouping does."""
    own = cost(model)
    for name, ours, theirs in zip(ArchitectureFigures._fields, figures, own, strict=True):
        if isinstance(theirs, int) and ours != theirs:
            raise AnswerNo(f"{model.name} cannot be changed layer by layer: its {name} would be {ours}, not {theirs}")
    off = [abs(x / y - 1) for x, y in ((figures.decode_s, own.decode_s), (figures.prefill_s, own.prefill_s)) if x and y]
    if max(off, default=0.0) < 1e-9:
        return []
    text = f"{model.name} is estimated with its layers regrouped; times differ by {max(off):.2%} from `estimate`"
    return [Note("W08", text)]


def _too_big(hardware: Hardware | None, *models: Model) -> list[Note]:
    if hardware is None:
        return []
    found = []
    for model in models:
        tensors = EngineTensors(model, hardware, choose_formats(model), choose_engine(DEFAULT_ENGINE))
        if not EngineMemoryModel(tensors, Workload(input_len=1, output_len=1)).on(Plan()).fits:
            text = f"{model.name} does not fit on one {hardware.id}; its times are those of one that holds it"
            found.append(Note("W09", text))
    return found


# ---------------------------------------------------------------------- orders and shares
Shares = dict[str, dict[str, Num | None]]
"""Decision -> its part of the change in each figure."""

ORDERS = ("story", "reverse", "random", "random:SEED")
"""Orders with a name; a list of decisions is an order too, whose rest follows as in the story."""


def order_decisions(decisions: Sequence[str], order: str) -> tuple[str, ...]:
    """The decisions in an order given by name, or by those that come first. Raises UsageError."""
    if order == "story":
        return tuple(decisions)
    if order == "reverse":
        return tuple(reversed(decisions))
    name, _, seed = order.partition(":")
    if name == "random" and (seed.isdecimal() or not seed):
        found = list(decisions)
        random.Random(int(seed or 0)).shuffle(found)
        return tuple(found)
    first = [word.strip() for word in order.split(",") if word.strip()]
    unknown = [word for word in first if word not in decisions]
    if unknown or not first:
        hints = (f"orders: {', '.join(ORDERS)}", f"decisions here: {', '.join(decisions)}")
        raise UsageError(f"`--order`: {quote(unknown[0] if unknown else order)} does not differ here", hints=hints)
    first = list(dict.fromkeys(first))
    return (*first, *(name for name in decisions if name not in first))


def sample_orders(decisions: Sequence[str], count: int, seed: int) -> tuple[list[tuple[str, ...]], bool]:
    """Orders to average over, and whether they are all there are. Each sampled order comes with its reverse."""
    if factorial(min(len(decisions), 20)) <= count:
        return list(permutations(decisions)), True
    draw = random.Random(seed)
    found: list[tuple[str, ...]] = []
    while len(found) < count:
        order = tuple(draw.sample(list(decisions), len(decisions)))
        found += [order, order[::-1]]
    return found[:count], False


def attribute(path: EvolutionPath, orders: Sequence[Sequence[str]]) -> Shares:
    """The mean change that each decision brings over the orders (Shapley's value where they are all orders).

    What several decisions can only change together is shared out equally among them. Whole numbers stay whole:
    means are rounded so that they still add up.
    """
    sums: dict[str, dict[str, Num]] = {}
    figures: dict[str, None] = {}
    for order in counted(orders, "orders"):
        for step in path.steps(order):
            figures |= dict.fromkeys(step.delta)
            for name in step.decisions:
                _add(sums.setdefault(name, {}), step.delta, len(step.decisions))
    names = [name for name in path.decisions if name in sums]
    shares: Shares = {name: dict.fromkeys(figures) for name in names}
    for figure in figures:
        known = [name for name in names if figure in sums[name]]
        means = _whole([sums[name][figure] / len(orders) for name in known])
        for name, mean in zip(known, means, strict=True):
            shares[name][figure] = mean
    return shares


def _add(sums: dict[str, Num], delta: Mapping[str, Num | None], parts: int) -> None:
    """Adds one of so many equal parts of a step's change."""
    for figure, value in delta.items():
        if value is not None:
            part = Fraction(value, parts) if isinstance(value, int) else value / parts
            sums[figure] = sums.get(figure, 0) + part


def _whole(means: list[Num]) -> list[Num]:
    """Fractions rounded to whole numbers whose sum is theirs (largest remainders first); floats stay as they are."""
    if not means or not all(isinstance(mean, Fraction) for mean in means):
        return [float(mean) if isinstance(mean, Fraction) else mean for mean in means]
    low = [mean.numerator // mean.denominator for mean in means]
    missing = round(sum(means)) - sum(low)
    rest = sorted(range(len(means)), key=lambda i: (low[i] - means[i], i))
    for i in rest[:missing]:
        low[i] += 1
    return low
