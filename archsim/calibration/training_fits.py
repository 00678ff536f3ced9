"""What training runs say of the words of stacks: factors on kernels in training, and what overlap hides.

All stacks share the numbers, so that each is seen by runs of several. A number stays at its prior where no run speaks
for it. Errors are of runs that a fit had not seen: of a model in a known source, and of a source left out whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy.files import Table
from archsim.accuracy.training import METRICS, Answered, TrainingTimes
from archsim.accuracy.training_run import TrainingRun, training_run
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.calibration.least_squares import minimise
from archsim.spec.parallelism import expert_counts
from archsim.spec.stack import RunErrors, StackFits
from archsim.training.pricer import Choice, Held, TrainingPricer

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats

TIMES = tuple(name for name in METRICS if name not in ("peak_memory_gb", "gpu_hours"))
"""Metrics that are fitted to: times of steps, whose layout is stated."""


class Constant(NamedTuple):
    """A number that is open: where it stands in the fits, its prior's middle and spread in log, and its bounds."""

    path: tuple[str, ...]
    centre: float
    spread: float
    low: float
    high: float


def _shares(kind: str, word: str, centre: float, high: float) -> Constant:
    return Constant(("exposed", kind, word), centre, 0.4, 0.02, high)


CONSTANTS: tuple[Constant, ...] = (
    Constant(("attention_backward",), 3.0, 0.3, 1.5, 6.0),
    Constant(("attention", "flash-2", "Hopper"), 1.8, 0.3, 1.0, 4.0),
    Constant(("attention", "unfused", "any"), 2.0, 0.5, 1.0, 8.0),
    Constant(("elementwise", "fused"), 1.5, 0.3, 0.7, 5.0),
    Constant(("elementwise", "eager"), 3.0, 0.3, 1.0, 10.0),
    Constant(("experts", "Hopper"), 1.2, 0.4, 0.3, 4.0),
    Constant(("experts", "Blackwell"), 1.2, 0.4, 0.3, 4.0),
    _shares("tp", "none", 1.0, 2.0), _shares("tp", "some", 0.5, 1.0), _shares("cp", "some", 0.5, 1.5),
    _shares("ep", "none", 1.0, 2.0), _shares("ep", "some", 0.5, 1.5), _shares("dp", "some", 0.3, 1.0),
    _shares("fsdp", "some", 0.3, 1.0),
    Constant(("flat_network",), 6.0, 0.7, 1.0, 30.0),
    *(
        Constant(("sustained", device), 1.1, 0.2, 0.75, 2.5)
        for device in (
            *("a100-sxm-80gb", "a100-sxm-40gb", "h100-sxm", "h100-sxm-96gb-500w", "h200-sxm", "b200-sxm", "gb200"),
            *("gb300", "tpu-v4", "tpu-v5e", "tpu-v5p", "tpu-v6e", "tpu-v7-ironwood"),
        )
    ),
)  # fmt: skip
"""What is open. Overlap that no word of a measured stack asks for keeps its prior."""


@dataclass(frozen=True, slots=True)
class TrainedPoint:
    """One measured run. source, model: families that a fit is tested by. choice: its layout and recomputation."""

    id: str
    source: str
    model: str
    asked: JsonMapping
    run: TrainingRun
    choice: Choice
    measured: float


def trained_points(tables: Sequence[Table]) -> list[TrainedPoint]:
    """The runs of training tables that are times or rates and can be priced."""
    prices, found = TrainingTimes(), []
    for table in tables:
        for i in range(len(table)):
            asked, measured = table.question(i), table.measured["value"][i]
            if asked.get("metric") not in TIMES or not measured:
                continue
            try:
                run = training_run(asked, table.models)
                choice = prices.answer(run).priced.choice
            except (ArchsimError, ArithmeticError, LookupError, ValueError):
                continue
            source = str(asked.get("source") or run.stack.name)
            found.append(TrainedPoint(table.ids[i], source, run.model.name, asked, run, choice, measured))
    return found


