"""Runs of one server under load, simulated request by request at the load that a row states."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from archsim.accuracy.launch_flags import settings_of_flags
from archsim.accuracy.loaded_errors import kind_of, known_errors, loaded_error, waited_shares
from archsim.accuracy.question import Run, device_of, model_of, weights_of
from archsim.accuracy.times import Prediction, joined
from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.options import LoadOptions
from archsim.base.units import parse_quantity
from archsim.engines.names import choose_engine
from archsim.engines.overhead import FrontWork, front_work_of
from archsim.memory.engine_memory import Settings
from archsim.predict.front_end import front_end
from archsim.predict.pools import serve_fleet, with_drafting
from archsim.predict.served_engine import (
    Pools,
    ServedEngine,
    ServerRequest,
    TimesOfPools,
    at_end,
    at_light,
    evidence_of,
    longest_request,
    tables_of,
    usual_request,
)  # fmt: skip
from archsim.serving.acceptance import Drafting
from archsim.serving.fleet import FleetPlan
from archsim.serving.load import Requests
from archsim.serving.observe import Measured, measure
from archsim.serving.offered_load import offered_load
from archsim.serving.record import RunRecord
from archsim.serving.scheduler import Chunk
from archsim.serving.step_times import StepTimes
from archsim.spec.model import Model
from archsim.timing.calibration import Store
from archsim.timing.duration import Evidence, weakest

NO_FRONT = FrontWork(0.0)
"""Requests reach the engine at once."""

REMEMBERED = 2
"""Servers whose tables of steps are kept."""


def printed_figures(measured: Measured) -> dict[str, float]:
    """What a benchmark prints of a whole run: milliseconds, and output tokens per second."""
    first, each = measured.latencies["ttft_s"], measured.latencies.get("tpot_s", {})
    found = {f"ttft_{name}_ms": 1e3 * first[name] for name in ("mean", "p50", "p99")}
    found |= {f"tpot_{name}_ms": 1e3 * each[name] for name in ("mean", "p50") if each}
    return found | {"output_tok_s": measured.whole_run["output_tokens_per_s"]}


class Figures(NamedTuple):
    """What is predicted of one run. spans: by metric, with the ends of its steps alone. waited: as of
    `waited_shares`, expected.
    """

    spans: Mapping[str, Prediction]
    waited: Mapping[str, float]


@dataclass(slots=True)
class LongerStart:
    """Times of a run whose first step with a prompt takes `left_s` longer."""

    times: StepTimes
    left_s: float

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        seconds = self.times.seconds(decodes, context, chunks)
        if chunks:
            seconds, self.left_s = seconds + self.left_s, 0.0
        return seconds


def with_longer_start(times: StepTimes, left_s: float) -> StepTimes:
    """The same with a longer first step; of two pools, of the first."""
    if isinstance(times, TimesOfPools):
        return TimesOfPools(LongerStart(times.first, left_s), times.then)
    return LongerStart(times, left_s)


@dataclass(frozen=True, slots=True)
class LoadedServer:
    """One server for loads of up to some length of a request, with its table of steps."""

    engine: ServedEngine
    times: StepTimes

    def run(self, requests: Requests, front: FrontWork, times: StepTimes | None = None) -> RunRecord:
        """One run behind a front end. times: of its steps; None: expected. Raises UsageError where nothing can run."""
        times = times or self.times
        if front.first_use_s and self.engine.plan.dp == 1:
            times = with_longer_start(times, front.first_use_s)
        way = front_end(front, pools=self.engine.decode is not None)
        record = replace(self.engine, front=way).run(requests, times)
        if not record.finished:
            raise UsageError(f"no request can run: {next(iter(record.refused.values()))}")
        return record

    def forget_classes(self) -> None:
        """As of `StepTable`, of all its tables."""
        for table in tables_of(self.times):
            table.forget_classes()

    def waited(self, requests: Requests, front: FrontWork, seen: Measured) -> Mapping[str, float]:
        """As of `waited_shares`, of what was seen of a run behind a front end."""
        prompt = sum(requests.input_len) / len(requests)
        pools_s = 0.0 if self.engine.decode is None else front.pools_s
        return waited_shares(seen, front.request_s + front.token_s * prompt + pools_s)

    def figures(self, requests: Requests, front: FrontWork) -> Figures:
        """The answer by metric: expected, at both ends of the step times, and with steps at the speed of light alone,
        without the front end and the first step that runs show: those are no bound.
        """
        record = self.run(requests, front)
        usual = usual_request(requests)
        running = record.running_s / record.busy_s if record.busy_s else 1.0
        pools = (self.engine, self.engine if self.engine.decode is None else self.engine.decode.server)
        steps, then = (one.usual_steps(running, int(usual.input_len), int(usual.output_len)) for one in pools)
        ends = (at_end(self.times, steps, -1, then), at_end(self.times, steps, 1, then))
        light = self.run(requests, NO_FRONT, at_light(self.times, steps, then))
        runs = [record, *(self.run(requests, front, times) for times in ends), light]
        seen = [measure(run) for run in runs]
        found = [printed_figures(one) for one in seen]
        evidence = weakest([evidence_of(steps), evidence_of(then)])
        spans = {name: _span([one[name] for one in found], evidence) for name, value in found[0].items() if value > 0}
        return Figures(spans, self.waited(requests, front, seen[0]))


def _span(values: Sequence[float], evidence: Evidence) -> Prediction:
    """A figure with those at both ends and at the speed of light."""
    expected, one, other, light = values
    return Prediction(expected, min(expected, one, other), max(expected, one, other), light, evidence)


@dataclass(frozen=True)
class LoadedServers:
    """Servers that rows are run on, priced with one store. Rows of one server share its steps."""

    store: Store
    kept: dict[tuple[object, ...], LoadedServer] = field(default_factory=dict)
    answers: dict[tuple[object, ...], Mapping[str, Prediction]] = field(default_factory=dict)

    def expected(self, run: Run, load: LoadOptions, settings: Settings, drafting: Drafting) -> dict[str, float]:
        """What is expected of a load by metric, with drafts. Raises as `figures`."""
        server, requests = self.ready(run, load, settings, drafting)
        return printed_figures(measure(server.run(requests, self._front(server))))

    def _front(self, server: LoadedServer) -> FrontWork:
        """What runs under load say of the way to its engine."""
        engine = server.engine
        own = self.store.engines.get(engine.engine.name, {})
        front = front_work_of(own, engine.pricer.overheads.first_token, engine.hardware.vendor)
        return front.of(engine.formats.name, engine.engine.version, pools=engine.decode is not None)

    def figures(
        self, run: Run, load: LoadOptions, settings: Settings, drafting: Drafting | None = None
    ) -> Mapping[str, Prediction]:
        """What is predicted of a load by metric. run: its server; drafting: of it. Raises ArchsimError where it cannot
        be simulated.
        """
        asked = (*load_key(run, load, settings), drafting)
        if asked not in self.answers:
            server, requests = self.ready(run, load, settings, drafting)
            found = server.figures(requests, self._front(server))
            known, pools = known_errors(self.store.engines), run.decode is not None
            self.answers[asked] = {
                metric: joined(span, *loaded_error(
                    known, metric, kind_of(metric, found.waited, drafts=drafting is not None, pools=pools)))
                for metric, span in found.spans.items()
            }  # fmt: skip
        return self.answers[asked]

    def ready(
        self, run: Run, load: LoadOptions, settings: Settings, drafting: Drafting | None = None
    ) -> tuple[LoadedServer, Requests]:
        """The server of a load, and the load's requests; a server whose steps reach far enough is used again, whatever
        its drafts are accepted.
        """
        requests = offered_load(**load).requests()
        longest = 1 << (longest_request(requests) - 1).bit_length()
        key = (server_key(run), settings, longest, str(drafting))
        if key not in self.kept:
            while len(self.kept) >= REMEMBERED:
                del self.kept[next(iter(self.kept))]
            engine = self._serve(run, settings, requests, drafting)
            self.kept[key] = LoadedServer(engine, engine.times(longest))
        found = self.kept[key]
        return replace(found, engine=with_drafting(found.engine, drafting)), requests

    def _serve(self, run: Run, settings: Settings, requests: Requests, drafting: Drafting | None) -> ServedEngine:
        """The server of a run. It did run: where an engine starts only if its cache holds the longest request that it
        takes, that is its room where the memory plan leaves less. Of two pools it is not known whose cache is too
        small: where no share of memory is stated, and the engine's own does not hold both, it was a larger one.
        """
        model, hardware = model_of(run.model)[0], device_of(run.device)
        asked = replace(_request(run, settings, self.store), drafting=drafting)
        usual = usual_request(requests)
        held = settings.max_model_len or started_length(run.engine, model) or longest_request(requests)
        try:
            found = serve_fleet(model, hardware, asked, usual)
            starts = found.kv_tokens >= held or not found.engine.rules.scheduler.holds_longest
            if run.decode is not None or starts:
                return found
        except AnswerNo:
            if asked.pools is not None:
                answers = asked.pools.decode_settings or settings
                larger = (with_larger_share(settings), with_larger_share(answers))
                if larger == (settings, answers):
                    raise
                pools = replace(asked.pools, decode_settings=larger[1])
                return serve_fleet(model, hardware, replace(asked, settings=larger[0], pools=pools), usual)
        return serve_fleet(model, hardware, replace(asked, kv_tokens=held), usual)


LARGER_SHARE = 0.9
"""Share of a device's memory of a server that ran with more than its engine chooses itself and does not say with how
much: the default of vLLM and TensorRT-LLM.
"""


def with_larger_share(settings: Settings) -> Settings:
    """The same with `LARGER_SHARE` where no share of memory is stated."""
    if settings.gpu_memory_utilization or settings.mem_fraction_static:
        return settings
    return replace(settings, gpu_memory_utilization=LARGER_SHARE)


def started_length(engine: str, model: Model) -> int:
    """The longest request that an engine takes where nothing limits it; 0 where that is the workload's."""
    context = choose_engine(engine).rules.scheduler.context
    return context if isinstance(context, int) else (model.max_context or 0 if context == "model" else 0)


