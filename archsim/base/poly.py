"""Polynomials with rational coefficients: the same counting code, called with symbols, prints its formula."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar

from archsim.base.json_types import JsonMapping

Monomial = tuple[tuple[Any, int], ...]


class Call:
    """An opaque term such as min(C, W): a named function of polynomials that is not itself one."""

    __slots__ = ("args", "function")

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self.function, self.args = function, args

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Call) and (self.function, self.args) == (other.function, other.args)

    def __hash__(self) -> int:
        return hash((self.function, self.args))

    def __repr__(self) -> str:
        return _atom(self, None)

    def evaluate(self, values: JsonMapping) -> Any:
        """The function's value with numbers for the letters."""
        return self.function(*(arg(**values) if isinstance(arg, Poly) else arg for arg in self.args))


class Poly:
    """A polynomial over named atoms, e.g. ``2·D·H·K·L``. Immutable and hashable."""

    __slots__ = ("terms",)
    __array_ufunc__: ClassVar[None] = None  # let our operators win against NumPy's

    def __init__(self, terms: Mapping[Monomial, Fraction]) -> None:
        self.terms: dict[Monomial, Fraction] = {m: c for m, c in terms.items() if c}

    @classmethod
    def symbol(cls, name: str) -> Poly:
        """The polynomial that is one letter."""
        return cls({((name, 1),): Fraction(1)})

    @classmethod
    def call(cls, function: Callable[..., Any], args: tuple[Any, ...]) -> Poly:
        """An opaque function of polynomials as one atom."""
        return cls({((Call(function, args), 1),): Fraction(1)})

    @classmethod
    def of(cls, value: Any) -> Poly:
        """A number or polynomial as polynomial."""
        return value if isinstance(value, Poly) else cls({(): Fraction(value)})

    def __add__(self, other: object) -> Poly:
        terms = dict(self.terms)
        for monomial, coefficient in Poly.of(other).terms.items():
            terms[monomial] = terms.get(monomial, Fraction(0)) + coefficient
        return Poly(terms)

    def __mul__(self, other: object) -> Poly:
        terms: dict[Monomial, Fraction] = {}
        for left, a in self.terms.items():
            for right, b in Poly.of(other).terms.items():
                monomial = _times(left, right)
                terms[monomial] = terms.get(monomial, Fraction(0)) + a * b
        return Poly(terms)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> Poly:
        return self * -1

    def __sub__(self, other: object) -> Poly:
        return self + Poly.of(other) * -1

    def __rsub__(self, other: object) -> Poly:
        return Poly.of(other) - self

    def __truediv__(self, other: object) -> Poly:
        """Division by a number or by a single monomial."""
        divisor = Poly.of(other)
        if len(divisor.terms) != 1:
            raise TypeError(f"cannot divide by the polynomial {divisor}")
        ((monomial, coefficient),) = divisor.terms.items()
        inverse = tuple((atom, -power) for atom, power in monomial)
        return self * Poly({inverse: 1 / coefficient})

    __floordiv__ = __truediv__

    def __rtruediv__(self, other: object) -> Poly:
        return Poly.of(other) / self

    def __pow__(self, power: int | float) -> Poly:
        """The power; a root or an inverse of it is one opaque term."""
        if not isinstance(power, int) or power < 0:
            return Poly.call(raised, (self, power))
        result = Poly.of(1)
        for _ in range(power):
            result = result * self
        return result

    def __eq__(self, other: object) -> bool:
        try:
            return self.terms == Poly.of(other).terms
        except (TypeError, ValueError):
            return False

    def __hash__(self) -> int:
        return hash(frozenset(self.terms.items()))

    @property
    def letters(self) -> set[str]:
        """Every letter in it, those inside opaque functions included."""
        atoms = {atom for monomial in self.terms for atom, _ in monomial}
        inner = {arg for atom in atoms if isinstance(atom, Call) for arg in atom.args if isinstance(arg, Poly)}
        plain = {atom for atom in atoms if not isinstance(atom, Call)}
        return plain.union(*(poly.letters for poly in inner))

    def __call__(self, **values: Any) -> Any:
        """The value with numbers for the letters; an int when it is whole."""
        total: Any = 0
        for monomial, coefficient in self.terms.items():
            term: Any = coefficient
            for atom, power in monomial:
                number = atom.evaluate(values) if isinstance(atom, Call) else values[atom]
                term = term * (Fraction(number) if isinstance(number, int) else number) ** power
            total = total + term
        return int(total) if isinstance(total, Fraction) and total.denominator == 1 else total

    def text(self, values: Mapping[str, Any] | None = None) -> str:
        """As people write it: with its letters, or with the numbers that stand for them."""
        ordered = sorted(self.terms.items(), key=lambda item: (-sum(p for _, p in item[0]), str(item[0])))
        return " + ".join(_term(monomial, c, values) for monomial, c in ordered) or "0"

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__


def raised(base: Any, power: float) -> Any:
    """`base` to a power that is no natural number."""
    return base**power


def _times(left: Monomial, right: Monomial) -> Monomial:
    powers = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(((a, p) for a, p in powers.items() if p), key=lambda item: str(item[0])))


def _term(monomial: Monomial, coefficient: Fraction, values: Mapping[str, Any] | None) -> str:
    factors = [str(coefficient)] if coefficient != 1 or not monomial else []
    factors += [_atom(atom, values) + (f"^{power}" if power != 1 else "") for atom, power in monomial]
    return "·".join(factors)


def _atom(atom: Any, values: Mapping[str, Any] | None) -> str:
    if isinstance(atom, Call):
        inner = (arg.text(values) if isinstance(arg, Poly) else str(arg) for arg in atom.args)
        return f"{atom.function.__name__}({', '.join(inner)})"
    return str(atom if values is None else values[atom])
