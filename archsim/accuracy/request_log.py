"""Logs of single requests, replayed on a server that options describe: TTFT and end-to-end time of each.

All requests of the log are the load, whatever share of them is reported: what one sees depends on the others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from archsim.accuracy.files import Table
from archsim.accuracy.question import number
from archsim.accuracy.rows import Refused
from archsim.accuracy.runs import RowPrediction, columns
from archsim.accuracy.times import Prediction
from archsim.accuracy.validation import Validation
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.predict.served_engine import (
    ScaledSteps,
    ServedEngine,
    ServerRequest,
    at_end,
    evidence_of,
    longest_request,
    serve,
    usual_request,
)  # fmt: skip
from archsim.serving.load import Requests
from archsim.serving.record import RunRecord
from archsim.serving.trace_file import LATEST, LONGEST
from archsim.spec.catalog import is_known
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

ANSWERED = ("ttft_ms", "e2e_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedServer:
    """The server that wrote a log."""

    model: Model
    hardware: Hardware
    request: ServerRequest


ServerOf = Callable[[JsonMapping], LoggedServer | None]
"""The server of a log, by what its columns `model`, `device`, `engine` and `tp` say; None where that is not enough."""

SERVER: Mapping[str, Literal["models", "hw", "engines"]] = {"model": "models", "device": "hw", "engine": "engines"}
"""Column of a log that says something of its server -> the catalog in which that stands."""


def validate_log(table: Table, server: ServerOf | None, limit: int | None = None) -> Validation:
    """Both metrics of every request predicted or refused with a reason. limit: requests that are reported at most.
    Raises UsageError where no server is given, and what `simulate` raises for one that cannot run.
    """
    said = server_columns(table)
    logged = server(said) if server is not None else None
    if logged is None:
        lacks = " ".join(word for name, word in (("model", "--model M"), ("device", "--hw HW")) if name not in said)
        raise UsageError(
            f"{table.name} is a log of requests: say what served them",
            hints=(f"add {lacks}, and --engine, --tp, --max-num-seqs, ... as it was run",),
        )
    rows, refused = _rows(table)
    if not rows:
        raise UsageError(f"{table.name} has no request with a time, a prompt and an answer")
    requests = Requests(
        arrival_s=array("d", (time for _, time, _, _ in rows)), input_len=array("q", (i for _, _, i, _ in rows)),
        output_len=array("q", (o for _, _, _, o in rows)),
    )  # fmt: skip
    served = serve(logged.model, logged.hardware, logged.request, usual_request(requests))
    found, never = _predictions(served, requests, [row for row, *_ in rows])
    refused |= never
    kept = set(table.sample(limit).ids)
    return Validation(
        kind="requests", files=(table.name,),
        rows=columns(table, [one for one in found if table.ids[one.row] in kept]),
        refused=tuple(Refused(table.ids[row], metric, why) for row, why in sorted(refused.items())
                      for metric in ANSWERED if table.ids[row] in kept),
        notes=tuple(note.text for note in served.assumptions),
    )  # fmt: skip


def server_columns(table: Table) -> JsonMapping:
    """What all requests of a log say of the server alike, as far as catalogs know it."""
    columns = {name: set(table.questions.get(name, ())) - {None, ""} for name in (*SERVER, "tp")}
    said = {name: str(next(iter(values))) for name, values in columns.items() if len(values) == 1}
    known = [name for name, kind in SERVER.items() if name in said and is_known(kind, said[name])]
    found: JsonObject = {name: said[name] for name in known}
    if (degree := number(said.get("tp"))) and degree == int(degree) and degree > 0:
        found["tp"] = int(degree)
    return found


def _rows(table: Table) -> tuple[list[tuple[int, float, int, int]], dict[int, str]]:
    """Requests in order of arrival, as (row, seconds, prompt, answer), and why other rows are none."""
    rows, refused = [], {}
    for row in range(len(table)):
        time, prompt, answer = (number(table.questions[name][row]) for name in ("t_s", "input", "output"))
        if time is None or abs(time) > LATEST:
            refused[row] = "t_s is no time"
        elif any(n is None or not 1 <= n <= LONGEST or n != int(n) for n in (prompt, answer)):
            refused[row] = "input and output are not numbers of tokens"
        else:
            rows.append((row, time, int(prompt or 0), int(answer or 0)))
    rows.sort(key=lambda found: found[1])
    start = rows[0][1] if rows else 0.0
    return [(row, time - start, prompt, answer) for row, time, prompt, answer in rows], refused


def _predictions(
    served: ServedEngine, requests: Requests, rows: list[int]
) -> tuple[list[RowPrediction], dict[int, str]]:
    """Both metrics of each request, and why some can never run. The roofline's figures are those of the same schedule
    with steps at the speed of light.
    """
    times = served.times(longest_request(requests))
    expected = served.run(requests, times)
    busy = expected.running_s / expected.busy_s if expected.busy_s else 1.0
    usual = usual_request(requests)
    steps = served.usual_steps(busy, int(usual.input_len), int(usual.output_len))
    light = ScaledSteps(times, *steps.ideal)
    others = [served.run(requests, other) for other in (at_end(times, steps, -1), at_end(times, steps, 1), light)]
    evidence = evidence_of(steps)
    labels = {"device": served.hardware.id, "engine": served.engine.name, "model": served.model.name}
    found = []
    for place, row in enumerate(rows):
        if place in expected.refused:
            continue
        runs = [_latencies(run, place) for run in (expected, *others)]
        for metric in ANSWERED:
            value, low, high, naive = (run[metric] for run in runs)
            span = Prediction(value, min(value, low, high), max(value, low, high), naive, evidence)
            found.append(RowPrediction(row, span, {**labels, "metric": metric}, ()))
    return found, {rows[place]: why for place, why in expected.refused.items()}


def _latencies(run: RunRecord, place: int) -> Mapping[str, float]:
    """Milliseconds of one request."""
    return {
        "ttft_ms": 1e3 * (run.first_s[place] - run.arrival_s[place]),
        "e2e_ms": 1e3 * (run.last_s[place] - run.arrival_s[place]),
    }
