"""How far long work is: on a terminal only, on stderr, and once it takes a while. `progress` shows a bar beside work
that reports where it stands, `Counted` a line of work whose parts the caller counts.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from archsim.base.progress import heard_by
from archsim.cli.streams import before_text

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET_S = 0.5
"""Seconds before anything is shown."""
WHOLE_COMMAND_S = 1.5
"""Seconds before a command that shows nothing of its own is said to be at work."""
BETWEEN_S = 0.2
"""Seconds between two lines."""


@contextmanager
def progress(what: str, quiet_s: float = QUIET_S) -> Iterator[None]:
    """Show work within as a bar with what is done and how long it has taken, which goes away at the end, before any
    text and for a bar within.

    what: the work, as in "comparing". `ARCHSIM_NO_PROGRESS` and a terminal that cannot move its cursor show nothing.
    """
    if not sys.stderr.isatty() or os.environ.get("ARCHSIM_NO_PROGRESS") or os.environ.get("TERM") == "dumb":
        yield
        return
    line = _Line(what)
    timer = threading.Timer(quiet_s, line.show)
    timer.daemon = True
    timer.start()
    try:
        with heard_by(line.hear), before_text(line.end):
            yield
    finally:
        timer.cancel()
        line.end()


class _Line:
    """The bar: hears of work from the start, and is drawn once `show` is called."""

    def __init__(self, what: str) -> None:
        self.what, self.state = what, (0, None, "")  # type: str, tuple[int, int | None, str]
        self.bar: Progress | None = None
        self.ended = False
        self.lock = threading.Lock()

    def hear(self, done: int, total: int | None, noun: str) -> None:
        """Note how far the work is."""
        self.state = (done, total, noun)
        with self.lock:
            self._update()

    def show(self) -> None:
        """Draw the bar from now on."""
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
        with self.lock:
            if self.ended:
                return
            terminal = Console(file=getattr(sys.stderr, "beneath", sys.stderr))
            self.bar = Progress(
                *columns, console=terminal, transient=True, redirect_stdout=False, redirect_stderr=False
            )
            self.bar.add_task(self.what, total=None)
            self._update()
            self.bar.start()

    def _update(self) -> None:
        if self.bar is None:
            return
        done, total, noun = self.state
        of = f" {done:,} of {total:,} {noun}" if total else f" {done:,} {noun}" if done else ""
        self.bar.update(self.bar.task_ids[0], description=self.what + of, completed=done, total=total)

    def end(self) -> None:
        """Take the line away."""
        with self.lock:
            bar, self.bar, self.ended = self.bar, None, True
            if bar is not None:
                bar.stop()


class Counted:
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
