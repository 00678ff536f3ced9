"""One update of the page: from the query of a URL to everything that the page shows of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from dash import html
from dash.development.base_component import Component

from archsim.base.json_types import JsonObject
from archsim.ui.answers import Answer, Answers
from archsim.ui.cards import cards, sentence
from archsim.ui.changes import BETWEEN
from archsim.ui.choices import Choices
from archsim.ui.state import State, parse_state


class Update(NamedTuple):
    """What the page shows. query: the canonical one. controls: what each control stands at."""

    state: State
    answers: tuple[Answer, ...]
    findings: tuple[str, ...]
    query: str
    controls: JsonObject


def update(query: str, choices: Choices, answers: Answers) -> Update:
    """Everything that the page shows for a query. A bad query is answered with what is usual, and says so."""
    state, findings = parse_state(query, choices, answers.uploads)
    return Update(state, answers.of(state), findings, state.query(), controls_of(state))


def controls_of(state: State) -> JsonObject:
    """The value of each control."""
    load = state.load
    return {
        "candidates": [
            {"model": c.model, "hw": c.hw, "devices": c.devices, "weights": c.weights, "kv": c.kv_cache_dtype,
             "engine": c.engine.partition("@")[0], "tp": c.tp, "price": c.price, "set": f"{BETWEEN} ".join(c.changes)}
            for c in state.candidates
        ],
        "mode": load.mode, "input-len": load.input_len, "output-len": load.output_len, "batch": load.batch,
        "concurrency": load.concurrency, "rate": load.rate,
    }  # fmt: skip


def words_of(shown: Update) -> tuple[list[Component], str, list[Component]]:
    """What is wrong with the query, the verdict, and the cards."""
    return messages(shown.findings), sentence(shown.answers), cards(shown.answers)


def messages(findings: Sequence[str]) -> list[Component]:
    """What had to be left out, one line each."""
    return [html.P(text, className="finding") for text in findings]
