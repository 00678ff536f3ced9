"""The page before anything is asked. Its controls are plain HTML (templates/page.html), which every browser and screen
reader knows; answers are put into the places that `answer_places` leaves for Dash.
"""

from __future__ import annotations

from typing import NamedTuple

from dash import dcc, html
from dash.development.base_component import Component

from archsim.ui.cards import LETTERS
from archsim.ui.choices import Choices
from archsim.ui.state import LARGEST_LOAD, LONGEST_CONTEXT, MOST, MOST_DEVICES, Candidate, Load

CHARTS = ("memory", "prefill", "decode", "growth", *(f"roof{i}" for i in range(MOST)))
"""Places for charts."""

DASH = ("metas", "title", "favicon", "css", "app_entry", "config", "scripts", "renderer")
"""What Dash fills in by itself."""

MODES = (("batch", "one batch"), ("concurrency", "in flight"), ("rate", "per second"))
"""Ways to state a load, and their words."""


class LoadField(NamedTuple):
    """A number of the load with a slider beside it. steps: positions of the slider, which is logarithmic; page.js knows
    the value of each. mode: whether it is one of several ways to state how much comes in.
    """

    name: str
    words: str
    value: float
    least: float
    most: float
    steps: int
    mode: bool = False


LOADS = (
    LoadField("input-len", "Prompt tokens", Load().input_len, 1, LONGEST_CONTEXT, 52),
    LoadField("output-len", "Output tokens", Load().output_len, 1, LONGEST_CONTEXT, 40),
    LoadField("batch", "Requests in the batch", Load().batch, 1, LARGEST_LOAD, 40, True),
    LoadField("concurrency", "Requests in flight", Load().concurrency, 1, LARGEST_LOAD, 40, True),
    LoadField("rate", "Requests per second", Load().rate, 0.001, 10_000, 80, True),
)


def plotly_version() -> str:
    """The version of plotly.js, which stands in its address so that browsers keep it."""
    from plotly.offline import get_plotlyjs_version

    return str(get_plotlyjs_version())


def page_html(choices: Choices, *, public: bool, hub: bool) -> str:
    """The page around Dash: its template with the names that can be picked."""
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    files = PackageLoader("archsim.ui")
    template = Environment(loader=files, autoescape=True, undefined=StrictUndefined).get_template("page.html")
    return template.render(
        slots={name: Markup(f"{{%{name}%}}") for name in DASH}, choices=choices, loads=LOADS, modes=MODES,
        slots_of_candidates=range(MOST), letters=LETTERS, most_devices=MOST_DEVICES, usual=Candidate(),
        public=public, hub=hub, plotly=plotly_version(),
    )  # fmt: skip


def answer_places() -> Component:
    """What Dash draws: the places that answers are put into."""
    return html.Div([
        dcc.Location(id="url", refresh=False), dcc.Store(id="request"), dcc.Store(id="answered"),
        dcc.Store(id="load-request"),
        html.Div(id="findings", role="alert"),
        html.H2(id="sentence", className="sentence"),
        html.P(id="spoken", role="status", className="unseen"),
        html.Div(id="cards", className="cards"),
        html.Div(id="load-panel"),
        html.Div([_chart(key) for key in CHARTS], className="charts"),
        html.Div(id="drawings", className="drawings"),
        html.Section([html.H2("Export"), html.Div(id="exports", className="exports")]),
    ])  # fmt: skip


def _chart(key: str) -> Component:
    """The place of a chart, which page.js fills."""
    twin = html.Details([html.Summary("The numbers as a table"), html.Div(id=f"{key}-table", className="scroll")])
    parts = [html.H2(id=f"{key}-title"), html.Figcaption(id=f"{key}-finding"), html.Div(id=f"{key}-chart"), twin]
    return html.Figure(parts, id=f"{key}-figure", className="chart", hidden=True)
