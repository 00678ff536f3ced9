"""What runs under load say of the way to an engine: its front end, and what the first step of a benchmark waits for.

Every run is simulated once without either. A front end then adds to what most requests see, a first step to what the
slowest see: both are fitted on these figures, engine by engine. The schedule and the steps are left as they are.
Sources are left out one by one for the errors that the accuracy page shows. Intervals are made of what runs are off
whose device, or model, the fit has not seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, copysign, hypot, inf, log, sqrt
from types import MappingProxyType
from typing import NamedTuple, SupportsFloat

import numpy as np

from archsim.accuracy.files import Table
from archsim.accuracy.launch_flags import with_versions_of_flags
from archsim.accuracy.loaded import (
    ANSWERED,
    beside_of,
    drafting_of,
    require_load,
    run_of_load,
    same_server,
    settings_of,
)
from archsim.accuracy.loaded_errors import KINDS, kind_of, loaded_error
from archsim.accuracy.loaded_run import NO_FRONT, LoadedServer, LoadedServers, load_key, printed_figures
from archsim.accuracy.placement import placed_run, require_weights
from archsim.accuracy.question import has_drafts, text
from archsim.accuracy.serving import in_order
from archsim.accuracy.stated_acceptance import StatedAcceptance
from archsim.accuracy.stated_load import load_of
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.progress import counted
from archsim.calibration.served_errors import fitted_on
from archsim.calibration.serving_fits import Number, fit_points
from archsim.engines.overhead import FirstUse, FrontWork
from archsim.serving.load import Requests
from archsim.serving.observe import measure
from archsim.serving.offered_load import offered_load
from archsim.timing.calibration import Store

FEWEST = 5
"""Runs below which nothing is fitted, and figures below which a line is not shown."""

FRONT = (Number(20e-3, 1.5, 1e-4, 1.0), Number(1e-6, 1.0, 1e-8, 1e-4))
"""Seconds of a request in the front end, and of each token of its prompt."""

LINES = (0.0, 0.01, 0.02, 0.03, 0.04)
"""Seconds of a request in the line before a server of prompts: those that are tried. The longest lets 25 a second
through, which public runs with thousands in flight reach: too many for these fits.
"""

WAITS = tuple(round(10 ** (k / 20), 4) for k in range(-40, 1))
"""Seconds of the wait beside it: those that are tried."""

TWOFOLD = log(2.0)
"""What half of the runs may be off at most, as a logarithm, for what pools add to be told from the rest."""

FIRST_USE = (Number(0.3, 2.0, 1e-3, 60.0),)
"""Seconds that the first step of a benchmark takes longer."""


class Simulated(NamedTuple):
    """One run behind a front end: its figures by metric, and `waited_shares`."""

    figures: Mapping[str, float]
    waited: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LoadedPoint:
    """One measured run. family: its source, which fits are tested by. figures: simulated without a front end, by
    metric; spans: how far below and above these the ends of the steps are. measured: by metric. together: whether all
    requests are sent at once; pools, drafts: whether it has them; beside: what it has beside one server, in words.
    made: what was simulated of equal runs by front end.
    """

    engine: str
    device: str
    model: str
    family: tuple[str, str]
    server: LoadedServer
    requests: Requests
    figures: Mapping[str, float]
    spans: Mapping[str, tuple[float, float]]
    measured: Mapping[str, float]
    together: bool
    pools: bool
    drafts: bool
    beside: str
    made: dict[FrontWork, Simulated]

    @property
    def vendor(self) -> str:
        """Of the devices."""
        return self.server.engine.hardware.vendor

    @property
    def ranks(self) -> bool:
        """Whether its attention has data-parallel ranks."""
        return self.server.engine.plan.dp > 1

    @property
    def prompt(self) -> float:
        """Mean tokens of a prompt."""
        return sum(self.requests.input_len) / len(self.requests)

    @property
    def software(self) -> tuple[str, str]:
        """Format of the weights, and version of the engine: what is compiled when it is first used."""
        return self.server.engine.formats.name, self.server.engine.engine.version

    def behind(self, front: FrontWork) -> Simulated:
        """The run with a front end."""
        front = front.of(*self.software, pools=self.pools)
        if front not in self.made:
            seen = measure(self.server.run(self.requests, front))
            self.made[front] = Simulated(printed_figures(seen), self.server.waited(self.requests, front, seen))
            self.server.forget_classes()  # every server's tables are kept
        return self.made[front]

    def simulated(self, front: FrontWork) -> Mapping[str, float]:
        """The figures with a front end."""
        return self.behind(front).figures

    def kind(self, metric: str, front: FrontWork) -> str:
        """Of `KINDS`, as it is predicted with a front end."""
        return kind_of(metric, self.behind(front).waited, drafts=self.drafts, pools=self.pools)


LONGEST, MOST_TOKENS = 5_120, 5_000_000
"""Requests of a run, and tokens of all its answers, above which it is left out of the fits: ten requests for each of
512 in flight, of 1,024 tokens.
"""


class LeftOut(UsageError):
    """A run that is predicted, and not fitted."""


def loaded_points(tables: Sequence[Table], store: Store, refused: list[str] | None = None) -> list[LoadedPoint]:
    """The runs of tables that can be simulated. refused: takes the names of those that cannot."""
    servers, found = LoadedServers(store), []
    known: dict[tuple[object, ...], LoadedPoint] = {}
    for table in map(with_versions_of_flags, tables):
        stated = StatedAcceptance(table)
        for i in counted(in_order(table, same_server), f"rows of {table.name}"):
            try:
                found.append(_point(table, i, servers, known, stated))
            except LeftOut:
                continue
            except (ArchsimError, ArithmeticError, LookupError, ValueError):
                if refused is not None:
                    refused.append(table.ids[i])
    return found


def _point(
    table: Table, i: int, servers: LoadedServers, known: dict[tuple[object, ...], LoadedPoint], stated: StatedAcceptance
) -> LoadedPoint:
    """One row. known: rows that ask the same are simulated once. stated: the acceptance of drafts."""
    asked = table.question(i)
    if has_drafts(asked) and stated.states(i, asked):
        raise LeftOut("its TPOT was used to infer how many drafts are accepted in the rows of its group")
    run, load, settings = placed_run(run_of_load(asked, drafts=True)), load_of(asked), settings_of(asked)
    require_weights(run)
    family = (text(asked, "source") or "", "")
    found = {name: float(column[i] or 0.0) for name, column in table.measured.items()}
    require_load(asked, found)
    measured = {name: value for name, value in found.items() if value > 0}
    offered = offered_load(**load).requests()
    if len(offered) > LONGEST or sum(offered.output_len) > MOST_TOKENS:
        raise LeftOut("so many requests take long to simulate and tell no more about a front end than fewer do")
    drafting = drafting_of(i, asked, servers, stated) if has_drafts(asked) else None
    key = (*load_key(run, load, settings), str(drafting))
    if key in known:
        return replace(known[key], family=family, measured=measured)
    server, requests = servers.ready(run, load, settings, drafting)
    spans = server.figures(requests, NO_FRONT).spans
    server.forget_classes()
    known[key] = LoadedPoint(
        engine=server.engine.engine.name, device=run.device, family=family, server=server,
        requests=requests, figures={name: span.expected for name, span in spans.items()},
        spans={name: (span.expected - span.low, span.high - span.expected) for name, span in spans.items()},
        measured=measured, model=run.model, together=load.get("rate") == inf, pools=run.decode is not None,
        drafts=drafting is not None, beside=" and ".join(beside_of(run, drafting)), made={},
    )  # fmt: skip
    return known[key]


class Held(NamedTuple):
    """One run as predicted by a fit. front: of the engine."""

    point: LoadedPoint
    front: FrontWork

    @property
    def place(self) -> tuple[str, str, str]:
        """Engine, source and device."""
        return self.point.engine, self.point.family[0], self.point.device


class EngineRuns(NamedTuple):
    """The runs of one engine. fronts: by vendor. seen: as fitted; without_source, apart: as fitted without their
    source, and without their device or model (`folds`). left: sources without which there is a fit.
    """

    engine: str
    fronts: Mapping[str, FrontWork]
    seen: Sequence[Held]
    without_source: Sequence[Held]
    apart: Sequence[Held]
    left: frozenset[str]


def refit_loaded(document: JsonObject, points: Sequence[LoadedPoint], say: Callable[[str], None]) -> JsonObject:
    """Puts the front end of every engine that has runs, and the intervals of figures of all engines, among what is
    measured. The answer: errors of what was left out, for the accuracy page.
    """
    groups: list[JsonObject] = []
    insides: list[JsonObject] = []
    shared = shared_pools([point for point in points if not point.drafts])
    found = [runs for engine in sorted({point.engine for point in points})
             if (runs := runs_of([point for point in points if point.engine == engine], shared))]  # fmt: skip
    apart = [one for runs in found for one in runs.apart]
    known = intervals_of(apart)
    for runs in found:
        own = document["engines"].setdefault(runs.engine, {})
        mine = [one.point for one in runs.seen if not one.point.drafts]
        own["front_end"] = {vendor: stated_front(front, mine, vendor, shared) for vendor, front in runs.fronts.items()}
        own.pop("loaded", None)  # earlier files have intervals by engine
        insides += seen_errors(runs.seen, own, known)
        groups += errors_of(runs, apart)
        for vendor, front in runs.fronts.items():
            say(
                f"{runs.engine} on {vendor}: {1e3 * front.request_s:.0f} ms and {1e6 * front.token_s:.2g} us a token "
                f"in the front end, {front.first_use_s:.1f} s at the start, of {len(mine)} runs under load"
            )
    document.setdefault("composition", {})["loaded"] = known
    return {"seen": sorted(insides, key=lambda one: [str(one[name]) for name in GROUP]), "groups": groups}


def runs_of(points: Sequence[LoadedPoint], shared: AddedByPools) -> EngineRuns | None:
    """The runs of one engine with its front ends; None where too few show one. Runs with drafts are not fitted, since
    rows of their own groups say how many are accepted: they have their part in intervals.
    """
    plain = [point for point in points if not point.drafts]
    fronts = fronts_of(plain, shared=shared)
    if not fronts:
        return None
    sources = {point.family: fronts_of([other for other in plain if other.family != point.family], shared=shared)
               for point in {point.family: point for point in points}.values()}  # fmt: skip
    return EngineRuns(
        engine=points[0].engine, fronts=fronts, seen=[Held(point, front_at(fronts, point)) for point in points],
        without_source=[Held(point, front_at(sources[point.family] or fronts, point)) for point in points],
        apart=[Held(point, front_at(rest, point)) for part, rest in folds(points, fronts, shared) for point in part],
        left=frozenset(family[0] for family, rest in sources.items() if rest),
    )  # fmt: skip


class AddedByPools(NamedTuple):
    """What pools add, as of an engine whose runs tell it: seconds as of `FrontWork`."""

    engine: str = ""
    pools_s: float = 0.0
    line_s: float = 0.0
    pools_first_use_s: float | None = None

    @classmethod
    def of(cls, front: FrontWork, engine: str = "") -> AddedByPools:
        """What a front end has of it."""
        return cls(engine, front.pools_s, front.line_s, front.pools_first_use_s)

    def added(self, front: FrontWork) -> FrontWork:
        """A front end with it."""
        return front._replace(pools_s=self.pools_s, line_s=self.line_s, pools_first_use_s=self.pools_first_use_s)


NO_POOLS = AddedByPools()


def shared_pools(points: Sequence[LoadedPoint]) -> AddedByPools:
    """What pools add by the runs of the engine with most of them that tells it: others, whose runs do not, take it."""
    count = Counter(point.engine for point in points if point.pools)
    for engine, _ in count.most_common():
        for front in fronts_of([point for point in points if point.engine == engine]).values():
            if front.pools_s:
                return AddedByPools.of(front, engine)
    return NO_POOLS


def fronts_of(
    points: Sequence[LoadedPoint], known: Mapping[str, FrontWork] = MappingProxyType({}),
    shared: AddedByPools = NO_POOLS,
) -> dict[str, FrontWork]:  # fmt: skip
    """The front end by vendor of the devices, the one with most runs first: host and software differ, and what is
    compiled when it is first used. What pools add is that of another vendor, or the shared one, where the runs of one
    do not tell it. known: fronts by vendor, whose numbers of workers are taken as they are.
    """
    count = Counter(point.vendor for point in points if not point.pools)
    found = {vendor: front_of([point for point in points if point.vendor == vendor], known.get(vendor))
             for vendor, runs in count.most_common() if runs >= FEWEST}  # fmt: skip
    told = next((front for front in found.values() if front.pools_s), None)
    usual = shared if told is None else AddedByPools.of(told)
    return {vendor: front if front.pools_s else usual.added(front) for vendor, front in found.items()}


def folds(
    points: Sequence[LoadedPoint], fronts: Mapping[str, FrontWork], shared: AddedByPools = NO_POOLS
) -> Iterator[tuple[Sequence[LoadedPoint], Mapping[str, FrontWork]]]:
    """Parts of the runs, each with the front ends that the other parts show: by device where a vendor has several, else
    by model; their errors are those of runs that a fit has not seen.
    """
    devices = {vendor: {point.device for point in points if point.vendor == vendor} for vendor in fronts}
    parts: dict[tuple[str, str], list[LoadedPoint]] = {}
    for point in points:
        several = len(devices.get(point.vendor, ())) > 1
        parts.setdefault((point.vendor, point.device if several else point.model), []).append(point)
    for part in parts.values():
        among = {id(point) for point in part}
        rest = [point for point in points if id(point) not in among and not point.drafts]
        yield part, fronts_of(rest, fronts, shared) or fronts


def front_at(fronts: Mapping[str, FrontWork], point: LoadedPoint) -> FrontWork:
    """That of the run's vendor, else the one with most runs."""
    return fronts.get(point.vendor) or next(iter(fronts.values()))


