"""YAML files to nodes with positions, safely, and nodes to typed specs."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from typing import TypeVar

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.input_file import read_input, unusable
from archsim.base.lazy_model import LazyModel
from archsim.spec.node import Mark, Node, NodeList, TextSource, merge

__all__ = [
    "Mark", "Node", "NodeList", "TextSource", "content", "merge", "parse_bytes", "parse_text", "read", "validate",
]  # fmt: skip

Model = TypeVar("Model", bound=LazyModel)

MAX_BYTES = 4_000_000


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
    from archsim.spec.yaml_text import built  # documents that were kept are no YAML: cold start

    value, mark = built(text, name)
    if isinstance(value, Node):
        return value
    if value is None:
        raise unusable(name, "the file is empty")
    label = "a spec is a mapping of `key: value` lines"
    raise SpecError("the top level is not a mapping", code="E109", span=mark.span(), label=label)


def validate(node: Node, cls: type[Model], *, document: str = "") -> Model:
    """`node` as a `cls`. Raises SpecError at the place in the file, with the other findings as notes.

    `document` is the name of the schema (`model`, `hardware`, `format`) for the hint on where its fields are listed.
    """
    from pydantic import ValidationError

    try:
        return cls.model_validate(node)
    except ValidationError as error:
        from archsim.spec.findings import translate

        raise translate(error, node, cls, document) from None
