"""Arithmetic that works alike on int, float, NumPy arrays and `Poly`, without importing NumPy.

Formula code may use ``+ - * /``, these functions and nothing else on quantities, so that one rule counts
exactly (int), sweeps a grid (ndarray) and prints itself (Poly).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from archsim.base.poly import Poly

Num = Any
"""A quantity: int, float, numpy.ndarray or Poly."""


def opaque(function: Callable[..., Num]) -> Callable[..., Num]:
    """Keep a non-polynomial function as one named atom when an argument is symbolic."""

    @wraps(function)
    def wrapped(*args: Num) -> Num:
        for arg in args:
            if type(arg) is Poly:
                return Poly.call(wrapped, args)
        return function(*args)

    return wrapped


def minimum(a: Num, b: Num) -> Num:
    """Elementwise min(a, b). As if `opaque`, which takes longer than the comparison of two numbers."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return min(a, b)
    if type(a) is Poly or type(b) is Poly:
        return Poly.call(minimum, (a, b))
    return _numpy().minimum(a, b)


def maximum(a: Num, b: Num) -> Num:
    """Elementwise max(a, b). As if `opaque`."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    if type(a) is Poly or type(b) is Poly:
        return Poly.call(maximum, (a, b))
    return _numpy().maximum(a, b)


def ceil_div(a: Num, b: Num) -> Num:
    """The smallest whole number not below a / b. As if `opaque`."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return -(-a // b)
    if type(a) is Poly or type(b) is Poly:
        return Poly.call(ceil_div, (a, b))
    return _numpy().ceil(a / b)  # the same for whole numbers below 2^52, and much faster


@opaque
def floor_div(a: Num, b: Num) -> Num:
    """The largest whole number not above a / b."""
    return a // b


def exp(a: Num) -> Num:
    """Elementwise e^a. As if `opaque`."""
    if isinstance(a, (int, float)):
        return math.exp(a)
    return Poly.call(exp, (a,)) if type(a) is Poly else _numpy().exp(a)


def log(a: Num) -> Num:
    """Elementwise natural logarithm of a positive number. As if `opaque`."""
    if isinstance(a, (int, float)):
        return math.log(a)
    return Poly.call(log, (a,)) if type(a) is Poly else _numpy().log(a)


def log2(a: Num) -> Num:
    """Elementwise base-2 logarithm of a positive number. As if `opaque`."""
    if isinstance(a, (int, float)):
        return math.log2(a)
    return Poly.call(log2, (a,)) if type(a) is Poly else _numpy().log2(a)


@opaque
def floor(a: Num) -> Num:
    """The largest whole number not above a; of an array, as an array of int."""
    return math.floor(a) if isinstance(a, (int, float)) else _numpy().floor(a).astype(int)


def some(condition: Num) -> bool:
    """Whether a condition holds anywhere."""
    return condition if isinstance(condition, bool) else bool(condition.any())


def everywhere(condition: Num) -> bool:
    """Whether a condition holds at all points."""
    return condition if isinstance(condition, bool) else bool(condition.all())


def where(condition: object, a: Num, b: Num) -> Num:
    """a where the condition holds, else b; both are computed."""
    if isinstance(condition, (bool, int)):
        return a if condition else b
    return _numpy().where(condition, a, b)


def above(a: Num, limit: Num) -> Num:
    """a where it is above a limit, else nothing."""
    return a * (a > limit) if not hasattr(a, "above") else a.above(limit)


def pick(values: Sequence[float], at: Num) -> Num:
    """The value at a position; of an array of positions, one for each."""
    return values[at] if isinstance(at, int) else _numpy().take(values, at)


def at_points(value: Num, mask: Any) -> Num:
    """A quantity at the points of a mask that it broadcasts over, one after another; a number stays one."""
    return value if isinstance(value, (int, float)) else _numpy().broadcast_to(value, mask.shape)[mask]


def column(values: Sequence[float]) -> Num:
    """Several numbers as an array, or as the one number that all of them are."""
    return values[0] if all(value == values[0] for value in values) else _numpy().array(values, float)


def as_list(a: Num, size: int) -> list[float]:
    """The values of an array of that size, or so many times the same number."""
    return [a] * size if isinstance(a, (int, float)) else a.tolist()


def _numpy() -> Any:
    """NumPy, which an array argument has loaded already."""
    import numpy

    return numpy


def nearest(a: Num) -> Num:
    """The nearest whole number, the even one of two equally near; of an array, elementwise."""
    return round(a) if isinstance(a, (int, float)) else _numpy().rint(a)


def total(quantities: Iterable[Num]) -> Num:
    """The sum of all quantities, as a number or an array; sums of products before arrays, which multiply them out."""
    return as_array(sum(sorted(quantities, key=lambda n: hasattr(n, "dtype"))))


def as_array(a: Num) -> Num:
    """A quantity with a sum of products of arrays multiplied out; anything else as it is."""
    return getattr(a, "values", a)


def absent(a: Num) -> bool:
    """Whether a quantity is nothing at all; an array, which may hold anything, is not."""
    return isinstance(a, (int, float)) and not a


def divide(a: Num, b: Num) -> Num:
    """a / b, kept an int when both are int and b divides a."""
    if isinstance(a, int) and isinstance(b, int) and a % b == 0:
        return a // b
    return a / b


def product(values: Iterable[Num]) -> Num:
    """The product of all values; 1 of none."""
    result: Num = 1
    for value in values:
        result = result * value
    return result
