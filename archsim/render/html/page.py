"""Pages as HTML: one file with tables, charts where there are any, and nothing that it asks of others unasked."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from archsim.base.version import VERSION
from archsim.render.figures.chart import CONFIG, Chart
from archsim.render.figures.plotlyjs import Script, Source, digest, plotly_script
from archsim.render.figures.theme import THEMES
from archsim.render.html.environment import file_text, part, ready, render
from archsim.render.html.markup import chart_html, name_of
from archsim.render.page import Cell, Page, Row, Section

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; form-action 'none'; "
    "connect-src 'none'"
)
"""What the browser is to refuse: everything from outside, and every script but those of the page itself."""

OWN = """
h2{margin-top:1.6rem}section>p{margin:.2rem 0}
td.l{text-align:left}
thead th.l:first-child{padding-left:0}tbody th{text-align:left;font-weight:500;padding-left:0}
td.words{text-align:left;white-space:normal;overflow-wrap:anywhere;
min-width:14rem;max-width:46rem}
tr.sub th,td.dim,th.dim{color:var(--dim)}
tr.sub th{padding-left:1rem}tr.sub th.bad{color:var(--bad)}td.title,th.title{font-weight:600}
.good{color:var(--good)}td.bad,th.bad{color:var(--bad);font-weight:600}.note{color:var(--near)}
td.meter{min-width:8rem;padding:.24rem 0}td.meter svg{display:block;width:12rem;max-width:30vw;height:.9rem}
td.meter rect{fill:var(--c0)}
:root{--good:#00795a;--near:#8a5a00;--bad:#a3341f}
@media screen and (prefers-color-scheme:dark){:root{--good:#2fd3a6;--near:#f0c060;--bad:#ff9a8a}}
@media print{.scroll{overflow:visible}section{break-inside:auto}thead{display:table-header-group}
td.meter svg{width:3cm}td.words{min-width:5cm}td:not(.l):not(.words),tbody th{white-space:nowrap}}
"""
"""Beside the common style: tables of text, their bars, and what a style of a cell means."""


def document(page: Page, charts: Sequence[Chart] = (), source: Source = "inline") -> str:
    """The page. charts: shown between what was asked and the tables. source: where plotly.js comes from."""
    title, *rest = page.head
    lines = [*rest, *(f"Note: {note}" for note in page.notes)]
    drawn = f'<div class="plots">{"".join(chart_html(chart, "h2") for chart in charts)}</div>\n' if charts else ""
    tables = "".join(section_html(section) for section in page.sections)
    return html_document(title, lines, drawn + tables, charts=charts, source=source)


def html_document(
    title: str, lines: Iterable[str], body: str, style: str = "", *, charts: Sequence[Chart] = (),
    source: Source = "inline", contents: Sequence[tuple[str, str]] = (), kinds: Sequence[tuple[str, str]] = (),
) -> str:  # fmt: skip
    """A document. title and lines are text, body is HTML that is safe already, with the places of its charts.

    style: beside the common one. source: where plotly.js comes from, where there are charts. contents: (id, title) of
    sections. kinds: further lines, each with its style.
    """
    script = file_text("charts.js")
    library = plotly_script(source) if charts else None
    told = [(f"archsim {VERSION}", "dim"), *((line, "") for line in lines), *kinds]
    return render(
        "page.html.j2", title=name_of(title, 200), lines=told, body=ready(distinct_regions(body)),
        contents=list(contents),
        style=ready(file_text("page.css").rstrip() + OWN + style), policy=_policy(library, script), library=library,
        charts=chart_data(charts), script=script,
    )  # fmt: skip


REGION = re.compile(r'role="region" aria-label="([^"]*)"')
"""A table that scrolls, and its name for who cannot see it."""


def distinct_regions(body: str) -> str:
    """The body with numbers in the names of tables that are named alike, so that a screen reader's list of them tells
    them apart.
    """
    seen: Counter[str] = Counter()

    def named(found: re.Match[str]) -> str:
        seen[found[1]] += 1
        return found[0] if seen[found[1]] == 1 else f'{found[0][:-1]} ({seen[found[1]]})"'

    return REGION.sub(named, body)


def _policy(library: Script | None, script: str) -> str:
    if library is None:
        return POLICY
    return f"{POLICY}; script-src '{digest(script)}' {library.allowed}"


def chart_data(charts: Sequence[Chart]) -> str:
    """What the page's script draws: every chart with its colours by name, and the colours of both themes."""
    specs = {chart.key: {"data": chart.traces, "layout": chart.layout} for chart in charts}
    return script_json({"themes": THEMES, "config": CONFIG, "charts": specs})


def script_json(value: object) -> str:
    """JSON that cannot end the element it stands in; numbers to six digits, as no chart shows more."""
    text = json.dumps(_short(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _short(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, (list, tuple)) else value


# ------------------------------------------------------------------ tables of commands
def grid(name: str, header: Iterable[str], rows: Iterable[Row], align: str = "") -> str:
    """A table that scrolls by itself where the screen is narrow. name: what it is called where it is not seen.
    header: one title for each column. align: one letter for each, `l` or `r`; a first column of words names the row.
    """
    lines, heads = [tuple(cells) for cells in rows], list(header)
    if not any(heads[:1]) and not any(cells[0].text or cells[0].bar for cells in lines):
        lines, heads, align = [cells[1:] for cells in lines], heads[1:], align[1:]
    count = max((len(heads), *(len(cells) for cells in lines)))
    heads += [""] * (count - len(heads))
    top = [(text, "" if align[i : i + 1] == "r" else "l") for i, text in enumerate(heads)]
    return part("grid")(name, top, [_line(cells, count, align) for cells in lines])


def section_html(section: Section) -> str:
    """A titled table, or commands each below what it is for, with the lines below it."""
    title = section.title + (f" ({section.aside})" if section.aside else "")
    inside = ""
    if section.commands:
        inside = part("commands")([(command.text, about.text) for command, about in section.rows])
    elif section.rows:
        first = section.title if section.align[:1] == "r" else ""  # figures in the first column: what the title names
        heads = (first, *section.header) if section.header else ()
        inside = grid(title or section.rows[0][0].text.strip() or "Basis", heads, section.rows, section.align)
    return part("titled")(3 if section.sub else 2, title, ready(inside), section.below)


class _PageCell(NamedTuple):
    """A cell as the template takes it. name: of its row. kind: its style."""

    text: str
    kind: str = ""
    name: bool = False
    bar: float | None = None
    start: float = 0.0


def _line(cells: Row, count: int, align: str) -> tuple[list[_PageCell], bool]:
    """One row. Its first cell names it where that is a word; a name that begins with blanks stands below another."""
    named = bool(cells) and align[:1] != "r" and cells[0].bar is None and cells[0].text.strip() != ""
    shown = []
    for i in range(count):
        cell = cells[i] if i < len(cells) else Cell("")
        if i == 0 and named:
            shown.append(_PageCell(cell.text, cell.style, name=True))
        else:
            side = "" if align[i : i + 1] == "r" else "words" if len(cell.text) > 44 else "l"
            kind = " ".join(word for word in (side, cell.style) if word)
            shown.append(_PageCell(cell.text, kind, bar=cell.bar, start=cell.start))
    return shown, named and cells[0].text.startswith("  ")
