"""Simulated loads by the thousand: a scenario is the options of one `archsim simulate`, and gives one row.

A row depends on its scenario alone, so that any number of processes gives the same rows. Scenarios of one server share
its plan and the tables of its step times.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, product
from types import MappingProxyType
from typing import NamedTuple, cast

from archsim.base.data_class import dataclass as frozen
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.last_used import LastUsed
from archsim.base.options import LoadOptions, RunArguments, ServerArguments
from archsim.counts.workload import Workload
from archsim.importers.opening import open_model
from archsim.predict.capacity import at_largest, load_to_find
from archsim.predict.pools import serve_fleet
from archsim.predict.served_engine import REACHES, ServedEngine, Tables, usual_request
from archsim.predict.simulation import Simulation, run_request, server_request, simulate_on
from archsim.serving.load import Requests
from archsim.serving.offered_load import offered_load
from archsim.spec.load import load_hardware
from archsim.spec.parallelism import Plan

LOAD = frozenset(LoadOptions.__annotations__)
SERVER = frozenset(ServerArguments.__annotations__) - {"store"}
RUN = frozenset(RunArguments.__annotations__)
METRICS = ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s")
STATISTICS = ("mean", "p50", "p90", "p99")
RATES = ("requests_per_s", "output_tokens_per_s", "total_tokens_per_s", "output_tokens_per_s_per_device")
COLUMNS = (
    "key", "model", "hw", "devices", "tp", "pp", "ep", "dp", "engine", "version", "weights", "kv_cache", "options",
    "offered_rate_per_s", "offered_concurrency", "requests", "seed",
    *(f"{metric}_{statistic}" for metric in METRICS for statistic in STATISTICS),
    *(f"{metric}_mean_{end}" for metric in ("ttft_s", "tpot_s") for end in ("low", "high")), *RATES,
    "running", "waiting", "kv_occupancy", "preemptions", "prefix_hit_share", "stationary", "limited_by",
    "slo_attained", "goodput_requests_per_s", "slo_met",
    *(f"largest_{what}{end}" for what in ("rate_per_s", "concurrency") for end in ("", "_low", "_high")),
    "binding", "evidence", "error",
)  # fmt: skip
"""Columns of a row. options: those of the scenario, as JSON. largest: load that meets the service level, where it was
asked for, and what binds there; the other figures are then of this load. error: why there is no answer."""

TEXT = frozenset(
    {"key", "model", "hw", "engine", "version", "weights", "kv_cache", "options", "limited_by", "binding", "evidence",
     "error"}
)  # fmt: skip
TRUTH = frozenset({"stationary", "slo_met"})
WHOLE = frozenset({"devices", "tp", "pp", "ep", "dp", "offered_concurrency", "requests", "seed"})
"""Columns of words, of yes or no, and of whole numbers; all others are numbers, None where one does not exist."""

TASK_REQUESTS = 100_000
"""Requests that one task simulates, about: some seconds of work, the most that a kill loses of each process."""

DEFAULT_REQUESTS = 4000

MOST_SERVERS, MOST_TABLES = 4, 2
"""Servers that a process keeps, and those of which it keeps tables of steps, of some megabytes each."""


class Scenario(NamedTuple):
    """One simulation. options: of `archsim.simulate`, as JSON with sorted keys."""

    model: str
    hw: str
    options: str

    @classmethod
    def of(cls, model: str, hw: str, options: Mapping[str, object]) -> Scenario:
        """Raises UsageError for an option that `simulate` does not have."""
        given = {name: value for name, value in options.items() if value is not None}
        unknown = sorted(given.keys() - LOAD - SERVER - RUN)
        if unknown:
            raise UsageError(f"`simulate` has no option {unknown[0]!r}")
        if given.get("find") not in (None, "rate", "concurrency"):
            raise UsageError(f"a scenario finds a rate or a concurrency, not {given['find']!r}")
        return cls(model, hw, json.dumps(given, sort_keys=True))

    @property
    def key(self) -> str:
        """What the row is found by: a digest of the scenario."""
        return hashlib.sha256(json.dumps(self).encode()).hexdigest()[:16]

    @property
    def asked(self) -> JsonObject:
        """The options."""
        return cast(JsonObject, json.loads(self.options))

    @property
    def server(self) -> tuple[str, str, str]:
        """What scenarios of one server have in common."""
        own = {name: value for name, value in self.asked.items() if name in SERVER}
        return self.model, self.hw, json.dumps(own, sort_keys=True)

    @property
    def requests(self) -> int:
        """Requests that it simulates, about."""
        asked = self.asked
        each = asked.get("requests") or 10 * (asked.get("concurrency") or 0) or DEFAULT_REQUESTS
        ends = 0 if asked.get("expected_only") else 2
        return int(each) * (int(asked.get("replications", 5)) + ends)


def crossed(
    models: Sequence[str], hw: Sequence[str], axes: Mapping[str, Sequence[object]], options: Mapping[str, object]
) -> list[Scenario]:
    """Every combination, the last axis fastest."""
    names = list(axes)
    return [
        Scenario.of(model, device, {**options, **dict(zip(names, values, strict=True))})
        for model, device in product(models, hw)
        for values in product(*axes.values())
    ]


def parse_scenarios(
    lines: Iterable[str], place: str, usual: Mapping[str, object] = MappingProxyType({})
) -> Iterator[Scenario]:
    """Scenarios of a file with one JSON object a line: `model`, `hw` and options. usual: what a line has that does not
    say it. Raises UsageError with the line.
    """
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            own = json.loads(line)
            data = {**usual, **own} if isinstance(own, dict) else {}
            if not all(isinstance(data.get(name), str) for name in ("model", "hw")):
                raise UsageError("a scenario is an object with `model` and `hw`")
            yield Scenario.of(data.pop("model"), data.pop("hw"), data)
        except (ValueError, RecursionError, UsageError) as error:
            text = error.message if isinstance(error, UsageError) else "no JSON"
            raise UsageError(f"{place}, line {number}: {text}") from None


def by_server(scenarios: Sequence[Scenario]) -> list[Scenario]:
    """Scenarios of one server after another, those of one server by their lengths, all else as they come: tables of
    steps, which take longer to make than a short load to run, are made once, and few are there at a time.
    """
    alike: dict[tuple[str, str, str], dict[str, list[Scenario]]] = {}
    for scenario in scenarios:
        asked = scenario.asked
        lengths = str((asked.get("input_len"), asked.get("output_len")))
        alike.setdefault(scenario.server, {}).setdefault(lengths, []).append(scenario)
    return [scenario for group in alike.values() for some in group.values() for scenario in some]


def tasks(scenarios: Sequence[Scenario]) -> Iterator[tuple[Scenario, ...]]:
    """Neighbours of one server, cut into pieces of about `TASK_REQUESTS`."""
    for _, alike in groupby(scenarios, key=lambda scenario: scenario.server):
        piece: list[Scenario] = []
        for scenario in alike:
            if piece and sum(one.requests for one in piece) + scenario.requests > TASK_REQUESTS:
                yield tuple(piece)
                piece = []
            piece.append(scenario)
        yield tuple(piece)


@frozen(frozen=True, slots=True)
class ServerKey:
    """A server, and the usual request that its plan was chosen for."""

    server: tuple[str, str, str]
    prompt: float
    answer: float


@dataclass(slots=True)
class Servers:
    """The servers of one process: the last few, and fewer of them with their tables."""

    kept: LastUsed[ServerKey, ServedEngine] = field(default_factory=lambda: LastUsed(MOST_SERVERS))
    tables: LastUsed[tuple[tuple[str, str, str], Plan, str], Tables] = field(
        default_factory=lambda: LastUsed(MOST_TABLES)
    )

    def of(self, scenario: Scenario, requests: Requests) -> ServedEngine:
        """Raises what `serve` raises."""
        usual = usual_request(requests)
        key = ServerKey(scenario.server, float(usual.input_len), float(usual.output_len))
        served = self.kept.get(key, lambda: _served(scenario, usual))
        if served.decode is not None:
            second = self._with_tables(scenario, served.decode.server, "decode")
            served = replace(served, decode=replace(served.decode, server=second))
        return self._with_tables(scenario, served, "")

    def _with_tables(self, scenario: Scenario, served: ServedEngine, pool: str) -> ServedEngine:
        """A server with the tables of those like it."""
        return replace(served, tables=self.tables.get((scenario.server, served.plan, pool), lambda: LastUsed(REACHES)))

    def row(self, scenario: Scenario) -> JsonObject:
        """The row of a scenario; one without an answer says why."""
        empty: JsonObject = dict.fromkeys(COLUMNS)
        named = {"key": scenario.key, "model": scenario.model, "hw": scenario.hw, "options": scenario.options}
        try:
            asked = scenario.asked
            given = cast(LoadOptions, {n: v for n, v in asked.items() if n in LOAD})
            how = replace(run_request(cast(RunArguments, {n: v for n, v in asked.items() if n in RUN})), samples=0)
            what = asked.get("find")
            load = offered_load(**given) if what is None else load_to_find(given, what)
            first = load.requests(how.seed, 0)
            served = self.of(scenario, first)
            answer = simulate_on(served, load, how, first) if what is None else at_largest(served, load, how, what)
        except ArchsimError as error:
            return {**empty, **named, "error": error.message}
        return {**empty, **named, **figures(answer)}


def _served(scenario: Scenario, usual: Workload) -> ServedEngine:
    """The server of a scenario, for a usual request. Raises what `serve` raises."""
    spec, named = open_model(scenario.model)
    asked = cast(ServerArguments, json.loads(scenario.server[2]))
    if named.format_hint and not asked.get("weights"):
        asked["weights"] = named.format_hint
    return serve_fleet(spec, load_hardware(scenario.hw), server_request(asked), usual)


def figures(answer: Simulation) -> JsonObject:
    """The figures of an answer, by column."""
    data = answer.to_dict()
    plan, state, load, slo = data["plan"], data["state"], data["workload"], data["slo"] or {}

    def value(interval: JsonObject | None, end: str = "value") -> float | None:
        return None if interval is None else interval[end]

    metrics = data["metrics"]
    latencies = {f"{m}_{s}": value((metrics.get(m) or {}).get(s)) for m in METRICS for s in STATISTICS}
    ends = {
        f"{m}_mean_{end}": value((metrics.get(m) or {}).get("mean"), end)
        for m in ("ttft_s", "tpot_s") for end in ("low", "high")
    }  # fmt: skip
    return {
        "model": data["model"]["name"], "hw": data["hardware"]["name"], "devices": data["hardware"]["devices"],
        **{name: plan[name] for name in ("tp", "pp", "ep", "dp", "weights", "kv_cache", "engine")},
        "version": data["engine"]["version"], "offered_rate_per_s": load["rate_per_s"],
        "offered_concurrency": load["concurrency"], "requests": load["requests"], "seed": load["seed"],
        **latencies, **ends, **{name: value(data["throughput"][name]) for name in RATES},
        "running": state["running"]["mean"], "waiting": state["waiting"]["mean"],
        "kv_occupancy": state["kv_occupancy"]["mean"],
        **{n: state[n] for n in ("preemptions", "prefix_hit_share", "stationary", "limited_by")},
        "slo_attained": value(slo.get("attained")), "slo_met": slo.get("met"),
        "goodput_requests_per_s": value(slo.get("goodput_requests_per_s")), **_largest(data["found"] or {}),
        "evidence": data["evidence"], "error": None,
    }  # fmt: skip


def _largest(found: JsonObject) -> JsonObject:
    """The largest load that was found, and what binds there."""
    return {
        f"largest_{what}{'_' * bool(end)}{end}": (found.get(what) or {}).get(end or "value")
        for what in ("rate_per_s", "concurrency") for end in ("", "low", "high")
    } | {"binding": found.get("binding")}  # fmt: skip
