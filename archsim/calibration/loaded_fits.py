"""What runs under load say of the way to an engine: its front end, and what the first step of a benchmark waits for.

Every run is simulated once without either. A front end then adds to what most requests see, a first step to what the
slowest see: both are fitted on these figures, engine by engine. The schedule and the steps are left as they are.
Sources are left out one by one for the errors that the accuracy page shows; intervals are made of what runs of all
sources are off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, hypot, inf, log
from typing import NamedTuple

import numpy as np

from archsim.accuracy.files import Table
from archsim.accuracy.loaded import ANSWERED, load_of, run_of_load, settings_of
from archsim.accuracy.loaded_run import LoadedServer, LoadedServers, load_key, loaded_error, printed_figures
from archsim.accuracy.placement import placed_run, require_weights
from archsim.accuracy.question import text
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import LoadOptions
from archsim.base.progress import counted
from archsim.calibration.serving_fits import Number, fit_points
from archsim.engines.overhead import FrontWork
from archsim.serving.load import Requests
from archsim.serving.observe import measure
from archsim.timing.calibration import Store

FEWEST = 5
"""Runs below which nothing is fitted, and figures below which a line is not shown."""

FRONT = (Number(20e-3, 1.5, 1e-4, 1.0), Number(1e-6, 1.0, 1e-8, 1e-4))
"""Seconds of a request in the front end, and of each token of its prompt."""

FIRST_USE = (Number(0.3, 2.0, 1e-3, 60.0),)
"""Seconds that the first step of a benchmark takes longer."""


@dataclass(frozen=True, slots=True)
class LoadedPoint:
    """One measured run. family: its source, which fits are tested by. figures: simulated without a front end, by
    metric; spans: lower and upper ends over the expected figure, in log. measured: by metric. count: its requests.
    together: whether all of them are sent at once. made: what was simulated of equal runs, by front end.
    """

    engine: str
    device: str
    family: tuple[str, str]
    server: LoadedServer
    requests: Requests
    figures: Mapping[str, float]
    spans: Mapping[str, tuple[float, float]]
    measured: Mapping[str, float]
    together: bool
    made: dict[FrontWork, dict[str, float]]

    @property
    def vendor(self) -> str:
        """Of the devices."""
        return self.server.engine.hardware.vendor

    @property
    def prompt(self) -> float:
        """Mean tokens of a prompt."""
        return sum(self.requests.input_len) / len(self.requests)

    def simulated(self, front: FrontWork) -> dict[str, float]:
        """The figures with a front end."""
        if front not in self.made:
            self.made[front] = printed_figures(measure(self.server.run(self.requests, front)))
        return self.made[front]


NO_FRONT = FrontWork(0.0)


def loaded_points(tables: Sequence[Table], store: Store) -> list[LoadedPoint]:
    """The runs of tables that can be simulated."""
    servers, found = LoadedServers(store), []
    known: dict[tuple[object, ...], LoadedPoint] = {}
    for table in tables:
        for i in counted(range(len(table)), f"rows of {table.name}"):
            try:
                found.append(_point(table, i, servers, known))
            except (ArchsimError, ArithmeticError, LookupError, ValueError):
                continue
    return found


def _point(table: Table, i: int, servers: LoadedServers, known: dict[tuple[object, ...], LoadedPoint]) -> LoadedPoint:
    """One row. known: rows that ask the same are simulated once."""
    asked = table.question(i)
    run, load, settings = placed_run(run_of_load(asked)), load_of(asked), settings_of(asked)
    require_weights(run)
    family = (text(asked, "source") or "", "")
    found = {name: float(column[i] or 0.0) for name, column in table.measured.items()}
    measured = {name: value for name, value in found.items() if value > 0}
    if contradicts(load, measured, run.osl or 0):
        raise UsageError("by Little's law far fewer requests were in flight than the row states")
    key = load_key(run, load, settings)
    if key in known:
        return replace(known[key], family=family, measured=measured)
    server, requests = servers.ready(run, load, settings)
    spans = server.figures(requests, NO_FRONT)
    known[key] = LoadedPoint(
        engine=server.engine.engine.name, device=run.device, family=family, server=server,
        requests=requests, figures={name: span.expected for name, span in spans.items()},
        spans={name: (log(span.expected / span.low), log(span.high / span.expected)) for name, span in spans.items()},
        measured=measured, together=load.get("rate") == inf, made={},
    )  # fmt: skip
    return known[key]


FEWER = 0.3
"""Share of the requests in flight that a row states, below which its own figures contradict it."""


def contradicts(load: LoadOptions, measured: Mapping[str, float], answer: int) -> bool:
    """Whether throughput and latency of a row say by Little's law that far fewer requests were in flight than its load
    keeps there. answer: its mean tokens.
    """
    names = ("output_tok_s", "ttft_mean_ms", "tpot_mean_ms")
    kept = min(load.get("concurrency") or 0, load.get("requests") or 0)
    if not (kept and answer and all(name in measured for name in names)):
        return False
    rate, first, each = (measured[name] for name in names)
    return rate / answer * (first + (answer - 1) * each) * 1e-3 < FEWER * kept


def refit_loaded(
    engines: dict[str, JsonObject], points: Sequence[LoadedPoint], say: Callable[[str], None]
) -> JsonObject:
    """Puts the front end of every engine that has runs, and the intervals of its figures, among what is measured. The
    answer: errors of what was left out, for the accuracy page.
    """
    groups: list[JsonObject] = []
    for engine in sorted({point.engine for point in points}):
        mine = [point for point in points if point.engine == engine]
        fronts = fronts_of(mine)
        if not fronts:
            continue
        sources = list(dict.fromkeys(point.family for point in mine))
        unseen = {source: found for source in sources
                  if (found := fronts_of([point for point in mine if point.family != source]))}  # fmt: skip
        held = [Held(point, point.simulated(front_at(unseen.get(point.family, fronts), point))) for point in mine]
        seen = [Held(point, point.simulated(front_at(fronts, point))) for point in mine]
        own = engines.setdefault(engine, {})
        own["front_end"] = {vendor: stated_front(front, mine, vendor) for vendor, front in fronts.items()}
        own["loaded"] = intervals_of(seen)
        groups += errors_of(seen, held, own["loaded"], {source[0] for source in unseen})
        for vendor, front in fronts.items():
            say(f"{engine} on {vendor}: {1e3 * front.request_s:.0f} ms and {1e6 * front.token_s:.2g} us a token in the "
                f"front end, {front.first_use_s:.1f} s at the start, of {len(mine)} runs under load")  # fmt: skip
    return {"groups": groups}


def fronts_of(points: Sequence[LoadedPoint]) -> dict[str, FrontWork]:
    """The front end by vendor of the devices, the one with most runs first: host and software differ, and what is
    compiled when it is first used.
    """
    count = Counter(point.vendor for point in points)
    return {vendor: front_of([point for point in points if point.vendor == vendor])
            for vendor, runs in count.most_common() if runs >= FEWEST}  # fmt: skip


def front_at(fronts: Mapping[str, FrontWork], point: LoadedPoint) -> FrontWork:
    """That of the run's vendor, else the one with most runs."""
    return fronts.get(point.vendor) or next(iter(fronts.values()))