def load_key(run: Run, load: LoadOptions, settings: Settings) -> tuple[object, ...]:
    """Equal for rows that ask the same."""
    return server_key(run), settings, tuple(sorted(load.items()))


def server_key(run: Run) -> Run:
    """The run without its load."""
    decode = None if run.decode is None else server_key(run.decode)
    return replace(run, batch=None, isl=None, osl=None, notes=(), decode=decode)


def _request(run: Run, settings: Settings, store: Store) -> ServerRequest:
    """The server of a run as `simulate` is asked for it."""
    asked = ServerRequest(
        devices=run.tp * run.pp * run.dp, tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp,
        weights=weights_of(run.model, run.weights), kv_cache_dtype=run.kv, engine=run.engine, settings=settings,
        chunked_prefill=run.cut, store=store,
    )  # fmt: skip
    if run.decode is None:
        return asked
    return replace(asked, fleet=fleet_of(run, run.decode), pools=pools_of(run, run.decode))


def fleet_of(prefill: Run, decode: Run) -> FleetPlan:
    """The replicas of both pools."""
    return FleetPlan(replicas=prefill.workers * prefill.replicas, decode_replicas=decode.workers * decode.replicas)


def pools_of(prefill: Run, decode: Run) -> Pools:
    """How those that decode differ. Where no fabric of the device joins all of them, caches travel as fast as the host
    is reached: no adapter of a network is faster.
    """
    hardware, link = device_of(prefill.device), None
    try:
        hardware.link(sum(run.workers * run.devices for run in (prefill, decode)))
    except InvalidPlan:
        link = None if hardware.host is None else float(parse_quantity(hardware.host.per_direction, "B/s"))
    told = settings_of_flags(decode.engine.partition("@")[0], decode.command)
    plan = {"devices": decode.tp * decode.pp * decode.dp, **decode.degrees}
    return Pools(decode_plan=plan, decode_settings=told, link=link)
