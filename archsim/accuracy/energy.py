"""Measured power: watts of all devices and joules per output token of a server with so many requests running."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from archsim.accuracy.files import Table
from archsim.accuracy.question import Run, device_of, engine_of, experts_over, model_of, real, text, weights_of, whole
from archsim.accuracy.runs import RowPrediction
from archsim.accuracy.serving import validate_points
from archsim.accuracy.times import Prediction, RunTimes
from archsim.accuracy.validation import Validation
from archsim.base.errors import UnknownName, UsageError
from archsim.base.json_types import JsonMapping
from archsim.cost.served_cost import ServedWork
from archsim.counts.formats import choose_formats
from archsim.energy.activity import Activity
from archsim.energy.power import PowerFits, power_model
from archsim.engines.names import engine_and_version
from archsim.predict.energy import energy_use, request_activity
from archsim.serving.steady_state import SteadyState, served_load, steady_state
from archsim.spec.parallelism import Plan, check_degrees
from archsim.timing.step_pricer import StepPricer, engine_overheads

ANSWERED = ("power_w", "j_per_output_token")

PROMPT_TOKENS = {"lm-arena-chat": 300, "chat": 250, "gpqa": 250, "code": 200}
"""Prompts of the tasks of public measurements, whose files do not state them: an assumption."""

USUAL_PROMPT = 300
"""Prompt tokens of any other task."""


class PowerPoint(NamedTuple):
    """A row's steady state, and what its devices do for a request."""

    run: Run
    state: SteadyState
    work: ServedWork
    active: Activity


def validate_table(table: Table, times: RunTimes, fits: PowerFits | None = None) -> Validation:
    """Both metrics of every row predicted or refused with a reason. fits: the constants of power, where not archsim's
    own.
    """

    def predict(row: int, asked: JsonMapping, times: RunTimes) -> Iterator[RowPrediction | str]:
        yield from predict_rows(row, asked, times, fits)

    return validate_points(table, times, ANSWERED, predict)


def predict_rows(
    row: int, asked: JsonMapping, times: RunTimes, fits: PowerFits | None = None
) -> Iterator[RowPrediction | str]:
    """Watts of all devices, and joules per output token. Raises ArchsimError where there is neither."""
    point = power_point(asked, times)
    run = point.run
    model = power_model(device_of(run.device), *engine_and_version(run.engine), fits=fits)
    use = energy_use(point.work, point.active, model)
    most = model.tdp_w * use.devices
    watts, joules = use.watts.times(use.devices), use.joules
    ideal = most * point.state.tpot.ideal / point.state.running
    labels = {"device": run.device, "engine": run.engine, "model": run.model}
    for metric, span, naive in zip(ANSWERED, (watts, joules), (most, ideal), strict=True):
        prediction = Prediction(span.expected, span.low, span.high, naive, use.evidence)
        yield RowPrediction(row, prediction, {"metric": metric, **labels}, run.notes)


def power_point(asked: JsonMapping, times: RunTimes) -> PowerPoint:
    """The steady state of a row. Raises UsageError where the load is not stated."""
    run, running = power_run(asked)
    assert run.isl is not None and run.osl is not None and run.batch is not None
    pricer = _pricer(replace(run, isl=None, osl=None, batch=None, notes=()), times)
    load = served_load(pricer, run.batch, run.isl, run.osl, running)
    state = steady_state(pricer, load)
    request = state.request
    work = ServedWork(run.devices, run.isl, run.osl, request.expected, request.low, request.high, state.utilisation)
    return PowerPoint(run, state, work, request_activity(pricer, load))


@lru_cache(maxsize=64)
def _pricer(run: Run, times: RunTimes) -> StepPricer:
    """The pricer of a run's model, device, formats, engine and plan."""
    spec, _ = model_of(run.model)
    plan = Plan(tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp, engine=engine_and_version(run.engine)[0])
    check_degrees(spec, plan)
    formats = choose_formats(spec, weights_of(run.model, run.weights), run.kv, engine=run.engine)
    overheads = engine_overheads(run.engine, times.store)
    return StepPricer.of(spec, device_of(run.device), formats, overheads, plan, store=times.store)


def power_run(row: JsonMapping) -> tuple[Run, float]:
    """A row of a table of power as a run, and how many requests run at a time on average."""
    engine, notes = engine_of(row.get("engine"), row.get("engine_version") or _version(row))
    running = real(row, "avg_batch") or real(row, "max_num_seqs")
    osl = real(row, "avg_output_len") or real(row, "osl")
    if not running or not osl:
        raise UsageError("a row of power needs avg_batch (or max_num_seqs) and avg_output_len (or osl)")
    task, isl = str(row.get("task") or ""), real(row, "avg_input_len") or real(row, "isl")
    if not isl:
        isl = PROMPT_TOKENS.get(task, USUAL_PROMPT)
        notes = (*notes, f"prompt lengths are not in the file: {isl} tokens are assumed for {task or 'a request'}")
    name = str(row.get("model") or "")
    devices = whole(row, "n_devices") or 1
    dp, pp = whole(row, "attention_dp") or whole(row, "dp") or 1, whole(row, "pp") or 1
    run = Run(
        model=name, device=str(row.get("device") or ""), devices=devices, tp=max(devices // (dp * pp), 1), pp=pp, dp=dp,
        ep=experts_over(name, whole(row, "ep") or 1), weights=_narrow(text(row, "weights"), name), engine=engine,
        isl=round(isl), osl=max(round(osl), 1), batch=max(round(running), 1), kv=text(row, "kv_dtype"), notes=notes,
    )  # fmt: skip
    return run, running


def _version(row: JsonMapping) -> str:
    """The version that stands with the engine's name."""
    try:
        return engine_and_version(str(row.get("engine") or ""))[1]
    except UnknownName:
        return ""


BLOCKS = {"qwen": "fp8_block", "deepseek-ai": "fp8_block"}
"""Publishers whose 8-bit checkpoints have scales by blocks of 128 x 128, as their config.json files say."""


def _narrow(weights: str | None, model: str) -> str | None:
    """The format that a row states; 16 bits are the checkpoint's own, and 8 bits those of its publisher."""
    if weights == "fp8":
        return BLOCKS.get(model.partition("/")[0].lower(), weights)
    return None if weights in ("bf16", "fp16") else weights
