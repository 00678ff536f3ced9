"""`archsim validate --html`: one page with scatter plots and the error tables."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from archsim.base.units import format_number
from archsim.render.figures.accuracy import Point, change, predicted_measured
from archsim.render.figures.chart import Chart, Table
from archsim.render.figures.plotlyjs import Source
from archsim.render.figures.theme import SERIES
from archsim.render.html.environment import part
from archsim.render.html.markup import chart_html, paragraph
from archsim.render.html.page import html_document, section_html
from archsim.render.page import Page, plural
from archsim.render.pages import validate as v

if TYPE_CHECKING:
    from archsim.accuracy.validation import Validation
    from archsim.measure.model_check import ModelCheck

MOST = 5_000
"""Points that are drawn; more are sampled with a fixed seed."""

PANELS = {"kernels": "op"}
"""The dimension of which each group has a plot of its own."""

COLOURED = {"kernels": "device"}
"""The dimension that marks and colours stand for."""

FEWEST = 4
"""Points that a plot is drawn for; fewer are in the tables alone."""

LISTED = 20
"""Points that a table lists, the furthest off first."""

UNITS = {"tok_s": "tokens/s", "_us": "µs", "_ms": "ms", "_s": "s", "_gb": "GiB", "_gib": "GiB", "_tokens": "tokens"}
"""Units by the endings of metrics."""

BASIS = (
    "Predictions are computed before measurements are read. For some engines, constants (kernels, host time) were "
    "fitted to public runs, which may be among these: docs/validate.md"
)
"""What stands above every plot: what the predictions know of the measurements."""


def document(answers: Sequence[Validation], source: Source = "inline") -> str:
    """The page: an answer for each kind of file."""
    title = "Predicted against measured: " + ", ".join(f"{len(a.rows):,} {a.kind}" for a in answers)
    charts = [list(validation_charts(answer)) for answer in answers]
    body = "".join(_answer(answer, drawn) for answer, drawn in zip(answers, charts, strict=True))
    return html_document(title, [BASIS], body, charts=[chart for drawn in charts for chart in drawn], source=source)


def model_document(answer: ModelCheck) -> str:
    """The page of one model that was instantiated and timed."""
    page = v.model_page(answer)
    return html_document(page.head[0], [BASIS, *page.head[1:]], _tables(page))


def _answer(answer: Validation, charts: Sequence[Chart]) -> str:
    head = v.head(answer)
    drawn = "".join(chart_html(chart) for chart in charts)
    plots = f'<div class="plots">\n{drawn}</div>\n' if charts else ""
    said = paragraph(verdict(answer)) + paragraph(head[1], "dim")
    return f"{part('heading')(2, head[0])}{said}{plots}{_tables(v.page(answer, verbose=True))}"


def _tables(page: Page) -> str:
    return "".join(section_html(section._replace(sub=True)) for section in page.sections)


def verdict(answer: Validation) -> str:
    """The finding in one sentence."""
    summary = answer.summary
    if summary["median_ape"] is None:
        return "No row has both a prediction and a measurement."
    naive = v.share(summary["naive"]["median_ape"])
    return (
        f"Half of the predictions are within {v.share(summary['median_ape'])} of the measurement (the datasheet "
        f"roofline: {naive}); {v.share(summary['coverage_80'])} of the measurements lie in the 80 % interval."
    )


def validation_charts(answer: Validation) -> Iterable[Chart]:
    """A chart for each class of kernels or each metric, since their units differ."""
    names, panels = _panels(answer)
    groups = answer.by(PANELS.get(answer.kind, "metric")) if panels else {}
    for number, (panel, points) in enumerate(panels.items()):
        metric = panel if answer.kind != "kernels" else answer.rows.metrics[0]
        count, all_ = len(points), groups[panel]["scored"]
        drawn = plural(count, "point") if count == all_ else f"{count:,} of {all_:,} points"
        yield predicted_measured(
            points, names, next((name for ending, name in UNITS.items() if metric.endswith(ending)), metric),
            key=f"{answer.kind}-{number}".replace(" ", "-"), title=panel,
            finding=f"Median error {v.share(groups[panel]['median_ape'])}; {drawn}.", table=_worst(points),
        )  # fmt: skip


def _worst(points: Sequence[Point]) -> Table:
    """The points that are furthest off, as a table."""
    ranked = sorted(points, key=lambda p: -abs(p.predicted / p.measured - 1))[:LISTED]
    rows = [[p.words, format_number(p.measured), format_number(p.predicted), change(p)] for p in ranked]
    return Table(["furthest off", "measured", "predicted", "error"], rows)


def _panels(answer: Validation) -> tuple[list[str], dict[str, list[Point]]]:
    """The names of marks and, for each plot, its points: all, or a sample drawn with a fixed seed."""
    rows = answer.rows
    groups = rows.labels.get(COLOURED.get(answer.kind, "engine")) or [""] * len(rows)
    main = [name for name, found in answer.by(COLOURED.get(answer.kind, "engine")).items() if found["scored"]]
    number = {name: i for i, name in enumerate(main[: SERIES - 1])}
    usable = (rows.scored & (rows.predicted > 0)).tolist()
    places: dict[str, list[int]] = {}
    for i, panel in enumerate(rows.labels[PANELS.get(answer.kind, "metric")]):
        if usable[i]:
            places.setdefault(panel, []).append(i)
    places = {panel: listed for panel, listed in places.items() if len(listed) >= FEWEST}
    found: dict[str, list[Point]] = {}
    for panel in sorted(places, key=lambda name: (-len(places[name]), name)):
        listed = _thin(places[panel], MOST // len(places))
        found[panel] = [
            Point(float(rows.measured[i]), float(rows.predicted[i]), number.get(groups[i], SERIES - 1),
                  rows.titles[i]) for i in listed
        ]  # fmt: skip
    return [*number, *(["others"] if len(main) > len(number) else [])], found


def _thin(listed: list[int], most: int) -> list[int]:
    return listed if len(listed) <= most else sorted(random.Random(0).sample(listed, most))
