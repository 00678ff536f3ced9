"""What requests see of each candidate at a rate: a short run of `archsim simulate`, made when the controls rest."""

from __future__ import annotations

from collections.abc import Sequence

from dash import html
from dash.development.base_component import Component

from archsim import api
from archsim.base.errors import ArchsimError
from archsim.base.units import format_rate, format_seconds
from archsim.predict.simulation import Simulation
from archsim.render.pages.cost import usd
from archsim.ui.answers import RUN, Answer, Answers, Kept, server_options
from archsim.ui.cards import LETTERS
from archsim.ui.parts import scrolled_table
from archsim.ui.state import State

LONGEST_PROMPT, LONGEST_ANSWER = 131_072, 8_192
"""Tokens of a request that are simulated at most: a run of more takes longer than one waits for a page."""

HEAD = ("", "time to first token", "90 % within", "time per token", "90 % within", "tokens/s", "running",
        "verdict")  # fmt: skip
DOLLARS = "$ per million output tokens"


class LoadRuns:
    """Runs under a rate, kept like answers."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self._kept: Kept[Simulation | ArchsimError] = Kept(64)

    def of(self, answer: Answer) -> Simulation | ArchsimError:
        """The run of one candidate, or why there is none."""
        return self._kept.get((answer.candidate, answer.load), lambda: self._run(answer))

    def _run(self, answer: Answer) -> Simulation | ArchsimError:
        candidate, load = answer.candidate, answer.load
        try:
            model = self.answers.model(candidate.model, candidate.changes)
            device = self.answers.device(candidate.hw)
            return api.simulate(
                model, device, rate=load.rate, input_len=load.input_len, output_len=load.output_len,
                price=candidate.price or None, **RUN, **server_options(candidate),
            )  # fmt: skip
        except ArchsimError as error:
            return error


def load_panel(state: State, runs: LoadRuns) -> Component | None:
    """The table of all candidates; nothing where the load is not a rate."""
    load = state.load
    if load.mode != "rate":
        return None
    title = html.H2(f"At {load.rate:g} requests per second")
    if load.input_len > LONGEST_PROMPT or load.output_len > LONGEST_ANSWER:
        most = f"The page simulates up to {LONGEST_PROMPT:,} prompt tokens and {LONGEST_ANSWER:,} output tokens"
        return html.Section([title, html.P(f"{most}; `archsim simulate` takes more.")], className="panel")
    about = f"{RUN['requests']} requests at random times, simulated one by one through the engine's scheduler."
    head = (*HEAD, DOLLARS) if any(candidate.price for candidate in state.candidates) else HEAD
    rows = [_row(i, answer, runs.of(answer), len(head)) for i, answer in enumerate(runs.answers.of(state))]
    return html.Section(
        [title, html.P(about, className="hint"), scrolled_table("Under load", head, rows)], className="panel"
    )


def _row(number: int, answer: Answer, found: Simulation | ArchsimError, columns: int) -> list[Component | str]:
    name = f"{LETTERS[number]}: {answer.label}"
    if isinstance(found, ArchsimError):
        return [name, html.Td(found.message, colSpan=str(columns - 1), className="words")]
    return [name, *cells_of(found), *([_dollars(found)] if columns > len(HEAD) else [])]


def _dollars(found: Simulation) -> str:
    """The whole bill by output tokens, idle time included; a dash without a price."""
    return usd(found.cost.cost.usd_per_m_output_all_in) if found.cost is not None else "–"


def cells_of(found: Simulation) -> Sequence[str]:
    """The figures of a run, in the order of `HEAD`."""
    metrics = found.observed.metrics_json()
    times = [_percentile(metrics, name, point) for name in ("ttft_s", "tpot_s") for point in ("p50", "p90")]
    rate = format_rate(found.throughput()["output_tokens_per_s"].value, "")
    state = found.to_dict()["state"]
    return *times, rate, f"{state['running']['mean']:,.0f}", _verdict(state)


def _percentile(metrics: object, name: str, point: str) -> str:
    """A percentile in words; a dash where the run does not have it."""
    of_metric = metrics.get(name) if isinstance(metrics, dict) else None
    found = of_metric.get(point) if isinstance(of_metric, dict) else None
    value = found.get("value") if isinstance(found, dict) else None
    return format_seconds(float(value)) if isinstance(value, (int, float)) else "–"


def _verdict(state: dict[str, object]) -> str:
    """Whether the server keeps up."""
    if state["stationary"] is False:
        return "falls behind: the queue keeps growing"
    return "keeps up"
