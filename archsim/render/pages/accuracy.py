"""The accuracy page: what `archsim validate` finds on the public runs, and what calibrations found on unseen shapes.

Everything on it is computed; to add a part, write a function that gives Markdown and list it in `PARTS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from math import expm1
from typing import TYPE_CHECKING, Any

from archsim.base.json_types import JsonMapping
from archsim.render.markdown import render
from archsim.render.page import Page, Section, row
from archsim.render.pages import validate as v

if TYPE_CHECKING:
    from archsim.accuracy.validation import Validation

INTRO = """# Accuracy

How far archsim's predictions are from published measurements. The page is made by
`archsim validate --write-report reports/accuracy.md --force`, never by hand. A prediction is computed without the
measured value beside it; what was fitted to public runs, these among them, is named below. The last column of each
table is the error of the datasheet roofline, the usual yardstick.

Four things are kept apart: public runs of whole models; what was fitted to whole runs or serving points, which is the
kernels of engines without published kernel tables and the host time per step (for those engines the first part is no
test: the second has their errors on runs that the fit had not seen); kernels on shapes that a fit had not seen; and
kernels carried over to another engine or device. The intervals of throughput and of peak memory include the spread of
these public runs: that 80 % lie inside says nothing about runs elsewhere.
"""


def accuracy(answers: Iterable[Validation]) -> str:
    """The page, in Markdown."""
    own = [render(accuracy_table(answer)) for answer in answers]
    return "\n".join([INTRO, *own, *(part for make in PARTS if (part := make()))])


def accuracy_table(answer: Validation) -> Page:
    """One kind of measurements with all groups."""
    page = v.page(answer, verbose=True)
    head, basis = v.head(answer)
    named = {"kernels": "Kernels", "runs": "Public runs", "serving": "Serving points", "loaded": "Runs under load",
             "requests": "Logs of requests", "training": "Training runs",
             "energy": "Power"}[answer.kind]  # fmt: skip
    return Page(head=(named, f"{head}; {basis}."), sections=page.sections)


# ---------------------------------------------------------------------- calibrations
ERRORS = ("shapes", "median", "p90", "by time", "formula alone", "roofline")


def calibrations() -> str:
    """Errors of every fit on shape families that it had not seen, by device and engine."""
    tables = [_stack(document) for document in documents()]
    if not tables:
        return ""
    intro = (
        "## Kernels, on unseen shapes",
        "Each fit was tested on whole families of shapes that were left out of it; formula alone: the same without its "
        "correction surface; median errors unless said otherwise.",
    )
    return "\n\n".join(intro) + "\n\n" + render(Page(head=(), sections=tuple(tables)))


def documents() -> Iterator[JsonMapping]:
    """The calibration files that archsim comes with."""
    from archsim.spec.catalog import data_roots
    from archsim.spec.loader import read
    from archsim.timing.calibration import FILE, folders

    own = data_roots("hardware")[-1] / "calibration"
    for folder in folders():
        if folder.samefile(own):
            yield from (read(path) for path in sorted(folder.glob(f"*/*/{FILE}")))


def _stack(document: JsonMapping) -> Section:
    title = " ".join(str(document.get(name) or "") for name in ("device", "engine", "version")).strip()
    lines = [row(*_fit(fit)) for fit in document.get("fits", ())]
    return Section(title=title, rows=tuple(lines), header=ERRORS, align="lrrrrrr")


def _fit(fit: JsonMapping) -> tuple[str, ...]:
    errors = fit.get("errors", {})
    unseen, formula, naive = (errors.get(name, {}) for name in ("unseen", "formula", "roofline"))
    cache = f"kv {fit['kv_dtype']}" if fit.get("kv_dtype") else ""
    name = " ".join(str(part) for part in (fit["op"], fit["dtype"], cache, fit.get("kernel")) if part)
    figures = (unseen.get("median"), unseen.get("p90"), unseen.get("time_weighted"), formula.get("median"),
               naive.get("median"))  # fmt: skip
    return name, f"{errors.get('rows', 0):,}", *(v.share(value) for value in figures)


def engines() -> str:
    """Errors of what was fitted to whole runs: kernels of engines without tables, and the host's time per step."""
    from archsim.spec.catalog import data_roots
    from archsim.spec.loader import read

    measured = read(data_roots("hardware")[-1] / "calibration" / "engines.yaml")["engines"]
    kernels = [
        _unseen_errors(f"{name}, {one['vendor']}", one["errors"])
        for name, own in measured.items()
        for one in own.get("fits", ())
        if "errors" in one and one["op"] == "gemm" and "dtype" not in one
    ]
    hosts = [
        _unseen_errors(f"{name} {version.replace('any', 'of no stated version')}, {seen['of']}", seen)
        for name, own in measured.items()
        for version, seen in own.get("host_errors", {}).items()
        if seen["rows"]
    ]
    fronts = [
        _unseen_errors(name, seen)
        for name, own in measured.items()
        if (seen := own.get("first_token", {}).get("errors", {})).get("held_out", "none") != "none"
    ]
    intro = (
        "## Fitted to runs, on what the fits had not seen",
        "Kernels: a few constants for each engine and vendor, tested on pairs of model and device that were left out. "
        "Host: a time per step and one per sequence for each way to drive the device; first tokens: the front end of "
        "each engine. Both were tested on pairs of model and device that were left out; an engine with a single pair "
        "has no such error.",
    )
    header = ("figures", "median", "mean", "p90")
    tables = tuple(
        Section(title=title, rows=tuple(rows), align="lrrrr", header=header)
        for title, rows in (("Kernels", kernels), ("Host", hosts), ("First tokens", fronts))
        if rows
    )
    return "\n\n".join(intro) + "\n\n" + render(Page(head=(), sections=tables))


