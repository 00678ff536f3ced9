"""`archsim survey`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli import pair_options as p

Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")]
All = Annotated[bool, typer.Option("-v", "--verbose", help="List every row of the study.")]


def survey(
    html: Html = None,
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

    answer = api.survey()
    if html is not None:
        from archsim.calibration.writing import write_text
        from archsim.render.pages.survey import document

        write_text(html, document(answer))
    layout = p.PageLayout.json if json else format
    if layout is p.PageLayout.json:
        output.emit_json(answer.to_dict())
        return
    from archsim.render.pages import survey as survey_page

    if layout is p.PageLayout.csv:
        from archsim.render.flat import to_csv

        output.emit(to_csv(survey_page.rows(answer)))
    elif layout is p.PageLayout.html:
        output.emit(survey_page.document(answer))
    elif quiet:
        output.emit(survey_page.bare(answer))
    else:
        output.emit_page(survey_page.page(answer, verbose), layout.value, no_color)
