"""What serving points say of an engine beyond its kernels: the host's work for a step, and the first token's way.

Steps are timed once without either; the closed form of the steady state is then evaluated with any numbers for them.
Few numbers, each with a meaning, are shared by all versions that drive the device alike; families are pairs of model
and device, so that a fit is tested on models and devices that it has not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import numpy as np

from archsim.accuracy.capacity import largest_batch
from archsim.accuracy.files import Table
from archsim.accuracy.placement import placed_run
from archsim.accuracy.question import Run, device_of, model_of, weights_of
from archsim.accuracy.serving import point_of
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonObject
from archsim.calibration.fitting import Errors, errors, quantiles
from archsim.calibration.least_squares import SOFT, Search, minimise
from archsim.counts.formats import choose_formats
from archsim.engines.names import choose_engine
from archsim.engines.overhead import FIRST_TOKEN, HOST_NAMES, HostWork, overheads_of
from archsim.serving.steady_state import ServedLoad, closed_form, served_load, steps_of
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store
from archsim.timing.duration import Duration
from archsim.timing.step_pricer import StepPricer, prompt_tokens

if TYPE_CHECKING:
    from archsim.base.arrays import Bools, Floats

FEWEST = 5
"""Points below which nothing is fitted."""

SEARCH = Search(step=1e-3, damping=1e-2, rounds=60)


@dataclass(frozen=True, slots=True)
class ServedPoint:
    """One measured point: its load, and its steps without host work. family: what a fit is tested by. tpot, ttft: as
    measured, in seconds; NaN where they are not. way: how the engine drives the device. launches: kernels that the
    host starts for the step with a prompt, where no graph holds it; 0 where one does, or where the engine's document
    does not say up to which size it captures such steps. whole_graph: as of `ServerFlags`.
    """

    engine: str
    way: str
    family: tuple[str, str]
    load: ServedLoad
    step: Duration
    prompt: Duration
    mixed: bool
    tpot: float
    ttft: float
    launches: float = 0.0
    whole_graph: bool = False

    def waits(self, host: HostWork) -> float:
        """Seconds that the device waits for the launches of the step with a prompt."""
        own = host.of_whole_graphs if self.whole_graph else host
        return float(own.waiting_s(self.launches, self.prompt.expected))

    def with_host(self, host: HostWork) -> tuple[Duration, Duration]:
        """The step and the prompt with the host's work."""
        running, waiting = self.load.per_replica, self.waits(host)
        prompt = _later(self.prompt, waiting + host.time(running + 1 if self.mixed else 1))
        return _later(self.step, host.time(running)), prompt

    def tpot_with(self, host: HostWork) -> float:
        """TPOT in seconds."""
        return float(closed_form(self.load, *self.with_host(host), self.mixed).tpot.expected)

    def ttft_with(self, host: HostWork, front_s: float, prompts: float = 0.0) -> float:
        """TTFT in seconds; NaN where it is refused. prompts: as of `FirstToken.one_length_prompts`."""
        first = self.load.first_token._replace(front_s=front_s, one_length_s=front_s, one_length_prompts=prompts)
        state = closed_form(replace(self.load, first_token=first), *self.with_host(host), self.mixed)
        return float("nan") if state.ttft is None else float(state.ttft.expected)


def _later(time: Duration, host_s: float) -> Duration:
    return time._replace(expected=time.expected + host_s, low=time.low + host_s, high=time.high + host_s)


def served_points(tables: Sequence[Table], store: Store) -> list[ServedPoint]:
    """The points of serving tables, less those whose plan cannot be what ran or whose requests did not all run."""
    pricers: dict[tuple[object, ...], StepPricer] = {}
    found = []
    for table in tables:
        for i in range(len(table)):
            asked = table.question(i)
            if str(asked.get("parallel_suspect", "0")) not in ("0", "0.0", ""):
                continue
            try:
                run = placed_run(point_of(asked))
                load, step, prompt, mixed, launches = _steps(run, pricers, store)
            except (ArchsimError, ArithmeticError, LookupError, ValueError):
                continue
            chosen = choose_engine(run.engine)
            tpot, ttft = (float(table.measured[name][i] or "nan") * 1e-3 for name in ("tpot_ms", "ttft_ms"))
            family = (model_of(run.model)[0].name, run.device)
            way = run.flags.host or chosen.rules.time.host
            whole = run.flags.whole_graph
            found.append(ServedPoint(chosen.name, way, family, load, step, prompt, mixed, tpot, ttft, launches, whole))
    return [point for point in found if point.load.concurrency - point.load.running < 1]