def _unseen_errors(name: str, errors: JsonMapping) -> tuple[Any, ...]:
    return row(name, f"{errors['rows']:,}", *(v.share(errors[key]) for key in ("median", "mean", "p90")))


SERVED = ("figures", "median", "p90", "bias", "in 80 %", "width", "fitted on these rows")

MEASURED_SERVED = {
    "serving": (
        "Serving points",
        "Closed-loop points of public sweeps (aiconfigurator-core 0.12.0), by metric, engine, how its versions drive "
        "the device, and device. Where the last column names something, it was fitted on the very rows of that line: "
        "the line is in sample, and the errors of what was left out stand under *Fitted to runs*.",
    ),
    "loaded": (
        "Runs under load",
        "Runs of public benchmarks, each simulated at its own load. On vendors without kernel tables a gap between "
        "launches and a share of the peak were fitted on the TPOT of these rows, by architecture; on the TTFT of all, "
        "the front end of each engine and what the first step of a benchmark waits for. Schedules were not fitted.",
    ),
}
"""Heading and introduction by kind of table."""


def served() -> str:
    """Errors of serving points and of runs under load, with what was fitted on them."""
    from archsim.spec.catalog import data_roots
    from archsim.spec.loader import read

    document = read(data_roots("hardware")[-1] / "calibration" / "served.yaml")
    parts = []
    for kind, (title, intro) in MEASURED_SERVED.items():
        if kind in document:
            lines = [_served(group) for group in document[kind]["groups"]]
            table = Section(title="By metric, engine and device", rows=tuple(lines), header=SERVED, align="lrrrrrrl")
            refused = f"{document[kind]['refused']:,} figures are refused."
            if "without" in document[kind]:
                runs = document[kind]
                refused = f"{runs['refused']:,} runs are refused; runs with {runs['without']}, are not here."
            sections = (table, *_loaded_fits(document[kind].get("fits", ())))
            parts.append(f"## {title}\n\n{intro} {refused}\n\n" + render(Page(head=(), sections=sections)))
    return "\n".join(parts)


SOURCES = ("figures", "median", "source left out", "bias", "in 80 %", "width")


