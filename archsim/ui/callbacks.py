"""What happens where a control moves: assets/page.js makes a query of the controls, and the server answers it."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State

from archsim.base.json_types import JsonObject
from archsim.ui.answers import Answers
from archsim.ui.choices import Choices
from archsim.ui.update import update, words_of


def connect(app: Dash, choices: Choices, answers: Answers) -> None:
    """Register the callbacks."""
    _connect_browser(app)

    @app.callback(
        Output("answered", "data"), Output("findings", "children"), Output("sentence", "children"),
        Output("cards", "children"), Input("request", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def answer(request: JsonObject) -> tuple[object, ...]:
        shown = update(str(request.get("query", "")), choices, answers)
        findings, sentence, cards = words_of(shown)
        answered = {
            "query": shown.query,
            "controls": shown.controls,
            "link": request.get("link", False),
            "at": request.get("at", 0),
        }
        return answered, findings, sentence, cards


def _connect_browser(app: Dash) -> None:
    """What page.js is told: the link that the page was opened by, and that an answer is there."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("archsim", "linked"), Output("sentence", "title"), Input("url", "search")
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("archsim", "answered"), Output("spoken", "title"), Input("answered", "data"),
        State("sentence", "children"),
    )  # fmt: skip
