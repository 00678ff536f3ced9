"""What happens where a control moves: assets/page.js makes a query of the controls, and the server answers it."""

from __future__ import annotations

from dash import ClientsideFunction, Dash, Input, Output, State, no_update
from dash.development.base_component import Component

from archsim.base.json_types import JsonObject
from archsim.render.figures.chart import Chart
from archsim.render.figures.theme import Theme
from archsim.ui.answers import Answers
from archsim.ui.charts import WIDTH, charts, height_of
from archsim.ui.choices import Choices
from archsim.ui.drawings import drawings
from archsim.ui.exports import exports
from archsim.ui.layout import CHARTS
from archsim.ui.load_panel import LoadRuns, load_panel
from archsim.ui.parts import scrolled_table
from archsim.ui.state import parse_state
from archsim.ui.update import update, words_of


def connect(app: Dash, choices: Choices, answers: Answers) -> None:
    """Register the callbacks."""
    _connect_browser(app)

    places = [
        Output(f"{key}-{part}", what)
        for key in CHARTS
        for part, what in (
            ("chart", "figure"), ("chart", "style"), ("title", "children"), ("finding", "children"),
            ("table", "children"), ("figure", "style"),
        )
    ]  # fmt: skip

    @app.callback(
        Output("answered", "data"), Output("findings", "children"), Output("sentence", "children"),
        Output("cards", "children"), Output("drawings", "children"), Output("exports", "children"), *places,
        Input("request", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def answer(request: JsonObject) -> tuple[object, ...]:
        return answer_request(request, choices, answers)

    runs = LoadRuns(answers)

    @app.callback(Output("load-panel", "children"), Input("load-request", "data"), prevent_initial_call=True)
    def under_load(request: JsonObject) -> Component | None:
        return load_panel(parse_state(str(request.get("query", "")), choices, answers.uploads)[0], runs)


def answer_request(request: JsonObject, choices: Choices, answers: Answers) -> tuple[object, ...]:
    """Everything that an update sets, in the order of the callback's outputs. request: query, theme, pixels across of a
    chart, whether it is the link that the page was opened by, and when the browser sent it.
    """
    shown = update(str(request.get("query", "")), choices, answers)
    findings, sentence, cards = words_of(shown)
    answered = {
        "query": shown.query, "controls": shown.controls, "link": bool(request.get("link")),
        "at": request.get("at", 0),
    }  # fmt: skip
    theme: Theme = "dark" if request.get("theme") == "dark" else "light"
    width = wide if isinstance(wide := request.get("width"), int) and 200 <= wide <= 4000 else WIDTH
    drawn = charts(shown.answers, answers)
    taken = exports(shown.answers, shown.query, answers)
    pictures = drawings(shown.answers, theme)
    return (
        answered,
        findings,
        sentence,
        cards,
        pictures,
        taken,
        *(part for key in CHARTS for part in _chart(drawn.get(key), theme, width)),
    )


def _chart(chart: Chart | None, theme: Theme, width: int) -> tuple[object, ...]:
    """Figure and its height, title, finding, table, and whether the place is shown."""
    if chart is None:
        return *(no_update for _ in range(5)), {"display": "none"}
    spec, height = chart.spec(theme), height_of(chart, width)
    figure = {"data": spec["data"], "layout": {**spec["layout"], "height": height}}
    numbers = scrolled_table(chart.title, chart.table.head, chart.table.rows)
    return figure, {"height": f"{height}px"}, chart.title, chart.finding, numbers, {}


def _connect_browser(app: Dash) -> None:
    """What page.js is told: the link that the page was opened by, and that an answer is there."""
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("archsim", "linked"), Output("sentence", "title"), Input("url", "search")
    )
    app.clientside_callback(  # type: ignore[no-untyped-call]
        ClientsideFunction("archsim", "answered"), Output("spoken", "title"), Input("answered", "data"),
        State("sentence", "children"),
    )  # fmt: skip