def _loaded_fits(groups: Sequence[JsonMapping]) -> list[Section]:
    """Errors of simulated runs by source: with what was fitted, and with the source left out of the fit."""
    lines = [
        row(
            " ".join(str(group[key]) for key in ("metric", "engine", "device")) + f", {group['source'].split()[0]}",
            f"{group['rows']:,}", v.share(group["median"]),
            "only source" if group["left_out"] is None else v.share(group["left_out"]),
            v.share(group["bias"], signed=True), v.share(group["covered"]), f"{group['width']:.1f}×",
        )
        for group in groups
    ]  # fmt: skip
    title = "Simulated runs by source, engine and device"
    return [Section(title=title, rows=tuple(lines), header=SOURCES, align="lrrrrrr")] if lines else []


def training() -> str:
    """Errors of training runs by source, beside what the fit had seen of each."""
    from archsim.spec.stack import load_stack_fits

    errors = load_stack_fits().errors
    if not errors:
        return ""
    rows = tuple(
        row(one.source, f"{one.runs:,}", *(_mean_and_median(f) for f in (one.inside, one.model_left_out,
                                                                       one.source_left_out)))
        for one in errors
    )  # fmt: skip
    about = (
        "Step times, tokens per second and FLOP/s of published training runs: mean and median error in sample, with "
        "the model left out of its source, and with the whole source left out of the fit. What is fitted is shared by "
        "all sources: `hardware/calibration/training.yaml`."
    )
    header = ("runs", "in sample", "model left out", "source left out")
    section = Section(title="Mean and median error", rows=rows, align="lrrrr", header=header)
    return f"## Training runs, by source\n\n{about}\n\n" + render(Page(head=(), sections=(section,)))


def power() -> str:
    """Errors of watts on architectures that the fit had not seen, by device."""
    from archsim.energy.power import load_power_fits

    rows = tuple(
        row(
            f"{fit.device}{f', {fit.engine} before {fit.before}' if fit.before else ''}", f"{fit.rows:,}",
            f"{fit.architectures:,}", _mean_and_median(fit.left_out), "{:+.0%} to {:+.0%}".format(*map(expm1, fit.off)),
        )
        for fit in load_power_fits().fits
    )  # fmt: skip
    about = (
        "Watts of devices that serve with vLLM, from predicted activity: mean and median error on architectures left "
        "out of the fit, and the ends of the interval. Joules per token carry the error of the time as well: "
        "`archsim validate` of a table of power gives both. Constants: `hardware/calibration/power.yaml`."
    )
    header = ("rows", "architectures", "architecture left out", "interval")
    section = Section(title="Mean and median error", rows=rows, align="lrrrr", header=header)
    return f"## Power, by device\n\n{about}\n\n" + render(Page(head=(), sections=(section,)))


def _mean_and_median(figures: tuple[float, float]) -> str:
    return " / ".join(v.share(figure) for figure in figures)


def _served(group: JsonMapping) -> tuple[Any, ...]:
    name = " ".join(str(group[key]) for key in ("metric", "engine", "way", "device") if group[key])
    if group.get("with"):
        name += f", {group['with']}"
    return row(
        name, f"{group['rows']:,.0f}", v.share(group["median"]), v.share(group["p90"]),
        v.share(group["bias"], signed=True), v.share(group["covered"]), f"{group['width']:.1f}×",
        group["fitted"] or "nothing",
    )  # fmt: skip


DISTANCES = {
    "engine": "By another engine's fit on the same device",
    "device": "From devices of another architecture with the same kind of memory",
    "class": "From devices with another kind of memory",
    "datasheet": "From no device: the usual constants of the class",
}
"""What a fit is carried over to, in order of distance."""

CARRIED = ("shapes", "devices", "median", "p90", "bias", "in 80 %", "width")