def stated_front(
    front: FrontWork, points: Sequence[LoadedPoint], vendor: str, shared: AddedByPools = NO_POOLS
) -> JsonObject:
    """A front end as the file of engines has it. pools_of: the engine whose runs tell what pools add, where it is
    another.
    """
    mine = [point for point in points if point.vendor == vendor]
    others = shared.engine not in {"", *(point.engine for point in points)}
    borrowed = others and AddedByPools.of(front, shared.engine) == shared
    return {
        "request_us": _rounded(front.request_s * 1e6), "token_us": _rounded(front.token_s * 1e6),
        "workers": front.workers, "first_use_ms": _rounded(front.first_use_s * 1e3),
        **({"first_uses_ms": stated_first_uses(front)} if front.first_uses else {}),
        "pools_ms": _rounded(front.pools_s * 1e3), "pools_line_ms": _rounded(front.line_s * 1e3),
        **({} if front.pools_first_use_s is None else {"pools_first_use_ms": _rounded(front.pools_first_use_s * 1e3)}),
        **({"pools_of": shared.engine} if borrowed else {}),
        "runs": len(mine), "sources": len({point.family for point in mine}),
    }  # fmt: skip


def stated_first_uses(front: FrontWork) -> JsonObject:
    """Milliseconds by format of the weights and version."""
    found: dict[str, JsonObject] = {}
    for one in front.first_uses:
        found.setdefault(one.weights, {})[one.version] = _rounded(one.seconds * 1e3)
    return dict(found)


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def front_of(points: Sequence[LoadedPoint], known: FrontWork | None = None) -> FrontWork:
    """The front end that some runs show. Most requests wait for it, so their median counts, where they are not sent at
    once; the first step is what the slowest wait for, by what is compiled where those say it that are not sent at once
    (the slowest of others wait for all). How many requests it handles at once is what those show that are
    sent at once; without such runs as many as usual, or what lets the quickest run through; known: as many as it has.
    What pools add is what their median waits longer, and a line.
    """
    pools = [point for point in points if point.pools]
    points = [point for point in points if not point.pools]
    apart = [point for point in points if not point.together]
    request_s, token_s = fitted(FRONT, apart or points, "ttft_p50_ms", _with_front)
    front = FrontWork(request_s, token_s)

    def with_start(point: LoadedPoint, values: Sequence[float]) -> float:
        return _with_front(point, (request_s, token_s), "ttft_p99_ms") + 1e3 * values[0]

    (first_use_s,) = fitted(FIRST_USE, points, "ttft_p99_ms", with_start)
    count = Counter(point.software for point in apart if "ttft_p99_ms" in point.measured)
    first_uses = tuple(
        FirstUse(*software, fitted(FIRST_USE, [one for one in apart if one.software == software], "ttft_p99_ms",
                                   with_start)[0])
        for software, runs in sorted(count.items()) if runs >= FEWEST and software[1]
    )  # fmt: skip
    workers = known.workers if known else workers_of(front, points)
    return with_pools(front._replace(first_use_s=first_use_s, first_uses=first_uses, workers=workers), pools, known)


