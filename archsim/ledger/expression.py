"""Arithmetic over named quantities, written as text and evaluated without `eval`.

The text is parsed by `ast`, and only what is listed here is carried out: numbers, text, lists, arithmetic, comparisons,
`and`, `or`, `not`, names, calls of given functions, and quantities of objects that offer them by name.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError

LONGEST = 600
"""Characters of one expression."""

DEEPEST = 24
"""Operations inside one another."""

LARGEST_POWER = 1024

BINARY: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip
COMPARED: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip


class Named:
    """An object whose quantities expressions may ask for; nothing else of it can be reached."""

    def quantity(self, name: str) -> Any:
        """The value of a quantity, or a function of one; raises KeyError for a name that there is not."""
        raise KeyError(name)


def evaluate(text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression. names: values, functions and `Named` objects that it may use.

    Raises SpecError (E110) for a text that is no such expression, or that has no value.
    """
    if len(text) > LONGEST:
        raise wrong(text, f"longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise wrong(text, "not an expression") from None
    try:
        return _Evaluation(text, names).value(tree.body, 0)
    except ZeroDivisionError:
        raise wrong(text, "it divides by zero") from None
    except (TypeError, ValueError, OverflowError, KeyError, IndexError) as error:
        raise wrong(text, str(error) or type(error).__name__) from None


def wrong(text: str, reason: str) -> SpecError:
    """The error of one expression."""
    return SpecError(f"cannot compute {quote(text, 120)}: {reason}", code="E110")


class _Evaluation:
    """One expression and the names it may use."""

    def __init__(self, text: str, names: Mapping[str, Any]) -> None:
        self.text, self.names = text, names

    def value(self, node: ast.expr, depth: int) -> Any:
        if depth > DEEPEST:
            raise wrong(self.text, f"more than {DEEPEST} operations inside one another")
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise wrong(self.text, f"{type(node).__name__} is not allowed")
        return method(node, depth + 1)

    def _constant(self, node: ast.Constant, _: int) -> Any:
        if isinstance(node.value, (bool, int, float, str)):
            return node.value
        raise wrong(self.text, f"{node.value!r} is no number and no text")

    def _name(self, node: ast.Name, _: int) -> Any:
        if node.id not in self.names:
            raise wrong(
                self.text, f"{quote(node.id)} is not known; there are {', '.join(sorted(self.names))}"
            )
        return self.names[node.id]

    def _list(self, node: ast.List | ast.Tuple, depth: int) -> Any:
        return tuple(self.value(item, depth) for item in node.elts)

    _tuple = _list

    def _binop(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self._number(node.left, depth), self._number(node.right, depth)
        if isinstance(node.op, ast.Pow):
            if abs(right) > LARGEST_POWER or abs(left) > 2**64:
                raise wrong(self.text, "the power is too large")
            return left**right
        if type(node.op) not in BINARY:
            raise wrong(self.text, f"{type(node.op).__name__} is not allowed")
        return BINARY[type(node.op)](left, right)

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> Any:
        if isinstance(node.op, ast.Not):
            return not self.value(node.operand, depth)
        if not isinstance(node.op, (ast.USub, ast.UAdd)):
            raise wrong(self.text, f"{type(node.op).__name__} is not allowed")
        number = self._number(node.operand, depth)
        return -number if isinstance(node.op, ast.USub) else number

    def _boolop(self, node: ast.BoolOp, depth: int) -> bool:
        values = (bool(self.value(part, depth)) for part in node.values)
        return all(values) if isinstance(node.op, ast.And) else any(values)

    def _compare(self, node: ast.Compare, depth: int) -> bool:
        left = self.value(node.left, depth)
        for op, part in zip(node.ops, node.comparators, strict=True):
            if type(op) not in COMPARED:
                raise wrong(self.text, f"{type(op).__name__} is not allowed")
            right = self.value(part, depth)
            if not COMPARED[type(op)](left, right):
                return False
            left = right
        return True

    def _attribute(self, node: ast.Attribute, depth: int) -> Any:
        owner = self.value(node.value, depth)
        if not isinstance(owner, Named):
            raise wrong(self.text, f"{quote(node.attr)} of something that has no quantities")
        try:
            return owner.quantity(node.attr)
        except KeyError:
            raise wrong(self.text, f"no quantity named {quote(node.attr)}") from None

    def _call(self, node: ast.Call, depth: int) -> Any:
        function = self.value(node.func, depth)
        if not callable(function) or isinstance(function, type):
            raise wrong(self.text, "only given functions are called")
        if any(keyword.arg is None for keyword in node.keywords):
            raise wrong(self.text, "`**` is not allowed in a call")
        given = {str(k.arg): self.value(k.value, depth) for k in node.keywords}
        return function(*(self.value(part, depth) for part in node.args), **given)

    def _number(self, node: ast.expr, depth: int) -> Any:
        """A number; arithmetic on text (`"a" * 10**9`) is refused."""
        value = self.value(node, depth)
        if isinstance(value, (int, float)):
            return value
        raise wrong(self.text, f"{value!r:.40} is no number")
