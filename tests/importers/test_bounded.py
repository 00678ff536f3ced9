"""The bounds of the tests with untrusted files are bounds."""

from __future__ import annotations

import pytest

from .bounded import BYTES, bounded


def test_a_glutton_is_seen() -> None:
    """Memory that is given back inside still counts; so it does a second time."""
    for _ in range(2):
        with pytest.raises(AssertionError, match="bytes"), bounded():
            bytearray(BYTES + 2**26)


def test_little_is_fine() -> None:
    """What a file takes passes."""
    with bounded():
        bytearray(2**20)
