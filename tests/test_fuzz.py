"""A sample of the random inputs of `fuzz.py`."""

from __future__ import annotations

import pytest
from fuzz import Outcome, outcomes, show


def bad(found: list[Outcome]) -> str:
    """The inputs that did what must not be."""
    return "\n".join(show(outcome) for outcome in found if outcome.wrong)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("start", range(10**6, 10**6 + 60, 20))
def test_a_few_inputs(start: int) -> None:
    """On every change."""
    found = list(outcomes(0, range(start, start + 20)))
    assert not bad(found), bad(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("start", range(2 * 10**6, 2 * 10**6 + 500, 50))
def test_more_inputs(start: int) -> None:
    """Of every kind."""
    found = list(outcomes(0, range(start, start + 50)))
    assert not bad(found), bad(found)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("start", range(0, 100, 50))
def test_some_traces(start: int) -> None:
    """Of the 5,000 of `python tests/fuzz.py --kind trace --inputs 5000`."""
    found = list(outcomes(0, range(start, start + 50), kind="trace"))
    assert not bad(found), bad(found)
