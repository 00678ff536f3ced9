"""Options of the commands that set models against each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archsim.base.json_types import JsonObject
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets.charts import PlotlyJs
from archsim.cli.options import devices, models

if TYPE_CHECKING:
    from archsim.render.figures.chart import Chart
    from archsim.render.page import Page


class PageLayout(StrEnum):
    """Output format."""

    table = "table"
    md = "md"
    json = "json"
    csv = "csv"
    html = "html"


_MODEL = "Catalog name, alias, Hugging Face id, or path to a spec."

First = Annotated[str, typer.Argument(metavar="A", autocompletion=models, help=_MODEL)]
Second = Annotated[str, typer.Argument(metavar="B", autocompletion=models, help=_MODEL)]
Several = Annotated[
    list[str], typer.Argument(metavar="A [B]...", autocompletion=models, help=f"{_MODEL} The first is the baseline.")
]
DeviceList = Annotated[
    str | None,
    typer.Option("--hw", "--gpu", metavar="HW[,HW]", autocompletion=devices, help="Devices: names, aliases or paths."),
]
ContextLen = Annotated[
    int, typer.Option("--context-len", parser=o.tokens, metavar="N", help="Tokens of the sequence; 32k means x 1024.")
]
ChangesOfSecond = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of the second model's spec.")
]
ChangesOfFirst = Annotated[
    list[str] | None,
    typer.Option("--set-from", metavar="FIELD=VALUE", help="Change a field of the first model's spec."),
]
ChangesOfOthers = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field of all models but the first.")
]
Formats = Annotated[
    str | None,
    typer.Option(
        "--weights", "--quantization", "--quant", metavar="FMT[,FMT]", autocompletion=o.formats,
        help="Weight formats: every model in each. Default: the checkpoint's own.",
    ),
]  # fmt: skip
FormatsOfBoth = Annotated[
    str | None,
    typer.Option(
        "--weights", "--quantization", "--quant", metavar="FMT[,FMT]", autocompletion=o.formats,
        help="Weight format of both models, or of the first and of the second. Default: the checkpoint's own.",
    ),
]  # fmt: skip
Svg = Annotated[
    Path | None,
    typer.Option("--svg", metavar="FILE", help="Draw the architectures side by side into an SVG file, with a ≠ where "
                 "they differ; `-`: to stdout."),
]  # fmt: skip
Format = Annotated[PageLayout, typer.Option("--format", help="Output format.")]


def html_of(page: Page) -> str:
    """A page without charts as an HTML file."""
    from archsim.render.html.page import document

    return document(page)


def emit(
    answer: Any,
    layout: PageLayout,
    no_color: bool,
    page: Callable[[], Page],
    rows: Callable[[], list[JsonObject]],
    charts: Callable[[], Sequence[Chart]] = tuple,
    plotlyjs: PlotlyJs = PlotlyJs.inline,
) -> None:
    """Write an answer whose HTML is its page with charts; only what the layout needs is made."""

    def html() -> str:
        from archsim.render.figures.plotlyjs import check_page
        from archsim.render.html.page import document

        check_page(None, plotlyjs.source)
        return document(page(), charts(), plotlyjs.source)

    output.emit_answer(layout, no_color, answer.to_dict, page, rows=rows, html=html)
