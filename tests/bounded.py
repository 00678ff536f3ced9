"""What one untrusted file may cost: two million function calls, and 500 MB at its peak; and files that cannot grow."""

from __future__ import annotations

import re
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

CALLS = 2_000_000
"""About a second of work. Calls are counted rather than seconds, so that a busy machine fails nothing."""

BYTES = 500 * 10**6
RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


@contextmanager
def bounded(calls: int = CALLS, *, counted: bool = True) -> Iterator[None]:
    """Fails where what runs inside makes more calls, of Python or C functions, or takes more memory.

    Work is stopped at the call that is one too many. Counting makes it several times slower: a test with thousands of
    files leaves it out (`counted`) for most of them.
    """
    before = _peak(reset=True)
    with _at_most(calls) if counted else nullcontext():
        yield
    more = _peak() - before
    assert more < BYTES, f"{more:,} bytes"


@contextmanager
def _at_most(calls: int) -> Iterator[None]:
    left = calls

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal left
        if event in ("call", "c_call"):
            left -= 1
            if left < 0:
                sys.setprofile(None)
                raise AssertionError(f"more than {calls:,} calls")

    outer = sys.getprofile()
    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(outer)


def _peak(reset: bool = False) -> int:
    """Bytes of memory at the process' peak, since it was last reset where the system can do that."""
    if RESET.exists() and STATUS.exists():
        if reset:
            RESET.write_text("5")
        if found := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text()):
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Within, no file of this process can grow beyond `most` bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