def stated_front(front: FrontWork, points: Sequence[LoadedPoint], vendor: str) -> JsonObject:
    """A front end as the file of engines has it."""
    mine = [point for point in points if point.vendor == vendor]
    return {
        "request_us": _rounded(front.request_s * 1e6), "token_us": _rounded(front.token_s * 1e6),
        "workers": front.workers, "first_use_ms": _rounded(front.first_use_s * 1e3),
        "runs": len(mine), "sources": len({point.family for point in mine}),
    }  # fmt: skip


def _rounded(value: float) -> float:
    return float(f"{value:.3g}")


def front_of(points: Sequence[LoadedPoint]) -> FrontWork:
    """The front end that some runs show. Most requests wait for it, so their median counts, where they are not sent at
    once; the first step is what the slowest wait for. Workers are as many as usual, or what lets the quickest run
    through.
    """
    apart = [point for point in points if not point.together] or list(points)
    request_s, token_s = fitted(FRONT, apart, "ttft_p50_ms", _with_front)
    front = FrontWork(request_s, token_s)

    def with_start(point: LoadedPoint, values: Sequence[float]) -> float:
        return _with_front(point, (request_s, token_s), "ttft_p99_ms") + 1e3 * values[0]

    (first_use_s,) = fitted(FIRST_USE, points, "ttft_p99_ms", with_start)
    busiest = max((point.measured["output_tok_s"] / (sum(point.requests.output_len) / len(point.requests))
                   * (request_s + token_s * point.prompt) for point in points if "output_tok_s" in point.measured),
                  default=1.0)  # fmt: skip
    return front._replace(first_use_s=first_use_s, workers=max(front.workers, ceil(busiest)))


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
class Held(NamedTuple):
    """One run as predicted by a fit."""

    point: LoadedPoint
    figures: Mapping[str, float]


