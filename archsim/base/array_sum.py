"""Sums of products of arrays, multiplied out only where their values are asked for.

The extents of a step of arrays are a few arrays (sequences, new tokens, past ones) with plain factors. Kept as factors,
most of a graph is counted without touching an array, and which of two sums is larger often shows from factors alone.
"""

from __future__ import annotations

import numpy as np

from archsim.base.number import Num

Monomial = tuple[int, ...]
"""Positions of the arrays that are multiplied, ascending; none: the constant."""


class Arrays:
    """Arrays that sums are made of, with their least and largest values. None may be negative."""

    def __init__(self) -> None:
        self.low: list[float] = []
        self.high: list[float] = []
        self._products: dict[Monomial, Num] = {}
        self._known: dict[int, ArraySum] = {}
        self._above: dict[tuple[object, ...], ArraySum] = {}

    def sum_of(self, array: Num) -> Num:
        """An array as a sum; as it is where it has negative values or none at all, or is a number."""
        if not isinstance(array, np.ndarray) or not array.size or not (low := float(array.min())) >= 0:
            return array
        if id(array) not in self._known:
            self._known[id(array)] = self._next(array, low, float(array.max()))
        return self._known[id(array)]

    def _next(self, array: Num, low: float, high: float) -> ArraySum:
        key = (len(self.low),)
        self.low.append(low)
        self.high.append(high)
        self._products[key] = array
        return ArraySum({key: 1.0}, self)

    def above(self, size: ArraySum, limit: float) -> ArraySum:
        """A sum where it is above a limit, else nothing; of equal sums the same one."""
        key = (limit, *size.terms.items())
        if key not in self._above:
            values = size.values
            self._above[key] = self._next(values * (values > limit), 0.0, size.bounds[1])
        return self._above[key]

    def product(self, monomial: Monomial) -> Num:
        """The product of some of the arrays, worked out once."""
        if monomial not in self._products:
            self._products[monomial] = self.product(monomial[:-1]) * self.product(monomial[-1:])
        return self._products[monomial]


