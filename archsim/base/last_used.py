"""A cache of bounded size: values are found by their key, and the one unused for longest goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LastUsed(Generic[K, V]):
    """The `size` values that were asked for last, by key."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.known: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made where it is not kept. What `make` raises leaves all others as they were."""
        if key in self.known:
            self.known.move_to_end(key)
            return self.known[key]
        value = make()
        self.known[key] = value
        if len(self.known) > self.size:
            self.known.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self.known)