def _logs(held: Sequence[Held], metric: str) -> list[tuple[float, float, float]]:
    """Logarithms of measured over predicted, and of both ends of the steps' interval."""
    return [
        (log(one.point.measured[metric] / one.figures[metric]), *one.point.spans[metric])
        for one in held
        if metric in one.point.measured and one.figures.get(metric, 0) > 0 and metric in one.point.spans
    ]


def intervals_of(held: Sequence[Held]) -> dict[str, JsonObject]:
    """By metric, what intervals need beyond the steps' own: of all loads, and of those that are sent at once."""
    found: dict[str, JsonObject] = {}
    for metric in ANSWERED:
        for name, together in (("interval", False), ("together", True)):
            mine = [one for one in held if one.point.together == together]
            if len(_logs(mine, metric)) >= FEWEST:
                found.setdefault(metric, {})[name] = beyond(mine, metric)
    return found


def beyond(held: Sequence[Held], metric: str) -> list[float]:
    """What the ends of the interval need beyond the steps' own, so that a tenth of the runs is beyond each."""
    found = np.array(_logs(held, metric))
    low, high = -np.quantile(found[:, 0], 0.1), np.quantile(found[:, 0], 0.9)
    own = np.median(found[:, 1]), np.median(found[:, 2])
    return [round(float(np.sqrt(max(max(end, 0.0) ** 2 - width**2, 0.0))), 3)
            for end, width in zip((low, high), own, strict=True)]  # fmt: skip


def errors_of(
    seen: Sequence[Held], held: Sequence[Held], ends: Mapping[str, JsonObject], left: set[str]
) -> Iterator[JsonObject]:
    """Figures by metric, source and device: of the fit, and of the fit without the source (where others are left)."""
    places = list(dict.fromkeys((one.point.family[0], one.point.device) for one in seen))
    for metric in ANSWERED:
        for source, device in places:
            whole, rest = (_logs([one for one in side if (one.point.family[0], one.point.device) == (source, device)],
                                 metric) for side in (seen, held))  # fmt: skip
            if len(whole) < FEWEST:
                continue
            inside, widths = _intervals(held, ends, metric, (source, device))
            yield {
                "metric": metric, "engine": seen[0].point.engine, "source": source, "device": device,
                "rows": len(whole), "median": _median(whole), "left_out": _median(rest) if source in left else None,
                "bias": round(float(np.expm1(-np.median([error for error, *_ in rest]))), 4),
                "covered": round(sum(inside) / len(inside), 4), "width": round(float(np.exp(np.median(widths))), 3),
            }  # fmt: skip


def _intervals(
    held: Sequence[Held], ends: Mapping[str, JsonObject], metric: str, place: tuple[str, str]
) -> tuple[list[bool], list[float]]:
    """Of the runs of a source on a device: whether the interval holds what was measured, and its width in log."""
    inside, widths = [], []
    for one in held:
        if (one.point.family[0], one.point.device) == place:
            below, above = loaded_error(ends, metric, one.point.together)
            for error, low, high in _logs([one], metric):
                inside.append(-hypot(low, below) <= error <= hypot(high, above))
                widths.append(hypot(low, below) + hypot(high, above))
    return inside, widths


def _median(logs: Sequence[tuple[float, float, float]]) -> float:
    """Median error as a share of what was measured."""
    return round(float(np.median([abs(np.expm1(-error)) for error, *_ in logs])), 4)
