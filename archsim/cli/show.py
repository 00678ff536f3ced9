"""`archsim show`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output


class Kind(StrEnum):
    """Kinds of document."""

    model = "model"
    hw = "hw"
    format = "format"  # type: ignore[assignment]
    engine = "engine"


def show(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A model, device, format or engine: name, alias or path.")
    ],
    kind: Annotated[Kind | None, typer.Option(help="What NAME is, where it could be several things.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Print the YAML file as it is.")] = False,
    svg: o.Svg = None,
    theme: o.Themed = o.Theme.auto,
    force: o.Force = False,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    no_color: o.NoColor = False,
) -> None:
    """One model, device, format or engine, with the file it comes from and its sources.

    With --svg a model is drawn: its layers, what is inside their blocks, parameters and shares of FLOP.
    """
    from archsim.render.pages import show as show_page

    found = show_page.find(name, kind.value if kind else None)
    if svg is not None:
        output.write_drawing(svg, lambda: show_page.drawing(found, theme.value), force=force)
        return
    if raw:
        output.emit(found.text())
        return
    layout = "json" if json else format
    output.emit_answer(layout, no_color, lambda: show_page.document(found), lambda: show_page.page(found))
