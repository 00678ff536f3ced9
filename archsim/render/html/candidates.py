"""What a report compares: every model on every device in every weight format, each estimated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

from archsim.base.errors import AnswerNo, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import CostArguments
from archsim.base.progress import counted
from archsim.engines.names import DEFAULT_ENGINE
from archsim.predict.estimate import Estimate, estimate
from archsim.render.html.markup import name_of
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

MOST = 24
"""Candidates of one report: more make no readable picture."""

LABEL = 34
"""Characters of a candidate's name in pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The question: names as spelt and the workload. weights: formats to compare, None for a checkpoint's own.
    costs: a price, where one is stated.
    """

    models: tuple[str, ...]
    hw: tuple[str, ...]
    weights: tuple[str | None, ...] = (None,)
    devices: int | str = "auto"
    batch: int = 1
    input_len: int = 2048
    output_len: int = 256
    kv_cache_dtype: str | None = None
    engine: str = DEFAULT_ENGINE
    changes: tuple[str, ...] = ()
    costs: CostArguments = field(default_factory=CostArguments)

    def options(self, weights: str | None, **changed: object) -> JsonObject:
        """What `estimate` is asked with."""
        return {
            "batch": self.batch, "input_len": self.input_len, "output_len": self.output_len, "weights": weights,
            "kv_cache_dtype": self.kv_cache_dtype, "engine": self.engine, **changed,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One model on one device in one format. asked: the format's name, None for the model's own."""

    number: int
    label: str
    asked: str | None
    answer: Estimate
    refusal: str = ""

    @property
    def fits(self) -> bool:
        """Whether it fits the memory of its devices."""
        return bool(self.answer.memory.fits)

    @property
    def pair(self) -> tuple[str, str]:
        """Model and device."""
        return self.answer.model.name, self.answer.hardware.id


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """All candidates, the first one being what the others are compared with. several: models, devices, formats."""

    asked: ReportRequest
    models: tuple[Model, ...]
    devices: tuple[Hardware, ...]
    candidates: tuple[Candidate, ...]
    several: tuple[bool, bool, bool]

    @property
    def decodes(self) -> bool:
        """Whether any model writes tokens."""
        return any(c.answer.decode is not None for c in self.candidates)

    @property
    def first(self) -> Candidate:
        """What the others are compared with."""
        return self.candidates[0]


def study(models: Sequence[tuple[Model, str | None]], devices: Sequence[Hardware], asked: ReportRequest) -> Study:
    """Every candidate estimated. models: each with the format that its name implies.

    Raises UsageError where there is nothing to compare or too much for one page.
    """
    count = len(models) * len(devices) * len(asked.weights)
    if not 1 <= count <= MOST:
        raise UsageError(
            f"a report compares 1 to {MOST} combinations of model, device and format, not {count}",
            hints=("`archsim sweep` takes as many as you like",),
        )
    found = []
    for (model, implied), device, weights in counted([*product(models, devices, asked.weights)], "candidates"):
        answer, refusal = estimate_or_reason(model, device, asked, weights or implied)
        found.append((_priced(answer, asked.costs), weights or implied, refusal))
    several = (len(models) > 1, len(devices) > 1, len(asked.weights) > 1)
    listed = tuple(
        Candidate(number=i, label=label(answer, several), asked=weights, answer=answer, refusal=refusal)
        for i, (answer, weights, refusal) in enumerate(found)
    )
    return Study(
        asked=asked, models=tuple(model for model, _ in models), devices=tuple(devices), candidates=listed,
        several=several,
    )  # fmt: skip


def estimate_or_reason(
    model: Model, device: Hardware, asked: ReportRequest, weights: str | None
) -> tuple[Estimate, str]:
    """The estimate on as many devices as asked for; where no number holds it, on one, with the reason."""
    options = asked.options(weights)
    try:
        return estimate(model, device, devices=asked.devices, **options), ""
    except AnswerNo as error:
        return estimate(model, device, devices=1, **options), error.message


def _priced(answer: Estimate, costs: CostArguments) -> Estimate:
    """The estimate with its dollars, where a price is stated."""
    if not costs:
        return answer
    from archsim.predict.priced import with_cost

    return with_cost(answer, costs)


def at(base: Estimate, asked: ReportRequest, weights: str | None, **changed: object) -> Estimate:
    """The same model on the same devices with other options of `estimate`, such as another workload."""
    plan = base.plan
    degrees: JsonObject = {"tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp}
    return estimate(base.model, base.hardware, **degrees, **asked.options(weights, **changed))


def label(e: Estimate, several: tuple[bool, bool, bool]) -> str:
    """What tells a candidate from the others, and the number of its devices."""
    count = f"{e.plan.devices} × " if e.plan.devices > 1 else ""
    words = [name_of(e.model.name, LABEL)] if several[0] or not any(several) else []
    words += [f"{count}{e.hardware.id}"] if several[1] or not several[0] or count else []
    words += [e.formats.name] if several[2] else []
    return name_of(" · ".join(words), LABEL + 30)