WAIT_METRICS = ("ttft_p50_ms", "ttft_mean_ms")
"""What handshakes and transfers of pools show in."""


def with_pools(front: FrontWork, points: Sequence[LoadedPoint], known: FrontWork | None = None) -> FrontWork:
    """The front with what runs with pools add: a wait, and a line, with which they are off least, after a first step of
    their own. Nothing is added where few runs say it, or where half of their figures are off by more than twofold all
    the same. known: as of `front_of`.
    """
    if len(points) < FEWEST:
        return front

    started = front._replace(pools_first_use_s=first_use_of_pools(front, points))
    lines = [started._replace(line_s=line_s) for line_s in ((known.line_s,) if known else LINES)]
    tried = [(median_error(line, points, WAIT_METRICS, wait_s), line, wait_s) for line in lines for wait_s in WAITS]
    least, line, wait_s = min(tried, key=lambda one: one[0])
    return line._replace(pools_s=wait_s) if least < TWOFOLD else front


def first_use_of_pools(front: FrontWork, points: Sequence[LoadedPoint]) -> float | None:
    """Seconds that the first step takes longer by what the slowest requests of runs with pools wait; None where few say
    it: ranks that wait for one another do not have it.
    """
    mine = [point for point in points if not point.ranks and "ttft_p99_ms" in point.measured]
    if len(mine) < FEWEST:
        return None
    without = front._replace(pools_first_use_s=0.0)

    def with_start(point: LoadedPoint, values: Sequence[float]) -> float:
        return point.simulated(without)["ttft_p99_ms"] + 1e3 * values[0]

    return fitted(FIRST_USE, mine, "ttft_p99_ms", with_start)[0]


