"""Runs of one server under load, each simulated at its own load; by the closed form of the steady state where an engine
cannot be simulated.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace

from archsim.accuracy.capacity import largest_batch
from archsim.accuracy.files import Table
from archsim.accuracy.launch_flags import cuts_prompts, run_engine, settings_of_flags, with_versions_of_flags
from archsim.accuracy.loaded_run import LoadedServers, server_key
from archsim.accuracy.placement import placed_run, require_weights
from archsim.accuracy.question import Run, experts_over, has_drafts, require_modelled, text, whole
from archsim.accuracy.runs import METRICS, RowPrediction, regime
from archsim.accuracy.serving import validate_points
from archsim.accuracy.stated_acceptance import StatedAcceptance, TpotMs
from archsim.accuracy.stated_load import in_flight, load_of, mean_length, requests_in_flight
from archsim.accuracy.sweep_limits import READ_AS, completed_flags, is_row_of_sweep, says_of
from archsim.accuracy.times import Prediction, RunTimes, Served, compose
from archsim.accuracy.validation import Validation
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping
from archsim.memory.engine_memory import Settings
from archsim.serving.acceptance import Drafting

ANSWERED = ("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p50_ms", "output_tok_s")

NARROW = {"fp4": "mxfp4"}
"""Formats as benchmarks call them -> the one that is meant."""


def validate_table(table: Table, times: RunTimes) -> Validation:
    """Every metric of every row predicted or refused with a reason."""
    table = with_versions_of_flags(table)
    servers, stated = LoadedServers(times.store), StatedAcceptance(table)

    def predict(row: int, asked: JsonMapping, times: RunTimes) -> Iterator[RowPrediction | str]:
        require_modelled(asked)
        require_load(asked, {name: float(column[row] or 0.0) for name, column in table.measured.items()})
        drafting = None if not has_drafts(asked) else drafting_of(row, asked, servers, stated)
        return predict_rows(row, asked, times, servers, drafting)

    return validate_points(table, times, ANSWERED, predict, same_server)


def same_server(asked: JsonMapping) -> Hashable:
    """Equal for rows of one server and requests of one mean length, whose tables of steps are made once."""
    try:
        run = run_of_load(asked, drafts=True)
        return server_key(run), settings_of(asked), run.isl, run.osl
    except (ArchsimError, ArithmeticError, LookupError, TypeError, ValueError):
        return None  # refused


FEWER = 0.3
"""Share of the requests in flight that a row states, below which its own figures contradict it."""


def require_load(row: JsonMapping, measured: Mapping[str, float]) -> None:
    """Raises UsageError where throughput and latencies of a row say by Little's law that far fewer requests were in
    flight than its load keeps there: what ran was another load.
    """
    load = load_of(row)
    kept = min(load.get("concurrency") or 0, load.get("requests") or 0)
    seen = requests_in_flight(measured, mean_length(row, "osl")) if kept else None
    if seen is not None and seen < FEWER * kept:
        raise UsageError(
            f"its own throughput and latencies mean {seen:.0f} requests in flight (Little's law), its load {kept:,}"
        )


def drafting_of(row: int, asked: JsonMapping, servers: LoadedServers, stated: StatedAcceptance) -> Drafting:
    """The drafts of a row, accepted as in the row that states it. Raises UsageError for that row."""

    def tpot_ms(asked: JsonMapping) -> TpotMs:
        run, load, settings = placed_run(run_of_load(asked, drafts=True)), load_of(asked), settings_of(asked)
        return lambda drafting: servers.expected(run, load, settings, drafting)["tpot_mean_ms"]

    if stated.states(row, asked):
        raise UsageError("its TPOT was used to infer how many drafts are accepted in the rows of its group")
    return stated.drafting(asked, tpot_ms)


def predict_rows(
    row: int, asked: JsonMapping, times: RunTimes, servers: LoadedServers, drafting: Drafting | None = None
) -> Iterator[RowPrediction | str]:
    """The prediction of each metric, or why there is none. Raises ArchsimError where there is none at all."""
    run = placed_run(run_of_load(asked, drafts=drafting is not None))
    require_weights(run)
    notes = run.notes
    try:
        answers: Mapping[str, Prediction | None] = servers.figures(run, load_of(asked), settings_of(asked), drafting)
        why: Mapping[str, str] = {}
    except ArchsimError as error:
        if drafting is not None or run.decode is not None:
            raise
        answers, why = steady_figures(run, asked, times, error.message)
        notes = (*notes, f"by the closed form of the steady state, not simulated: {error.message}")
    for metric in ANSWERED:
        span = answers.get(metric)
        if span is None:
            yield why.get(metric) or "no prediction"
            continue
        labels = {
            "metric": metric, "device": run.device, "engine": run.engine, "model": run.model, "bound": span.bound,
            "regime": regime(run, METRICS["tpot_ms"]), "source": text(asked, "source") or "",
            "definition": " and ".join(beside_of(run, drafting)),
        }  # fmt: skip
        yield RowPrediction(row, span, labels, notes)


def beside_of(run: Run, drafting: Drafting | None) -> tuple[str, ...]:
    """What a run has beside one server that makes a token a step."""
    return (*(("drafts",) if drafting else ()), *(("pools",) if run.decode else ()))


def steady_figures(
    run: Run, asked: JsonMapping, times: RunTimes, reason: str
) -> tuple[Mapping[str, Prediction | None], Mapping[str, str]]:
    """What the closed form of the steady state says of a run by metric, and why not the rest. reason: why it is not
    simulated. Raises UsageError for a load that is not steady.
    """
    arrival = text(asked, "arrival") or ""
    if not arrival.startswith("closed loop"):
        raise UsageError(
            f"{reason}; and requests that arrive {arrival or 'in no stated way'} are not in a steady state"
        )
    assert run.batch is not None and run.isl is not None and run.osl is not None
    most = min(run.batch, largest_batch(run))
    state = times.served(run, run.batch, run.isl, run.osl, most)
    answers: dict[str, Prediction | None] = {
        "ttft_mean_ms": state.ttft and state.ttft.scaled(1e3), "tpot_mean_ms": state.tpot.scaled(1e3),
        "tpot_p50_ms": state.tpot.scaled(1e3), "output_tok_s": _rate(state, most, run.osl),
    }  # fmt: skip
    percentile = "a percentile: the closed form of the steady state has means alone"
    why = {"ttft_p50_ms": percentile, "ttft_p99_ms": percentile, "ttft_mean_ms": state.why}
    return answers, why


def _rate(state: Served, running: int, answer: int) -> Prediction:
    """Output tokens a second: each request that runs takes its first token and then the others; where requests wait for
    room, others decode meanwhile.
    """
    if state.ttft is None:
        return state.tpot.inverse(running)
    return compose(lambda first, each: first + (answer - 1) * each, state.ttft, state.tpot).inverse(running * answer)


def run_of_load(row: JsonMapping, *, drafts: bool = False) -> Run:
    """The server of a row of a table of loaded runs; its mean load as of a steady state, where it is one. drafts: also
    of rows with speculative decoding. Raises UsageError for what is not predicted.
    """
    if has_drafts(row) and not drafts:
        raise UsageError("speculative decoding is not modelled: how many drafts are accepted is not known")
    isl, osl = (mean_length(row, name) for name in ("isl", "osl"))
    if not (isl and osl):
        raise UsageError("a run under load needs isl and osl, each above 0")
    engine, notes = run_engine(row)
    weights = text(row, "weights")
    notes = (*notes, READ_AS) if is_row_of_sweep(row) else notes
    run = Run(
        model=str(row.get("model") or ""), device=str(row.get("device") or ""), engine=engine, notes=notes,
        weights=NARROW.get(weights or "", weights), batch=in_flight(row), isl=isl, osl=osl,
        cut=cuts_prompts(engine.partition("@")[0], text(row, "flags") or ""),
    )  # fmt: skip
    if text(row, "disaggregated") == "yes":
        return replace(_pool_of(run, row, "prefill"), decode=_pool_of(run, row, "decode"))
    return _with_command(_with_plan(run, row, "", whole(row, "n_devices")), row, "")


def _with_plan(run: Run, row: JsonMapping, pool: str, devices: int | None) -> Run:
    """A run with the degrees that columns of this prefix state. devices: None: those of the degrees."""
    tp, pp = (whole(row, f"{pool}{name}") or 1 for name in ("tp", "pp"))
    ep = experts_over(run.model, tp if text(row, f"{pool}ep") == "yes" else whole(row, f"{pool}ep") or 1)
    dp = 1
    if text(row, "dp_attention") == "yes" and ep > 1:
        tp, dp = 1, tp  # tp counts all devices of the attention's replicas
    return replace(run, tp=tp, pp=pp, dp=dp, ep=ep, devices=devices or tp * pp * dp)


def _pool_of(run: Run, row: JsonMapping, pool: str) -> Run:
    """The workers of a pool, each on equally many devices. Raises UsageError where they are not stated so."""
    devices, workers = whole(row, f"{pool}_devices"), whole(row, f"{pool}_workers") or 1
    if not devices or devices % workers:
        raise UsageError(f"a disaggregated run needs {pool}_devices, above 0 and the same for each of {pool}_workers")
    return replace(_with_command(_with_plan(run, row, f"{pool}_", devices // workers), row, pool), workers=workers)


def _with_command(run: Run, row: JsonMapping, pool: str) -> Run:
    """A run with the flags of its server, and the cache's format: the row's own, or of the scripts of its sweep."""
    kv = text(row, "kv_dtype") or says_of(row, pool).get("kv")
    return replace(run, kv=kv, command=completed_flags(row, pool))


def settings_of(row: JsonMapping) -> Settings:
    """What the engine's flags say of its limits; of two pools, of the one for prompts."""
    pool = "prefill" if text(row, "disaggregated") == "yes" else ""
    return settings_of_flags(_engine_name(row), completed_flags(row, pool))


def _engine_name(row: JsonMapping) -> str:
    """The engine of a row, without its version."""
    return run_engine(row)[0].partition("@")[0]
