"""`archsim advise`: every single change of a model on a device, exactly counted and priced, ranked by what it gains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import cast

from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.base.options import EstimateArguments
from archsim.candidates.caveats import caveats
from archsim.candidates.changes import Change, changes_of
from archsim.cost.price import Price
from archsim.cost.served_cost import cost_of
from archsim.memory.engine_memory import EngineMemoryModel
from archsim.predict.estimate import Estimate, estimate
from archsim.predict.served_work import served_work
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.one_look import one_look
from archsim.timing.calibration import default_store
from archsim.timing.step_time import StepTime
from archsim.training.model_flops import flops_per_token

MISSING_KERNEL = 5.0
"""Expected time over the speed of light from which a kernel of another device or engine is held for a missing one."""

UNSURE = ("transferred", "datasheet")
"""Evidence that is not from the device itself."""

TIMED = ("tpot_s", "usd_per_m_output")
"""Measures that follow from the time of a decode step."""

PAIRED = 8
"""Best changes that are tried in pairs."""

MEASURES = ("params", "kv_bytes", "memory_bytes", "tpot_s", "ttft_s", "max_context", "usd_per_m_output",
            "train_flops_per_token")  # fmt: skip

RANKED: Mapping[str, tuple[str, int]] = {
    "tpot": ("tpot_s", 1), "memory": ("memory_bytes", 1), "ttft": ("ttft_s", 1), "cost": ("usd_per_m_output", 1),
    "context": ("max_context", -1), "train": ("train_flops_per_token", 1),
}  # fmt: skip
"""Objective -> its measure, and 1 where less of it is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a model costs on a device. values: measures by name; max_context is None where memory sets no limit.
    ideal_s: the speed of light of a decode step. low_s, high_s: interval of TPOT. missing: the class of kernels whose
    time is a missing kernel's rather than the architecture's; empty where there is none.
    """

    values: Mapping[str, float | None]
    ideal_s: float
    low_s: float
    high_s: float
    fits: bool
    missing: str = ""

    def to_dict(self) -> JsonObject:
        """As data."""
        return {**self.values, "tpot_ideal_s": self.ideal_s, "tpot_low_s": self.low_s, "tpot_high_s": self.high_s,
                "fits": self.fits}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A change and what comes of it. gain: share by which the objective gets better. by_bound: whether that is the
    share by which its bound does, since a kernel is missing, of the change or of the model as it is.
    """

    change: Change
    figures: Figures
    gain: float
    by_bound: bool = False

    @property
    def kernel(self) -> bool:
        """Whether a kernel of the changed model is missing."""
        return bool(self.figures.missing)

    def ratios(self, base: Figures) -> dict[str, float | None]:
        """Each measure over what it was."""
        found: dict[str, float | None] = {}
        for name, was in base.values.items():
            now = self.figures.values.get(name)
            found[name] = None if was in (None, 0) or now is None else now / was
        found["tpot_ideal_s"] = self.figures.ideal_s / base.ideal_s
        return found

    def to_dict(self, base: Figures) -> JsonObject:
        """One entry of `changes`."""
        return {
            "name": self.change.name, "set": list(self.change.flags), "needs": self.change.needs, "gain": self.gain,
            "by_bound": self.by_bound, "effect": self.ratios(base), "figures": self.figures.to_dict(),
            "kernel": self.kernel,
            "missing_kernel": self.figures.missing or None,
            "caveats": caveats(self.change.choice.split("+")) if self.change.choice else [],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Advise(Tabular):
    """The changes of a model on a device: those that times rank, then those that bounds do, each best first. refused:
    changes that could not be priced, and why. price: of a device and hour. warnings: of the estimate of the model as it
    is.
    """

    __repr__ = Tabular.__repr__

    model: Model
    hardware: Hardware
    objective: str
    options: Mapping[str, object]
    base: Figures
    changes: tuple[Advice, ...]
    pairs: tuple[Advice, ...]
    refused: tuple[tuple[str, str], ...]
    price: Price | None = None
    warnings: tuple[Note, ...] = ()

    def to_dict(self) -> JsonObject:
        """The `archsim.advise/1` object."""
        return {
            "schema": "archsim.advise/1", "model": self.model.name, "hw": self.hardware.id,
            "objective": self.objective, "question": dict(self.options), "base": self.base.to_dict(),
            "changes": [advice.to_dict(self.base) for advice in self.changes],
            "pairs": [advice.to_dict(self.base) for advice in self.pairs],
            "refused": [{"name": name, "reason": reason} for name, reason in self.refused],
            "price": None if self.price is None else self.price.to_dict(),
            "warnings": [str(note) for note in self.warnings],
            "warning_codes": [note.code for note in self.warnings],
        }  # fmt: skip


Opened = Callable[[tuple[str, ...]], Model]
"""The model with `--set` assignments applied."""


def advise(
    opened: Opened, hardware: Hardware, options: EstimateArguments, *, objective: str = "tpot",
    price: Price | None = None, pairs: bool = False,
) -> Advise:  # fmt: skip
    """Every single change of a model that there is room for, ranked by what the objective gains.

    opened: gives the model with changes. options: of `estimate`; `devices` a number. pairs: also the pairs of the best
    eight. Raises UsageError for an unknown objective, a cost without a price, and a model that does not decode.
    """
    if objective not in RANKED:
        raise UsageError(f"`--objective {objective[:40]}`: known are {', '.join(RANKED)}")
    if objective == "cost" and price is None:
        raise UsageError("a cost needs a price", hints=("`--price 2.5`, `--price cheapest` or a provider",))
    with one_look():
        model = opened(())
        if not model.cached:
            raise UsageError(f"{model.name} does not decode: there is no token to make faster")
        pricing = _Pricing(opened, hardware, options, price)
        first = pricing.answer(())
        base, found, refused = pricing.figures(first), [], []
        for change in changes_of(model, first.tensors.rules, cast("Mapping[str, object]", options)):
            try:
                found.append(pricing.advice(change, base, objective))
            except ArchsimError as error:
                refused.append((change.name, error.message))
        found.sort(key=_rank)
        both = [
            pair for one, other in combinations(found[:PAIRED], 2) if (pair := one.change.combined_with(other.change))
        ]
        double = []
        for pair in both if pairs else ():
            try:
                double.append(pricing.advice(pair, base, objective))
            except ArchsimError as error:
                refused.append((pair.name, error.message))
        double.sort(key=_rank)
    return Advise(
        model=model, hardware=hardware, objective=objective, options=dict(options), base=base, changes=tuple(found),
        pairs=tuple(double), refused=tuple(refused), price=price, warnings=first.warnings,
    )  # fmt: skip


@dataclass(frozen=True)
class _Pricing:
    """Prices a model with changes."""

    opened: Opened
    hardware: Hardware
    options: EstimateArguments
    price: Price | None

    def answer(self, sets: tuple[str, ...], options: Mapping[str, str | int] | None = None) -> Estimate:
        """The estimate of the model with changes."""
        asked = cast(EstimateArguments, {**self.options, **(options or {})})
        return estimate(self.opened(sets), self.hardware, **asked)

    def advice(self, change: Change, base: Figures, objective: str) -> Advice:
        """A change, priced."""
        figures = self.figures(self.answer(change.sets, change.options))
        by_bound = bool(base.missing or figures.missing) and RANKED[objective][0] in TIMED
        return Advice(change=change, figures=figures, gain=_gain(base, figures, objective, by_bound), by_bound=by_bound)

    def figures(self, e: Estimate) -> Figures:
        """The measures of an estimate."""
        assert e.decode is not None
        longest = EngineMemoryModel(e.tensors, e.workload).longest(e.plan)
        cost = None if self.price is None else cost_of(served_work(e), self.price).usd_per_m_output
        values: dict[str, float | None] = {
            "params": e.params_total, "kv_bytes": e.memory.kv_cache, "memory_bytes": e.memory.needed,
            "tpot_s": e.metrics["tpot_s"], "ttft_s": e.metrics["ttft_s"], "max_context": longest,
            "usd_per_m_output": cost, "train_flops_per_token": float(flops_per_token(e.model)),
        }  # fmt: skip
        decode = e.decode
        return Figures(
            values=values, ideal_s=float(decode.ideal_s), low_s=float(decode.low_s), high_s=float(decode.high_s),
            fits=bool(e.memory.fits), missing=missing_kernel(decode, self.hardware),
        )  # fmt: skip


def missing_kernel(step: StepTime, hardware: Hardware) -> str:
    """The class of kernels that takes most of a step which is far above its bound, on evidence from other devices or
    from a single engine: another engine's kernel may be as near to its bound as others are. Empty where none does.
    """
    if float(step.expected_s) < MISSING_KERNEL * float(step.ideal_s) or not step.by_class:
        return ""
    most = max(step.by_class, key=lambda part: float(part.time.expected))
    if float(most.time.expected) <= 0.5 * float(step.expected_s):
        return ""
    engines = {
        entry.engine for entry in default_store().by_op.get(most.kernel_class, []) if entry.device == hardware.id
    }
    return str(most.kernel_class) if most.time.evidence in UNSURE or len(engines) == 1 else ""


def _rank(advice: Advice) -> tuple[bool, float]:
    """Those whose times are known before those that bounds rank."""
    return advice.by_bound, -advice.gain


def _gain(base: Figures, figures: Figures, objective: str, by_bound: bool) -> float:
    """Share by which the objective, or its bound, gets better; the largest for a longest context without a limit."""
    name, sign = RANKED[objective]
    was, now = base.values[name], figures.values[name]
    if name == "max_context":
        return float("inf") if now is None and was is not None else (now or 0) / (was or 1) - 1 if was else 0.0
    if by_bound:
        was, now = base.ideal_s, figures.ideal_s
    assert was is not None and now is not None
    return sign * (1 - now / was)