def _steps(
    run: Run, pricers: dict[tuple[object, ...], StepPricer], store: Store
) -> tuple[ServedLoad, Duration, Duration, bool, float]:
    """The load of a run and its two steps, without host work, and how many launches the prompt's waits for."""
    assert run.batch and run.isl and run.osl
    chosen, (model, _) = choose_engine(run.engine), model_of(run.model)
    formats = choose_formats(model, weights_of(run.model, run.weights), run.kv, engine=run.engine)
    plan = Plan(tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp, engine=chosen.name)
    key = run.model, run.device, run.engine, formats.name, formats.kv.name, plan, run.flags
    if key not in pricers:
        overheads = overheads_of(chosen.name, chosen.version, measured={}, document=chosen.rules)
        overheads = overheads.started_with(run.flags)._replace(host=HostWork())
        pricers[key] = StepPricer.of(model, device_of(run.device), formats, overheads, plan, store=store)
    running = float(min(run.batch, largest_batch(run)))
    load = served_load(pricers[key], run.batch, run.isl, run.osl, running)
    step, graphs = load.with_prompt, pricers[key].prompt_graphs
    eager = graphs is not None and prompt_tokens(step.fullest(plan.dp)) > graphs
    launches = float(pricers[key].price(step).rank.launches) if eager else 0.0
    return replace(load, one_length=run.one_length), *steps_of(pricers[key], load), launches


# ---------------------------------------------------------------------- fits
class Number(NamedTuple):
    """A number that is open: its prior's middle and spread in log, and its bounds."""

    centre: float
    spread: float
    low: float
    high: float


HOST = (Number(300e-6, 1.0, 1e-6, 20e-3), Number(10e-6, 1.0, 1e-7, 1e-3), *(Number(30e-6, 1.0, 1e-6, 200e-6),) * 2)
"""Seconds of the host for a step, for each sequence, and for each launch of a step with prompts that no graph holds: of
one compiled in pieces, and of one compiled whole.
"""

FRONT = (*(Number(30e-3, 1.5, 1e-4, 1.0),) * 2, Number(1.0, 1.5, 1e-2, 20.0))
"""Front end in seconds: of requests whose lengths differ, and of those of one length; and prompts of others that the
latter wait for beside their own turn.
"""

ALONE = 1.5
"""Factor to the ends of the interval of a number that one model on one device speaks for."""


class Measurement(Protocol):
    """What numbers are fitted on. family: what a fit is tested by."""

    @property
    def family(self) -> tuple[str, str]: ...


P = TypeVar("P", bound=Measurement)


def fit_points(
    numbers: Sequence[Number], points: Sequence[P], measured: Floats, predict: Callable[[P, Sequence[float]], float]
) -> list[float]:
    """The numbers that bring predictions nearest to the measurements, in log; families of many points count less for
    each.
    """
    weights = balance(points)
    centre, spread = np.log([n.centre for n in numbers]), np.array([n.spread for n in numbers])

    def residuals(x: Floats) -> Floats:
        values = np.exp(x).tolist()
        rest = np.log(np.array([predict(point, values) for point in points]) / measured) * weights
        return np.concatenate([rest, (x - centre) / spread * SOFT])

    low, high = (np.log([getattr(n, end) for n in numbers]) for end in ("low", "high"))
    found = np.exp(minimise(residuals, centre, low, high, SEARCH)).tolist()
    return [float(value) for value in found]


def balance(points: Sequence[Measurement]) -> Floats:
    """Weights that let a family's points together count as the square root of their number."""
    counts = Counter(point.family for point in points)
    found = np.array([counts[point.family] ** -0.25 for point in points])
    weights: Floats = found / found.mean()
    return weights


def without_each(points: Sequence[Measurement]) -> Iterator[Bools]:
    """The mask of the points of each family, where there are several families."""
    families = list(dict.fromkeys(point.family for point in points))
    for family in families if len(families) > 1 else ():
        yield np.array([point.family == family for point in points])


def left_out(
    numbers: Sequence[Number], points: Sequence[P], measured: Floats, predict: Callable[[P, Sequence[float]], float]
) -> tuple[list[list[float]], Floats]:
    """The numbers of fits that lack a family each, and predictions of every point by the fit that lacks its family."""
    parts: list[list[float]] = []
    held = np.full(len(points), np.nan)
    for mask in without_each(points):
        rest = [point for point, out in zip(points, mask, strict=True) if not out]
        parts.append(fit_points(numbers, rest, measured[~mask], predict))
        held[mask] = [predict(point, parts[-1]) for point, out in zip(points, mask, strict=True) if out]
    return parts, held


def refit_serving(engines: dict[str, JsonObject], points: Sequence[ServedPoint], say: Callable[[str], None]) -> None:
    """Puts the host's work and the front end of every engine that has points among what is measured."""
    for engine in dict.fromkeys(point.engine for point in points):
        own = engines.setdefault(engine, {})
        mine = [point for point in points if point.engine == engine]
        for way in dict.fromkeys(point.way for point in mine):
            by_way = [point for point in mine if point.way == way and np.isfinite(point.tpot)]
            if way and len(by_way) >= FEWEST:
                _refit_host(own, way, by_way, say)
    _refit_first_tokens(engines, points, say)


