"""`archsim scaling`: what scaling laws say of a compute budget, a model size, a number of tokens, or of serving."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

from archsim.base.amounts import amount, short_amount
from archsim.base.displayed import Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import ScalingOptions
from archsim.spec.hardware import Hardware
from archsim.training.budget import Budget, budget
from archsim.training.laws import (
    DEFAULT_LAW,
    FLOPS_PER_PARAM,
    Law,
    Loss,
    NamedLaw,
    Optimum,
    Repeated,
    Shape,
    law_named,
    load_laws,
    serving_flops_per_param,
)

REFUSED_BEYOND = 10.0
"""How far outside the range of its runs a law is not asked, unless one says so."""

COUNTING = f"C = {FLOPS_PER_PARAM}ND: forward and backward over every parameter, attention scores left out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The question. Of compute, params and tokens one or two are given; the third of two follows from 6ND."""

    compute: float | None = None
    params: float | None = None
    tokens: float | None = None
    inference_tokens: float | None = None
    unique_tokens: float | None = None
    budget: Budget | None = None
    extrapolate: bool = False

    def __post_init__(self) -> None:
        given = [n is not None for n in (self.compute, self.params, self.tokens)]
        if not any(given):
            raise UsageError(
                "nothing to optimise for", hints=("give --compute, --params, --tokens, or --budget with --hw",)
            )
        if all(given):
            raise UsageError(
                "--compute, --params and --tokens are one too many", hints=("give two: the third follows from C = 6ND",)
            )
        if self.inference_tokens is not None and self.unique_tokens is not None:
            raise UsageError(
                "--inference-tokens and --unique-tokens are answered by different laws", hints=("give one",)
            )

    @property
    def run(self) -> Shape | None:
        """The shape that is asked about, where two of the three are given."""
        if self.compute is None:
            return Shape(self.params, self.tokens) if self.params and self.tokens else None
        if self.params is not None:
            return Shape(self.params, self.compute / (FLOPS_PER_PARAM * self.params))
        return Shape(self.compute / (FLOPS_PER_PARAM * self.tokens), self.tokens) if self.tokens else None

    def start(self, optimum: Optimum) -> Shape:
        """The optimal shape that the question is about, under one law."""
        if self.run is not None:
            return optimum.at(self.run.flops)
        if self.compute is not None:
            return optimum.at(self.compute)
        return optimum.of_params(self.params) if self.params is not None else optimum.of_tokens(self.tokens or 0.0)

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "compute": self.compute, "params": self.params, "tokens": self.tokens,
            "inference_tokens": self.inference_tokens, "unique_tokens": self.unique_tokens,
            "budget": None if self.budget is None else self.budget.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The shape of equal loss whose training and serving together cost least. saving: share of what the optimum of
    training alone would cost."""

    shape: Shape
    served_flops: float
    saving: float

    @property
    def flops(self) -> float:
        """FLOP of training and serving."""
        return self.shape.flops + self.served_flops

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "params": self.shape.params, "tokens": self.shape.tokens, "train_flops": self.shape.flops,
            "inference_flops": self.served_flops, "total_flops": self.flops, "saving": self.saving,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LawAnswer:
    """What one law says. loss: at the optimum, None where the law states none. run: the loss of the shape that is asked
    about. outside: what lies outside the runs that the law was fitted to, and by which factor."""

    name: str
    law: Law
    optimum: Shape
    loss: float | None
    run: Shape | None = None
    run_loss: float | None = None
    run_tokens_over_optimal: float | None = None
    served: ServedModel | None = None
    epochs: float | None = None
    outside: dict[str, float]

    def to_dict(self) -> JsonObject:
        """One entry of `laws`."""
        run = None if self.run is None else {
            "params": self.run.params, "tokens": self.run.tokens, "flops": self.run.flops, "loss": self.run_loss,
            "tokens_over_optimal": self.run_tokens_over_optimal,
        }  # fmt: skip
        return {
            "law": self.name, "title": self.law.title, "params_counted": self.law.params_counted,
            "params": self.optimum.params, "tokens": self.optimum.tokens, "flops": self.optimum.flops,
            "tokens_per_param": self.optimum.tokens_per_param, "loss": self.loss, "epochs": self.epochs, "run": run,
            "served": None if self.served is None else self.served.to_dict(), "outside": dict(self.outside),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling(Tabular):
    """The answers of all laws that apply, and why the others do not."""

    __repr__ = Tabular.__repr__

    asked: Asked
    answers: tuple[LawAnswer, ...]
    refused: tuple[tuple[str, str], ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What lies outside the runs of a law, law by law."""
        return tuple(
            f"{one.name}: {_outside_text(one.outside)} beyond the runs that it was fitted to"
            for one in self.answers
            if one.outside
        )

    def spread(self) -> dict[str, tuple[float, float]]:
        """Lowest and highest answer over the laws."""
        shapes = [one.served.shape if one.served is not None else one.optimum for one in self.answers]
        both = {"params": [s.params for s in shapes], "tokens": [s.tokens for s in shapes]}
        return {name: (min(values), max(values)) for name, values in both.items()}

    def to_dict(self) -> JsonObject:
        """The `archsim.scaling/1` object."""
        return {
            "schema": "archsim.scaling/1", "asked": self.asked.to_dict(), "counting": COUNTING,
            "laws": [one.to_dict() for one in self.answers],
            "spread": {name: {"low": low, "high": high} for name, (low, high) in self.spread().items()},
            "refused": [{"law": name, "reason": reason} for name, reason in self.refused],
            "warnings": list(self.warnings),
        }  # fmt: skip