def median_error(front: FrontWork, points: Sequence[LoadedPoint], metrics: Sequence[str], wait_s: float = 0.0) -> float:
    """What half of some figures of runs are off at most, as a logarithm. wait_s: added to first tokens."""
    errors = []
    for point in points:
        for name in (name for name in metrics if name in point.measured):
            added = 1e3 * wait_s if name.startswith("ttft") else 0.0
            errors.append(abs(log((point.simulated(front)[name] + added) / point.measured[name])))
    return float(np.median(errors))


WORKERS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
"""Requests that a front end handles at once: those that are tried."""

LINE_METRICS = ("ttft_mean_ms", "tpot_mean_ms", "output_tok_s")
"""What a line before the front end shows in."""


def workers_of(front: FrontWork, points: Sequence[LoadedPoint]) -> int:
    """Requests that a front end handles at once: with which the runs that are sent at once are off least, half of them
    above and half below; these wait in one line before it. Never so few that the quickest run could not pass; and as
    many as usual where fewer do not bring these runs twice as near, since something else is then wrong with them.
    """
    busiest = max((point.measured["output_tok_s"] / (sum(point.requests.output_len) / len(point.requests))
                   * (front.request_s + front.token_s * point.prompt)
                   for point in points if "output_tok_s" in point.measured), default=1.0)  # fmt: skip
    together = [point for point in points if point.together and all(name in point.measured for name in LINE_METRICS)]
    if len(together) < FEWEST:
        return max(front.workers, ceil(busiest))
    usual = max(front.workers, ceil(busiest))
    errors = {workers: median_error(front._replace(workers=workers), together, LINE_METRICS)
              for workers in {usual, *(workers for workers in WORKERS if workers >= busiest)}}  # fmt: skip
    best = min(errors, key=errors.__getitem__)
    return best if errors[best] <= 0.5 * errors[usual] else usual


