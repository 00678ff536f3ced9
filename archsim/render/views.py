"""Every kind of answer with its page, its rows and what it is about: what `archsim.base.displayed` shows.

An answer does not know how it was asked for: its page has no commands to go on with and no files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from archsim.base.json_types import JsonObject
from archsim.render.page import Page, Section, facts, plural, row

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

    from archsim.accuracy.validation import Several, Validation
    from archsim.candidates.advise import Advise
    from archsim.candidates.answer import Design
    from archsim.comparison.compare import Comparison
    from archsim.comparison.loaded import LoadComparison
    from archsim.comparison.training import TrainingComparison
    from archsim.counts.count import CountResult
    from archsim.evolution.diff import Difference
    from archsim.evolution.evolve import Evolution
    from archsim.ledger.claims import Ledger
    from archsim.ledger.survey import Survey
    from archsim.measure.cpu_check import CpuCheck
    from archsim.measure.model_check import ModelCheck
    from archsim.memory.check_fit import Fit
    from archsim.predict.estimate import Estimate
    from archsim.predict.fits import Fits
    from archsim.predict.simulation import Simulation
    from archsim.predict.timeline import Trace
    from archsim.render.figures.chart import Chart
    from archsim.render.html.document import Report
    from archsim.render.html.training_report import TrainingReport
    from archsim.spec.hardware import Hardware
    from archsim.spec.model import Model
    from archsim.sweeps.sweep import Sweep
    from archsim.sweeps.training_runs import TrainingSweep
    from archsim.training.scaling import Scaling
    from archsim.training.train import Training

MOST_POINTS = 100_000
"""Points of a sweep that are priced for its page: a tenth of a second."""


class HasDict(Protocol):
    """What has the object of `--json`."""

    def to_dict(self) -> JsonObject:
        """That object."""


A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class View(Generic[A]):
    """How one kind of answer is shown. rows: of its table, if it is one. document: HTML that fills a frame. charts: the
    first is what is shown unless another is named.
    """

    subject: Callable[[A], str]
    pages: Callable[[A], Sequence[Page]]
    rows: Callable[[A], Sequence[JsonObject]] | None = None
    document: Callable[[A], str] | None = None
    charts: Callable[[A], Sequence[Chart]] | None = None


def text(answer: object) -> str:
    """The page as on a terminal, without a line end behind it."""
    from archsim.render.terminal import render

    return "\n".join(render(page) for page in _view(answer).pages(answer)).rstrip("\n")


def markdown(answer: object) -> str:
    """The page as Markdown."""
    from archsim.render.markdown import render

    return "\n".join(render(page) for page in _view(answer).pages(answer))


def html(answer: object) -> str:
    """The page as a piece of HTML; a report in a frame."""
    from archsim.render.html.fragment import fragment, frame

    view = _view(answer)
    if view.document is not None:
        return frame(view.document(answer), f"archsim report: {view.subject(answer)}")
    return "".join(fragment(page) for page in view.pages(answer))


def subject(answer: object) -> str:
    """What it is about, in a few words that cost nothing to find."""
    return _view(answer).subject(answer)


def rows(answer: object) -> Sequence[JsonObject]:
    """The rows of `--format csv`."""
    found = _view(answer).rows
    assert found is not None, f"{type(answer).__name__} is no table"
    return found(answer)


def figure(answer: object, name: str = "", theme: str = "light") -> Figure:
    """One of its charts as a plotly figure. Raises UsageError for a name or a theme that there is not."""
    from archsim.base.errors import UsageError
    from archsim.render.figures.theme import check_theme

    made, kind = _view(answer).charts, type(answer).__name__
    charts = {chart.key: chart for chart in made(answer)} if made is not None else {}
    if not charts:
        raise UsageError(f"this {kind} has no chart", hints=("`to_rows()` gives its numbers",))
    if name and name not in charts:
        raise UsageError(f"no chart of {kind} is named {name[:40]!r}", hints=(f"there are {', '.join(charts)}",))
    return charts[name or next(iter(charts))].figure(check_theme(theme))


def _view(answer: object) -> View[Any]:
    """The view of an answer's class or of one that it extends."""
    return next(VIEWS[kind.__name__] for kind in type(answer).__mro__ if kind.__name__ in VIEWS)


