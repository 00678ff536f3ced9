"""What the first visitor would wait for, done while the browser starts."""

from __future__ import annotations

import gc
from threading import Thread

from archsim.ui.answers import Answers
from archsim.ui.callbacks import answer_request
from archsim.ui.choices import Choices
from archsim.ui.plotly_route import packed
from archsim.ui.state import State
from archsim.ui.uploads import Uploads


def prepare(choices: Choices) -> None:
    """Load what every answer needs, and pack plotly.js, in a thread of its own."""

    def work() -> None:
        answer_request({"query": State().query(), "rest": True}, choices, Answers(Uploads()))
        packed()
        gc.freeze()

    Thread(target=work, daemon=True, name="prepare").start()