class ArraySum:
    """A sum of products of `arrays` with plain factors. With any other array it behaves as its `values` do."""

    __slots__ = ("_values", "arrays", "terms")
    __hash__ = None  # type: ignore[assignment]  # as of an array

    def __init__(self, terms: dict[Monomial, float], arrays: Arrays) -> None:
        self.terms, self.arrays, self._values = terms, arrays, None

    @property
    def values(self) -> Num:
        """The sum at every point."""
        if self._values is None:
            total: Num = self.terms.get((), 0.0)
            parts = (self.arrays.product(key) * factor for key, factor in self.terms.items() if key)
            for array in sorted(parts, key=np.size):
                total = np.add(array, total, out=array if array.shape == np.broadcast(array, total).shape else None)
            self._values = total
        return self._values

    @property
    def bounds(self) -> tuple[float, float]:
        """Two numbers that all values lie between."""
        least = most = 0.0
        for key, factor in self.terms.items():
            low = high = factor
            for i in key:
                low, high = low * self.arrays.low[i], high * self.arrays.high[i]
            least, most = (least + low, most + high) if factor > 0 else (least + high, most + low)
        return least, most

    def above(self, limit: float) -> Num:
        """The sum where it is above a limit, else nothing."""
        least, most = self.bounds
        return self if least > limit else 0 if most <= limit else self.arrays.above(self, limit)

    def min(self) -> float:
        """The least value."""
        return float(self.values.min())

    def _same(self, other: object) -> bool:
        return type(other) is ArraySum and other.arrays is self.arrays

    def __add__(self, other: Num) -> Num:
        if isinstance(other, (int, float)):
            return self._plus({(): other}) if other else self
        return self._plus(other.terms) if self._same(other) else self.values + _values(other)

    def _plus(self, others: dict[Monomial, float]) -> ArraySum:
        terms = dict(self.terms)
        for key, factor in others.items():
            terms[key] = terms.get(key, 0) + factor
        return ArraySum(terms, self.arrays)

    def __mul__(self, other: Num) -> Num:
        if isinstance(other, (int, float)):
            return ArraySum({key: factor * other for key, factor in self.terms.items()}, self.arrays) if other else 0
        if not self._same(other):
            return self.values * _values(other)
        terms: dict[Monomial, float] = {}
        for left, a in self.terms.items():
            for right, b in other.terms.items():
                key = tuple(sorted(left + right))
                terms[key] = terms.get(key, 0) + a * b
        return ArraySum(terms, self.arrays)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Num:
        return self * -1

    def __abs__(self) -> Num:
        return self if self.bounds[0] >= 0 else abs(self.values)

    def __sub__(self, other: Num) -> Num:
        return self + other * -1

    def __rsub__(self, other: Num) -> Num:
        return self * -1 + other

    def __truediv__(self, other: Num) -> Num:
        if isinstance(other, (int, float)):
            return ArraySum({key: factor / other for key, factor in self.terms.items()}, self.arrays)
        if self._same(other) and (ratio := self._multiple_of(other)) is not None:
            return ratio
        return self.values / _values(other)

    def _multiple_of(self, other: ArraySum) -> float | None:
        """What factor lies between two sums of the same products; None where no number does."""
        ratios = {self.terms.get(key, 0) / factor for key, factor in other.terms.items() if factor}
        return ratios.pop() if len(ratios) == 1 and self.terms.keys() <= other.terms.keys() else None

    def __rtruediv__(self, other: Num) -> Num:
        return other / self.values

    def __floordiv__(self, other: Num) -> Num:
        return self.values // _values(other)

    def __rfloordiv__(self, other: Num) -> Num:
        return other // self.values

    def __mod__(self, other: Num) -> Num:
        return self.values % _values(other)

    def __pow__(self, power: Num) -> Num:
        return self.values ** _values(power)

    def __rpow__(self, base: Num) -> Num:
        return base**self.values

    def _least_and_most_beyond(self, other: Num) -> tuple[float, float]:
        """Bounds of how far the sum is above another, or above a number."""
        if isinstance(other, (int, float)) or self._same(other):
            beyond: ArraySum = self - other
            return beyond.bounds
        return -float("inf"), float("inf")

    def __gt__(self, other: Num) -> Num:
        least, most = self._least_and_most_beyond(other)
        return True if least > 0 else False if most <= 0 else self.values > _values(other)

    def __ge__(self, other: Num) -> Num:
        least, most = self._least_and_most_beyond(other)
        return True if least >= 0 else False if most < 0 else self.values >= _values(other)

    def __lt__(self, other: Num) -> Num:
        least, most = self._least_and_most_beyond(other)
        return True if most < 0 else False if least >= 0 else self.values < _values(other)

    def __le__(self, other: Num) -> Num:
        least, most = self._least_and_most_beyond(other)
        return True if most <= 0 else False if least > 0 else self.values <= _values(other)

    def __eq__(self, other: object) -> Num:
        return self.values == _values(other)

    def __ne__(self, other: object) -> Num:
        return self.values != _values(other)

    # ---------------------------------------------------------------------- NumPy's own functions
    def __array__(self, dtype: Num = None, copy: bool | None = None) -> Num:
        return np.asarray(self.values, dtype)

    def __array_ufunc__(self, ufunc: Num, method: str, *inputs: Num, **options: Num) -> Num:
        """The function of the values; the larger or smaller of two without them where bounds tell."""
        if ufunc in (np.maximum, np.minimum) and len(inputs) == 2:
            a, b = inputs if type(inputs[0]) is ArraySum else inputs[::-1]
            least, most = a._least_and_most_beyond(b)
            if least >= 0 or most <= 0:
                return a if (least >= 0) == (ufunc is np.maximum) else b
        return getattr(ufunc, method)(*map(_values, inputs), **options)


def _values(x: Num) -> Num:
    return x.values if type(x) is ArraySum else x