def fitted(
    numbers: Sequence[Number], points: Sequence[LoadedPoint], metric: str,
    predict: Callable[[LoadedPoint, Sequence[float]], float],
) -> list[float]:  # fmt: skip
    """The numbers that bring a figure nearest to what was measured of it."""
    mine = [point for point in points if metric in point.measured and metric in point.figures]
    if len(mine) < FEWEST:
        return [number.centre for number in numbers]
    return fit_points(numbers, mine, np.array([point.measured[metric] for point in mine]), predict)


def _with_front(point: LoadedPoint, values: Sequence[float], metric: str = "ttft_p50_ms") -> float:
    """A figure of TTFT with the front end's time, in milliseconds."""
    request_s, token_s = values
    return point.figures[metric] + 1e3 * (request_s + token_s * point.prompt)


# ---------------------------------------------------------------------- errors
class LogError(NamedTuple):
    """Logarithms of measured over predicted, and of both ends of the steps' interval, each above 0."""

    error: float
    below: float
    above: float

    def ends(self, error: Sequence[float]) -> tuple[float, float]:
        """Both ends of the interval with an error beyond the steps'."""
        return hypot(self.below, error[0]), hypot(self.above, error[1])

    def needed(self, side: int) -> float:
        """Square of the error beyond the steps' with which the end on a side (-1, 1) is what was measured; below 0
        where it is inside without.
        """
        own = self.below if side < 0 else self.above
        return copysign(self.error**2, side * self.error) - own**2


