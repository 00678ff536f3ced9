"""What happens where a control moves: assets/page.js makes a query of the controls, and the server answers it."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State, no_update
from dash.development.base_component import Component

from archsim.base.json_types import JsonObject
from archsim.render.figures.theme import Theme
from archsim.ui.answers import Answers
from archsim.ui.charts import WIDTH, charts, drawn
from archsim.ui.choices import Choices
from archsim.ui.drawings import drawings
from archsim.ui.exports import exports
from archsim.ui.layout import CHARTS
from archsim.ui.load_panel import LoadRuns, load_panel
from archsim.ui.state import parse_state
from archsim.ui.update import Update, update, words_of


def connect(app: Dash, choices: Choices, answers: Answers) -> None:
    """Register the callbacks."""
    _connect_browser(app)

    @app.callback(
        Output("answered", "data"), Output("findings", "children"), Output("sentence", "children"),
        Output("cards", "children"), Output("drawings", "children"), Output("exports", "children"),
        Input("request", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def answer(request: object) -> tuple[object, ...]:
        return answer_request(_mapping(request), choices, answers)

    runs = LoadRuns(answers)

    @app.callback(Output("load-panel", "children"), Input("load-request", "data"), prevent_initial_call=True)
    def under_load(request: object) -> Component | None:
        query = str(_mapping(request).get("query", ""))
        return load_panel(parse_state(query, choices, answers.uploads)[0], runs)


def _mapping(request: object) -> JsonObject:
    """What a browser sent, where it is what page.js sends."""
    return request if isinstance(request, dict) else {}


def answer_request(request: JsonObject, choices: Choices, answers: Answers) -> tuple[object, ...]:
    """Everything that an update sets, in the order of the callback's outputs.

    request: query; charts, those that are wanted now (all where it is left out); theme; width, pixels across of a
    chart; at, when the browser sent it; link, whether the page was opened by this query; rest, whether this is what is
    left to draw once the controls rest: charts out of sight, drawings and files, which do not follow every step.
    """
    shown = update(str(request.get("query", "")), choices, answers)
    answered: JsonObject = {name: request.get(name) for name in ("at", "link", "rest")}
    answered |= {"query": shown.query, "controls": shown.controls, "charts": _charts(request, shown, answers)}
    if not request.get("rest"):
        return answered, *words_of(shown), no_update, no_update
    pictures = drawings(shown.answers, _theme(request))
    return answered, no_update, no_update, no_update, pictures, exports(shown.answers, shown.query, answers)


def _charts(request: JsonObject, shown: Update, answers: Answers) -> JsonObject:
    """The charts that are wanted, by place; None for a place that stays empty."""
    wide, wanted = request.get("width"), request.get("charts")
    width = wide if isinstance(wide, int) and 200 <= wide <= 4000 else WIDTH
    made = charts(shown.answers, answers)
    found: JsonObject = dict.fromkeys(key for key in CHARTS if key not in made)
    return found | {
        key: drawn(made[key](), _theme(request), width) for key in made if not isinstance(wanted, list) or key in wanted
    }


def _theme(request: JsonObject) -> Theme:
    return "dark" if request.get("theme") == "dark" else "light"


def _connect_browser(app: Dash) -> None:
    """What page.js is told: the link that the page was opened by, and that an answer is there."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("archsim", "linked"), Output("sentence", "title"), Input("url", "search")
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("archsim", "answered"), Output("spoken", "title"), Input("answered", "data"),
        State("sentence", "children"),
    )  # fmt: skip
