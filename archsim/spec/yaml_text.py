"""The value of a YAML text, with the place of every part.

The text is read event by event, so that size, nesting and aliases are bounded while it is read: hostile input costs
neither memory nor time. An alias shares the value of its anchor instead of copying it, but counts in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from archsim.base.diagnostics import quote
from archsim.base.errors import InvalidValue, SpecError
from archsim.base.input_file import MAX_DEPTH, unusable
from archsim.spec import scalars
from archsim.spec.node import Mark, Node, NodeList, TextSource

MAX_ALIASES = 2_000
MAX_VALUES = 200_000
TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAGS = (None, "!", "tag:yaml.org,2002:str")


def built(text: str, name: str) -> tuple[Any, Mark]:
    """The value of the only document in a text, and where it begins; None where there is none. `name` stands for the
    file in messages. Raises SpecError.
    """
    source = TextSource(name, tuple(text.splitlines()))
    try:
        return _Builder(source).document(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise _syntax(error, source) from None
    except UnicodeError:
        raise unusable(name, "not UTF-8 text") from None


def _syntax(error: yaml.YAMLError, source: TextSource) -> SpecError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
    context = getattr(error, "context", None)
    label = f"{problem} {context}" if context else str(problem)
    if mark is None:
        return SpecError(f"{quote(source.name)} is not valid YAML: {label}", code="E106")
    span = Mark(source, mark.line, mark.column, 1).span()
    if "nesting depth" in label:  # libyaml from 0.2.6 on (PyYAML 6.0.4) has a limit of its own, and reads ahead
        return SpecError(TOO_DEEP, code="E111", span=span)
    return SpecError("not valid YAML", code="E106", span=span, label=label)


class _Anchor:
    """What an alias stands for: a value, and how many values and levels it adds once it is `done`."""

    __slots__ = ("count", "done", "height", "value")

    def __init__(self) -> None:
        self.done = False
        self.value: Any = None
        self.count = 0
        self.height = 0


class _Builder:
    """Builds one document from the events of the parser."""

    def __init__(self, source: TextSource) -> None:
        self.source = source
        self.anchors: dict[str, _Anchor] = {}
        self.aliases = 0
        self.count = 0
        self.top = 0
        self.events: Iterator[Any] = iter(())

    def document(self, events: Iterator[object]) -> tuple[Any, Mark]:
        """The value of the only document, or None if there is none."""
        self.events = events
        value, mark, documents = None, Mark(self.source, 0, 0, 1), 0
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self.refuse("E106", "more than one document", self.mark(event), "one file holds one document")
                first = next(events)
                value, mark = self.build(first, 1), self.mark(first)
        return value, mark

    def mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        if end.line == start.line:
            return Mark(self.source, start.line, start.column, max(1, end.column - start.column))
        lines = self.source.lines
        width = len(lines[start.line].rstrip()) if start.line < len(lines) else 0
        return Mark(self.source, start.line, start.column, max(1, width - start.column))

    def refuse(self, code: str, message: str, mark: Mark, label: str = "", notes: tuple[str, ...] = ()) -> SpecError:
        return SpecError(message, code=code, span=mark.span(), label=label, notes=notes)

    def grow(self, count: int, depth: int, event: object) -> None:
        """Count values and levels, and refuse the document at its limits."""
        self.count += count
        self.top = max(self.top, depth)
        if depth > MAX_DEPTH:
            raise self.refuse("E111", TOO_DEEP, self.mark(event))
        if self.count > MAX_VALUES:
            raise self.refuse("E111", f"more than {MAX_VALUES:,} values", self.mark(event))

    def build(self, event: Any, depth: int) -> Any:
        """The value that starts with `event`, at nesting level `depth`."""
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        self.grow(1, depth, event)
        if event.anchor is None:
            return self.content(event, depth)
        anchor = self.anchors[event.anchor] = _Anchor()
        before, outer, self.top = self.count, self.top, depth
        anchor.value = self.content(event, depth)
        anchor.count, anchor.height, anchor.done = self.count - before + 1, self.top - depth, True
        self.top = max(self.top, outer)
        return anchor.value

    def alias(self, event: Any, depth: int) -> Any:
        anchor = self.anchors.get(event.anchor)
        if anchor is None:
            raise self.refuse("E106", f"no anchor named {quote(event.anchor)}", self.mark(event))
        if not anchor.done:
            raise self.refuse("E111", f"{quote(event.anchor)} contains itself", self.mark(event))
        self.aliases += 1
        if self.aliases > MAX_ALIASES:
            raise self.refuse("E111", f"more than {MAX_ALIASES:,} aliases", self.mark(event))
        self.grow(anchor.count, depth + anchor.height, event)
        return anchor.value

    def content(self, event: object, depth: int) -> Any:
        if isinstance(event, yaml.MappingStartEvent):
            self.untagged(event, "tag:yaml.org,2002:map")
            return self.mapping(event, depth)
        if isinstance(event, yaml.SequenceStartEvent):
            self.untagged(event, "tag:yaml.org,2002:seq")
            return self.sequence(event, depth)
        return self.scalar(event, scalars.plain)

    def untagged(self, event: Any, own: str) -> None:
        if event.tag not in (None, "!", own):
            raise self.refuse("E106", f"tag {quote(event.tag)} is not supported", self.mark(event), "write it untagged")

    def sequence(self, event: object, depth: int) -> NodeList:
        result = NodeList(self.mark(event))
        for item in self.events:
            if isinstance(item, yaml.SequenceEndEvent):
                break
            result.append(self.build(item, depth + 1))
            result.marks.append(self.mark(item))
        return result

    def mapping(self, event: object, depth: int) -> Node:
        result = Node(self.mark(event))
        seen: dict[str, Mark] = {}
        inherited: list[Any] = []
        for item in self.events:
            if isinstance(item, yaml.MappingEndEvent):
                break
            key, mark = self.key(item, depth), self.mark(item)
            first = seen.setdefault(str(key), mark)
            if first is not mark:
                raise self.duplicate(key, first, mark)
            start = next(self.events)
            value = self.build(start, depth + 1)
            if key == "<<" and item.implicit[0]:
                inherited.append((value, self.mark(start)))
            else:
                result.put(key, value, (mark, self.mark(start)))
        for value, mark in inherited:
            self.inherit(result, value, mark)
        return result

    def key(self, event: object, depth: int) -> Any:
        if not isinstance(event, yaml.ScalarEvent):
            raise self.refuse("E106", "a key must be a single word", self.mark(event), "not a list, mapping or alias")
        self.grow(1, depth, event)
        return self.scalar(event, scalars.key)

    def duplicate(self, key: object, first: Mark, second: Mark) -> SpecError:
        span = first.span()
        note = f"first given in line {span.line}: {span.text.strip()}"
        return self.refuse("E105", f"duplicate key {quote(key)}", second, "given twice", (note,))

    def inherit(self, node: Node, value: object, mark: Mark) -> None:
        """A `<<` key: the fields of other mappings, where `node` does not give them itself."""
        for parent in value if isinstance(value, NodeList) else [value]:
            if not isinstance(parent, Node):
                raise self.refuse("E106", "`<<` needs a mapping", mark, "an alias such as `*base`")
            for key in parent:
                if key not in node:
                    node.put(key, parent[key], (parent.key_mark(key), parent.value_mark(key)))

    def scalar(self, event: Any, plain: Any) -> Any:
        if event.implicit[0]:
            try:
                return plain(event.value)
            except InvalidValue as error:
                raise self.refuse(error.code, error.message, self.mark(event), error.label) from None
        if event.tag not in _STR_TAGS:
            raise self.refuse("E106", f"tag {quote(event.tag)} is not supported", self.mark(event), "write it untagged")
        return event.value
