"""`archsim survey`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import pair as p
from archsim.cli.option_sets.charts import Plotly, PlotlyJs

if TYPE_CHECKING:
    from archsim.ledger.survey import Survey

Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")]
All = Annotated[bool, typer.Option("-v", "--verbose", help="List every row of the study.")]


def survey(
    html: Html = None,
    plotlyjs: Plotly = PlotlyJs.inline,
    force: o.Force = False,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    verbose: All = False,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """What the models of the catalog chose, by year, and a study of 53 models counted again.

    Norm, positions, activation, attention, block and experts are read from the specs. Every cell of the study's table
    that differs from them is listed with what the spec says and its source.
    """
    from archsim import api
    from archsim.render.pages import survey as survey_page

    layout = p.PageLayout.json if json else format
    if html is not None or layout is p.PageLayout.html:
        from archsim.render.figures.plotlyjs import check_page

        check_page(html, plotlyjs.source, force=force)
    answer = api.survey()
    if html is not None:
        from archsim.render.figures.plotlyjs import write_page

        write_page(html, _document(answer, plotlyjs), plotlyjs.source, force=force)
    bare = quiet and layout is not p.PageLayout.html
    output.emit_answer(
        layout, no_color, answer.to_dict, lambda: survey_page.page(answer, verbose),
        rows=lambda: survey_page.rows(answer), bare=(lambda: survey_page.bare(answer)) if bare else None,
        html=lambda: _document(answer, plotlyjs),
    )  # fmt: skip


def _document(answer: Survey, plotlyjs: PlotlyJs) -> str:
    from archsim.render.html.survey import document

    return document(answer, plotlyjs.source)
