"""The option of pages with charts."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from archsim.render.figures.plotlyjs import Source


class PlotlyJs(StrEnum):
    """Where a page takes plotly.js from."""

    inline = "inline"
    directory = "directory"
    cdn = "cdn"

    @property
    def source(self) -> Source:
        """The same for pages."""
        from archsim.render.figures.plotlyjs import check_source

        return check_source(self.value)


Plotly = Annotated[
    PlotlyJs,
    typer.Option(
        "--plotlyjs",
        help="Where charts take plotly.js from: in the file (4.8 MB, opens offline), a copy next to the file, or "
        "plotly's servers.",
    ),
]  # fmt: skip
