"""`archsim validate --html`: one page that needs nothing else, with scatter plots and the error tables."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from archsim.render.html.validate_svg import SHAPES, Point, key, scatter, symbols
from archsim.render.page import Row, Section, plural
from archsim.render.pages import validate as v

if TYPE_CHECKING:
    from archsim.accuracy.validation import Validation
    from archsim.measure.model_check import ModelCheck

MOST = 5_000
"""Points that are drawn; more are sampled with a fixed seed."""

PANELS = {"kernels": "op", "runs": "metric", "serving": "metric"}
"""The dimension of which each group has a plot of its own."""

COLOURED = {"kernels": "device", "runs": "engine", "serving": "engine"}
"""The dimension that marks and colours stand for."""

FEWEST = 4
"""Points that a plot is drawn for; fewer are in the tables alone."""

UNITS = {"tok_s": "tokens/s", "_us": "µs", "_ms": "ms", "_s": "s", "_gb": "GiB", "_gib": "GiB", "_tokens": "tokens"}
"""Units by the endings of metrics."""

STYLE = """
:root{color-scheme:light dark;--ink:#1b1f24;--dim:#57606a;--paper:#fff;--line:#d0d7de;--band:#0072b2;
--c0:#0072b2;--c1:#b34700;--c2:#00795a;--c3:#a3457f;--c4:#8a6d00;--c5:#2f7fb5;--c6:#1b1f24;--c7:#6e7781}
@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--dim:#9ea7b1;--paper:#0f1318;--line:#343b44;--band:#56b4e9;
--c0:#56b4e9;--c1:#ff9a5c;--c2:#2fd3a6;--c3:#e79cc8;--c4:#f0e442;--c5:#8ab8ff;--c6:#f2f2f2;--c7:#9ea7b1}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:1.2rem 1rem 3rem;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,sans-serif}h1{font-size:1.5rem;line-height:1.25;margin:.2rem 0}
h2{font-size:1.2rem;margin:2rem 0 .3rem}
h3{font-size:1rem;margin:1.4rem 0 .3rem}p{margin:.3rem 0;max-width:75ch}.dim,caption,figcaption{color:var(--dim)}
.scroll{overflow-x:auto;margin:.3rem 0}table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.92em}
th,td{padding:.22rem .6rem;border-bottom:1px solid var(--line);white-space:nowrap;text-align:right}
th{font-weight:600;color:var(--dim)}td.l,th.l{text-align:left}td.w{white-space:normal;min-width:16rem}
th:first-child,td:first-child{padding-left:0}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:1rem}
figure{margin:0;min-width:0;max-width:38rem}figure svg{width:100%;height:auto;display:block}
figcaption{font-size:.9em}svg text{fill:var(--dim);font-size:13px}svg .name{fill:var(--ink)}
.frame{fill:none;stroke:var(--dim)}.grid{fill:none;stroke:var(--line);stroke-width:.6}.one{stroke:var(--ink);fill:none}
.far{fill:var(--band);opacity:.10}.near{fill:var(--band);opacity:.16}.defs{position:absolute}
use,.key{fill-opacity:.55;stroke-width:.8}use{stroke-opacity:.9}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.2rem 1rem;padding:0;margin:.4rem 0}
.key{width:1em;height:1em;margin-right:.35em;
vertical-align:-.1em;overflow:visible}
@media print{:root{color-scheme:light}body{max-width:none}figure{break-inside:avoid}}
"""


def document(answers: Sequence[Validation]) -> str:
    """The page: an answer for each kind of file."""
    title = "Predicted and measured: " + ", ".join(f"{len(a.rows):,} {a.kind}" for a in answers)
    return _html_page(title, "".join(part for answer in answers for part in _answer(answer)))


def model_document(answer: ModelCheck) -> str:
    """The page of one model that was instantiated and timed."""
    from archsim.render.pages.validate_model import page

    told = page(answer)
    lines = "".join(f"<p>{escape(line)}</p>\n" for line in told.head[1:])
    return _html_page(told.head[0], lines + "".join(_section(section) for section in told.sections))


def _html_page(title: str, body: str) -> str:
    """A page around its body."""
    from archsim.base.version import VERSION

    colours = "".join(f".c{i}{{fill:var(--c{i});stroke:var(--c{i})}}" for i in range(len(SHAPES)))
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}"><title>{escape(title)}</title>'
        f"<style>{STYLE}{colours}</style></head>\n<body>\n{symbols()}\n<main><h1>{escape(title)}</h1>\n"
        f'<p class="dim">archsim {escape(VERSION)}; no prediction has seen a measured value.</p>\n'
        f"{body}</main>\n</body>\n</html>\n"
    )


def _answer(answer: Validation) -> Iterable[str]:
    head = v.head(answer)
    yield f"<h2>{escape(head[0])}</h2>\n<p>{escape(verdict(answer))}</p>\n<p class='dim'>{escape(head[1])}</p>\n"
    yield from _plots(answer)
    page = v.page(answer, verbose=True)
    for section in page.sections:
        yield _section(section)


def verdict(answer: Validation) -> str:
    """The finding in one sentence."""
    summary = answer.summary
    if summary["median_ape"] is None:
        return "No row has both a prediction and a measurement."
    naive = v.share(summary["naive"]["median_ape"])
    return (
        f"Half of the predictions are within {v.share(summary['median_ape'])} of the measurement (the datasheet "
        f"roofline: {naive}); {v.share(summary['coverage_80'])} of the measurements lie in the 80 % interval."
    )


def _plots(answer: Validation) -> Iterable[str]:
    """A plot for each class of kernels or each metric, since their units differ."""
    names, panels = _panels(answer)
    if not panels:
        return
    groups = answer.by(PANELS[answer.kind])
    yield key(names)
    yield '<div class="plots">\n'
    for panel, points in panels.items():
        metric = panel if answer.kind != "kernels" else answer.rows.metrics[0]
        finding = f"{panel}: median error {v.share(groups[panel]['median_ape'])}"
        count, all_ = len(points), groups[panel]["scored"]
        drawn = plural(count, "point") if count == all_ else f"{count:,} of {all_:,} points"
        unit = next((name for ending, name in UNITS.items() if metric.endswith(ending)), metric)
        caption = f"{escape(finding)}; {drawn}. Bands: 10 and 25 %."
        yield f"<figure>{scatter(points, unit, finding)}<figcaption>{caption}</figcaption></figure>\n"
    yield "</div>\n"


def _panels(answer: Validation) -> tuple[list[str], dict[str, list[Point]]]:
    """The names of marks and, for each plot, its points: all, or a sample drawn with a fixed seed."""
    rows = answer.rows
    groups = rows.labels.get(COLOURED[answer.kind]) or [""] * len(rows)
    main = [name for name, found in answer.by(COLOURED[answer.kind]).items() if found["scored"]]
    number = {name: i for i, name in enumerate(main[: len(SHAPES) - 1])}
    usable = (rows.scored & (rows.predicted > 0)).tolist()
    places: dict[str, list[int]] = {}
    for i, panel in enumerate(rows.labels[PANELS[answer.kind]]):
        if usable[i]:
            places.setdefault(panel, []).append(i)
    places = {panel: listed for panel, listed in places.items() if len(listed) >= FEWEST}
    found: dict[str, list[Point]] = {}
    for panel in sorted(places, key=lambda name: (-len(places[name]), name)):
        listed = _thin(places[panel], MOST // len(places))
        found[panel] = [
            Point(float(rows.measured[i]), float(rows.predicted[i]), number.get(groups[i], len(SHAPES) - 1),
                  rows.titles[i]) for i in listed
        ]  # fmt: skip
    return [*number, *(["others"] if len(main) > len(number) else [])], found


def _thin(listed: list[int], most: int) -> list[int]:
    return listed if len(listed) <= most else sorted(random.Random(0).sample(listed, most))


def _section(section: Section) -> str:
    """A section of the terminal page as a table."""
    heads = "".join(
        f'<th class="{_side(section, i)}" scope="col">{escape(text)}</th>'
        for i, text in enumerate(("", *section.header))
    )
    body = "".join(_line(section, cells) for cells in section.rows)
    head = f"<thead><tr>{heads}</tr></thead>" if section.header else ""
    below = "".join(f'<p class="dim">{escape(text)}</p>' for text in section.below)
    title = section.title + (f" ({section.aside})" if section.aside else "")
    return (
        f'<h3>{escape(title)}</h3><div class="scroll" tabindex="0" role="region" aria-label="{escape(title)}">'
        f"<table>{head}<tbody>{body}</tbody></table></div>{below}\n"
    )


def _line(section: Section, cells: Row) -> str:
    last = len(cells) - 1
    made = []
    for i, cell in enumerate(cells):
        wide = " w" if i == last and _side(section, i) == "l" and len(cell.text) > 40 else ""
        made.append(f'<td class="{_side(section, i)}{wide}">{escape(cell.text)}</td>')
    return f"<tr>{''.join(made)}</tr>"


def _side(section: Section, column: int) -> str:
    return "r" if section.align[column : column + 1] == "r" else "l"