def log_error(one: Held, metric: str) -> LogError | None:
    """How far a figure of a run is off; None where it was not measured."""
    found = one.point.simulated(one.front).get(metric, 0.0)
    if metric not in one.point.measured or found <= 0 or metric not in one.point.spans:
        return None
    below, above = one.point.spans[metric]
    return LogError(
        log(one.point.measured[metric] / found), -log(max(1 - below / found, LEAST)), log(1 + above / found)
    )


LEAST = 1e-3
"""Of a figure, its lower end at least."""


def log_errors(held: Sequence[Held], metric: str) -> list[LogError]:
    """Of the runs that have a figure."""
    return [error for one in held if (error := log_error(one, metric))]


def intervals_of(held: Sequence[Held]) -> dict[str, JsonObject]:
    """By metric and kind of run, what intervals need beyond the steps' own."""
    found: dict[str, JsonObject] = {}
    for metric in ANSWERED:
        for kind in KINDS:
            mine = log_errors([one for one in held if one.point.kind(metric, one.front) == kind], metric)
            if len(mine) >= FEWEST:
                found.setdefault(metric, {})[kind] = error_beyond_steps(mine)
    return found


def error_beyond_steps(figures: Sequence[LogError]) -> list[float]:
    """What both ends of the interval need beyond the steps' own, so that a tenth of the runs is beyond each."""
    squares = (float(np.quantile([one.needed(side) for one in figures], 0.9)) for side in (-1, 1))
    return [round(sqrt(max(square, 0.0)), 3) for square in squares]


