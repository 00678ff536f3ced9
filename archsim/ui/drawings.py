"""The architecture of each model as a picture, fetched by the browser and kept there while the model stays the same."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component
from flask import Flask, Response, request

from archsim.base.errors import ArchsimError
from archsim.base.units import format_count
from archsim.render.drawing.figure import model_svg
from archsim.render.figures.theme import Theme
from archsim.ui.answers import Answer, Answers
from archsim.ui.choices import Choices

PLACE = "drawing.svg"


def drawings(answers: Sequence[Answer], theme: Theme) -> list[Component]:
    """A picture of each distinct model."""
    models = {a.candidate.model: (a.model, a.estimate.params_total) for a in answers if a.model and a.estimate}
    return [
        html.Figure([
            html.A(
                html.Img(src=f"{PLACE}?model={key}&theme={theme}", alt=f"Architecture of {model.name}, in full size"),
                href=f"{PLACE}?model={key}&theme={theme}", target="_blank", rel="noopener",
            ),
            html.Figcaption(f"{model.name}: {format_count(model.n_layers)} layers, {format_count(total)} parameters"),
        ])
        for key, (model, total) in models.items()
    ]  # fmt: skip


def connect_drawings(server: Flask, choices: Choices, answers: Answers) -> None:
    """Give out pictures of models of the catalog and of uploads."""

    @server.get(f"/{PLACE}")
    def drawing() -> Response:
        name = request.args.get("model", "")
        theme: Theme = "dark" if request.args.get("theme") == "dark" else "light"
        try:
            key = name if name in answers.uploads else choices.model(name)[0]
            text = model_svg(answers.model(key), theme)
        except ArchsimError as error:
            return Response(f"{error.message}\n", 404, mimetype="text/plain")
        return Response(text, mimetype="image/svg+xml", headers={"Cache-Control": "private, max-age=3600"})
