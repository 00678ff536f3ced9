"""Public runs of the models and devices of a report: how far off the estimates are, and where measured steps stand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.predict.estimate import Estimate, estimate
from archsim.render.figures.accuracy import BANDS, Point, predicted_measured
from archsim.render.figures.chart import Chart
from archsim.render.figures.roofline import MeasuredStep
from archsim.render.html.candidates import Study
from archsim.render.html.markup import Cell, chart_html, details, figures, name_of, paragraph, table
from archsim.render.page import plural
from archsim.spec.catalog import data_roots

if TYPE_CHECKING:
    from archsim.accuracy.files import Table
    from archsim.accuracy.validation import Validation

DECODES = {"decode_rate_per_seq": "rate", "decode_rate_sum": "rate of all", "tpot_mean": "time"}
PREFILLS = {"ttft_mean": "time", "prefill_rate": "rate of all tokens"}
FEWEST = 4
"""Rows that a plot is drawn for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What public runs say of a study. groups: error figures by model and device. points: (measured, predicted, group,
    words). urls: of each point, the page that published it. seen: measured steps of these models on these devices.
    """

    groups: tuple[tuple[str, JsonObject], ...] = ()
    points: tuple[tuple[float, float, int, str], ...] = ()
    urls: tuple[str, ...] = ()
    seen: tuple[MeasuredStep, ...] = ()


@lru_cache(maxsize=8)
def public_runs(models: frozenset[str], devices: frozenset[str]) -> tuple[tuple[Table, ...], tuple[Validation, ...]]:
    """The rows of archsim's own run lists that are of these models or devices, each with its prediction."""
    from archsim.accuracy.checked import own_runs, validate_table
    from archsim.accuracy.times import RunTimes

    try:
        listed = tuple(own_runs())
    except ArchsimError:
        return (), ()
    shown = [(found, _rows_of(found, models, devices)) for found in listed]
    tables = tuple(found.take(rows) for found, rows in shown if rows)
    times = RunTimes()
    return tables, tuple(validate_table(found, times) for found in tables)


def _rows_of(found: Table, models: frozenset[str], devices: frozenset[str]) -> list[int]:
    asked = (found.question(row) for row in range(len(found)))
    return [
        row for row, one in enumerate(asked)
        if _model(str(one.get("model"))) in models or _device(str(one.get("device"))) in devices
    ]  # fmt: skip


def known_runs(study: Study) -> Known:
    """What public runs say about the models and devices of a study."""
    from archsim.accuracy.validation import join_validations

    ours = frozenset(m.name for m in study.models), frozenset(d.id for d in study.devices)
    tables, answers = public_runs(*ours)
    if not answers:
        return Known()
    rows = join_validations(list(answers)).rows
    models = [_model(name) for name in rows.labels["model"]]
    devices = [_device(name) for name in rows.labels["device"]]
    groups, points, shown = _group_errors(rows, models, devices, ours)
    pages = [_published_page(found.name) for found, a in zip(tables, answers, strict=True) for _ in range(len(a.rows))]
    seen = [s for t in tables for s in _steps(t, *ours)]
    return Known(groups=tuple(groups), points=tuple(points), urls=tuple(pages[i] for i in shown), seen=tuple(seen))


@lru_cache(maxsize=64)
def _published_page(name: str) -> str:
    """The page that a run list of archsim's own was taken from."""
    text = (data_roots("reports")[-1] / "runs" / name).read_text("utf-8")
    found = re.search(r"^source: *(\S+)", text, re.M)
    return found[1] if found else ""


def _group_errors(
    rows: Any, models: list[str], devices: list[str], ours: tuple[frozenset[str], frozenset[str]]
) -> tuple[Any, Any, list[int]]:
    """Error figures of the rows of our models, of our devices and of both; the rows of either as points, and which
    they are.
    """
    import numpy as np

    from archsim.accuracy.summary import figures as errors

    by_model, by_device = (np.isin(names, list(wanted)) for names, wanted in zip((models, devices), ours, strict=True))
    scored = rows.scored & (rows.predicted > 0)
    masks = ((title, scored & where) for title, where in _masks(models, devices, ours))
    groups = [(title, errors(rows, mask, int(mask.sum()))) for title, mask in masks if mask.any()]
    timed = np.array([not name.endswith(("_gb", "_gib", "_tokens")) for name in rows.metrics])
    kind = np.where(by_model & by_device, 0, np.where(by_model, 1, 2)).tolist()
    shown = np.flatnonzero(scored & timed & (by_model | by_device)).tolist()
    points = [
        (float(rows.measured[i]), float(rows.predicted[i]), kind[i], f"{rows.titles[i]}, {rows.metrics[i]}")
        for i in shown
    ]
    return groups, points, shown


def _masks(
    models: list[str], devices: list[str], ours: tuple[frozenset[str], frozenset[str]]
) -> Iterator[tuple[str, Any]]:
    import numpy as np

    of_model, of_device = np.array(models, dtype=object), np.array(devices, dtype=object)
    for model in sorted(ours[0]):
        for device in sorted(ours[1]):
            yield f"{model} on {device}", (of_model == model) & (of_device == device)
    for model in sorted(ours[0]):
        yield f"{model} on any device", of_model == model
    for device in sorted(ours[1]):
        yield f"any model on {device}", of_device == device


