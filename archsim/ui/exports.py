"""What one takes along: the command line, the estimate as JSON, the model's spec in YAML, and the report in HTML."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from urllib.parse import quote as url_quote

from dash import html
from dash.development.base_component import Component
from flask import Flask, Response, request

from archsim import api
from archsim.base.errors import ArchsimError, UnknownName, UsageError
from archsim.spec.catalog import resolve
from archsim.spec.load import whole_document
from archsim.spec.loader import content
from archsim.ui.answers import Answer, Answers, command_of
from archsim.ui.cards import LETTERS
from archsim.ui.choices import Choices
from archsim.ui.parts import with_attributes
from archsim.ui.state import State, parse_state

FILES = ("estimate.json", "model.yaml", "report.html", "drawing.svg")
"""What can be fetched, each with the query of the page; the first two of a candidate by its number."""


def exports(answers: Sequence[Answer], query: str, uploads: Answers) -> list[Component]:
    """Command lines to copy and links to files."""
    rows = [_candidate(i, answer, query, uploads, len(answers) > 1) for i, answer in enumerate(answers)]
    report = html.A(
        "A report on all candidates as one HTML file", href=f"report.html?{query}", download="archsim-report.html"
    )
    return [*rows, html.P(report)]


def _candidate(number: int, answer: Answer, query: str, answers: Answers, several: bool) -> Component:
    upload = answers.uploads.get(answer.candidate.model)
    command = command_of(answer.candidate, answer.load, None if upload is None else yaml_name(answer.name))
    letter = [html.Span(LETTERS[number], className=f"letter side-{number}")] if several else []
    copy = with_attributes(html.Button("Copy", type="button"), {"data-copy": command})
    place = f"candidate/{number + 1}"
    links = [
        html.A("spec (YAML)", href=f"{place}/model.yaml?{query}", download=yaml_name(answer.name)),
        html.A("estimate (JSON)", href=f"{place}/estimate.json?{query}", download=f"{safe_name(answer.name)}.json"),
    ]
    return html.Div([*letter, html.Code(command, className="command"), copy, *links], className="export")


def safe_name(name: str) -> str:
    """A name that is safe as a file's."""
    return re.sub(r"[^\w.-]", "_", name)[:80].strip(".") or "model"


def yaml_name(name: str) -> str:
    """The file of a model's spec."""
    return f"{safe_name(name)}.yaml"


def connect_exports(server: Flask, choices: Choices, answers: Answers) -> None:
    """Give out files: each is made of the query alone."""

    def state() -> State:
        """What the link says. Raises UsageError for one that says something else than the page would show."""
        found, findings = parse_state(request.query_string.decode("ascii", "replace"), choices, answers.uploads)
        if findings:
            raise UsageError("; ".join(findings))
        return found

    @server.get("/candidate/<int:number>/<name>")
    def candidate_file(number: int, name: str) -> Response:
        if name not in FILES[:2]:
            return _refused("no such file", 404)
        make = estimate_json if name == "estimate.json" else model_yaml
        kind = "application/json" if name == "estimate.json" else "text/yaml"
        return _given(lambda: make(chosen(number), answers), kind, safe_name(name))

    def chosen(number: int) -> Answer:
        found = state()
        if not 1 <= number <= len(found.candidates):
            raise UnknownName(f"the link has no candidate {number}")
        return answers.answer(found.candidates[number - 1], found.load)

    @server.get("/report.html")
    def report() -> Response:
        return _given(lambda: report_html(state(), answers), "text/html", "archsim-report.html")


def _given(make: Callable[[], str], kind: str, name: str) -> Response:
    """A file to save, or what is wrong as text."""
    try:
        text = make()
    except UnknownName as error:
        return _refused(str(error), 404)
    except ArchsimError as error:
        return _refused(str(error), 422)
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{url_quote(name)}"}
    return Response(text, mimetype=kind, headers=headers)


def _refused(text: str, code: int) -> Response:
    return Response(text + "\n", code, mimetype="text/plain")


def estimate_json(answer: Answer, _answers: Answers) -> str:
    """What `archsim estimate --json` prints. Raises ArchsimError where there is no answer."""
    if answer.estimate is None:
        assert answer.error is not None
        raise answer.error
    return json.dumps(answer.estimate.to_dict(), indent=2, allow_nan=False) + "\n"


def model_yaml(answer: Answer, answers: Answers) -> str:
    """The spec of a candidate's model: the catalog's file, or what was made of the upload; with its changes merged in.
    Raises ArchsimError for changes that make no model.
    """
    key, changes = answer.candidate.model, answer.candidate.changes
    upload = answers.uploads.get(key)
    if not changes:
        return upload.spec if upload else content(resolve("models", key).path).decode("utf-8")
    from archsim.importers.hf.text import spec_text

    answers.model(key, changes)
    document = upload.document(changes) if upload else whole_document(key, changes)
    return spec_text(document, f"{answer.name} with {', '.join(changes)}")


def report_html(state: State, answers: Answers) -> str:
    """The report of every model on every device. Raises ArchsimError, as `archsim report`."""
    first, load = state.candidates[0], state.load
    models = list(dict.fromkeys((c.model, c.changes) for c in state.candidates))
    prices = {c.price for c in state.candidates if c.price}
    devices = list(dict.fromkeys(c.hw for c in state.candidates))
    counts = {c.devices for c in state.candidates}
    count = counts.pop() if len(counts) == 1 else None
    made = api.report(
        [answers.model(*m) for m in models], [answers.device(d) for d in devices], devices=count or "auto",
        weights=list(dict.fromkeys(c.weights for c in state.candidates if c.weights)) or None,
        kv_cache_dtype=first.kv_cache_dtype or None, engine=first.engine, input_len=load.input_len,
        output_len=load.output_len, batch=load.batch if load.mode == "batch" else 1,
        price=prices.pop() if len(prices) == 1 else None,
    )  # fmt: skip
    return made.html
