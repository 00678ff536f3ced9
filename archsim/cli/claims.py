"""`archsim claims`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from archsim.base.output_file import check_output, write_text
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import pair as p


class Word(StrEnum):
    """The verdicts."""

    true = "true"
    approximately = "approximately"
    false = "false"
    uncheckable = "uncheckable"


Ids = Annotated[list[str] | None, typer.Option("--id", metavar="C001", help="Only this claim; may be repeated.")]
Only = Annotated[Word | None, typer.Option("--verdict", help="Only claims with this verdict.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a self-contained HTML page.")]
Report = Annotated[Path | None, typer.Option("--write-report", metavar="FILE", help="Write the ledger as Markdown.")]


def claims(
    id: Ids = None,
    verdict: Only = None,
    html: Html = None,
    write_report: Report = None,
    force: o.Force = False,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Numeric claims of articles about transformers, computed and judged by one rule.

    Each claim is a check in YAML over the specs of the catalog; no result and no verdict is written by hand.
    """
    from archsim import api
    from archsim.render.pages import claims as claims_page

    check_output(html, force=force)
    check_output(write_report, force=force)
    ledger = api.claims(id=tuple(id or ()), verdict=None if verdict is None else verdict.value)
    if html is not None:
        write_text(html, claims_page.document(ledger), force=force)
    if write_report is not None:
        write_text(write_report, claims_page.markdown(ledger), force=force)
    layout = p.PageLayout.json if json else format
    if layout is p.PageLayout.md and not quiet:
        output.emit(claims_page.markdown(ledger))
        return
    output.emit_answer(
        layout, no_color, ledger.to_dict, lambda: claims_page.page(ledger), rows=lambda: claims_page.rows(ledger),
        bare=(lambda: claims_page.bare(ledger)) if quiet else None, html=lambda: claims_page.document(ledger),
    )  # fmt: skip