@lru_cache(maxsize=512)
def _model(name: str) -> str:
    from archsim.accuracy.question import model_of

    try:
        return model_of(name)[0].name
    except ArchsimError:
        return ""


@lru_cache(maxsize=512)
def _device(name: str) -> str:
    from archsim.spec.load import load_hardware

    try:
        return load_hardware(name).id
    except ArchsimError:
        return ""


def _steps(found: Table, models: frozenset[str], devices: frozenset[str]) -> Iterator[MeasuredStep]:
    """The measured steps of a table that are of our models on our devices."""
    for row in range(len(found)):
        asked = found.question(row)
        if _model(str(asked.get("model"))) in models and _device(str(asked.get("device"))) in devices:
            step = _step(asked, found.measured.get("value", [None] * len(found))[row])
            if step is not None:
                yield step


def _step(asked: JsonMapping, value: float | None) -> MeasuredStep | None:
    """One row as a step: its time from its definition, its work from an estimate of the same workload."""
    from archsim.accuracy.question import run_of
    from archsim.accuracy.runs import METRICS, title

    try:
        run = run_of(asked)
        definition = run.definition or METRICS[run.metric].definition
        phase = "decode" if definition in DECODES else "prefill" if definition in PREFILLS else ""
        if not phase or not value or not run.batch or run.isl is None:
            return None
        seconds, answer = _seconds(definition, float(value), run), _same(run)
    except (ArchsimError, KeyError, ZeroDivisionError):
        return None
    done = answer.decode if phase == "decode" else answer.prefill
    if done is None or run.devices != answer.plan.devices:
        return None
    rate = float(done.flops) / seconds
    return MeasuredStep(
        device=answer.hardware.id, intensity=float(done.flops) / float(done.bytes), rate=rate,
        words=f"measured, {phase}: {title(asked)}: {figures(rate / 1e12)} TFLOP/s",
    )  # fmt: skip


def _same(run: Any) -> Estimate:
    """An estimate of what was run."""
    from archsim.accuracy.question import model_of, weights_of
    from archsim.spec.load import load_hardware

    return estimate(
        model_of(run.model)[0], load_hardware(run.device), tp=run.tp, pp=run.pp, ep=run.ep, dp=run.dp,
        batch=run.batch, input_len=max(run.isl, 1), output_len=max(run.osl or 1, 1),
        weights=weights_of(run.model, run.weights),
    )  # fmt: skip


def _seconds(definition: str, value: float, run: Any) -> float:
    """Seconds of one step or prefill from what was measured."""
    kind = DECODES.get(definition) or PREFILLS[definition]
    if kind == "time":
        return value * (1e-3 if run.metric.endswith("_ms") else 1.0)
    work = {"rate": 1, "rate of all": run.batch, "rate of all tokens": run.batch * (run.isl or 0)}[kind]
    return float(work / value)


# ------------------------------------------------------------------ the section
def accuracy(found: Known, drawn: bool = True) -> tuple[str, list[Chart]]:
    """Errors on public runs, or that there are none; the chart of them where it is drawn."""
    from archsim.render.pages.validate import share

    if not found.groups:
        return paragraph(
            "Not validated here: archsim's lists of public runs have no measurement of these models or devices."
        ), []
    rows = [
        [title, f"{f['scored']:,}", share(f["median_ape"]), share(f["p90_ape"]), share(f["bias"]),
         share(f["coverage_80"]), share(f["naive"]["median_ape"])]
        for title, f in found.groups
    ]  # fmt: skip
    head = ["", "figures", "median error", "90th percentile", "bias", "inside the 80 % interval", "datasheet roofline"]
    text = (
        "Predictions against published measurements. The last column is the median error of the datasheet roofline on "
        "the same figures. Kernels of engines without kernel tables, and the host time per step, were fitted to such "
        "runs; their errors on runs that the fits had not seen are on the project's accuracy page."
    )
    charts = [_scatter(found)] if drawn and len(found.points) >= FEWEST else []
    shown = "".join(chart_html(chart, wide=True) for chart in charts)
    listed = details("Every published run", _runs(found), "twin long") if found.points else ""
    return paragraph(text) + table("Errors on public runs", head, rows) + shown + listed, charts


def _scatter(found: Known) -> Chart:
    names = ["these models on these devices", "these models elsewhere", "other models on these devices"]
    off = [abs(predicted / measured - 1) for measured, predicted, *_ in found.points]
    inside = [f"{sum(one <= band for one in off)} within {100 * band:.0f} %" for band in sorted(dict(BANDS))]
    told = f"Of {plural(len(off), 'figure')}, {' and '.join(inside)} of what was measured."
    return predicted_measured(
        [Point(*p) for p in found.points], names, "the run's own unit", key="accuracy",
        title="Predicted against measured: times and rates in the runs' own units", finding=told,
    )  # fmt: skip


def _runs(found: Known) -> str:
    """Every figure of the plot, and where it was published."""
    rows: list[list[str | Cell]] = []
    for (measured, predicted, _, words), url in zip(found.points, found.urls, strict=True):
        off = f"{100 * (predicted / measured - 1):+.1f} %".replace("-", "−")
        source = Cell(name_of(url.partition("//")[2], 60) or "–", left=True, url=url)
        rows.append([words, figures(measured, 4), figures(predicted, 4), off, source])
    return table("Published runs", ["", "measured", "predicted", "error", "source"], rows)