AMOUNTS: Mapping[str, str] = {
    "params": "number of parameters", "tokens": "number of tokens", "inference_tokens": "number of tokens",
    "unique_tokens": "number of tokens",
}  # fmt: skip
"""Options that are amounts, and of what."""


def question(compute: float | str | None, device: Hardware | None, options: ScalingOptions) -> Asked:
    """The question that options put. Raises UsageError for what is no amount, or a budget without a device."""
    given = cast(Mapping[str, float | str], options)
    amounts = {name: amount(given[name], what) for name, what in AMOUNTS.items() if name in given}
    money = _money(device, options)
    if money is not None:
        if compute is not None:
            raise UsageError("--budget replaces --compute", hints=("give one of them",))
        amounts["compute"] = money.flops
    elif compute is not None:
        amounts["compute"] = amount(compute, "amount of FLOP")
    return Asked(**amounts, budget=money, extrapolate=options.get("extrapolate", False))


def _money(device: Hardware | None, options: ScalingOptions) -> Budget | None:
    """The budget, where there is one."""
    dollars, price = options.get("budget"), options.get("price")
    if dollars is None:
        if device is not None or price is not None or options.get("mfu") is not None:
            raise UsageError("--hw, --price and --mfu say what --budget buys", hints=("give --budget in dollars",))
        return None
    if device is None:
        raise UsageError("a budget rents a device", hints=("name it with --hw, such as --hw h100",))
    return budget(amount(dollars, "sum of money"), device, options.get("mfu"), price)


def scaling(asked: Asked, laws: Sequence[str] = ()) -> Scaling:
    """The answers of the laws named, or of all.

    Raises NoSuchName (E101) for an unknown law, and UsageError where no law applies.
    """
    chosen = {name.lower(): law_named(name) for name in laws} or _all_laws()
    answers, refused = [], []
    for name, law in chosen.items():
        answer = _answer(name, law, asked)
        if isinstance(answer, LawAnswer):
            answers.append(answer)
        else:
            refused.append((name, answer))
    if not answers:
        reasons = [f"{name}: {reason}" for name, reason in refused]
        far = not asked.extrapolate and any("beyond" in reason for _, reason in refused)
        hints = ("--extrapolate asks the laws all the same",) if far else ("name no --law to ask all of them",)
        raise UsageError("no scaling law answers this", notes=reasons, hints=hints)
    return Scaling(asked=asked, answers=tuple(answers), refused=tuple(refused))


def optimal_tokens(params: float, law: str = DEFAULT_LAW) -> float:
    """Tokens at which a model of so many parameters is compute-optimal."""
    return NamedLaw(law, law_named(law)).optimum.of_params(params).tokens


def _all_laws() -> dict[str, Law]:
    """All laws but those that only add serving to another: `--inference-tokens` does that to each."""
    return {name: law for name, law in load_laws().items() if law.served is None}


def _answer(name: str, law: Law, asked: Asked) -> LawAnswer | str:
    """What a law says, or why it does not apply."""
    if law.served is not None:
        if asked.inference_tokens is None:
            return "it weighs training against serving: give --inference-tokens"
        base = law_named(law.served.law)
        law = law.model_copy(update={"loss": base.loss, "served": None, "fitted": base.fitted})
    if asked.inference_tokens is not None and law.loss is None:
        return "it states no loss of other shapes than the optimum"
    if asked.unique_tokens is not None and law.repeated is None:
        return "it has no term for repeated tokens"
    answer = _with_repeats(name, law, asked) if asked.unique_tokens is not None else _plain(name, law, asked)
    factor = max(answer.outside.values(), default=1.0)
    if factor >= REFUSED_BEYOND and not asked.extrapolate:
        return f"{_outside_text(answer.outside)} beyond the runs that it was fitted to"
    return answer