def _refit_host(own: JsonObject, way: str, points: Sequence[ServedPoint], say: Callable[[str], None]) -> None:
    measured = np.array([point.tpot for point in points])

    def predict(point: ServedPoint, values: Sequence[float]) -> float:
        return point.tpot_with(host_of(values))

    numbers: Sequence[Number] = HOST if any(point.whole_graph for point in points) else HOST[:3]
    whole = fit_points(numbers, points, measured, predict)
    waiting = sum(point.waits(host_of(whole)) > 0 for point in points) >= FEWEST
    if not waiting:
        numbers = HOST[:2]
        whole = fit_points(numbers, points, measured, predict)
    parts, held = left_out(numbers, points, measured, predict)
    parts = parts or [[value * factor for value in whole] for factor in (1 / ALONE, ALONE)]
    spans = [(value, min(each), max(each)) for value, *each in zip(whole, whole, *parts, strict=True)]
    names = HOST_NAMES[: len(numbers)]
    found = {name: [float(f"{1e6 * v:.4g}") for v in span] for name, span in zip(names, spans, strict=True)}
    own["host"] = {**own.get("host", {}), way: found}
    if np.isfinite(held).any():
        seen = errors(held, measured)
        own["host_errors"] = {**own.get("host_errors", {}), way: {"of": "serving points", **_figures(seen)}}
    step, each = found["step_us"][0], found["sequence_us"][0]
    launch = f", {found['launch_us'][0]:,.1f} a launch of prompts" if waiting else ""
    say(
        f"{points[0].engine} {way}: {step:,.0f} us a step and {each:,.1f} a sequence{launch}, from {len(points)} points"
    )


def host_of(values: Sequence[float]) -> HostWork:
    """The host's work from its numbers, in the order of `HOST`."""
    return HostWork(*((value, value, value) for value in values))


def _refit_first_tokens(
    engines: dict[str, JsonObject], points: Sequence[ServedPoint], say: Callable[[str], None]
) -> None:
    """The front end of each engine. Its interval is what points of a model and device were off that a fit had not seen;
    an engine that one model and device speak for has at least the interval of all others together, as nothing says how
    far it carries.
    """
    held: dict[str, tuple[Floats, Floats]] = {}
    known: dict[str, tuple[float, float, float]] = {}
    for engine in dict.fromkeys(point.engine for point in points):
        mine = [p for p in points if p.engine == engine and np.isfinite(p.ttft)]
        hosts = {point.way: _host(engines[engine], point.way) for point in mine}
        mine = [p for p in mine if np.isfinite(p.ttft_with(hosts[p.way], FIRST_TOKEN.front_s))]
        if len(mine) < FEWEST:
            continue
        measured = np.array([point.ttft for point in mine])

        def predict(point: ServedPoint, values: Sequence[float], hosts: dict[str, HostWork] = hosts) -> float:
            return point.ttft_with(hosts[point.way], values[point.load.one_length], prompts_before(point, values[2]))

        numbers = fit_points(FRONT, mine, measured, predict)
        _, unseen = left_out(FRONT, mine, measured, predict)
        kinds = {point.load.one_length for point in mine}
        before = any(prompts_before(point, numbers[2]) for point in mine)
        front, one_length = (numbers[kind if kind in kinds else not kind] for kind in (False, True))
        known[engine] = front, one_length, numbers[2] if before else 0.0
        seen = np.array([predict(point, numbers) for point in mine])
        held[engine] = (unseen if np.isfinite(unseen).all() else seen), measured
    several = [e for e in known if len({point.family for point in points if point.engine == e}) > 1]
    for engine, (front, one_length, prompts) in known.items():
        ends = [quantiles(*held[one]) for one in (engine, *(several if engine not in several else ()))]
        low, high = min(0.0, *(end for end, _ in ends)), max(0.0, *(end for _, end in ends))
        engines[engine]["first_token"] = {
            "front_ms": float(f"{1e3 * front:.3g}"), "one_length_ms": float(f"{1e3 * one_length:.3g}"),
            "one_length_prompts": float(f"{prompts:.3g}"),
            "interval": [round(low, 3), round(high, 3)],
            "errors": {
                "held_out": "pairs of model and device" if engine in several else "none",
                **_figures(errors(*held[engine])),
            },
        }  # fmt: skip
        say(f"{engine}: {1e3 * front:.0f} ms in front of a first token, {1e3 * one_length:.0f} ms where all "
            f"requests are of one length, from {len(held[engine][0])} points")  # fmt: skip


def prompts_before(point: ServedPoint, fitted: float) -> float:
    """Prompts of others that a point waits for: of requests of one length, where prompts run beside decodes; elsewhere
    they wait for all of them.
    """
    return fitted if point.load.one_length and point.load.first_token.line < 1 else 0.0


def _figures(seen: Errors) -> JsonObject:
    return {"rows": seen.rows, **{name: round(getattr(seen, name), 4) for name in ("median", "mean", "p90")}}


def _host(own: JsonObject, way: str) -> HostWork:
    found = own.get("host", {}).get(way)
    return host_of([found.get(name, (0.0,))[0] * 1e-6 for name in HOST_NAMES]) if found else HostWork()
