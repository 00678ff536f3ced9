"""YAML values that remember where they were written: the data between the loader and the typed specs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from archsim.base.errors import Span


class TextSource(NamedTuple):
    """A text that was read: the name under which it is shown, and its lines."""

    name: str
    lines: tuple[str, ...]


class Mark(NamedTuple):
    """The place of one key or value: line and column from 0, length in characters on its first line."""

    source: TextSource
    line: int
    column: int
    length: int

    def span(self) -> Span:
        """The place as diagnostics show it, counted from 1 and with the text of its line."""
        lines = self.source.lines
        text = lines[self.line] if self.line < len(lines) else ""
        return Span(self.source.name, self.line + 1, self.column + 1, self.length, text)


class Node(dict[Any, Any]):
    """A mapping with its place and, for each key, the marks of the key and of its value."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark) -> None:
        super().__init__()
        self.mark = mark
        self.marks: dict[Any, tuple[Mark, Mark]] = {}

    def put(self, key: object, value: object, marks: tuple[Mark, Mark]) -> None:
        """Set `key`, together with the marks of the key and of the value."""
        self[key] = value
        self.marks[key] = marks

    def key_mark(self, key: object) -> Mark:
        """Where `key` stands; the mapping itself if the key was not read from a file."""
        return self.marks[key][0] if key in self.marks else self.mark

    def value_mark(self, key: object) -> Mark:
        """Where the value of `key` stands; the mapping itself if it was not read from a file."""
        return self.marks[key][1] if key in self.marks else self.mark


class NodeList(list[Any]):
    """A list with its place and the mark of each item."""

    __slots__ = ("mark", "marks")

    def __init__(self, mark: Mark, items: Iterable[object] = (), marks: Iterable[Mark] = ()) -> None:
        super().__init__(items)
        self.mark = mark
        self.marks: list[Mark] = list(marks)

    def item_mark(self, index: int) -> Mark:
        """Where item `index` stands; the list itself if it was not read from a file."""
        return self.marks[index] if 0 <= index < len(self.marks) else self.mark


def merge(base: Node, over: Node) -> Node:
    """`base` with the values of `over` on top, as a new node; each value keeps the marks of its origin.

    Mappings merge key by key, lists and scalars are replaced, and an explicit null in `over` removes the key. A mapping
    whose `kind` differs from the one below it replaces it whole, since its fields mean something else.
    """
    if "kind" in over and over["kind"] != base.get("kind"):
        return over
    result = Node(over.mark)
    for key, value in base.items():
        if key not in over:
            result.put(key, value, (base.key_mark(key), base.value_mark(key)))
        elif over[key] is not None:
            result.put(key, _merge(value, over[key]), (over.key_mark(key), over.value_mark(key)))
    for key, value in over.items():
        if key not in base and value is not None:
            result.put(key, value, (over.key_mark(key), over.value_mark(key)))
    return result


def _merge(below: object, above: object) -> object:
    return merge(below, above) if isinstance(below, Node) and isinstance(above, Node) else above
