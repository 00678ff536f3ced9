"""Ratios of times: what cancels, what does not, and how sure a ranking is."""

from __future__ import annotations

from math import exp, log, sqrt

import pytest

from archsim.comparison.uncertainty import COMMON, Timing, add_times, ratio, shared
from archsim.timing.duration import Duration
from archsim.timing.step_time import ClassTime


def timing(*parts: tuple[str, float, float], sizes: str = "") -> Timing:
    """Classes with seconds and a factor to both ends of the interval; kernels named by `sizes`."""
    shares = tuple(ClassTime(op, Duration(s, s / f, s * f, evidence="calibrated")) for op, s, f in parts)
    total = sum(s for _, s, _ in parts)
    return Timing(shares, {name: total / len(sizes) for name in sizes})


A = timing(("gemm", 1.0, 1.3), ("attention", 0.5, 1.5), sizes="ab")
B = timing(("gemm", 0.7, 1.3), ("attention", 1.0, 1.5), sizes="cd")


def test_the_value_is_that_of_the_times() -> None:
    """The expected ratio is the ratio of the expected times."""
    assert ratio(A, B, True).value == pytest.approx(1.5 / 1.7)


def test_one_class_against_a_certain_time() -> None:
    """Beside a time without error, the ratio has the error of the other."""
    found = ratio(timing(("gemm", 2.0, 1.3)), timing(("gemm", 1.0, 1.0)), False)
    assert (found.value, found.low, found.high) == pytest.approx((2.0, 2.0 / 1.3, 2.0 * 1.3))


def test_a_time_over_itself() -> None:
    """Kernels of the same size err alike: a time over itself is one, without doubt, and neither is faster."""
    assert ratio(A, A, True) == pytest.approx((1.0, 1.0, 1.0, 0.5))


def test_another_device_has_errors_of_its_own() -> None:
    """Errors on different devices add up as independent ones."""
    found = ratio(timing(("gemm", 1.0, 1.3)), timing(("gemm", 1.0, 1.3)), False)
    assert found.high == pytest.approx(exp(sqrt(2) * log(1.3)))
    assert found.faster == 0.5


def test_common_errors_cancel() -> None:
    """Wholly common errors of one class leave nothing; without any in common both count; the default is between."""
    a, b = timing(("gemm", 1.0, 1.3), sizes="a"), timing(("gemm", 2.0, 1.3), sizes="b")
    spans = [log(r.high / r.low) for r in (ratio(a, b, True, c) for c in (1.0, COMMON, 0.0))]
    assert spans[0] == pytest.approx(0.0)
    assert spans[0] < spans[1] < spans[2]
    assert spans[2] == pytest.approx(2 * sqrt(2) * log(1.3))


def test_other_shares_of_a_class_do_not_cancel() -> None:
    """What one side spends more of its time on stays in the ratio, even if the error is wholly common."""
    found = ratio(A, B, True, 1.0)
    gemm, attention = (1 / 1.5 - 0.7 / 1.7) * log(1.3), (0.5 / 1.5 - 1 / 1.7) * log(1.5)
    assert log(found.high / found.value) == pytest.approx(sqrt(gemm**2 + attention**2))


def test_other_evidence_is_independent() -> None:
    """A fitted class and one that is not have nothing in common."""
    other = Timing((ClassTime("gemm", Duration(1.0, 1 / 1.3, 1.3, evidence="datasheet")),), {})
    mine = timing(("gemm", 1.0, 1.3))
    assert ratio(mine, other, True, 1.0).high == pytest.approx(exp(sqrt(2) * log(1.3)))


def test_what_has_no_time_of_its_own_counts() -> None:
    """How far whole steps are off beyond their kernels is a share without seconds: it widens a ratio like any other."""
    whole = ClassTime("composition", Duration(0.0, -0.1, 0.2, evidence="calibrated"))
    a, b = timing(("gemm", 1.0, 1.0), sizes="a"), timing(("gemm", 1.0, 1.0), sizes="b")
    found = ratio(Timing((*a.shares, whole), a.sizes), b, True)
    assert (found.low, found.high) == pytest.approx((0.9, 1.2))


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize(("a", "b"), [(A, B), (B, A), (A, add_times(A, B))])
def test_turning_a_ratio_over(a: Timing, b: Timing, same: bool) -> None:
    """B over A is the inverse, its ends exchanged, and one is as surely faster as the other is not."""
    one, two = ratio(a, b, same), ratio(b, a, same)
    assert one.value == pytest.approx(1 / two.value)
    assert (one.low, one.high) == pytest.approx((1 / two.high, 1 / two.low))
    assert one.faster == pytest.approx(1 - two.faster)


def test_the_ends_are_those_of_80_percent() -> None:
    """Where the lower end of the interval is one, the first is slower with probability 0.9."""
    a = timing(("gemm", 1.3, 1.3))
    assert ratio(a, timing(("gemm", 1.0, 1.0)), False).faster == pytest.approx(0.1)


def test_a_lopsided_interval() -> None:
    """Each side of the middle has a spread of its own."""
    a = Timing((ClassTime("gemm", Duration(1.0, 0.9, 2.0, evidence="calibrated")),), {})
    found = ratio(a, timing(("gemm", 1.0, 1.0)), False)
    assert (found.low, found.high) == pytest.approx((0.9, 2.0))


def test_shared_sizes() -> None:
    """The share of the time in kernels that the other has too."""
    assert shared(A, B) == 0.0
    assert shared(A, A) == 1.0
    assert shared(timing(("gemm", 1.0, 1.3), sizes="abcd"), A) == pytest.approx(0.5)