# ------------------------------------------------------------------ one model on a device
def _pair(answer: Estimate | Fit) -> str:
    return f"{answer.model.name} on {answer.plan.devices} × {answer.hardware.id}"


def _estimate(answer: Estimate) -> list[Page]:
    from archsim.predict.what_fits import facts
    from archsim.render.pages.estimate import page

    return [page(answer, facts(answer))]


def _estimate_charts(answer: Estimate) -> list[Chart]:
    from archsim.render.figures.bars import Case, memory_bars, time_bars
    from archsim.render.figures.roofline import roofline

    cases = [Case(_pair(answer), answer)]
    phases = ("decode", "prefill") if answer.decode is not None else ("prefill",)
    return [*(time_bars(cases, phase) for phase in phases), memory_bars(cases), roofline(answer.hardware, cases)]


def _estimate_rows(answer: Estimate) -> list[JsonObject]:
    from archsim.render.pages.breakdown import as_rows

    return as_rows(answer, None)


def _count(answer: CountResult) -> list[Page]:
    from archsim.render.pages.count import page

    return [page(answer, verbose=True)]


def _flat(answer: CountResult | Fit | Training) -> list[JsonObject]:
    from archsim.render.flat import flatten

    return [flatten(answer.to_dict())]


def _fit(answer: Fit) -> list[Page]:
    from archsim.render.pages.fit import page

    return [page(answer)]


def _fits(answer: Fits) -> list[Page]:
    from archsim.render.pages.fits import page

    return [page(answer)]


def _listed(key: str) -> Callable[[HasDict], list[JsonObject]]:
    """The rows under one key of the JSON."""
    return lambda answer: list(answer.to_dict()[key])


def _trace(answer: Trace) -> list[Page]:
    from archsim.base.units import format_seconds
    from archsim.render.pages.estimate import head

    shape = facts("Timeline", [
        ("step", f"{answer.phase.name}, {format_seconds(float(answer.phase.expected_s))} expected"),
        ("slices", plural(len(answer.slices), "slice")),
        ("to look at it", "`json.dump(trace.to_dict(), file)`, then open the file in ui.perfetto.dev"),
    ])  # fmt: skip
    return [Page(head=head(answer.estimate), notes=answer.notes, sections=(shape,))]


# ------------------------------------------------------------------ several models
def _comparison(answer: Comparison) -> list[Page]:
    from archsim.render.pages.compare import page

    return [page(answer)]


def _comparison_charts(answer: Comparison) -> list[Chart]:
    from archsim.render.pages.compare import charts

    return charts(answer)


def _comparison_rows(answer: Comparison) -> list[JsonObject]:
    from archsim.render.pages.compare import rows

    return rows(answer)


def _candidates(answer: Comparison) -> str:
    return ", ".join(dict.fromkeys(one.label for one in answer.candidates))


def _ends(answer: Difference | Evolution) -> str:
    return f"{answer.a.name} to {answer.b.name}"


def _difference(answer: Difference) -> list[Page]:
    from archsim.render.pages.diff import page

    return [page(answer)]


def _difference_rows(answer: Difference) -> list[JsonObject]:
    from archsim.render.pages.diff import rows

    return rows(answer)


def _evolution(answer: Evolution) -> list[Page]:
    from archsim.render.pages.evolve import page

    return [page(answer)]


def _evolution_charts(answer: Evolution) -> list[Chart]:
    from archsim.render.pages.evolve import charts

    return charts(answer)


def _evolution_rows(answer: Evolution) -> list[JsonObject]:
    from archsim.render.pages.evolve import rows

    return rows(answer)


def _sweep(answer: Sweep) -> list[Page]:
    """The page of its best points; of a sweep that takes a while, how to go through it."""
    from archsim.render.pages.sweep import Best, page

    if answer.points > MOST_POINTS:
        told = "`chunks()` computes them block by block; `archsim sweep --out FILE` writes them as they are computed"
        return [
            Page(head=(f"{answer.points:,} points, none computed yet",), sections=(Section(title="", below=(told,)),))
        ]
    best = Best()
    for chunk in answer.chunks():
        best.add(chunk)
    return [page(answer, best, answer.points)]


