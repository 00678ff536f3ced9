"""Pieces of the page that several places use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dash import html
from dash.development.base_component import Component


def with_attributes(component: Component, attributes: Mapping[str, str]) -> Component:
    """The component with attributes such as `aria-label`, which Dash takes by any name."""
    for name, value in attributes.items():
        setattr(component, name, value)
    return component


def scrolled_table(caption: str, head: Sequence[str], rows: Sequence[Sequence[Component | str]]) -> Component:
    """A table that scrolls by itself where the screen is narrow; the first cell of a row names it."""
    heads = [html.Th(text, scope="col") if text else html.Td() for text in head]
    body = [html.Tr([_cell(i, cell) for i, cell in enumerate(row)]) for row in rows]
    whole = html.Table([html.Caption(caption, className="unseen"), html.Thead(html.Tr(heads)), html.Tbody(body)])
    place = html.Div(whole, className="scroll", tabIndex="0", role="region")
    return with_attributes(place, {"aria-label": f"{caption}: numbers"})


def _cell(number: int, cell: Component | str) -> Component:
    if isinstance(cell, html.Td):
        return cell
    return html.Td(cell) if number else html.Th(cell, scope="row")
