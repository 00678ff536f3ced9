"""Garbage is collected while nobody waits: a full collection stops the process for tenths of a second."""

from __future__ import annotations

import gc
import time
from threading import Event, Thread

from flask import Flask, Response

QUIET = 2.0
"""Seconds without a request before a collection."""


def collect_when_idle(server: Flask) -> None:
    """Leave full collections to a thread that waits for a quiet moment."""
    asked, last = Event(), [0.0]

    @server.after_request
    def note(response: Response) -> Response:
        last[0] = time.monotonic()
        asked.set()
        return response

    def work() -> None:
        while True:
            asked.wait()
            time.sleep(QUIET)
            if time.monotonic() - last[0] >= QUIET:
                asked.clear()
                gc.collect()

    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 10_000)
    Thread(target=work, daemon=True, name="idle").start()
