"""Quantities with units."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.base import units
from archsim.base.units import UnitError, parse_quantity


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("3.35 TB/s", "B/s", 3_350_000_000_000),
        ("80GB", "B", 80_000_000_000),
        ("81559 MiB", "B", 81559 * 2**20),
        ("989.4 TFLOP/s", "FLOP/s", 989_400_000_000_000),
        ("1979 TOPS", "FLOP/s", 1_979_000_000_000_000),
        ("312 TFLOPS", "FLOP/s", 312_000_000_000_000),
        ("660 TOP/s", "FLOP/s", 660_000_000_000_000),
        ("1830 MHz", "Hz", 1_830_000_000),
        ("5 us", "s", 5e-6),
        ("5 µs", "s", 5e-6),
        ("700 W", "W", 700),
        ("1.5e3 GB", "B", 1_500_000_000_000),
    ],
)
def test_parse_is_exact(text: str, dimension: str, value: float) -> None:
    """A quantity becomes the exact number of base units, an int where it is integral."""
    result = parse_quantity(text, dimension)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("text", "dimension", "words"),
    [
        ("3350", "B/s", "no unit"),
        (3350, "B/s", "no unit"),
        ("80 GB/s", "B", "unit of B/s"),
        ("80 gb", "B", "unknown unit"),
        ("-1 GB", "B", "negative"),
        ("1e999999999 B", "B", "out of range"),
        ("fast", "B/s", "not a quantity"),
        ("٣ GB", "B", "not a quantity"),
        ("400 Gbit/s", "B/s", "counts bits"),
        ("1" * 500 + " B", "B", "not a quantity"),
    ],
)
def test_parse_refuses(text: object, dimension: str, words: str) -> None:
    """What is no quantity of the dimension is refused in words, as a ValueError with code E108."""
    with pytest.raises(UnitError, match=words) as caught:
        parse_quantity(text, dimension)
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "E108"


def test_unknown_unit_suggests_the_right_case() -> None:
    """A unit in the wrong case gets the right one as a suggestion."""
    with pytest.raises(UnitError) as caught:
        parse_quantity("80 gb", "B")
    assert caught.value.label == "did you mean `80 GB`?"


@given(st.text(max_size=40), st.sampled_from(sorted(units.UNITS)))
def test_parse_never_fails_otherwise(text: str, dimension: str) -> None:
    """Any text either is a quantity or raises UnitError."""
    with contextlib.suppress(UnitError):
        assert parse_quantity(text, dimension) >= 0


@given(st.integers(0, 10**15), st.sampled_from(["B", "kB", "KiB", "MB", "GiB"]))
def test_integers_stay_exact(n: int, unit: str) -> None:
    """Whole numbers of any unit come out as exact ints."""
    assert parse_quantity(f"{n} {unit}", "B") == n * int(units.UNITS["B"][unit])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (units.format_bytes(137_953_296_384), "138.0 GB"),
        (units.format_bytes(2**30, binary=True), "1.000 GiB"),
        (units.format_bytes(80 * 2**30), "85.90 GB"),
        (units.format_bytes(0), "0 B"),
        (units.format_bytes(327), "327 B"),
        (units.format_bytes(999_960_000), "1.000 GB"),
        (units.format_bytes(-1500), "-1.500 kB"),
        (units.format_seconds(0.02063), "20.63 ms"),
        (units.format_seconds(5.44), "5.440 s"),
        (units.format_seconds(3.2e-6), "3.200 µs"),
        (units.format_seconds(0), "0 s"),
        (units.format_seconds(123456), "123,500 s"),
        (units.format_flops(143.1e9), "143.1 GFLOP"),
        (units.format_rate(3.35e12, "B/s"), "3.350 TB/s"),
        (units.format_rate(48.5, "tok/s"), "48.50 tok/s"),
        (units.format_rate(float("nan"), "tok/s"), "n/a tok/s"),
        (units.format_count(68_976_648_192), "68,976,648,192"),
    ],
)
def test_formats(text: str, expected: str) -> None:
    """Formatted values have four significant digits and always their unit."""
    assert text == expected
