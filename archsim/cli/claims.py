"""`archsim claims`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli import pair_options as p

if TYPE_CHECKING:
    from archsim.ledger.claims import Ledger


class Word(StrEnum):
    """The verdicts."""

    true = "true"
    approximately = "approximately"
    false = "false"
    uncheckable = "uncheckable"


Ids = Annotated[list[str] | None, typer.Option("--id", metavar="C001", help="Only this claim; may be repeated.")]
Only = Annotated[Word | None, typer.Option("--verdict", help="Only claims with this verdict.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page that stands alone.")]
Report = Annotated[Path | None, typer.Option("--write-report", metavar="FILE", help="Write the ledger as Markdown.")]


def claims(
    id: Ids = None,
    verdict: Only = None,
    html: Html = None,
    write_report: Report = None,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Numeric claims of articles about transformers, computed and judged by one rule.

    Each claim is a check in YAML over the specs of the catalog; no result and no verdict is written by hand.
    """
    from archsim import api

    ledger = api.claims(id=tuple(id or ()), verdict=None if verdict is None else verdict.value)
    _write(ledger, html, write_report)
    layout = p.PageLayout.json if json else format
    if layout is p.PageLayout.json:
        output.emit_json(ledger.to_dict())
        return
    from archsim.render.pages import claims as claims_page

    if layout is p.PageLayout.csv:
        from archsim.render.flat import to_csv

        output.emit(to_csv(claims_page.rows(ledger)))
    elif quiet:
        output.emit(claims_page.bare(ledger))
    elif layout is p.PageLayout.md:
        output.emit(claims_page.markdown(ledger))
    elif layout is p.PageLayout.html:
        output.emit(claims_page.document(ledger))
    else:
        output.emit_page(claims_page.page(ledger), layout.value, no_color)


def _write(ledger: Ledger, html: Path | None, report: Path | None) -> None:
    """The files that were asked for, each whole or not at all."""
    if html is None and report is None:
        return
    from archsim.calibration.writing import write_text
    from archsim.render.pages import claims as claims_page

    if html is not None:
        write_text(html, claims_page.document(ledger))
    if report is not None:
        write_text(report, claims_page.markdown(ledger))
