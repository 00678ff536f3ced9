"""The architecture of each model as a picture, fetched by the browser and kept there while the model stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

from dash import html
from dash.development.base_component import Component
from flask import Flask, Response, request

from archsim.base.errors import ArchsimError
from archsim.base.units import format_count
from archsim.render.drawing.figure import model_svg
from archsim.render.figures.theme import Theme
from archsim.ui.answers import Answer, Answers
from archsim.ui.changes import BETWEEN, read_changes
from archsim.ui.choices import Choices

PLACE = "drawing.svg"


def drawings(answers: Sequence[Answer], theme: Theme) -> list[Component]:
    """A picture of each distinct model."""
    shown = [a for a in answers if a.model and a.estimate]
    models = {_place(a, theme): (a.model, a.estimate.params_total) for a in shown if a.model and a.estimate}
    return [
        html.Figure([
            html.A(
                html.Img(src=place, alt=f"Architecture of {model.name}, in full size"),
                href=place, target="_blank", rel="noopener",
            ),
            html.Figcaption(f"{model.name}: {format_count(model.n_layers)} layers, {format_count(total)} parameters"),
        ])
        for place, (model, total) in models.items()
    ]  # fmt: skip


def _place(answer: Answer, theme: Theme) -> str:
    """Where the picture of an answer's model is fetched."""
    named = {"model": answer.candidate.model, "theme": theme}
    if answer.candidate.changes:
        named["set"] = BETWEEN.join(answer.candidate.changes)
    return f"{PLACE}?{urlencode(named)}"


def connect_drawings(server: Flask, choices: Choices, answers: Answers) -> None:
    """Give out pictures of models of the catalog and of uploads."""

    @server.get(f"/{PLACE}")
    def drawing() -> Response:
        name = request.args.get("model", "")
        theme: Theme = "dark" if request.args.get("theme") == "dark" else "light"
        try:
            key = name if name in answers.uploads else choices.model(name)[0]
            changes = read_changes(request.args.get("set", ""))
            text = model_svg(answers.model(key, changes), theme)
        except (ArchsimError, ValueError) as error:
            return Response(f"{error}\n", 404, mimetype="text/plain")
        return Response(text, mimetype="image/svg+xml", headers={"Cache-Control": "private, max-age=3600"})
