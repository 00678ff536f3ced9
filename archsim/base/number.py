"""Arithmetic that works alike on int, float, NumPy arrays and `Poly`, without importing NumPy.

Formula code may use ``+ - * /``, these functions and nothing else on quantities, so that one rule counts
exactly (int), sweeps a grid (ndarray) and prints itself (Poly).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


@opaque
def minimum(a: Num, b: Num) -> Num:
    """Elementwise min(a, b)."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return min(a, b)
    smaller = a <= b
    return a * smaller + b * (1 - smaller)


@opaque
def maximum(a: Num, b: Num) -> Num:
    """Elementwise max(a, b)."""
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return max(a, b)
    larger = a >= b
    return a * larger + b * (1 - larger)


@opaque
def ceil_div(a: Num, b: Num) -> Num:
    """The smallest whole number not below a / b."""
    return -(-a // b)


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
