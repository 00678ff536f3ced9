"""What one untrusted file may cost: five seconds, and 500 MB at its peak."""

from __future__ import annotations

import re
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 5.0
BYTES = 500 * 10**6
RESET = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")


@contextmanager
def bounded() -> Iterator[None]:
    """Fails where what runs inside takes more of either."""
    before, start = _peak(reset=True), time.perf_counter()
    yield
    taken, more = time.perf_counter() - start, _peak() - before
    assert taken < SECONDS, f"{taken:.1f} s"
    assert more < BYTES, f"{more:,} bytes"


def _peak(reset: bool = False) -> int:
    """Bytes of memory at the process' peak, since it was last reset where the system can do that."""
    if RESET.exists() and STATUS.exists():
        if reset:
            RESET.write_text("5")
        if found := re.search(r"VmHWM:\s+(\d+) kB", STATUS.read_text()):
            return int(found[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