def _plain(name: str, law: Law, asked: Asked) -> LawAnswer:
    """The optimum, the run and the served model under a law, every token seen once."""
    named = NamedLaw(name, law)
    optimum, run = asked.start(named.optimum), asked.run
    served = None
    if asked.inference_tokens is not None and law.loss is not None:
        served = serve(law.loss, optimum if run is None else run, asked.inference_tokens)
    return LawAnswer(
        name=name, law=law, optimum=optimum, loss=named.loss(optimum), run=run, served=served,
        run_loss=None if run is None else named.loss(run),
        run_tokens_over_optimal=None if run is None else run.tokens / named.optimum.of_params(run.params).tokens,
        outside=_outside(law, [optimum, *([run] if run else []), *([served.shape] if served else [])]),
    )  # fmt: skip


def _with_repeats(name: str, law: Law, asked: Asked) -> LawAnswer:
    """The optimum and the run where tokens beyond the unique ones are repeated."""
    assert law.loss is not None and law.repeated is not None and asked.unique_tokens is not None
    surface = _Repeating(law.loss, law.repeated, asked.unique_tokens)
    run = asked.run
    flops = run.flops if run is not None else asked.start(law.loss.optimum).flops
    optimum = surface.best(flops)
    asked_about = optimum if run is None else run
    epochs = max(asked_about.tokens / asked.unique_tokens, 1.0)
    return LawAnswer(
        name=name, law=law, optimum=optimum, loss=surface.at(optimum), run=run, epochs=epochs,
        run_loss=None if run is None else surface.at(run),
        run_tokens_over_optimal=None if run is None else run.tokens / law.loss.optimum.of_params(run.params).tokens,
        outside=_outside(law, [optimum, *([run] if run else [])], epochs),
    )  # fmt: skip


@dataclass(frozen=True)
class _Repeating:
    """The loss where only `unique` tokens exist."""

    loss: Loss
    repeated: Repeated
    unique: float

    @cached_property
    def _optimum(self) -> Optimum:
        return self.loss.optimum

    def at(self, shape: Shape) -> float:
        """The loss of a shape."""
        return self.loss.at(self.repeated.effective(shape, self.unique, self._optimum))

    def best(self, flops: float) -> Shape:
        """The shape of least loss on 6ND = flops. Without repetition the law's own; else fewer parameters and more
        tokens, found between a hundredth and ten times of that."""
        own = self._optimum.at(flops)
        if own.tokens <= self.unique:
            return own

        def shape(log_params: float) -> Shape:
            params = math.exp(log_params)
            return Shape(params, flops / (FLOPS_PER_PARAM * params))

        middle = math.log(own.params)
        return shape(_minimum(lambda x: self.at(shape(x)), middle - math.log(100), middle + math.log(10)))


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Where a function with one minimum is least, by golden sections."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if function(left) < function(right) else (left, high)
    return (low + high) / 2


def serve(loss: Loss, trained: Shape, tokens: float) -> ServedModel:
    """The shape that reaches the loss of `trained` and costs least in training and serving `tokens`.

    Where cost is least, 6D(1 - alpha u / (beta r)) + 2T = 0, with u = A/N**alpha and r = L - E - u; the left side
    grows with N (Sardana et al., section 2).
    """
    target, per_param = loss.at(trained), serving_flops_per_param()

    def slope(log_params: float) -> float:
        params = math.exp(log_params)
        u = float(loss.A / params**loss.alpha)
        rest = target - loss.E - u
        if rest <= 0:
            return -math.inf
        gain = loss.alpha * u / (loss.beta * rest)
        return FLOPS_PER_PARAM * loss.tokens(params, target) * (1 - gain) + per_param * tokens

    smallest = (loss.A / (target - loss.E)) ** (1 / loss.alpha)
    low, high = math.log(smallest), math.log(100 * trained.params)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    params = math.exp(high)
    shape = Shape(params, loss.tokens(params, target))
    before = trained.flops + per_param * trained.params * tokens
    cost = per_param * params * tokens
    return ServedModel(shape=shape, served_flops=cost, saving=1 - (shape.flops + cost) / before)


def _outside(law: Law, shapes: Iterable[Shape], epochs: float = 1.0) -> dict[str, float]:
    """The largest factor of each quantity over all shapes of an answer."""
    found: dict[str, float] = {}
    for shape in shapes:
        for what, factor in law.fitted.outside(shape, epochs).items() if law.fitted is not None else ():
            found[what] = max(factor, found.get(what, 1.0))
    return found


def _outside_text(outside: dict[str, float]) -> str:
    """`parameters 4.5x and tokens 2.7x`."""
    return " and ".join(f"{what} {factor_text(factor)}" for what, factor in outside.items())


def factor_text(factor: float) -> str:
    """A factor in two digits: `4.5x`, `536x`."""
    return f"{factor:.2g}x" if factor < 10 else f"{short_amount(factor)}x"