GROUP = ("metric", "engine", "way", "device", "with")
"""What makes a group of runs."""


def seen_errors(seen: Sequence[Held], measured: JsonMapping, known: JsonMapping) -> Iterator[JsonObject]:
    """Figures of the runs that were fitted, by metric, way of the engine, device and what they have beside one server.
    measured: of the engine. known: errors of runs by metric and kind.
    """
    groups: dict[tuple[str, str, str, str], list[Held]] = {}
    for one in seen:
        server = one.point.server.engine
        key = (one.point.engine, server.engine.rules.time.host, one.point.device, one.point.beside)
        groups.setdefault(key, []).append(one)
    for metric in ANSWERED:
        for key, mine in groups.items():
            logs = [one.error for one in log_errors(mine, metric)]
            if len(logs) < FEWEST:
                continue
            signed = np.expm1(-np.array(logs))
            inside, widths = inside_and_widths(mine, known, metric)
            group = (metric, *key)
            yield {
                **dict(zip(GROUP, group, strict=True)), "fitted": fitted_on("loaded", group, {key[0]: measured}),
                "rows": len(logs), "median": _figure(np.median(abs(signed))),
                "p90": _figure(np.quantile(abs(signed), 0.9)),
                "bias": _figure(np.median(signed)), "covered": _figure(np.mean(inside)),
                "width": _figure(np.exp(np.median(widths))),
            }  # fmt: skip


def _figure(value: SupportsFloat) -> float:
    return round(float(value), 4)


def errors_of(runs: EngineRuns, everything: Sequence[Held]) -> Iterator[JsonObject]:
    """Figures by metric, source and device: of the fit, and of the fit without the source (where others are left);
    intervals are those that the runs of all other sources, devices and engines say. everything: runs of all engines.
    """
    for place in dict.fromkeys(one.place for one in runs.seen):
        ends = intervals_of([one for one in everything if one.place != place])
        seen, rest, apart = ([one for one in side if one.place == place]
                             for side in (runs.seen, runs.without_source, runs.apart))  # fmt: skip
        for metric in ANSWERED:
            whole, logs = log_errors(seen, metric), [one.error for one in log_errors(rest, metric)]
            if len(whole) < FEWEST:
                continue
            inside, widths = inside_and_widths(apart, ends, metric)
            engine, source, device = place
            yield {
                "metric": metric, "engine": engine, "source": source, "device": device, "rows": len(whole),
                "median": _median([one.error for one in whole]),
                "left_out": _median(logs) if source in runs.left else None,
                "bias": round(float(np.expm1(-np.median(logs))), 4),
                "covered": round(sum(inside) / len(inside), 4), "width": round(float(np.exp(np.median(widths))), 3),
            }  # fmt: skip


def inside_and_widths(held: Sequence[Held], known: JsonMapping, metric: str) -> tuple[list[bool], list[float]]:
    """Of some runs: whether the interval holds what was measured, and its width in log. known: by metric and kind."""
    inside, widths = [], []
    for one in held:
        if found := log_error(one, metric):
            below, above = found.ends(loaded_error(known, metric, one.point.kind(metric, one.front)))
            inside.append(-below <= found.error <= above)
            widths.append(below + above)
    return inside, widths


def _median(logs: Sequence[float]) -> float:
    """Median error as a share of what was measured."""
    return round(float(np.median([abs(np.expm1(-error)) for error in logs])), 4)
