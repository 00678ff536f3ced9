"""Which version of an engine a measured row is of."""

from __future__ import annotations

import pytest

from archsim.accuracy.question import engine_of


@pytest.mark.parametrize(
    ("version", "engine"),
    [
        ("b5163", "llamacpp@b5163"), ("May 2024", "llamacpp@b2961"), ("June 2024", "llamacpp@b3216"),
        ("Sep 2023", "llamacpp"), ("see notes", "llamacpp"), ("2024", "llamacpp"), (None, "llamacpp"),
    ],
)  # fmt: skip
def test_a_build_or_a_month_says_the_version(version: str | None, engine: str) -> None:
    """A month stands for the newest version that was out at its end, where the engine's document knows one."""
    assert engine_of("llama.cpp", version) == (engine, ())


def test_a_day_counts_where_no_version_is_stated() -> None:
    """As `llama-bench` and serving logs date their runs."""
    assert engine_of("llama.cpp", "", "2024-06-01T10:00") == ("llamacpp@b2961", ())
