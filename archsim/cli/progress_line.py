"""How much of counted work is done, in one line that is written over."""

from __future__ import annotations

import os
import sys
import time

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