def _sweep_charts(answer: Sweep) -> list[Chart]:
    from archsim.render.html.sweep_charts import Curves, sweep_charts

    curves = Curves()
    for chunk in answer.chunks():
        curves.add(chunk)
    return sweep_charts(curves)


def _report(answer: Report) -> list[Page]:
    found = [row(c.label, c.refusal or ("fits" if c.fits else "does not fit")) for c in answer.study.candidates]
    told = "`.write(path)` writes the page, `.html` is its text"
    return [Page(head=("Report",), sections=(Section(title="Candidates", rows=tuple(found), below=(told,)),))]


# ------------------------------------------------------------------ predictions beside measurements, claims
def _validation(answer: Validation) -> list[Page]:
    from archsim.render.pages.validate import page

    return [page(answer)]


def _validation_rows(answer: Validation) -> list[JsonObject]:
    return list(answer.rows.dicts())


def _validation_charts(answer: Validation) -> list[Chart]:
    from archsim.render.html.validate import validation_charts

    return list(validation_charts(answer))


def _several(answer: Several) -> list[Page]:
    return [page for one in answer.answers for page in _validation(one)]


def _several_rows(answer: Several) -> list[JsonObject]:
    return [line for one in answer.answers for line in one.rows.dicts()]


def _several_charts(answer: Several) -> list[Chart]:
    return [chart for one in answer.answers for chart in _validation_charts(one)]


def _model_check(answer: ModelCheck) -> list[Page]:
    from archsim.render.pages.validate import model_page

    return [model_page(answer)]


def _cpu_check_charts(answer: CpuCheck) -> list[Chart]:
    from archsim.render.html.cpu_check import cpu_charts

    return cpu_charts(answer)


def _cpu_check(answer: CpuCheck) -> list[Page]:
    from archsim.render.pages.cpu_check import cpu_check_page

    return [cpu_check_page(answer)]


def _ledger(answer: Ledger) -> list[Page]:
    from archsim.render.pages.claims import page

    return [page(answer)]


def _ledger_rows(answer: Ledger) -> list[JsonObject]:
    from archsim.render.pages.claims import rows

    return rows(answer)


def _simulation_subject(answer: Simulation) -> str:
    from archsim.render.pages.simulate import subject

    return subject(answer)


def _simulation(answer: Simulation) -> list[Page]:
    from archsim.render.pages.simulate import page

    return [page(answer)]


def _simulation_charts(answer: Simulation) -> list[Chart]:
    from archsim.render.figures.load import load_charts

    return load_charts(answer)


def _simulation_rows(answer: Simulation) -> list[JsonObject]:
    from archsim.predict.request_timeline import request_rows

    return list(request_rows(answer.record))


def _training_subject(answer: Training) -> str:
    return f"training {answer.model.name} on {answer.layout.devices:,} × {answer.hardware.id}"


def _training(answer: Training) -> list[Page]:
    from archsim.render.pages.train import page

    return [page(answer)]


def _design(answer: Design) -> list[Page]:
    from archsim.render.pages.design import page

    return [page(answer)]


def _design_rows(answer: Design) -> list[JsonObject]:
    from archsim.render.pages.design import rows

    return rows(answer)


def _advise(answer: Advise) -> list[Page]:
    from archsim.render.pages.advise import page

    return [page(answer)]


def _advise_rows(answer: Advise) -> list[JsonObject]:
    from archsim.render.pages.advise import rows

    return rows(answer)


def _scaling_subject(answer: Scaling) -> str:
    from archsim.render.pages.scaling import title

    return title(answer.asked)


def _scaling(answer: Scaling) -> list[Page]:
    from archsim.render.pages.scaling import page

    return [page(answer)]


def _scaling_rows(answer: Scaling) -> list[JsonObject]:
    from archsim.render.pages.scaling import rows

    return rows(answer)


def _survey(answer: Survey) -> list[Page]:
    from archsim.render.pages.survey import page

    return [page(answer)]


def _survey_rows(answer: Survey) -> list[JsonObject]:
    from archsim.render.pages.survey import rows

    return rows(answer)


def _survey_charts(answer: Survey) -> list[Chart]:
    from archsim.render.html.survey import survey_charts

    return survey_charts(answer)