def transfers() -> str:
    """Errors of what stands for a device, or an engine, that was not fitted, by class and distance."""
    from archsim.spec.catalog import data_roots
    from archsim.spec.loader import read

    levels = read(data_roots("hardware")[-1] / "calibration" / "transfer.yaml")["levels"]
    intro = (
        "## Kernels, carried over",
        "Every table was predicted without what it would otherwise use: its engine's own fits, or all fits of its "
        "device. In 80 %: inside the interval that the other devices show; width: upper over lower end of the "
        "interval; narrow: formats of less than 16 bits.",
    )
    tables = tuple(
        Section(title=title, rows=tuple(rows), header=CARRIED, align="lrrrrrrr")
        for grade, title in DISTANCES.items()
        if (
            rows := [
                _carried(name, by[grade]["errors"]) for name, by in levels.items() if "errors" in by.get(grade, ())
            ]
        )
    )
    return "\n\n".join(intro) + "\n\n" + render(Page(head=(), sections=tables))


def _carried(name: str, errors: JsonMapping) -> tuple[Any, ...]:
    figures = [v.share(errors[key]) for key in ("median", "p90")]
    return row(
        name, f"{errors['rows']:,}", f"{errors['devices']}", *figures, f"{100 * errors['bias']:+.1f} %",
        v.share(errors["covered"]), f"{errors['width']:.1f}×",
    )  # fmt: skip


PARTS: Sequence[Callable[[], str]] = (served, training, power, engines, transfers, calibrations)
"""What follows the runs, in this order: each gives Markdown under a heading of the second level, or nothing."""


# ---------------------------------------------------------------------- README
METRIC_NAMES = {
    "decode_tok_s": "decode, tokens/s",
    "throughput_tok_s": "throughput, tokens/s",
    "prefill_tok_s": "prefill, tokens/s",
    "ttft_ms": "time to first token",
    "tpot_ms": "time per output token",
    "peak_mem_gb": "peak memory",
    "weights_gb": "weights in memory",
    "kv_capacity_tokens": "tokens the KV cache holds",
}
"""Metrics of the public runs in words, times first: sizes are never averaged with times."""


def fitted_to_runs(answer: Validation) -> str:
    """Which engines' constants were fitted to public runs, and how many figures of the table are theirs."""
    from archsim.spec.catalog import data_roots
    from archsim.spec.engine import load_engine
    from archsim.spec.loader import read

    measured = read(data_roots("hardware")[-1] / "calibration" / "engines.yaml")["engines"]
    rows = {name: found["rows"] for name, found in answer.by("engine").items()}

    def listed(names: Iterable[str]) -> str:
        return ", ".join(
            f"{load_engine(name).title.replace(', ', ' ')} ({rows[name]})" for name in names if rows.get(name)
        )

    kernels = [name for name, own in measured.items() if "fits" in own]
    hosts = [
        name for name, own in measured.items() if any(e["of"] == "runs" for e in own.get("host_errors", {}).values())
    ]
    return (
        "What was fitted to these runs: the kernels of engines without published kernel tables, with the number of "
        f"their figures here: {listed(kernels)}; and the host time per step of {listed(hosts)} before 0.8. For these "
        "engines the table shows how well the fit describes its own data; their errors on runs that the fit had not "
        "seen are on the [accuracy page](reports/accuracy.md). The intervals of throughput and of peak memory were "
        "widened by the spread of these runs. Other constants come from tables of single kernels, serving benchmarks "
        "or datasheets, not from these runs."
    )


def summary(answer: Validation) -> str:
    """The short table of the README."""
    groups = sorted(answer.by("metric").items(), key=lambda group: list(METRIC_NAMES).index(group[0]))
    lines = [
        "| | figures | median error | mean error | inside the 80 % interval | roofline's median error |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for name, found in groups:
        cells = (found["median_ape"], found["mape"], found["coverage_80"], found["naive"]["median_ape"])
        figures = " | ".join(v.share(cell) for cell in cells)
        lines.append(f"| {METRIC_NAMES[name]} | {found['rows']:,} | {figures} |")
    return "\n".join(["", *lines, "", fitted_to_runs(answer), "", ""])
