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
    runs = "runs"


def list(
    what: Annotated[What, typer.Argument(metavar="[models|hw|formats|engines|runs]")] = What.models,
    grep: Annotated[str, typer.Option(metavar="TEXT", help="Only entries with this in a name or alias.")] = "",
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Models, devices, formats, engines and measured runs that there are, and the file each comes from."""
    from archsim.render.pages.list import entries, page

    found = entries(what.value, grep)
    document = {"schema": "archsim.list/1", "kind": what.value, "entries": found}
    output.emit_answer(
        "json" if json else format, no_color, lambda: document, lambda: page(what.value, found), rows=lambda: found,
        bare=(lambda: "".join(f"{entry['name']}\n" for entry in found)) if quiet else None,
    )  # fmt: skip