# ------------------------------------------------------------------ documents
def _model(answer: Model) -> list[Page]:
    from archsim.render.pages.model import model_page

    return [model_page(answer)]


def _hardware(answer: Hardware) -> list[Page]:
    from archsim.render.pages.show import device_page

    return [device_page(answer)]


def _loads(answer: LoadComparison) -> list[Page]:
    from archsim.render.pages.loads import page

    return [page(answer)]


def _training_comparison(answer: TrainingComparison) -> list[Page]:
    from archsim.render.pages.training_runs import compare_page

    return [compare_page(answer)]


def _training_comparison_charts(answer: TrainingComparison) -> list[Chart]:
    from archsim.render.pages.training_runs import charts

    return charts(answer.rows)


def _training_sweep(answer: TrainingSweep) -> list[Page]:
    from archsim.render.pages.training_runs import sweep_page

    return [sweep_page(answer, answer.kept(answer.priced()), len(answer.runs))]


def _training_report(answer: TrainingReport) -> list[Page]:
    return _training_comparison(answer.comparison)


VIEWS: Mapping[str, View[Any]] = {
    "Estimate": View(_pair, _estimate, _estimate_rows, charts=_estimate_charts),
    "CountResult": View(lambda r: f"{r.model.name}, {r.total:,} parameters", _count, _flat),
    "Fit": View(lambda f: f"{f.verdict}, {_pair(f)}", _fit, _flat),
    "Design": View(lambda d: f"a search for one {d.question.hardware.id}", _design, _design_rows),
    "Advise": View(lambda d: f"changes of {d.model.name} on {d.hardware.id}", _advise, _advise_rows),
    "Fits": View(lambda f: f"the catalog on one {f.hardware.id}", _fits, _listed("rows")),
    "Trace": View(lambda t: f"{t.phase.name} of {_pair(t.estimate)}", _trace),
    "LoadComparison": View(lambda c: f"{len(c.rows):,} candidates under load", _loads, _listed("candidates")),
    "Comparison": View(_candidates, _comparison, _comparison_rows, charts=_comparison_charts),
    "TrainingComparison": View(
        lambda c: f"{len(c.rows):,} training runs",
        _training_comparison,
        _listed("candidates"),
        charts=_training_comparison_charts,
    ),
    "TrainingSweep": View(lambda s: f"{len(s.runs):,} training runs", _training_sweep, _listed("rows")),
    "TrainingReport": View(
        lambda r: f"{len(r.comparison.rows):,} training runs", _training_report, document=lambda r: str(r.html)
    ),
    "Difference": View(_ends, _difference, _difference_rows),
    "Evolution": View(_ends, _evolution, _evolution_rows, charts=_evolution_charts),
    "Sweep": View(lambda s: f"{s.points:,} points", _sweep, _listed("rows"), charts=_sweep_charts),
    "Report": View(
        lambda r: ", ".join(c.label for c in r.study.candidates), _report, document=lambda report: str(report.html)
    ),
    "Validation": View(lambda v: f"{len(v.rows):,} {v.kind}", _validation, _validation_rows, charts=_validation_charts),
    "Several": View(lambda s: f"{len(s.answers):,} kinds of file", _several, _several_rows, charts=_several_charts),
    "ModelCheck": View(lambda m: f"{m.asked} on {m.device}", _model_check, _listed("lines")),
    "CpuCheck": View(lambda c: f"{c.model} on {c.device}", _cpu_check, _listed("rows"), charts=_cpu_check_charts),
    "Ledger": View(lambda found: f"{len(found.claims):,} claims", _ledger, _ledger_rows),
    "Simulation": View(_simulation_subject, _simulation, _simulation_rows, charts=_simulation_charts),
    "Training": View(_training_subject, _training, _flat),
    "Scaling": View(_scaling_subject, _scaling, _scaling_rows),
    "Survey": View(lambda s: f"{s.models:,} models", _survey, _survey_rows, charts=_survey_charts),
    "Model": View(lambda m: f"{m.name}, {m.n_layers:,} layers, d_model {m.d_model:,}", _model),
    "Hardware": View(lambda hw: str(hw.id), _hardware),
}
"""Name of an answer's class -> how it is shown. By name, so that none is imported before there is one."""
