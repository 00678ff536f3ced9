"""How far long work is, for whoever listens: the command line shows it, everything else runs in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

Listener = Callable[[int, int | None, str], None]
"""Takes how many are done, of how many where that is known, and of what."""

_LISTENER: ContextVar[Listener | None] = ContextVar("progress listener", default=None)


def counted(items: Iterable[T], noun: str, total: int | None = None) -> Iterator[T]:
    """The items one by one; the listener hears of each before it is worked on, and of the end.

    noun: what they are, as in "rows". total: how many, by default the length of `items` where it has one.
    """
    listener = _LISTENER.get()
    if listener is None:
        yield from items
        return
    whole = total if total is not None else len(items) if isinstance(items, Sized) else None
    done = 0
    for item in items:
        listener(done, whole, noun)
        yield item
        done += 1
    listener(done, whole, noun)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Within, `listener` hears of all counted work."""
    token = _LISTENER.set(listener)
    try:
        yield
    finally:
        _LISTENER.reset(token)
