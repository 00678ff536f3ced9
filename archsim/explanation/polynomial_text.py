"""Polynomials as people read them: with their letters, or with the numbers in place."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from archsim.base.poly import Call, Poly


def letters_in(poly: Poly) -> set[str]:
    """Every letter of a polynomial, those inside opaque functions included."""
    found: set[str] = set()
    for monomial in poly.terms:
        for atom, _ in monomial:
            if isinstance(atom, Call):
                found |= {x for arg in atom.args if isinstance(arg, Poly) for x in letters_in(arg)}
            else:
                found.add(atom)
    return found


def substituted(poly: Poly, values: Mapping[str, int]) -> str:
    """The polynomial with numbers for its letters, term by term in the order in which it prints."""
    ordered = sorted(poly.terms.items(), key=lambda item: (-sum(p for _, p in item[0]), str(item[0])))
    return " + ".join(_term(monomial, factor, values) for monomial, factor in ordered) or "0"


def tidy(text: str) -> str:
    """Signs and function names as in print."""
    return text.replace(" + -", " - ").replace("minimum(", "min(").replace("maximum(", "max(")


def _term(monomial: Any, coefficient: Fraction, values: Mapping[str, int]) -> str:
    factors = [str(coefficient)] if coefficient != 1 or not monomial else []
    for atom, power in monomial:
        shown = _atom(atom, values)
        factors.append(shown + (f"^{power}" if power != 1 else ""))
    return "·".join(factors)


def _atom(atom: Any, values: Mapping[str, int]) -> str:
    if isinstance(atom, Call):
        inner = (substituted(arg, values) if isinstance(arg, Poly) else str(arg) for arg in atom.args)
        return f"{atom.function.__name__}({', '.join(inner)})"
    return str(values[atom])
