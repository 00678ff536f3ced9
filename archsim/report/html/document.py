"""The whole page: its parts in order, its style, its script where there is one, and what it promises about itself."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

from archsim import __version__
from archsim.report.html import answer, bars, cards, diagram, evolution, grid, measured, plots, roof
from archsim.report.html.controls import controls
from archsim.report.html.markup import details, legend, name_of, paragraph, safe, section, table
from archsim.report.html.study import Study
from archsim.report.validate_svg import symbols

SCHEMA = "archsim.report/1"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def document(study: Study, *, light: bool = False, stamp: str = "", command: str = "") -> str:
    """The page. light: pictures alone, without controls and script. stamp: a date or remark to be shown."""
    found = grid.grid(study, light)
    runs = measured.known(study)
    sections = _sections(study, found, runs, light, command)
    contents = "".join(
        f'<li><a href="#{key}">{safe(title)}</a></li>' for key, title, body in sections if body
    )
    body = "".join(section(key, title, text) for key, title, text in sections)
    script, data = ("", "") if light else (_file("explore.js"), _embedded("grid", grid.to_dict(found)))
    about = f"archsim {__version__}" + (f" · {stamp}" if stamp else "")
    heading = name_of(answer.title(study), 160)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n{_policy(script)}'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{safe(heading)}</title>\n<style>{_style()}</style></head>\n<body>\n"
        f'<a class="skip" href="#answer">To the answer</a>\n{symbols()}\n<header><h1>{safe(heading)}</h1>'
        f"{paragraph(about, 'dim')}</header>\n"
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n<main>\n{body}</main>\n{data}'
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


def _sections(
    study: Study, found: grid.Grid, runs: measured.Known, light: bool, command: str
) -> list[tuple[str, str, str]]:
    """(key, title, content) of every part; one without content is left out."""
    ask = "" if light else controls(found)
    charts = f'<div class="plots">{plots.growth(found)}{plots.frontier(found)}</div>'
    several = len(found.compared) > 1
    return [
        ("answer", "Answer", answer.answer(study)),
        ("compared", "What is compared", cards.compared(study)),
        (
            "structure",
            "Architectures" if len(study.models) > 1 else "Architecture",
            diagram.diagrams(study.models),
        ),
        ("explore", "Charts", ask + _key(found)),
        ("times", "Where the time goes", bars.time(found)),
        ("filled", "Memory", bars.memory(found) + charts),
        (
            "trade",
            "Throughput against latency" if several else "Throughput and latency",
            f'<div class="plots">{trade}</div>' if (trade := plots.pareto(found)) else "",
        ),
        ("rooflines", "Roofline", roof.rooflines(found, study.devices, runs.seen)),
        ("evolution", "From one architecture to the other", evolution.waterfall(study)),
        ("accuracy", "Accuracy of these estimates", measured.accuracy(runs)),
        ("assumptions", "Assumptions and limits", cards.assumptions(study)),
        ("provenance", "Provenance", _provenance(study, light, command)),
    ]


def _key(found: grid.Grid) -> str:
    """Which mark stands for which candidate, once for all charts."""
    items = (
        (f'<svg viewBox="-5 -5 10 10" class="key c{r.number % plots.SHAPES}" aria-hidden="true">'
         f'<use href="#g{plots.shape_of(r.number)}"/></svg>', r.label)
        for r in found.compared
    )  # fmt: skip
    return legend(items) + paragraph(
        "On the roofline circles are kernels of decode, squares of prefill.", "dim"
    )


def _provenance(study: Study, light: bool, command: str) -> str:
    rows = table("Inputs", ["", "file and the start of its SHA-256"], cards.inputs(study))
    made = paragraph("Made by: " + command) if command else ""
    text = json.dumps(data(study), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    if light:
        numbers = f'<pre id="data" tabindex="0" aria-label="Estimates as JSON">{_json_text(text)}</pre>'
        return made + rows + details("The estimates as JSON", numbers, long=True)
    numbers = f'<script type="application/json" id="data">{_inert(text)}</script>\n'
    button = '<p><button type="button" id="download" hidden>Download the estimates as JSON</button></p>'
    return made + rows + button + numbers


def data(study: Study) -> dict[str, Any]:
    """The estimates behind a report, as `estimate --json` gives them."""
    return {
        "schema": SCHEMA,
        "archsim": __version__,
        "estimates": [c.answer.to_dict() for c in study.candidates],
    }


def _embedded(key: str, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f'<script type="application/json" id="{key}">{_inert(text)}</script>\n'


def _inert(text: str) -> str:
    """JSON that cannot end the element it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _json_text(text: str) -> str:
    from html import escape

    return escape(_inert(text))


def _policy(script: str) -> str:
    """What the browser is to refuse: everything from outside, and every script but this page's own."""
    rule = POLICY
    if script:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        rule += f"; script-src 'sha256-{digest}'"
    referrer = '<meta name="referrer" content="no-referrer">'
    return f'<meta http-equiv="Content-Security-Policy" content="{rule}">\n{referrer}\n'


def _style() -> str:
    colours = "".join(
        f".c{i}{{fill:var(--c{i});stroke:var(--c{i})}}.p{i}{{fill:var(--c{i})}}" for i in range(plots.SHAPES)
    )
    return _file("page.css") + colours


def _file(name: str) -> str:
    """A file that stands beside this module."""
    return Path(__file__).with_name(name).read_text("utf-8").strip() + "\n"
