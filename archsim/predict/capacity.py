"""The largest load that a server holds under a service level: a rate, or requests in flight."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, cast

from archsim.base.errors import AnswerNo, UsageError
from archsim.base.options import LoadOptions, RunArguments, ServerArguments
from archsim.base.ranges import parse_range
from archsim.predict import pools, simulation
from archsim.predict.served_engine import ServedEngine, TimesOfPools, UsualStep, longest_request, usual_request
from archsim.predict.simulation import RunRequest, Runs, Simulation
from archsim.serving.observe import Measured
from archsim.serving.offered_load import ROUNDS, OfferedLoad, offered_load
from archsim.serving.search import End, Found, climb, find_concurrency, find_rate, find_replicas
from archsim.serving.slo import Slo
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

Quantity = Literal["rate", "concurrency"]
SIZES = ("rate", "concurrency", "replicas", "ratio")
"""What `--find` finds."""


def simulated(
    model: Model, hardware: Hardware, load: LoadOptions, server: ServerArguments, run: RunArguments
) -> Simulation:
    """The answer to the options of `archsim simulate`, at the largest load where that is asked for. Raises UsageError,
    InvalidPlan, SpecError, and AnswerNo where the model does not fit or no load holds.
    """
    what = run.get("find")
    if what is None:
        return simulation.simulated(model, hardware, load, server, run)
    if what not in SIZES:
        raise UsageError(f"`--find` is {', '.join(SIZES[:-1])} or {SIZES[-1]}, not {what!r}")
    if what == "replicas":
        return fewest_replicas(model, hardware, load, server, run)
    if what == "ratio":
        return best_ratio(model, hardware, load, server, run)
    for name in ("rate", "concurrency"):
        if load.get(name) is not None:
            raise UsageError(f"leave out `--{name}`: `--find {what}` answers with the load")
    how, offered = simulation.run_request(run), load_to_find(load, what)
    usual = usual_request(offered.requests(how.seed, 0))
    return at_largest(pools.serve_fleet(model, hardware, simulation.server_request(server), usual), offered, how, what)


def load_to_find(load: LoadOptions, what: Quantity) -> OfferedLoad:
    """The load whose size will be found. Raises UsageError."""
    if load.get("trace") is None:
        return offered_load(**cast(LoadOptions, {**load, what: 1}))
    if what != "rate":
        raise UsageError("a trace says when requests arrive: `--find rate` finds how much faster it may run")
    return offered_load(**load)


def at_largest(served: ServedEngine, offered: OfferedLoad, how: RunRequest, what: Quantity) -> Simulation:
    """The answer of a server at the largest load that holds. Raises AnswerNo where none does."""
    requests = offered.requests(how.seed, 0)
    usual = usual_request(requests)
    prompt, answer = int(usual.input_len), int(usual.output_len)
    times = served.times(longest_request(requests))
    runs = Runs(served, how, times, _usual_steps(served, prompt, answer))
    found = find_load(runs, offered, what, prompt, answer)
    assert found.size is not None
    at_found = simulation.simulate_on(served, at_size(offered, what, found.size.value, how.first_wave), how)
    return replace(at_found, found=found)


MOST = 1024
"""Replicas that are tried at most, where nothing is said."""


def fewest_replicas(
    model: Model, hardware: Hardware, load: LoadOptions, asked: ServerArguments, run: RunArguments
) -> Simulation:
    """The smallest fleet that holds a load. Raises as `simulated`."""
    how, offered = simulation.run_request(run), offered_load(**load)
    if how.slo is None:
        raise UsageError("`--find replicas` needs a service level", hints=("give --slo ttft=0.5,tpot=0.03",))
    given = asked.get("replicas")
    most = MOST if given is None else max(parse_range(str(given), "replicas"))
    requests = offered.requests(how.seed, 0)
    usual = usual_request(requests)
    request = simulation.server_request(cast(ServerArguments, {**asked, "replicas": 1}))
    served = pools.serve_fleet(model, hardware, request, usual)
    prompt, answer = int(usual.input_len), int(usual.output_len)
    runs = Runs(served, how, served.times(longest_request(requests)), _usual_steps(served, prompt, answer))

    def measured(size: float, replication: int, end: End) -> Measured:
        return replace(runs, server=with_replicas(served, int(size))).measured(offered, replication, end)

    batch, rate = saturation(runs, prompt, answer)
    needed = (offered.concurrency or 1) / batch if offered.rate is None and offered.trace is None else (
        (offered.offered_rate or 1.0) / rate)  # fmt: skip
    replications = how.replications if offered.is_random else 1
    found = find_replicas(measured, how.slo, needed, most, replications, how.ends)
    if found.size is None:
        raise AnswerNo(f"{most:,} replicas do not meet the service level: {found.binding} misses its target")
    at_found = simulation.simulate_on(with_replicas(served, int(found.size.value)), offered, how)
    return replace(at_found, found=found)


def best_ratio(
    model: Model, hardware: Hardware, load: LoadOptions, asked: ServerArguments, run: RunArguments
) -> Simulation:
    """How the devices of `--disaggregate` are best divided: the ratio with the largest rate. Raises as `simulated`."""
    if asked.get("disaggregate") is None:
        raise UsageError("`--find ratio` divides the devices of two pools", hints=("give --disaggregate 1:7 for 8",))
    if any(load.get(name) is not None for name in ("rate", "concurrency", "trace")):
        raise UsageError("leave out the load: `--find ratio` answers with the ratio that holds the largest rate")
    how = simulation.run_request(run)
    offered = offered_load(**cast(LoadOptions, {**load, "rate": 1}))
    requests = offered.requests(how.seed, 0)
    usual = usual_request(requests)
    served = pools.serve_fleet(model, hardware, simulation.server_request(asked), usual)
    prompt, answer = int(usual.input_len), int(usual.output_len)
    runs = Runs(served, how, served.times(longest_request(requests)), _usual_steps(served, prompt, answer))
    ratios = pools.ratios_of(served)
    once = replace(how, replications=1, ends=False)

    def runs_at(place: int, how: RunRequest) -> Runs:
        return replace(runs, how=how, server=pools.with_ratio(served, ratios[place]))

    def rate_at(place: int) -> float:
        try:
            size = find_load(runs_at(place, once), offered, "rate", prompt, answer).size
        except AnswerNo:
            return 0.0
        return 0.0 if size is None else size.value

    guess = max(range(len(ratios)), key=lambda place: fleet_saturation(runs_at(place, how), prompt, answer)[1])
    best, rates = climb(rate_at, guess, len(ratios))
    chosen = runs_at(best, how)
    found = find_load(chosen, offered, "rate", prompt, answer)
    assert found.size is not None
    at_found = simulation.simulate_on(chosen.server, at_size(offered, "rate", found.size.value, how.first_wave), how)
    tried = {"{}:{}".format(*ratios[place]): rate for place, rate in sorted(rates.items())}
    return replace(at_found, found=replace(found, ratio="{}:{}".format(*ratios[best]), ratios=tried))


def with_replicas(served: ServedEngine, replicas: int) -> ServedEngine:
    """The same server so many times."""
    return replace(served, fleet=replace(served.fleet, replicas=replicas))


def _usual_steps(served: ServedEngine, prompt: int, answer: int) -> UsualStep:
    """Steps of a replica that is half full."""
    batch = max(1, min(served.policy.max_seqs, served.kv_tokens // (prompt + answer)))
    return served.usual_steps(batch / 2, prompt, answer)


def find_load(runs: Runs, load: OfferedLoad, what: Quantity, prompt: int, answer: int) -> Found:
    """The largest rate or number of requests in flight. prompt, answer: tokens of a usual request. Raises AnswerNo
    where not even the smallest holds, and UsageError without a service level.
    """
    slo = runs.how.slo
    if slo is None:
        raise UsageError(f"`--find {what}` needs a service level", hints=("give --slo ttft=0.5,tpot=0.03",))

    def run(size: float, replication: int, end: End) -> Measured:
        return runs.measured(at_size(load, what, size, runs.how.first_wave), replication, end)

    batch, rate = fleet_saturation(runs, prompt, answer)
    replications = runs.how.replications if load.is_random else 1
    found = (
        find_rate(run, slo, rate, replications, runs.how.ends) if what == "rate"
        else find_concurrency(run, slo, batch, replications, runs.how.ends)
    )  # fmt: skip
    if found.size is None:
        raise AnswerNo(_no_load(found, slo, what))
    return found


def at_size(load: OfferedLoad, what: Quantity, size: float, first_wave: bool) -> OfferedLoad:
    """The load at a rate, or with so many requests in flight: at least ten requests for each, and those of a first
    wave that is not measured.
    """
    if what == "rate":
        return load.at_rate(size)
    count = max(load.count or 0, ROUNDS * int(size)) + (0 if first_wave else int(size))
    return replace(load, rate=None, concurrency=int(size), count=count)


def fleet_saturation(runs: Runs, prompt: int, answer: int) -> tuple[float, float]:
    """The same of all replicas together; of two pools, that of the one which is full first."""
    server, fleet = runs.server, runs.server.fleet
    if server.decode is None or not isinstance(runs.times, TimesOfPools):
        batch, rate = saturation(runs, prompt, answer)
        return batch * fleet.replicas, rate * fleet.replicas
    second = server.decode.server
    chunk = min(prompt, server.policy.budget)
    prompts = fleet.replicas * chunk / (prompt * runs.times.first.seconds(0, 0, ((chunk, 0),)))
    batch = max(1, min(second.policy.max_seqs, second.kv_tokens // (prompt + answer)))
    step = runs.times.then.seconds(batch, batch * (prompt + answer // 2), ())
    return batch * fleet.decode_replicas, min(prompts, fleet.decode_replicas * batch / (answer * step))


def saturation(runs: Runs, prompt: int, answer: int) -> tuple[float, float]:
    """Requests that run at once, and requests per second, when a replica never idles: each costs its prompt and its
    share of the decode steps of a full batch.
    """
    server, seconds = runs.server, runs.times.seconds
    batch = max(1, min(server.policy.max_seqs, server.kv_tokens // (prompt + answer)))
    decode = seconds(batch, batch * (prompt + answer // 2), ())
    chunk = min(prompt, server.policy.budget)
    prefill = seconds(0, 0, ((chunk, 0),)) * prompt / chunk
    return batch, 1 / (prefill + answer * decode / batch)


def _no_load(found: Found, slo: Slo, what: Quantity) -> str:
    """Why nothing is found, in words."""
    least = min(found.tried, key=lambda tried: tried.size)
    name, ratio = least.ratios[0]
    metric, _, level = name.partition("_p")
    size = (
        f"{least.size:.2g} requests/s"
        if what == "rate"
        else f"{least.size:g} request{'s' * (least.size != 1)} in flight"
    )
    target = slo.targets[metric]
    return (
        f"no {what} meets the service level: with {size}, p{level} of {metric.upper()} is {ratio * target:.3g} s, "
        f"and the target is {target:g} s"
    )
