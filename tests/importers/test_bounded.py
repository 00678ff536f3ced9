"""The bounds of the tests with untrusted files are bounds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from bounded import bounded

TESTS = Path(__file__).parents[1]
GLUTTON = """
from bounded import BYTES, bounded
for _ in range(2):
    try:
        with bounded():
            bytearray(BYTES + 2**26)
    except AssertionError as error:
        assert "bytes" in str(error)
    else:
        raise SystemExit("not seen")
"""


@pytest.mark.slow
def test_a_glutton_is_seen() -> None:
    """Memory that is given back inside still counts; so it does a second time. In a process of its own: what earlier
    tests have left free there would be taken first, and is no more than there was.
    """
    subprocess.run([sys.executable, "-c", GLUTTON], cwd=TESTS, check=True, timeout=120)


def test_little_is_fine() -> None:
    """What a file takes passes."""
    with bounded():
        bytearray(2**20)


def test_endless_work_is_stopped() -> None:
    """At the call that is one too many, whatever the machine's speed."""
    with pytest.raises(AssertionError, match="more than 1,000 calls"), bounded(calls=1000):
        while True:
            len("")
