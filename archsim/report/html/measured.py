"""Public runs of the models and devices of a report: how far off the estimates are, and where measured steps stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from archsim.base.errors import ArchsimError
from archsim.report.html.markup import figure, figures, paragraph, table
from archsim.report.html.study import Study
from archsim.sim.estimate import Estimate, estimate

if TYPE_CHECKING:
    from archsim.validate.answer import Validation
    from archsim.validate.files import Table

DECODES = {"decode_rate_per_seq": "rate", "decode_rate_sum": "rate of all", "tpot_mean": "time"}
PREFILLS = {"ttft_mean": "time", "prefill_rate": "rate of all tokens"}
FEWEST = 4
"""Rows that a plot is drawn for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A measured step: FLOP per byte of what it computes, and FLOP/s that it reached on one device."""

    device: str
    intensity: float
    rate: float
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What public runs say of a study. groups: error figures by model and device. points: (measured, predicted, group,
    words). seen: measured steps of these models on these devices.
    """

    groups: tuple[tuple[str, dict[str, Any]], ...] = ()
    points: tuple[tuple[float, float, int, str], ...] = ()
    seen: tuple[Seen, ...] = ()


@lru_cache(maxsize=1)
def public_runs() -> tuple[tuple[Table, ...], tuple[Validation, ...]]:
    """The run lists that archsim comes with, each with its predictions; none where there are none."""
    from archsim.validate.checked import answered, own_runs

    try:
        tables = tuple(own_runs())
    except ArchsimError:
        return (), ()
    return tables, tuple(answered(found) for found in tables)


def known(study: Study) -> Known:
    """What public runs say about the models and devices of a study."""
    from archsim.validate.answer import joined

    tables, answers = public_runs()
    if not answers:
        return Known()
    rows = joined(list(answers)).rows
    models = [_model(name) for name in rows.labels["model"]]
    devices = [_device(name) for name in rows.labels["device"]]
    ours = {m.name for m in study.models}, {d.id for d in study.devices}
    groups, points = _grouped(rows, models, devices, ours)
    seen = [s for t in tables for s in _steps(t, *ours)]
    return Known(groups=tuple(groups), points=tuple(points), seen=tuple(seen))


def _grouped(
    rows: Any, models: list[str], devices: list[str], ours: tuple[set[str], set[str]]
) -> tuple[Any, Any]:
    """Error figures of the rows of our models, of our devices and of both, and the rows of either as points."""
    import numpy as np

    from archsim.validate.summary import figures as errors

    by_model = np.array([name in ours[0] for name in models])
    by_device = np.array([name in ours[1] for name in devices])
    scored = rows.scored & (rows.predicted > 0)
    groups = []
    for title, where in _masks(models, devices, ours):
        mask = scored & where
        if mask.any():
            groups.append((title, errors(rows, mask, int(mask.sum()))))
    timed = np.array([not name.endswith(("_gb", "_gib", "_tokens")) for name in rows.metrics])
    kind = np.where(by_model & by_device, 0, np.where(by_model, 1, 2)).tolist()
    points = [
        (float(rows.measured[i]), float(rows.predicted[i]), kind[i], f"{rows.titles[i]}, {rows.metrics[i]}")
        for i in np.flatnonzero(scored & timed & (by_model | by_device)).tolist()
    ]  # fmt: skip
    return groups, points


def _masks(
    models: list[str], devices: list[str], ours: tuple[set[str], set[str]]
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
    yield "all public runs", np.ones(len(models), bool)


@lru_cache(maxsize=512)
def _model(name: str) -> str:
    from archsim.validate.question import model_of

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


def _steps(found: Table, models: set[str], devices: set[str]) -> Iterator[Seen]:
    """The measured steps of a table that are of our models on our devices."""
    for row in range(len(found)):
        asked = found.question(row)
        if _model(str(asked.get("model"))) in models and _device(str(asked.get("device"))) in devices:
            step = _step(asked, found.measured.get("value", [None] * len(found))[row])
            if step is not None:
                yield step


def _step(asked: Mapping[str, Any], value: float | None) -> Seen | None:
    """One row as a step: its time from its definition, its work from an estimate of the same workload."""
    from archsim.validate.question import run_of
    from archsim.validate.runs import METRICS, title

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
    return Seen(
        device=answer.hardware.id, intensity=float(done.flops) / float(done.bytes), rate=rate,
        words=f"measured, {phase}: {title(asked)}: {figures(rate / 1e12)} TFLOP/s",
    )  # fmt: skip


def _same(run: Any) -> Estimate:
    """An estimate of what was run."""
    from archsim.spec.load import load_hardware
    from archsim.validate.question import model_of, weights_of

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
def accuracy(found: Known) -> str:
    """Errors on public runs, or that there are none."""
    from archsim.report.validate_page import share

    own = [(title, f) for title, f in found.groups if title != "all public runs"]
    if not own:
        return paragraph(
            "Not validated here: the run lists that archsim comes with hold no measurement of these models or devices."
        )
    rows = [
        [title, f"{f['scored']:,}", share(f["median_ape"]), share(f["p90_ape"]), share(f["bias"]),
         share(f["coverage_80"]), share(f["naive"]["median_ape"])]
        for title, f in found.groups
    ]  # fmt: skip
    head = [
        "",
        "figures",
        "median error",
        "90th percentile",
        "bias",
        "inside the 80 % interval",
        "datasheet roofline",
    ]
    text = (
        "Predictions beside published measurements that no constant was fitted to. The last column is the median error "
        "of the datasheet roofline on the same figures."
    )
    return paragraph(text) + table("Errors on public runs", head, rows) + _scatter(found)


def _scatter(found: Known) -> str:
    from archsim.report.validate_svg import Point, key, scatter

    if len(found.points) < FEWEST:
        return ""
    names = ["these models on these devices", "these models elsewhere", "other models on these devices"]
    title = "Predicted against measured: times and rates in the runs' own units"
    picture = key(names) + scatter([Point(*p) for p in found.points], "own unit", title)
    return figure(picture, f"{title}; {len(found.points)} figures. Bands: 10 and 25 %.")
