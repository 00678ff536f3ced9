"""YAML files to nodes with positions, safely, and nodes to typed specs.

The text is read event by event, so that size, nesting and aliases are bounded while it is read: hostile input costs
neither memory nor time. An alias shares the value of its anchor instead of copying it, but counts in full.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from archsim.base.diagnostics import quote
from archsim.base.errors import InvalidValue, SpecError
from archsim.base.input_file import MAX_DEPTH, read_input, unusable
from archsim.base.json_types import JsonMapping
from archsim.spec import scalars
from archsim.spec.node import Mark, Node, NodeList, TextSource, merge

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = [
    "Mark", "Node", "NodeList", "TextSource", "content", "merge", "parse_bytes", "parse_text", "read", "validate",
]  # fmt: skip

Model = TypeVar("Model", bound="BaseModel")

MAX_BYTES = 4_000_000
MAX_ALIASES = 2_000
MAX_VALUES = 200_000

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STR_TAGS = (None, "!", "tag:yaml.org,2002:str")


def read(path: str | os.PathLike[str]) -> Node:
    """The mapping in the YAML file `path`, with the position of every key and value.

    Raises SpecError: E109 for a file that cannot be a spec, E105 to E107 and E111 for what is wrong inside it.
    """
    return parse_bytes(content(path), path)


def parse_spec(data: bytes, path: str | os.PathLike[str]) -> Node:
    """As `parse_bytes`, of a file that should be a spec. Where it has no field of one, the error quotes none of it: a
    spec may name (`extends`) files that are nobody's business. Raises SpecError.
    """
    if _has_spec_fields(data):
        return parse_bytes(data, path)
    try:
        parse_bytes(data, path)
    except SpecError as error:
        raise _without_text(error, path) from None
    raise unusable(path, "none of its fields is one of a spec", "`archsim schema model` lists the fields")


SPEC_FIELDS = frozenset({
    "schema", "d_model", "vocab_size", "layers", "layer", "max_context", "extends", "hf_ids", "final_norm", "embedding",
    "lineage", "vendor", "arch", "compute", "memory", "fabric", "applies_to", "variant_of", "mixture", "scheduler",
    "parallelism", "software_devices", "kv", "weights", "attention", "bytes", "encoder",
})  # fmt: skip
"""Fields that say that a document is a model, a device, a machine, a format or an engine."""


def _without_text(error: SpecError, path: str | os.PathLike[str]) -> SpecError:
    """The error with its place, and with nothing that stands in the file."""
    if error.span is None:
        return error
    known = error.code in UNQUOTED
    span = error.span._replace(text="")
    return SpecError(
        error.message if known else f"{quote(path, 200)} is no spec",
        code=error.code, span=span, label=error.label if error.code == "E109" else "",
    )  # fmt: skip


KEY = re.compile(rb"""(?:^|[{,])\s*["']?([a-z_]{2,20})["']?[ \t]*:""", re.MULTILINE)
UNQUOTED = frozenset({"E106", "E109", "E111"})
"""Errors of a file as a whole, which say nothing of what stands in it."""


def _has_spec_fields(data: bytes) -> bool:
    """Whether a text has, at the beginning of a line or in braces, a key of a spec or one that is spelt nearly so."""
    found = {
        key.decode() for key in re.findall(rb"""(?:^|[{,])\s*["']?([a-z_]{2,20})["']?[ \t]*:""", data, re.MULTILINE)
    }
    if found & SPEC_FIELDS:
        return True
    return any(get_close_matches(key, SPEC_FIELDS, n=1, cutoff=0.8) for key in sorted(found)[:100])


def content(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a regular file of sane size. Raises SpecError (E109)."""
    return read_input(path, MAX_BYTES)


def parse_bytes(data: bytes, path: str | os.PathLike[str]) -> Node:
    """The mapping in the bytes of a YAML file; `path` stands for it in messages. Raises SpecError like `read`."""
    shown = os.fspath(path)
    if b"\0" in data:
        raise unusable(shown, "a binary file, not YAML text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unusable(shown, f"not UTF-8 text (byte {error.start:,})") from None
    return parse_text(text, shown)


def parse_text(text: str, name: str) -> Node:
    """The mapping in a YAML text; `name` stands for the file in messages. Raises SpecError like `read`."""
    if len(text) > MAX_BYTES:
        raise unusable(name, f"larger than {MAX_BYTES:,} bytes")
    source = TextSource(name, tuple(text.splitlines()))
    try:
        value, mark = _Builder(source).document(yaml.parse(text, Loader=_LOADER))
    except yaml.YAMLError as error:
        raise _syntax(error, source) from None
    except UnicodeError:
        raise unusable(name, "not UTF-8 text") from None
    if isinstance(value, Node):
        return value
    if value is None:
        raise unusable(name, "the file is empty")
    label = "a spec is a mapping of `key: value` lines"
    raise SpecError("the top level is not a mapping", code="E109", span=mark.span(), label=label)


def validate(node: Node, cls: type[Model], context: JsonMapping | None = None, *, document: str = "") -> Model:
    """`node` as a `cls`. Raises SpecError at the place in the file, with the other findings as notes.

    `document` is the name of the schema (`model`, `hardware`, `format`) for the hint on where its fields are listed.
    """
    from pydantic import ValidationError

    try:
        return cls.model_validate(node, context=dict(context) if context is not None else None)
    except ValidationError as error:
        from archsim.spec.findings import translate

        raise translate(error, node, cls, document) from None


def _syntax(error: yaml.YAMLError, source: TextSource) -> SpecError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
    context = getattr(error, "context", None)
    label = f"{problem} {context}" if context else str(problem)
    if mark is None:
        return SpecError(f"{quote(source.name)} is not valid YAML: {label}", code="E106")
    span = Mark(source, mark.line, mark.column, 1).span()
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
            raise self.refuse("E111", f"nested more than {MAX_DEPTH} levels deep", self.mark(event))
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