class RunTimer:
    """Predicts points with any fits; graphs and memory, which do not depend on them, are made once."""

    def __init__(self, points: Sequence[TrainedPoint]) -> None:
        self.points, self.prices = points, TrainingTimes()
        self.memory: list[Held] = [self.prices.pricer(p.run).price(p.choice).memory for p in points]
        self.flops = [self.prices.flops(p.run) for p in points]

    def log_errors(self, fits: StackFits) -> Floats:
        """log(predicted / measured) of every point."""
        for pricer in self.prices.pricers.values():
            _reprice(pricer, fits)
        found = []
        for point, memory, flops in zip(self.points, self.memory, self.flops, strict=True):
            priced = self.prices.pricer(point.run).price(point.choice, memory)
            answer = Answered(point.run, priced, flops, 0.0)
            found.append(METRICS[str(point.asked["metric"])](answer, point.asked).expected / point.measured)
        return np.asarray(np.log(found))


def _reprice(pricer: TrainingPricer, fits: StackFits) -> None:
    """The times of a pricer's micro-batches with other factors."""
    device = pricer.hardware
    pricer.factors = pricer.setup.stack.factors(device.id, device.arch.family, fits, bool(expert_counts(pricer.model)))
    for key in pricer.times:
        pricer.times[key] = pricer.timed(pricer.ranks[key][0])


def with_constants(fits: StackFits, values: Sequence[float]) -> StackFits:
    """The fits with other values of `CONSTANTS`."""
    changed = fits.model_dump()
    for constant, value in zip(CONSTANTS, values, strict=True):
        *path, last = constant.path
        place = changed
        for name in path:
            place = place[name]
        place[last] = float(f"{value:.3g}")
    return StackFits.model_validate(changed)


@dataclass(frozen=True, slots=True)
class TrainingFit:
    """The fitted numbers with their errors."""

    fits: StackFits

    def to_dict(self) -> JsonObject:
        """The document of `hardware/calibration/training.yaml`."""
        return self.fits.model_dump(mode="json")

    def report(self) -> tuple[str, ...]:
        """A line for each source."""
        return tuple(
            f"{one.source}: {one.runs} runs, mean and median error {_percent(one.inside)} in sample, "
            f"{_percent(one.model_left_out)} with the model left out, {_percent(one.source_left_out)} with the source "
            "left out"
            for one in self.fits.errors
        )


def _percent(figures: tuple[float, float]) -> str:
    return " and ".join(f"{100 * figure:.1f} %" for figure in figures)


def fit_training(tables: Sequence[Table], start: StackFits) -> TrainingFit:
    """The numbers that bring predictions nearest to the measurements; sources of many runs count less for each.

    Predictions are nearly linear in the logs of the numbers: `ROUNDS` times slopes are taken and the linear problem is
    solved.
    """
    points = trained_points(tables)
    timer, x = RunTimer(points), np.log([c.centre for c in CONSTANTS])
    centre, low, high = x, np.log([c.low for c in CONSTANTS]), np.log([c.high for c in CONSTANTS])
    problem = _Linear(points, centre, np.array([c.spread for c in CONSTANTS]))
    for _ in range(ROUNDS):
        inside, slopes = _slopes(timer, start, x)
        x = problem.solve(inside, slopes, x, low, high)
    fits = with_constants(start, np.exp(x).tolist())
    inside = timer.log_errors(fits)
    by_model, by_source = (
        problem.left_out(inside, slopes, x, low, high, family)
        for family in (lambda p: (p.source, p.model), lambda p: p.source)
    )
    intervals = {**widths(points, by_model, by_source), **memory_width(tables)}
    seen = errors_by_source(points, inside, by_model, by_source)
    return TrainingFit(fits.model_copy(update={"interval": intervals, "errors": seen}))


def widths(points: Sequence[TrainedPoint], by_model: Floats, by_source: Floats) -> dict[str, float]:
    """The intervals of stacks with and without runs, of dense models and of those with experts."""
    experts = np.array([bool(expert_counts(p.run.model)) for p in points])
    found: dict[str, float] = {}
    for name, errors in (("known", by_model), ("any", by_source)):
        for suffix, chosen in (("", ~experts), (" with experts", experts)):
            if chosen.any():
                found[name + suffix] = _eight_of_ten(errors[chosen])
    return found


