"""Runs of one server under load: what the closed form of the steady state can answer of them, and why not the rest."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.accuracy.capacity import largest_batch
from archsim.accuracy.files import Table
from archsim.accuracy.placement import placed_run, require_weights
from archsim.accuracy.question import Run, engine_of, experts_over, text, whole
from archsim.accuracy.runs import METRICS, RowPrediction, regime
from archsim.accuracy.serving import validate_points
from archsim.accuracy.times import Prediction, RunTimes, Served, compose
from archsim.accuracy.validation import Validation
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping

ANSWERED = ("ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "output_tok_s")

SPREAD = 0.9
"""Mean of lengths that are uniform between 0.8 and 1 of the nominal."""

NARROW = {"fp4": "mxfp4"}
"""Formats as benchmarks call them -> the one that is meant."""


def validate_table(table: Table, times: RunTimes) -> Validation:
    """Every metric of every row predicted or refused with a reason."""
    return validate_points(table, times, ANSWERED, predict_rows)


def predict_rows(row: int, asked: JsonMapping, times: RunTimes) -> Iterator[RowPrediction | str]:
    """The prediction of each metric, or why there is none. Raises ArchsimError where there is none at all."""
    run = placed_run(run_of_load(asked))
    require_weights(run)
    assert run.batch is not None and run.isl is not None and run.osl is not None
    most = min(run.batch, largest_batch(run))
    state = times.served(run, run.batch, run.isl, run.osl, most)
    answers: dict[str, Prediction | None] = {
        "ttft_mean_ms": state.ttft and state.ttft.scaled(1e3), "tpot_mean_ms": state.tpot.scaled(1e3),
        "output_tok_s": _rate(state, most, run.osl), "ttft_p99_ms": None,
    }  # fmt: skip
    why = {
        "ttft_p99_ms": "a percentile: the closed form of the steady state has means alone",
        "ttft_mean_ms": state.why,
    }
    for metric in ANSWERED:
        span = answers[metric]
        if span is None:
            yield why.get(metric) or "no prediction"
            continue
        labels = {
            "metric": metric, "device": run.device, "engine": run.engine, "model": run.model, "bound": span.bound,
            "regime": regime(run, METRICS["tpot_ms"]),
        }  # fmt: skip
        yield RowPrediction(row, span, labels, run.notes)


def _rate(state: Served, running: int, answer: int) -> Prediction:
    """Output tokens a second: each request that runs takes its first token and then the others; where requests wait for
    room, others decode meanwhile.
    """
    if state.ttft is None:
        return state.tpot.inverse(running)
    return compose(lambda first, each: first + (answer - 1) * each, state.ttft, state.tpot).inverse(running * answer)


def run_of_load(row: JsonMapping) -> Run:
    """A row of a table of loaded runs. Raises UsageError for what no closed form answers."""
    if text(row, "disaggregated") == "yes":
        raise UsageError("prefill and decode on devices of their own are not modelled")
    if (text(row, "speculative") or "none") != "none":
        raise UsageError("speculative decoding is not modelled: how many drafts are accepted is not known")
    arrival = text(row, "arrival") or ""
    if not arrival.startswith("closed loop"):
        raise UsageError(f"requests that arrive {arrival or 'in no stated way'} are not in a steady state")
    batch, isl, osl = (whole(row, "concurrency"), *(_length(row, name) for name in ("isl", "osl")))
    if not (batch and isl and osl):
        raise UsageError("a run under load needs isl, osl and concurrency, each above 0")
    engine, notes = engine_of(row.get("engine"), row.get("engine_version"))
    tp, pp = (whole(row, name) or 1 for name in ("tp", "pp"))
    model, weights = str(row.get("model") or ""), text(row, "weights")
    ep = experts_over(model, whole(row, "ep") or 1)
    dp = 1
    if text(row, "dp_attention") == "yes" and ep > 1:
        tp, dp = 1, tp  # tp counts all devices of the attention's replicas
    return Run(
        model=model, device=str(row.get("device") or ""), tp=tp, pp=pp, dp=dp, ep=ep, engine=engine, notes=notes,
        devices=whole(row, "n_devices") or tp * pp * dp, weights=NARROW.get(weights or "", weights),
        kv=text(row, "kv_dtype"), batch=batch, isl=isl, osl=osl,
    )  # fmt: skip


def _length(row: JsonMapping, name: str) -> int:
    """Mean tokens of a prompt or an answer."""
    nominal = float(text(row, name) or 0)
    return round(nominal * (SPREAD if "0.8..1" in (text(row, "lengths") or "") else 1.0))
