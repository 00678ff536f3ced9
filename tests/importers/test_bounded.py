"""The bounds of the tests with untrusted files are bounds."""

from __future__ import annotations

import pytest
from bounded import BYTES, bounded


@pytest.mark.slow
def test_a_glutton_is_seen() -> None:
    """Memory that is given back inside still counts; so it does a second time."""
    for _ in range(2):
        with pytest.raises(AssertionError, match="bytes"), bounded():
            bytearray(BYTES + 2**26)


def test_little_is_fine() -> None:
    """What a file takes passes."""
    with bounded():
        bytearray(2**20)


def test_endless_work_is_stopped() -> None:
    """At the call that is one too many, whatever the machine's speed."""
    with pytest.raises(AssertionError, match="more than 1,000 calls"), bounded(calls=1000):
        while True:
            len("")
