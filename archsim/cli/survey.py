"""`archsim survey`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import pair as p

Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with plots.")]
All = Annotated[bool, typer.Option("-v", "--verbose", help="List every row of the study.")]


def survey(
    html: Html = None,
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
    from archsim.base.output_file import check_output, write_text
    from archsim.render.pages import survey as survey_page

    check_output(html, force=force)
    answer = api.survey()
    if html is not None:
        write_text(html, survey_page.document(answer), force=force)
    layout = p.PageLayout.json if json else format
    bare = quiet and layout is not p.PageLayout.html
    output.emit_answer(
        layout, no_color, answer.to_dict, lambda: survey_page.page(answer, verbose),
        rows=lambda: survey_page.rows(answer), bare=(lambda: survey_page.bare(answer)) if bare else None,
        html=lambda: survey_page.document(answer),
    )  # fmt: skip
