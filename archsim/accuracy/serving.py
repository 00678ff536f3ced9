"""Serving points: TPOT and TTFT of requests that are always in flight."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

from archsim.accuracy.capacity import largest_batch
from archsim.accuracy.files import Table
from archsim.accuracy.placement import placed_run, require_weights
from archsim.accuracy.public_sweep import as_launched, day_of, is_of_sweep
from archsim.accuracy.question import Run, engine_of, experts_over, reason_of, text, whole
from archsim.accuracy.rows import Refused
from archsim.accuracy.runs import METRICS, RowPrediction, columns, regime
from archsim.accuracy.times import RunTimes
from archsim.accuracy.validation import Validation
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping
from archsim.base.progress import counted

ANSWERED = ("tpot_ms", "ttft_ms")
DEGREES = ("tp_size", "pp_size", "attention_dp_size", "moe_ep_size")


def validate_table(table: Table, times: RunTimes) -> Validation:
    """Both metrics of every row predicted or refused with a reason."""
    return validate_points(table, times, ANSWERED, predict_rows)


def validate_points(
    table: Table, times: RunTimes, metrics: tuple[str, ...],
    predict: Callable[[int, JsonMapping, RunTimes], Iterator[RowPrediction | str]],
    alike: Callable[[JsonMapping], Hashable] | None = None,
) -> Validation:  # fmt: skip
    """Every metric of every row of a table of measured loads. predict: the predictions of a row in the order of
    `metrics`, each or the reason why there is none. alike: equal for rows that are predicted one after another, since
    they share work; None: in the order of the file.
    """
    answers: dict[int, list[RowPrediction | str]] = {}
    for row in counted(in_order(table, alike), f"rows of {table.name}"):
        try:
            answers[row] = list(predict(row, table.question(row), times))
        except (ArchsimError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            answers[row] = [reason_of(error)] * len(metrics)
    found: list[RowPrediction] = []
    refused: list[Refused] = []
    for row in range(len(table)):
        for metric, answer in zip(metrics, answers[row], strict=True):
            if isinstance(answer, RowPrediction):
                found.append(answer)
            else:
                refused.append(Refused(table.ids[row], metric, answer))
    return Validation(
        kind=table.kind, rows=columns(table, found), refused=tuple(refused), files=(table.name,),
        notes=tuple(dict.fromkeys(note for asked in found for note in asked.notes)),
    )  # fmt: skip


def in_order(table: Table, alike: Callable[[JsonMapping], Hashable] | None) -> Sequence[int]:
    """The rows of a table, those that are alike next to each other."""
    if alike is None:
        return range(len(table))
    groups: dict[Hashable, list[int]] = {}
    for row in range(len(table)):
        groups.setdefault(alike(table.question(row)), []).append(row)
    return [row for rows in groups.values() for row in rows]


def predict_rows(row: int, asked: JsonMapping, times: RunTimes) -> Iterator[RowPrediction | str]:
    """The prediction of each metric, or why there is none. Raises ArchsimError where there is neither."""
    run = placed_run(point_of(asked))
    require_weights(run)
    assert run.batch is not None and run.isl is not None and run.osl is not None
    state = times.served(run, run.batch, run.isl, run.osl, min(run.batch, largest_batch(run)))
    counted = text(asked, "parallel_suspect") not in ("1", "1.0", "true", "True")
    for metric, span in zip(ANSWERED, (state.tpot, state.ttft), strict=True):
        if span is None:
            yield state.why or "no prediction"
            continue
        labels = {
            "metric": metric, "device": run.device, "engine": run.engine, "model": run.model, "bound": span.bound,
            "regime": regime(run, METRICS["tpot_ms"]),
        }  # fmt: skip
        yield RowPrediction(row, span.scaled(METRICS[metric].unit), labels, run.notes, counted)


def point_of(row: JsonMapping) -> Run:
    """A row of a serving table. Raises UsageError where the workload is not stated."""
    name, version = row.get("backend", row.get("engine")), row.get("backend_version", row.get("engine_version"))
    origin = text(row, "origin") or ""
    isl, osl = whole(row, "isl"), whole(row, "osl")
    of_sweep = is_of_sweep(isl or 0, osl or 0, origin)
    engine, notes = engine_of(name, version, day_of(str(name), text(row, "measured") or "") if of_sweep else "")
    tp, pp, dp, ep = (whole(row, name) or 1 for name in DEGREES)
    model = str(row.get("model_path") or row.get("model") or "")
    ep = experts_over(model, ep)
    devices = pp * tp * dp if whole(row, "attention_dp_size") else pp * max(tp, ep)
    each = whole(row, "batch_size")
    batch = whole(row, "concurrency") or (each * dp if each else None)
    if not (batch and isl and osl):
        raise UsageError("a serving point needs isl, osl, and concurrency or batch_size, each above 0")
    run = Run(
        model=model, batch=batch, isl=isl, osl=osl, device=str(row.get("system") or row.get("device") or ""),
        weights=weights_of(row), engine=engine, kv=text(row, "kv_dtype"), devices=devices, tp=tp, pp=pp, dp=dp, ep=ep,
        notes=notes, one_length=True,
    )  # fmt: skip
    return as_launched(run) if of_sweep else run


def weights_of(row: JsonMapping) -> str | None:
    """The weights' format: of the products, or of the experts alone where only those are narrow; None: the
    checkpoint's own.
    """
    products = text(row, "gemm_quant_mode") or text(row, "precision") or text(row, "weights_dtype")
    experts = text(row, "moe_quant_mode")
    sixteen = (None, "bf16", "fp16", "bfloat16", "float16")
    if products in sixteen and experts not in sixteen:
        return experts
    return products
