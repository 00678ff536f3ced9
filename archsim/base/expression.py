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

Operations = Mapping[type[ast.AST], Callable[..., Any]]
"""What each operator of the syntax does: of one value, of two, or (`in`) of a value and a tuple of values."""


def _power(base: float, exponent: float) -> object:
    if abs(exponent) > LARGEST_POWER or abs(base) > 2**64:
        raise ValueError("the power is too large")
    return base**exponent


SCALARS: Operations = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: _power,
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
    ast.And: lambda a, b: bool(a) and bool(b), ast.Or: lambda a, b: bool(a) or bool(b),
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
}  # fmt: skip
"""Python's own arithmetic and comparisons."""


class Named:
    """An object whose quantities expressions may ask for; nothing else of it can be reached."""

    def quantity(self, name: str) -> object:
        """The value of a quantity, or a function of one; raises KeyError for a name that there is not."""
        raise KeyError(name)


def evaluate(text: str, names: Mapping[str, object]) -> Any:
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
        return Evaluator(names, SCALARS).value(tree.body)
    except ZeroDivisionError:
        raise wrong(text, "division by zero") from None
    except (TypeError, ValueError, OverflowError, KeyError, IndexError) as error:
        raise wrong(text, str(error) or type(error).__name__) from None


def wrong(text: str, reason: str) -> SpecError:
    """The error of one expression."""
    return SpecError(f"cannot compute {quote(text, 120)}: {reason}", code="E110")


class Evaluator:
    """Carries out parsed expressions. names: what they may use. operations: what the operators do, with scalars or
    with arrays. deepest: nested operations.

    Raises ValueError for what is not allowed.
    """

    def __init__(self, names: Mapping[str, object], operations: Operations, deepest: int = DEEPEST) -> None:
        self.names, self.operations, self.deepest = names, operations, deepest

    def value(self, node: ast.expr, depth: int = 0) -> object:
        """The value of a parsed expression."""
        if depth > self.deepest:
            raise ValueError(f"more than {self.deepest} nested operations")
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise ValueError(f"{type(node).__name__} is not allowed")
        value: object = method(node, depth + 1)
        return value

    def _operation(self, op: ast.AST) -> Callable[..., Any]:
        if type(op) not in self.operations:
            raise ValueError(f"{type(op).__name__} is not allowed")
        return self.operations[type(op)]

    def _constant(self, node: ast.Constant, _: int) -> object:
        if isinstance(node.value, (bool, int, float, str)):
            return node.value
        raise ValueError(f"{node.value!r} is neither a number nor text")

    def _name(self, node: ast.Name, _: int) -> object:
        if node.id not in self.names:
            raise ValueError(f"{quote(node.id)} is not known; there are {', '.join(sorted(self.names))}")
        return self.names[node.id]

    def _list(self, node: ast.List | ast.Tuple, depth: int) -> object:
        return tuple(self.value(item, depth) for item in node.elts)

    _tuple = _list

    def _binop(self, node: ast.BinOp, depth: int) -> object:
        operation = self._operation(node.op)
        return operation(self._number(node.left, depth), self._number(node.right, depth))

    def _unaryop(self, node: ast.UnaryOp, depth: int) -> object:
        operation = self._operation(node.op)
        operand = self.value if isinstance(node.op, ast.Not) else self._number
        return operation(operand(node.operand, depth))

    def _boolop(self, node: ast.BoolOp, depth: int) -> object:
        operation, decisive = self._operation(node.op), isinstance(node.op, ast.Or)
        result: object = not decisive
        for part in node.values:
            result = operation(result, self.value(part, depth))
            if result is decisive:  # of scalars: the rest is not asked for
                break
        return result

    def _compare(self, node: ast.Compare, depth: int) -> object:
        both = self._operation(ast.And())
        result: object = True
        left = self.value(node.left, depth)
        for op, part in zip(node.ops, node.comparators, strict=True):
            right = self.value(part, depth)
            result = both(result, self._operation(op)(left, right))
            if result is False:
                break
            left = right
        return result

    def _attribute(self, node: ast.Attribute, depth: int) -> object:
        owner = self.value(node.value, depth)
        if not isinstance(owner, Named):
            raise ValueError(f"{quote(node.attr)} of something that has no quantities")
        try:
            return owner.quantity(node.attr)
        except KeyError:
            raise ValueError(f"no quantity named {quote(node.attr)}") from None

    def _call(self, node: ast.Call, depth: int) -> object:
        function = self.value(node.func, depth)
        if not callable(function) or isinstance(function, type):
            raise ValueError("only given functions are called")
        if any(keyword.arg is None for keyword in node.keywords):
            raise ValueError("`**` is not allowed in a call")
        given = {str(k.arg): self.value(k.value, depth) for k in node.keywords}
        return function(*(self.value(part, depth) for part in node.args), **given)

    def _number(self, node: ast.expr, depth: int) -> object:
        """A number or an array; arithmetic on text (`"a" * 10**9`) is refused."""
        value = self.value(node, depth)
        if isinstance(value, (str, tuple, Named)) or value is None or callable(value):
            raise ValueError(f"{value!r:.40} is no number")
        return value
