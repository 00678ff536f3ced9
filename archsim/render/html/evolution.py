"""What each decision between the first and the last architecture costs, and what it cost from each to the next."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from archsim.base.errors import ArchsimError
from archsim.evolution.evolve import Evolution, evolve
from archsim.render.figures.chart import Chart
from archsim.render.figures.steps import step_charts
from archsim.render.html.candidates import Study
from archsim.render.html.markup import chart_html, details, name_of, paragraph, table
from archsim.render.page import plural
from archsim.render.pages.evolve import METRICS
from archsim.render.signed import absolute, signed_change
from archsim.spec.model import Model

WHOLE = ("params", "kv_bytes", "decode_s")
"""Figures of the way from the first to the last that are drawn; the table has all."""

STRETCH = ("kv_bytes", "decode_s")
"""Figures of the way from one to the next that are drawn."""


Drawn = tuple[str, list[Chart]]
"""HTML, and the charts that have their places in it."""


def evolution(study: Study) -> Drawn:
    """The way from the first model to the last, then from each to the next; nothing where there is one model."""
    models = list({m.name: m for m in study.models}.values())
    if len(models) < 2:
        return "", []
    try:
        whole = _way(models[0], models[-1], study)
    except ArchsimError as error:
        ends = f"{name_of(models[0].name)} to {name_of(models[-1].name)}"
        return paragraph(f"The path from {ends} could not be split into single decisions: {error.message}"), []
    if not whole.steps:
        return "", []
    told = (
        f"One decision at a time from {_names(whole)[0]} to {_names(whole)[1]}; the steps add up to the whole "
        f"difference. FLOPs and cache are for one sequence of {study.asked.input_len:,} tokens; times of one "
        f"{study.devices[0].id}, whether it fits or not."
    )
    drawn, charts = _draw(whole, WHOLE, "steps", "h3")
    text = paragraph(told) + drawn + details("Every step as a table", _twin(whole))
    more, others = _milestones(models, study) if len(models) > 2 else ("", [])
    return text + more, [*charts, *others]


def _way(a: Model, b: Model, study: Study) -> Evolution:
    return evolve(a, b, study.devices[0], context_len=study.asked.input_len)


def _names(e: Evolution) -> tuple[str, str]:
    return name_of(e.a.name), name_of(e.b.name)


def _draw(e: Evolution, metrics: Sequence[str], key: str, level: str = "h4") -> Drawn:
    """The charts of some figures."""
    charts = step_charts(e, _names(e), {metric: METRICS[metric] for metric in metrics}, key)
    return f'<div class="plots">{"".join(chart_html(chart, level) for chart in charts)}</div>', charts


def _twin(e: Evolution) -> str:
    rows = [
        [name_of(e.change(step), 120), *(signed_change(metric, step.delta[metric]).text for metric in METRICS)]
        for step in e.steps
    ]
    return table(f"Steps from {_names(e)[0]} to {_names(e)[1]}", ["", *METRICS.values()], rows)


# ------------------------------------------------------------------ from each to the next
def _milestones(models: Sequence[Model], study: Study) -> Drawn:
    """The figures of every model in turn, and what was decided between each and the next."""
    ways, refused = [], []
    for a, b in pairwise(models):
        try:
            ways.append(_way(a, b, study))
        except ArchsimError as error:
            refused.append(paragraph(f"{name_of(a.name)} to {name_of(b.name)}: {error.message}"))
    if not ways:
        return "", []
    stretches, charts = "", []
    for i, e in enumerate(e for e in ways if e.steps):
        drawn, found = _draw(e, STRETCH, f"stretch-{i}")
        charts += found
        stretches += details(_summary(e), drawn + _twin(e), "stretch long")
    body = "<h3>From each to the next</h3>" + _stations(ways, study) + "".join(refused)
    return f'{body}<div class="stretches">{stretches}</div><!--stretches-->', charts


def _stations(ways: Sequence[Evolution], study: Study) -> str:
    rows = [[_with_dates(ways[0].a), "–", *(absolute(metric, getattr(ways[0].first, metric)) for metric in METRICS)]]
    for e in ways:
        costs = (absolute(metric, getattr(e.last, metric)) for metric in METRICS)
        rows.append([_with_dates(e.b), f"{len(e.steps):,}", *costs])
    caption = f"The models in order, one sequence of {study.asked.input_len:,} tokens on one {study.devices[0].id}"
    return table(caption, ["", "decisions", *METRICS.values()], rows)


def _with_dates(model: Model) -> str:
    year = (model.released or "")[:4]
    return name_of(model.name, 40) + (f" ({year})" if year else "")


def _summary(e: Evolution) -> str:
    whole = {metric: (getattr(e.first, metric), getattr(e.last, metric)) for metric in ("params", *STRETCH)}
    found = [f"{METRICS[m]} {absolute(m, a)} → {absolute(m, b)}" for m, (a, b) in whole.items()]
    return f"{_names(e)[0]} to {_with_dates(e.b)}: {plural(len(e.steps), 'decision')}; {', '.join(found)}"
