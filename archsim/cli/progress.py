"""How far a long command is, on a terminal's stderr; and Ctrl-C that ends it between two pieces of work."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_S = 0.5
"""Seconds before anything is shown."""

BETWEEN_S = 0.2
"""Seconds between two lines."""


class Progress:
    """One line that is written over, only on a terminal and only once the work takes a while."""

    def __init__(self, total: int, noun: str) -> None:
        self.total, self.noun = total, noun
        self.start = self.last = time.monotonic()
        self.shown = False
        self.wanted = sys.stderr.isatty() and not os.environ.get("ARCHSIM_NO_PROGRESS")

    def __call__(self, done: int) -> None:
        """Say how much is done."""
        now = time.monotonic()
        if not self.wanted or now - self.start < QUIET_S or now - self.last < BETWEEN_S:
            return
        self.last, self.shown = now, True
        left = (now - self.start) * (self.total - done) / max(done, 1)
        share = 100 * done / self.total
        sys.stderr.write(f"\r\x1b[K{done:,} of {self.total:,} {self.noun}  {share:.0f} %  {left:.0f} s left")
        sys.stderr.flush()

    def end(self) -> None:
        """Take the line away."""
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


class Interrupt:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within, the first Ctrl-C is only noted; the second ends the program as always."""
    state = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def note(number: int, frame: object) -> None:
        state.pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield state
    finally:
        signal.signal(signal.SIGINT, before)
