"""What a cache of bounded size keeps, and what it lets go."""

from __future__ import annotations

import pytest

from archsim.base.last_used import LastUsed


def test_the_values_that_were_asked_for_last_are_kept() -> None:
    """Each is made once as long as it is kept; the one unused for longest goes."""
    made: list[str] = []
    kept = LastUsed[str, str](2)

    def value(key: str) -> str:
        return kept.get(key, lambda: (made.append(key), key.upper())[1])

    assert [value(key) for key in "abacab"] == list("ABACAB")
    assert made == list("abcb") and len(kept) == 2


def test_what_cannot_be_made_leaves_the_others() -> None:
    kept = LastUsed[str, int](1)
    kept.get("one", lambda: 1)
    with pytest.raises(ZeroDivisionError):
        kept.get("none", lambda: 1 // 0)
    assert kept.get("one", lambda: 2) == 1
