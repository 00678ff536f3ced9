"""The whole report: its sections in order, and what it leaves out where it would be too large."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Unpack

from archsim.base.displayed import Displayed
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import CostArguments, LoadArguments
from archsim.base.version import VERSION
from archsim.render.figures.chart import Chart
from archsim.render.figures.plotlyjs import Source, check_source, write_page
from archsim.render.html import drawings, evolution, headline, measured
from archsim.render.html import spec_cards as cards
from archsim.render.html.candidates import ReportRequest, Study, study
from archsim.render.html.environment import part
from archsim.render.html.lineage import descent
from archsim.render.html.markup import chart_html, details, paragraph, section, table
from archsim.render.html.page import chart_data, html_document
from archsim.render.html.page_size import MOST, MOST_LIGHT, Parts, fitting
from archsim.render.html.report_charts import report_charts
from archsim.render.html.workloads import workloads
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

SCHEMA = "archsim.report/1"


def document(
    study: Study, *, light: bool = False, stamp: str = "", command: str = "", source: Source = "inline"
) -> str:
    """The page. light: tables alone, without charts and script. stamp: a date or remark to be shown. source: where
    plotly.js comes from.

    Where the file would be too large, parts are left out in a fixed order and named. Raises UsageError where even
    that is not enough.
    """
    whole = _parts(study, light, command)
    most = MOST_LIGHT if light else MOST
    for parts in fitting(whole):
        if _size(parts) <= most:
            return _page(study, parts, stamp, most, source)
    raise UsageError(
        f"the report would be larger than {most:,} bytes",
        hints=("name fewer models, devices or formats", *(["leave out `--light`"] if light else [])),
    )


OUTSIDE = 30_000
"""Bytes of a page beside its sections and charts: style, head, script."""


def _size(parts: Parts) -> int:
    body = sum(len(text.encode()) for _, _, text in parts.sections)
    return OUTSIDE + body + (len(chart_data(parts.placed).encode()) if parts.charts else 0)


def _page(study: Study, parts: Parts, stamp: str, most: int, source: Source) -> str:
    """The text of the file. most: the bytes that it may have."""
    kinds = [(headline.workload(study), "load"), *([(stamp, "dim")] if stamp else [])]
    if parts.left_out:
        kinds.append(
            (f"Left out so that the file stays below {most:,} bytes: {'; '.join(parts.left_out)}.", "left-out")
        )
    body = "".join(section(key, title, text) for key, title, text in parts.sections)
    contents = [(key, title) for key, title, _ in parts.sections]
    return html_document(
        headline.title(study), (), body, charts=parts.placed, source=source, contents=contents, kinds=kinds
    )


def _parts(study: Study, light: bool, command: str) -> Parts:
    """Every section that has content, and the charts in them. light: without charts."""
    runs = measured.known_runs(study)
    charts = {} if light else report_charts(study, workloads(study), runs.seen)
    way, steps = ("", []) if light else evolution.evolution(study)
    errors, scatter = measured.accuracy(runs, drawn=not light)
    distinct = list({m.name: m for m in study.models}.values())
    several = len(study.models) > 1
    sections = [
        ("answer", "Answer", headline.answer(study)),
        ("speed", "Speed and memory", _plots(charts, "speed")),
        ("context", "Growth with the context length", _plots(charts, "context")),
        ("rooflines", "Roofline", _plots(charts, "rooflines")),
        ("compared", "What is compared", cards.compare_specs(study)),
        ("structure", "Architectures" if several else "Architecture",
         drawings.diagrams(study.models) + descent(distinct)),
        ("evolution", "From one architecture to the other", way),
        ("accuracy", "Accuracy of these estimates", errors),
        ("assumptions", "Assumptions and limits", cards.assumptions(study)),
        ("provenance", "Provenance", _provenance(study, command)),
    ]  # fmt: skip
    drawn = [*(chart for listed in charts.values() for chart in listed), *steps, *scatter]
    return Parts(sections=tuple(s for s in sections if s[2]), charts=tuple(drawn))


def _plots(charts: Mapping[str, Sequence[Chart]], key: str) -> str:
    """The charts of a section side by side."""
    found = "".join(chart_html(chart) for chart in charts.get(key, ()))
    return f'<div class="plots">{found}</div>\n' if found else ""


def _provenance(study: Study, command: str) -> str:
    rows = table("Inputs", ["", "file", "SHA-256", "first source"], cards.inputs(study), left=True)
    made = paragraph("Command: " + command) if command else ""
    return made + rows + details("The estimates as JSON", _estimates(study), "long estimates")


def _estimates(study: Study) -> str:
    text = json.dumps(data(study), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return part("json")(text)


def data(study: Study) -> JsonObject:
    """The estimates behind a report, as `estimate --json` gives them."""
    return {"schema": SCHEMA, "archsim": VERSION, "estimates": [c.answer.to_dict() for c in study.candidates]}


# ------------------------------------------------------------------ from names to the page
@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Displayed):
    """A page and what it is about."""

    __repr__ = Displayed.__repr__

    study: Study
    html: str
    source: Source = "inline"

    def to_dict(self) -> JsonObject:
        """The `archsim.report/1` object: the estimates behind the page."""
        return data(self.study)

    def write(self, path: Path | str, *, force: bool = False) -> None:
        """Writes the page, whole or not at all; with `directory`, plotly.js beside it unless it is there.

        force: replace a page that exists. Raises OutputRefused, OutputFailure.
        """
        write_page(path, self.html, self.source if "<script" in self.html else "inline", force=force)


def report(
    models: Sequence[tuple[str, Model, str | None]],
    hw: Sequence[tuple[str, Hardware]],
    *,
    changes: tuple[str, ...] = (),
    weights: Sequence[str] = (),
    light: bool = False,
    stamp: str = "",
    command: str = "",
    plotlyjs: str = "inline",
    costs: CostArguments | None = None,
    **asked: Unpack[LoadArguments],
) -> Report:
    """The page. models: name as given, model, and the format that the name implies; hw: name and device. light: no
    charts. stamp, command: shown on the page. plotlyjs: where plotly.js comes from. costs: a price, where one is
    stated. Raises UsageError where there is nothing to compare, and for a price that there is not.
    """
    source = check_source(plotlyjs)
    models, hw = _once(models), _once(hw)
    if not models or not hw:
        raise UsageError("a report needs at least one model and one device")
    question = ReportRequest(
        models=tuple(name for name, _, _ in models), hw=tuple(name for name, _ in hw), changes=changes,
        weights=tuple(dict.fromkeys(weights)) or (None,), costs=costs or {}, **asked,
    )  # fmt: skip
    found = study([(model, hint) for _, model, hint in models], [device for _, device in hw], question)
    return Report(study=found, source=source,
                  html=document(found, light=light, stamp=stamp, command=command, source=source))  # fmt: skip


Named = TypeVar("Named", bound=tuple[object, ...])


def _once(opened: Sequence[Named]) -> list[Named]:
    """Without those that are the same under another name."""
    return [one for i, one in enumerate(opened) if not any(one[1:] == other[1:] for other in opened[:i])]
