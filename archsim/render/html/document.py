"""The whole page: its parts in order, its style, its script where there is one, and what it promises about itself."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Unpack

from archsim.base.displayed import Displayed
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import LoadArguments
from archsim.base.output_file import write_text
from archsim.base.version import VERSION
from archsim.render.html import bars, evolution, grid, measured, plots
from archsim.render.html import drawings as diagram
from archsim.render.html import headline as answer
from archsim.render.html import pareto as trade
from archsim.render.html import roofline as roof
from archsim.render.html import spec_cards as cards
from archsim.render.html.candidates import ReportRequest, Study, study
from archsim.render.html.lineage import descent
from archsim.render.html.markup import details, legend, name_of, paragraph, safe, section, table
from archsim.render.html.page import POLICY
from archsim.render.html.page_size import MOST, MOST_LIGHT, Parts, fitting
from archsim.render.html.validate_svg import sample, symbols
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

SCHEMA = "archsim.report/1"


def document(study: Study, *, light: bool = False, stamp: str = "", command: str = "") -> str:
    """The page. light: pictures alone, without controls and script. stamp: a date or remark to be shown.

    Where the file would be too large, parts are left out in a fixed order and named. Raises UsageError where even
    that is not enough.
    """
    found = grid.grid(study, light)
    sections = _sections(study, found, measured.known_runs(study), light, command)
    whole = Parts(sections=tuple(s for s in sections if s[2]), grid=None if light else found)
    most = MOST_LIGHT if light else MOST
    for parts in fitting(whole):
        page = _page(study, parts, stamp, most)
        if len(page.encode()) <= most:
            return page
    raise UsageError(
        f"the report would be larger than {most:,} bytes",
        hints=("name fewer models, devices or formats", *(["leave `--light` away"] if light else [])),
    )


def _page(study: Study, parts: Parts, stamp: str, most: int) -> str:
    """The text of the file. most: the bytes that it may have."""
    contents = "".join(f'<li><a href="#{key}">{safe(title)}</a></li>' for key, title, _ in parts.sections)
    body = _body(parts)
    script, data = "", ""
    if parts.grid is not None:
        script, data = _file("explore.js"), _embed("grid", grid.to_dict(parts.grid))
    about = paragraph(f"archsim {VERSION}" + (f" · {stamp}" if stamp else ""), "dim")
    if parts.left_out:
        left = f"Left out so that the file stays below {most:,} bytes: {'; '.join(parts.left_out)}."
        about += paragraph(left, "left-out")
    heading = name_of(answer.title(study), 160)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">\n{_policy(script)}'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{safe(heading)}</title>\n<style>{_style()}</style></head>\n<body>\n"
        f'<a class="skip" href="#answer">To the answer</a>\n{symbols()}{plots.INSIDE}\n'
        f"<header><h1>{safe(heading)}</h1>{about}</header>\n"
        f'<nav aria-label="Contents"><ol>{contents}</ol></nav>\n<main>\n{body}</main>\n{data}'
        + (f"<script>{script}</script>\n" if script else "")
        + "</body>\n</html>\n"
    )


TURNED = ("explore", "times", "filled", "trade", "rooflines")
"""Sections that the controls change: these stay in sight while one reads them."""


def _body(parts: Parts) -> str:
    """All sections in their order, those that the controls change together."""
    made = [(key in TURNED, section(key, title, text)) for key, title, text in parts.sections]
    first = next(i for i, (turned, _) in enumerate(made) if turned)
    last = max(i for i, (turned, _) in enumerate(made) if turned) + 1
    before, within, behind = (
        "".join(text for _, text in part) for part in (made[:first], made[first:last], made[last:])
    )
    return f'{before}<div class="turned">\n{within}</div>\n{behind}'


def _sections(
    study: Study, found: grid.Grid, runs: measured.Known, light: bool, command: str
) -> list[tuple[str, str, str]]:
    """(key, title, content) of every part; one without content is left out."""
    ask = "" if light else _controls(found)
    charts = f'<div class="plots">{plots.growth(found)}{plots.frontier(found)}</div>'
    several = len(found.compared) > 1
    distinct = list({m.name: m for m in study.models}.values())
    return [
        ("answer", "Answer", answer.answer(study)),
        ("compared", "What is compared", cards.compare_specs(study)),
        (
            "structure",
            "Architectures" if len(study.models) > 1 else "Architecture",
            diagram.diagrams(study.models) + descent(distinct),
        ),
        ("explore", "Charts" if ask else "Key to the charts", ask + _key(found)),
        ("times", "Where the time goes", bars.time(found)),
        ("filled", "Memory", bars.memory(found) + charts),
        ("trade", "Throughput against latency" if several else "Throughput and latency", _trade(found)),
        ("rooflines", "Roofline", roof.rooflines(found, study.devices, runs.seen)),
        ("evolution", "From one architecture to the other", evolution.evolution(study)),
        ("accuracy", "Accuracy of these estimates", measured.accuracy(runs)),
        ("assumptions", "Assumptions and limits", cards.assumptions(study)),
        ("provenance", "Provenance", _provenance(study, light, command)),
    ]


def _controls(found: grid.Grid) -> str:
    """Two sliders, two choices, a button back, and a line that says what is shown."""
    batch, context = found.at
    devices = list(dict.fromkeys(run.base.hardware.id for run in found.runs))
    fields = [
        _slider("batch", "Batch", found.batches.index(batch), found.batches, "sequences"),
        _slider("context", "Prompt", found.contexts.index(context), found.contexts, "tokens"),
        _choice("format", "Weights", "as compared", found.formats),
        _choice("device", "Device", "all", devices),
    ]
    return (
        f'<form id="controls" hidden aria-label="Change the workload">{"".join(fields)}'
        '<button type="reset">Back to the report</button>'
        '<p id="shown" role="status" aria-live="polite"></p></form>\n'
    )


def _slider(key: str, name: str, at: int, values: tuple[int, ...], unit: str) -> str:
    if len(values) == 1:
        return f'<input type="hidden" id="{key}" value="0">'
    return (
        f'<div><label for="{key}">{safe(name)}</label><input type="range" id="{key}" min="0" max="{len(values) - 1}" '
        f'step="1" value="{at}" aria-valuetext="{values[at]:,} {unit}"><output id="{key}-value" for="{key}">'
        f"{values[at]:,} {unit}</output></div>"
    )


def _choice(key: str, name: str, first: str, values: list[str] | tuple[str, ...]) -> str:
    options = "".join(f'<option value="{safe(v)}">{safe(v)}</option>' for v in values)
    return (
        f'<div><label for="{key}">{safe(name)}</label><select id="{key}"><option value="" selected>{safe(first)}'
        f"</option>{options}</select></div>"
    )


def _trade(found: grid.Grid) -> str:
    """A chart for each device, and how to read them."""
    panels = trade.pareto(found)
    told = (
        f"At {found.at[1]:,} tokens, batch {found.batches[0]:,} to {found.batches[-1]:,}, as far as it fits. Ring: the "
        "batch shown; pale band: 80 % interval; dotted: the best of all that is shown. Up and to the right is better."
    )
    return f'{paragraph(told, "dim", "trade-told")}<div class="plots small">{panels}</div>' if panels else ""


def _key(found: grid.Grid) -> str:
    """Which mark stands for which candidate, once for all charts."""
    items = ((sample(plots.shape_of(r.number), r.number % plots.SHAPES), r.label) for r in found.compared)
    return legend(items) + paragraph("On the roofline circles are kernels of decode, squares of prefill.", "dim")


def _provenance(study: Study, light: bool, command: str) -> str:
    rows = table("Inputs", ["", "file", "SHA-256", "first source"], cards.inputs(study), left=True)
    made = paragraph("Made by: " + command) if command else ""
    text = json.dumps(data(study), ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    if light:
        numbers = f'<pre id="data" tabindex="0" aria-label="Estimates as JSON">{_json_text(text)}</pre>'
        return made + rows + details("The estimates as JSON", numbers, "long estimates")
    numbers = f'<script type="application/json" id="data">{_inert(text)}</script>\n'
    button = '<p><button type="button" id="download" hidden>Download the estimates as JSON</button></p>'
    return made + rows + button + numbers


def data(study: Study) -> JsonObject:
    """The estimates behind a report, as `estimate --json` gives them."""
    return {"schema": SCHEMA, "archsim": VERSION, "estimates": [c.answer.to_dict() for c in study.candidates]}


def _embed(key: str, value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return f'<script type="application/json" id="{key}">{_inert(text)}</script>\n'


def _inert(text: str) -> str:
    """JSON that cannot end the element it stands in."""
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _json_text(text: str) -> str:
    from html import escape

    return escape(_inert(text), quote=False)


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


# ------------------------------------------------------------------ from names to the page
@dataclass(frozen=True, slots=True, kw_only=True)
class Report(Displayed):
    """A page and what it is about."""

    __repr__ = Displayed.__repr__

    study: Study
    html: str

    def to_dict(self) -> JsonObject:
        """The `archsim.report/1` object: the estimates behind the page."""
        return data(self.study)

    def write(self, path: Path | str, *, force: bool = False) -> None:
        """Writes the page, whole or not at all. force: replace a file that exists.

        Raises OutputRefused, OutputFailure.
        """
        write_text(path, self.html, force=force)


def report(
    models: Sequence[tuple[str, Model, str | None]],
    hw: Sequence[tuple[str, Hardware]],
    *,
    changes: tuple[str, ...] = (),
    weights: Sequence[str] = (),
    light: bool = False,
    stamp: str = "",
    command: str = "",
    **asked: Unpack[LoadArguments],
) -> Report:
    """The page. models: name as given, model, and the format that the name implies; hw: name and device. light: no
    script. stamp, command: shown on the page. Raises UsageError where there is nothing to compare.
    """
    models, hw = _once(models), _once(hw)
    if not models or not hw:
        raise UsageError("a report is about at least one model and one device")
    question = ReportRequest(
        models=tuple(name for name, _, _ in models), hw=tuple(name for name, _ in hw), changes=changes,
        weights=tuple(dict.fromkeys(weights)) or (None,), **asked,
    )  # fmt: skip
    found = study([(model, hint) for _, model, hint in models], [device for _, device in hw], question)
    return Report(study=found, html=document(found, light=light, stamp=stamp, command=command))


Named = TypeVar("Named", bound=tuple[object, ...])


def _once(opened: Sequence[Named]) -> list[Named]:
    """Without those that are the same under another name."""
    return [one for i, one in enumerate(opened) if not any(one[1:] == other[1:] for other in opened[:i])]
