"""The answer about the last argument kept, for functions that are asked about one document again and again."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

A = TypeVar("A")
T = TypeVar("T")


def kept_for_last_argument(function: Callable[[A], T]) -> Callable[[A], T]:
    """The function, which keeps its last answer and gives it again where its argument is the very same object.

    For arguments that have no hash, such as models. The argument must not be changed afterwards.
    """
    last: list[tuple[A, T]] = []

    @wraps(function)
    def kept(argument: A) -> T:
        for known, answer in last:
            if known is argument:
                return answer
        answer = function(argument)
        last[:] = [(argument, answer)]
        return answer

    return kept
