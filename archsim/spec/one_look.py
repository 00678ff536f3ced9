"""A stretch of work within which folders and documents stay as they are, so that each is looked at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar, cast

T = TypeVar("T")

_SEEN: ContextVar[dict[Hashable, object] | None] = ContextVar("seen", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Within it, what `seen_once` is asked about is looked up a single time: for questions about a whole catalog."""
    token = _SEEN.set({})
    try:
        yield
    finally:
        _SEEN.reset(token)


def seen_once(key: Hashable, look: Callable[[], T]) -> T:
    """What a look at the disk finds; within `one_look`, what it found the first time."""
    seen = _SEEN.get()
    if seen is None:
        return look()
    if key not in seen:
        seen[key] = look()
    return cast(T, seen[key])
