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
from archsim.sweeps.columns import BY_NAME, Column, column

LONGEST = 2000
"""Characters of a condition at most."""

SINGLE = re.compile(r"(?<![<>=!:])=(?!=)")
"""The sign that stands where two should."""

ASSIGNED = " (`==` compares)"

OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: np.divide,
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows. A comparison with a number that does not exist (null) is false."""

    text: str
    tree: ast.expr
    columns: tuple[Column, ...]

    @classmethod
    def of(cls, text: str) -> Condition:
        """The condition that a text states. Raises UsageError for what is no condition."""
        if len(text) > LONGEST:
            raise UsageError(f"a condition has at most {LONGEST} characters, not {len(text):,}")
        try:
            tree = ast.parse(text.strip(), mode="eval").body
            columns = tuple(dict.fromkeys(_check(tree, text)))
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            raise _refusal(text, "that is no expression" + ASSIGNED * bool(SINGLE.search(text))) from None
        if _kind(tree) != "truth":
            raise _refusal(text, "it says nothing that is true or false")
        return cls(text, tree, columns)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Where the condition holds: an array over the block, or one truth."""
        with np.errstate(all="ignore"):
            return _value(self.tree, values)

    @property
    def words(self) -> Iterator[tuple[Column, str]]:
        """Texts that columns are compared with."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Compare):
                sides = [part for side in (node.left, *node.comparators) for part in _members(side)]
                named = [column(part.id) for part in sides if isinstance(part, ast.Name)]
                texts = [part.value for part in sides if isinstance(part, ast.Constant)]
                yield from ((c, text) for c in named for text in texts if isinstance(text, str))


def _members(side: ast.expr) -> list[ast.expr]:
    return side.elts if isinstance(side, (ast.Tuple, ast.List)) else [side]


def _refusal(text: str, why: str) -> UsageError:
    hints = ("an example: --where 'fits and ttft_s < 0.5'",)
    return UsageError(f"`--where` {quote(text)}: {why}", hints=hints)


def _check(node: ast.expr, text: str) -> list[Column]:
    """The columns that a tree speaks of; refuses every node and every mixture of kinds that has no meaning here."""
    match node:
        case ast.Name(id=name):
            return [column(name)]
        case ast.Constant(value=bool() | int() | float() | str()):
            return []
        case ast.BoolOp(values=parts) if all(_kind(part) == "truth" for part in parts):
            return [c for part in parts for c in _check(part, text)]
        case ast.UnaryOp(op=ast.Not(), operand=inner) if _kind(inner) == "truth":
            return _check(inner, text)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=inner) if _kind(inner) == "number":
            return _check(inner, text)
        case ast.BinOp(left=a, op=op, right=b) if type(op) in OPERATORS and _kind(a) == _kind(b) == "number":
            return _check(a, text) + _check(b, text)
        case ast.Compare(left=a, ops=ops, comparators=others):
            return _check_comparison([a, *others], ops, text)
    raise _refusal(text, f"`{ast.unparse(node)}` is not understood")


def _check_comparison(sides: list[ast.expr], ops: list[ast.cmpop], text: str) -> list[Column]:
    found = _check(sides[0], text)
    for left, op, right in zip(sides, ops, sides[1:], strict=False):
        listed = isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.Tuple, ast.List))
        members = right.elts if listed else [right]  # type: ignore[attr-defined]
        ordered = isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE))
        for member in members:
            kinds = {_kind(left), _kind(member)}
            if len(kinds) > 1 or (ordered and kinds != {"number"}) or not (listed or type(op) in OPERATORS):
                raise _refusal(text, f"`{ast.unparse(left)}` and `{ast.unparse(right)}` do not compare so")
            found += _check(member, text)
    return found


def _kind(node: ast.expr) -> str:
    """truth, number or text."""
    if isinstance(node, ast.Name):
        kind = column(node.id).kind
        return "number" if kind == "whole" else kind
    if isinstance(node, ast.Constant):
        return {bool: "truth", str: "text"}.get(type(node.value), "number")
    truth = isinstance(node, (ast.BoolOp, ast.Compare)) or (
        isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)
    )
    return "truth" if truth else "number"


def _value(node: ast.expr, values: Mapping[str, Any]) -> Any:
    """What a checked tree amounts to."""
    if isinstance(node, ast.Name):
        found = column(node.id)
        value = values[found.name]
        return np.nan if value is None and BY_NAME[found.name].kind != "text" else value
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.BoolOp):
        both = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
        result = _value(node.values[0], values)
        for part in node.values[1:]:
            result = both(result, _value(part, values))
        return result
    if isinstance(node, ast.UnaryOp):
        inner = _value(node.operand, values)
        return np.logical_not(inner) if isinstance(node.op, ast.Not) else inner * _sign(node.op)
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left, values), _value(node.right, values))
    assert isinstance(node, ast.Compare)
    return _compared(node, values)


def _sign(op: ast.unaryop) -> int:
    return -1 if isinstance(op, ast.USub) else 1


def _compared(node: ast.Compare, values: Mapping[str, Any]) -> Any:
    """A chain of comparisons; null compares false, also with `!=`."""
    result: Any = np.True_
    left = _value(node.left, values)
    for op, side in zip(node.ops, node.comparators, strict=True):
        if isinstance(op, (ast.In, ast.NotIn)):
            assert isinstance(side, (ast.Tuple, ast.List))
            hit: Any = np.False_
            for member in side.elts:
                hit = np.logical_or(hit, _equal(left, _value(member, values)))
            result = np.logical_and(result, hit if isinstance(op, ast.In) else ~np.asarray(hit))
            continue
        right = _value(side, values)
        held = np.asarray(OPERATORS[type(op)](left, right), dtype=bool) & _exists(left) & _exists(right)
        result, left = np.logical_and(result, held), right
    return result


def _equal(left: Any, right: Any) -> Any:
    return np.asarray(left == right, dtype=bool)


def _exists(value: Any) -> Any:
    """Where a value is not null."""
    if value is None:
        return np.False_
    if isinstance(value, np.ndarray) and value.dtype == object:
        return value != None  # noqa: E711 - elementwise
    return np.True_ if isinstance(value, str) else np.asarray(value == value)
