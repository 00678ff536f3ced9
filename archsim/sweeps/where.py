"""Conditions over a sweep's columns, as `fits and ttft_s < 0.5`.

The text is parsed into a tree of which only comparisons, arithmetic, `and`, `or`, `not` and `in` are known; nothing
is ever evaluated as Python.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.base.expression import SCALARS, Evaluator, Operations
from archsim.sweeps.columns import Column, column

ColumnOf = Callable[[str], Column]
"""The column of a name. Raises UsageError for a name that no column has."""

LONGEST = 2000
"""Characters of a condition at most."""

SINGLE = re.compile(r"(?<![<>=!:])=(?!=)")
"""The sign that stands where two should."""

ASSIGNED = " (`==` compares)"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows. A comparison with a number that does not exist (null) is false."""

    text: str
    tree: ast.expr
    columns: tuple[Column, ...]
    column: ColumnOf = column

    @classmethod
    def of(cls, text: str, column: ColumnOf = column) -> Condition:
        """The condition that a text states over columns. Raises UsageError for what is no condition."""
        if len(text) > LONGEST:
            raise UsageError(f"a condition has at most {LONGEST} characters, not {len(text):,}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            columns = tuple(dict.fromkeys(_Check(text, column).columns(tree)))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise _refusal(text, "that is not an expression" + ASSIGNED * bool(SINGLE.search(text))) from None
        if _Check(text, column).kind(tree) != "truth":
            raise _refusal(text, "it is not a condition that is true or false")
        return cls(text, tree, columns, column)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Where the condition holds: an array over the block, or one truth."""
        given = {name: values[self.column(name).name] for name in self.names}
        numbers = {n: np.nan if v is None and self.column(n).kind != "text" else v for n, v in given.items()}
        with np.errstate(all="ignore"):
            return Evaluator(numbers, ARRAYS, deepest=LONGEST).value(self.tree)

    @property
    def names(self) -> set[str]:
        """The columns as the text spells them."""
        return {node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)}

    @property
    def words(self) -> Iterator[tuple[Column, str]]:
        """Texts that columns are compared with."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Compare):
                sides = [part for side in (node.left, *node.comparators) for part in _members(side)]
                named = [self.column(part.id) for part in sides if isinstance(part, ast.Name)]
                texts = [part.value for part in sides if isinstance(part, ast.Constant)]
                yield from ((c, text) for c in named for text in texts if isinstance(text, str))


def _members(side: ast.expr) -> list[ast.expr]:
    return side.elts if isinstance(side, (ast.Tuple, ast.List)) else [side]


def _refusal(text: str, why: str) -> UsageError:
    hints = ("an example: --where 'fits and ttft_s < 0.5'",)
    return UsageError(f"`--where` {quote(text)}: {why}", hints=hints)


COMPARED = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq)


@dataclass(frozen=True, slots=True)
class _Check:
    """Finds the columns of a condition, and refuses every node and every mixture of kinds that has no meaning here."""

    text: str
    column: ColumnOf

    def columns(self, node: ast.expr) -> list[Column]:
        """The columns that a tree speaks of."""
        kind, columns = self.kind, self.columns
        match node:
            case ast.Name(id=name):
                return [self.column(name)]
            case ast.Constant(value=bool() | int() | float() | str()):
                return []
            case ast.BoolOp(values=parts) if all(kind(part) == "truth" for part in parts):
                return [c for part in parts for c in columns(part)]
            case ast.UnaryOp(op=ast.Not(), operand=inner) if kind(inner) == "truth":
                return columns(inner)
            case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner) if kind(inner) == "number":
                return columns(inner)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in ARRAYS and kind(a) == kind(b) == "number":
                return columns(a) + columns(b)
            case ast.Compare(left=a, ops=ops, comparators=others):
                return self._compared([a, *others], ops)
        raise _refusal(self.text, f"`{ast.unparse(node)}` is not understood")

    def _compared(self, sides: list[ast.expr], ops: list[ast.cmpop]) -> list[Column]:
        found = self.columns(sides[0])
        for left, op, right in zip(sides, ops, sides[1:], strict=False):
            listed = isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.Tuple, ast.List))
            members = right.elts if listed else [right]  # type: ignore[attr-defined]
            ordered = isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
            for member in members:
                kinds = {self.kind(left), self.kind(member)}
                if (
                    isinstance(left, (ast.Tuple, ast.List))
                    or len(kinds) > 1
                    or (ordered and kinds != {"number"})
                    or not (listed or type(op) in COMPARED)
                ):
                    raise _refusal(
                        self.text, f"`{ast.unparse(left)}` and `{ast.unparse(right)}` cannot be compared this way"
                    )
                found += self.columns(member)
        return found

    def kind(self, node: ast.expr) -> str:
        """truth, number or text."""
        if isinstance(node, ast.Name):
            kind = self.column(node.id).kind
            return "number" if kind == "whole" else kind
        if isinstance(node, ast.Constant):
            return {bool: "truth", str: "text"}.get(type(node.value), "number")
        truth = isinstance(node, (ast.BoolOp, ast.Compare)) or (
            isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
        )
        return "truth" if truth else "number"


def _exists(value: object) -> Any:
    """Where a value is not null."""
    if value is None:
        return np.False_
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value != None  # noqa: E711 - elementwise
    return np.True_ if isinstance(value, str) else np.asarray(value == value)


def _comparison(compare: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A comparison in which null is false, also with `!=`."""
    return lambda a, b: np.asarray(compare(a, b), dtype=bool) & _exists(a) & _exists(b)


def _member(value: object, members: tuple[Any, ...]) -> Any:
    hits = [np.asarray(value == member, dtype=bool) for member in members]
    return np.logical_or.reduce(np.broadcast_arrays(np.False_, *hits))


ARRAYS: Operations = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: np.divide,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: np.logical_not, ast.And: np.logical_and,
    ast.Or: np.logical_or, ast.In: _member, ast.NotIn: lambda a, b: ~_member(a, b),
    **{op: _comparison(SCALARS[op]) for op in COMPARED},
}  # fmt: skip
"""What the operators do over a block of rows."""