def memory_width(tables: Sequence[Table]) -> dict[str, float]:
    """The interval of peak memory, to which nothing is fitted."""
    prices, errors = TrainingTimes(), list[float]()
    for table in tables:
        for i in range(len(table)):
            asked, measured = table.question(i), table.measured["value"][i]
            if asked.get("metric") != "peak_memory_gb" or not measured:
                continue
            try:
                answered = prices.answer(training_run(asked, table.models))
            except (ArchsimError, ArithmeticError, LookupError, ValueError):
                continue
            errors.append(float(np.log(METRICS["peak_memory_gb"](answered, asked).expected / measured)))
    return {"memory": _eight_of_ten(np.array(errors))} if errors else {}


ROUNDS = 2
"""How often slopes are taken."""


def _slopes(timer: RunTimer, start: StackFits, x: Floats) -> tuple[Floats, Floats]:
    """Errors at `x`, and how they change with each number's log."""
    here = timer.log_errors(with_constants(start, np.exp(x).tolist()))
    moved = [timer.log_errors(with_constants(start, np.exp(x + d).tolist())) for d in SLOPE * np.eye(len(x))]
    return here, np.stack([(errors - here) / SLOPE for errors in moved], axis=1)


@dataclass(frozen=True, slots=True)
class _Linear:
    """Fits on errors that are linear in the logs of the numbers."""

    points: Sequence[TrainedPoint]
    centre: Floats
    spread: Floats

    def solve(
        self, inside: Floats, slopes: Floats, x: Floats, low: Floats, high: Floats, kept: Bools | None = None
    ) -> Floats:
        """The numbers' logs at which the errors of the kept points are least."""
        weights = _balance(self.points) * (1.0 if kept is None else kept)

        def residuals(at: Floats) -> Floats:
            return np.concatenate([(inside + slopes @ (at - x)) * weights, PRIOR * (at - self.centre) / self.spread])

        return minimise(residuals, x, np.maximum(low, x - 0.7), np.minimum(high, x + 0.7))

    def left_out(
        self, inside: Floats, slopes: Floats, x: Floats, low: Floats, high: Floats,
        family: Callable[[TrainedPoint], Hashable],
    ) -> Floats:  # fmt: skip
        """Errors of each family under numbers fitted without it."""
        families, found = [family(point) for point in self.points], np.array(inside)
        for name in dict.fromkeys(families):
            kept = np.array([own != name for own in families])
            at = self.solve(inside, slopes, x, low, high, kept)
            found[~kept] = (inside + slopes @ (at - x))[~kept]
        return found


PRIOR = 0.03
"""Log-residual that a number one spread off its prior counts as."""

SLOPE = 0.05
"""Step of the slopes that errors of runs left out are linearised with."""


def _balance(points: Sequence[TrainedPoint]) -> Floats:
    """Weights of points: those of a source together count as the root of their number."""
    number = Counter(p.source for p in points)
    return np.array([number[p.source] ** -0.25 for p in points])


def _eight_of_ten(errors: Floats) -> float:
    """The size that eight of ten errors stay within."""
    return float(f"{np.quantile(np.abs(errors), 0.8):.3g}")


ALL = "all sources"
"""What the line of all runs together is called."""


def errors_by_source(
    points: Sequence[TrainedPoint], inside: Floats, by_model: Floats, by_source: Floats
) -> tuple[RunErrors, ...]:
    """Figures of every source, those of most runs first, and of all."""
    sources = np.array([point.source for point in points])
    masks = {name: sources == name for name, _ in Counter(sources.tolist()).most_common()}
    masks[ALL] = np.ones(len(points), bool)
    return tuple(
        RunErrors(
            source=name,
            runs=int(mask.sum()),
            inside=_figures(inside[mask]),
            model_left_out=_figures(by_model[mask]),
            source_left_out=_figures(by_source[mask]),
        )
        for name, mask in masks.items()
    )


def _figures(errors: Floats) -> tuple[float, float]:
    """Mean and median of the size of errors that are given in log."""
    size = np.abs(np.expm1(errors))
    return round(float(size.mean()), 4), round(float(np.median(size)), 4)
