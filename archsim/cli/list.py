"""`archsim list`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output


class What(StrEnum):
    """What can be listed."""

    models = "models"
    hw = "hw"
    formats = "formats"
    engines = "engines"
    prices = "prices"
    runs = "runs"


def list(
    what: Annotated[What, typer.Argument(metavar="KIND")] = What.models,
    grep: Annotated[str, typer.Option(metavar="TEXT", help="Only entries with this in a name or alias.")] = "",
    where: Annotated[
        str | None,
        typer.Option(metavar="CONDITION", help="Only entries that satisfy it: 'params < 10B and context >= 32k'."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option(metavar="FIGURE", help="Sort by params, context, memory, price, bits ...: largest first."),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", "-r", help="Reverse the order.")] = False,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Files and other names too.")] = False,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """List models, devices, formats, engines, prices and measured runs with the figures that people choose by."""
    from archsim.render.pages.list import entries, page

    found = entries(what.value, grep, where, sort, reverse)
    document = {"schema": "archsim.list/1", "kind": what.value, "entries": found}
    output.emit_answer(
        "json" if json else format, no_color, lambda: document, lambda: page(what.value, found, verbose),
        rows=lambda: found,
        bare=(lambda: "".join(f"{entry['name']}\n" for entry in found)) if quiet else None,
    )  # fmt: skip
