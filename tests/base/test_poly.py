"""Polynomials: the arithmetic that lets counting code print its own formula."""

from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from archsim.base.number import ceil_div, divide, maximum, minimum, product
from archsim.base.poly import Poly

X, Y = Poly.symbol("x"), Poly.symbol("y")
numbers = st.integers(-50, 50)


@given(numbers, numbers, numbers)
def test_evaluation_is_a_homomorphism(a: int, x: int, y: int) -> None:
    """Evaluating an expression of polynomials equals computing with the numbers."""
    poly = (X + a) * (Y - 2 * X) + X**3
    assert poly(x=x, y=y) == (x + a) * (y - 2 * x) + x**3


def test_prints_highest_degree_first() -> None:
    """Formulas read as people write them."""
    assert str(2 * X * Y + X + 3) == "2·x·y + x + 3"
    assert str(X * X - X) == "x^2 + -1·x"
    assert str(Poly({})) == "0"


def test_divides_by_a_monomial_only() -> None:
    """n_heads / n_kv_heads stays a polynomial; other quotients are refused."""
    assert (X * Y) / X == Y
    assert divide(X * Y, Y) == X
    try:
        X / (X + Y)
    except TypeError as error:
        assert "cannot divide" in str(error)
    else:
        raise AssertionError("a quotient by a sum is no polynomial")


def test_opaque_functions_become_named_atoms() -> None:
    """min(C, W) has no polynomial, so it is kept by name and evaluated later."""
    poly = 3 * minimum(X, 7)
    assert str(poly) == "3·minimum(x, 7)"
    assert poly(x=4) == 12
    assert poly(x=9) == 21


def test_wins_against_arrays() -> None:
    """An array times a polynomial is a polynomial problem, not an object array."""
    assert isinstance(X * 2 + Fraction(1, 2), Poly)
    assert X.__array_ufunc__ is None


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=6), st.integers(1, 64))
def test_number_functions_agree_over_types(values: list[int], b: int) -> None:
    """int and ndarray take the same path through minimum, maximum, ceil_div and product."""
    array = np.array(values, dtype=float)
    assert list(minimum(array, b)) == [min(v, b) for v in values]
    assert list(maximum(array, b)) == [max(v, b) for v in values]
    assert list(ceil_div(array, b)) == [-(-v // b) for v in values]
    assert product(values) == int(np.prod([int(v) for v in values], dtype=object))
