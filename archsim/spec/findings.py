"""pydantic's errors as errors of the file: each with its place, what the field takes and what was probably meant.

pydantic names a place by a `loc` of keys, indices and names of union branches; the walk skips what is not in the node.
A missing field and an unknown one that resembles it are one mistake and become one error.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from archsim.base.diagnostics import inert, quote, shorten
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonMapping
from archsim.base.lazy_model import LazyModel
from archsim.blocks.dispatch import KINDS, OneOf, load_kind
from archsim.spec.node import Mark, Node, NodeList

Keys = list[int | str]
"""Keys of mappings and places in lists, from the document down to a value."""

MAX_NOTES = 5
CUTOFF = 0.6
_MAX_SHOWN_FIELDS = 6

_EXPECTED = {
    "int": "must be a whole number",
    "float": "must be a number",
    "string": "must be text",
    "bool": "must be true or false",
    "list": "must be a list",
    "tuple": "must be a list",
    "dict": "must be a mapping of `key: value`",
    "model": "must be a mapping of `key: value`",
    "mapping": "must be a mapping of `key: value`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong with a node. meant: the known field that an unknown one is spelt nearly as."""

    code: str
    message: str
    mark: Mark
    where: Node | NodeList
    key: Any = None
    label: str = ""
    meant: str = ""
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int]:
        return (self.mark.line, self.mark.column)


def translate(error: ValidationError, node: Node, cls: type[LazyModel], document: str = "") -> SpecError:
    """The first finding in file order as the error, the others as notes."""
    raw = error.errors(include_url=False)
    findings = _join_branches(_pair_unknown_with_missing([_finding(entry, node, cls) for entry in raw]))
    own = node.mark.source
    findings.sort(key=lambda f: (f.mark.source is not own, f.mark.source.name, *f.order))
    first, rest = findings[0], findings[1:]
    also = [_summary(finding) for finding in rest[:MAX_NOTES]]
    if len(rest) > MAX_NOTES:
        also.append(f"and {len(rest) - MAX_NOTES} more")
    return SpecError(
        first.message,
        code=first.code,
        span=first.mark.span(),
        label=first.label,
        notes=(*first.notes, *also),
        hints=(*first.hints, *_beside(first), _where_to_look(first.code, document, first.mark.span().file)),
    )


def _beside(finding: Finding) -> tuple[str, ...]:
    """How a field that is missing beside one of `--set` is given."""
    if finding.code != "E104" or finding.mark.span().file != "--set":
        return ()
    example = "`--set attention.mask.kind=sliding --set attention.mask.window=4096`"
    return (f"a further `--set` gives the missing field, as in {example}",)


def _summary(finding: Finding) -> str:
    span = finding.mark.span()
    return f"also {span.file}:{span.line}:{span.column}: {finding.message}"


def _where_to_look(code: str, document: str, file: str) -> str:
    parts = [f"`archsim explain {code}`"]
    parts += [f"`archsim schema {document}`"] if document else []
    if document and not file.startswith("--"):  # an option has no first line
        parts += ["editors complete fields through the `$schema` line at the top"]
    return " · ".join(parts)


def _finding(entry: ErrorDetails, node: Node, cls: type[LazyModel]) -> Finding:
    """One pydantic error, located and put into words."""
    kind, loc = entry["type"], entry["loc"]
    where, path, owner = _walk(node, loc[:-1] if kind == "missing" else loc)
    if kind == "missing":
        return _missing(str(loc[-1]), where, path, owner, cls)
    if kind == "extra_forbidden" and isinstance(owner, Node) and path:
        return _unknown_field(path[-1], owner, models(cls, path[:-1], owner))
    if kind in ("union_tag_not_found", "union_tag_invalid", "unknown_kind") and isinstance(where, Node):
        tag = str(entry["ctx"].get("discriminator", "kind")).strip("'")
        if tag not in where:
            missing = _missing(tag, where, path, owner, cls)
            return replace(missing, label=_choice(None, _kinds_in(entry["ctx"])) or missing.label)
        return _wrong(entry, where[tag], [*path, tag], where)
    return _wrong(entry, where, path, owner)


def _kinds_in(context: JsonMapping) -> list[str]:
    return re.findall(r"[\w.-]+", str(context.get("expected_tags") or context.get("known", "")))


def _walk(node: Node, loc: Iterable[int | str]) -> tuple[Any, Keys, Node | NodeList | None]:
    """The value at `loc`, the keys that lead there (names of union branches left out) and its container."""
    value: object = node
    path: Keys = []
    owner: Node | NodeList | None = None
    for part in loc:
        if isinstance(value, Node):
            keys = [key for key in (part, str(part)) if key in value] or [k for k in value if str(k) == str(part)]
            if keys:
                owner, value = value, value[keys[0]]
                path.append(keys[0])
        elif isinstance(value, NodeList) and isinstance(part, int) and part < len(value):
            owner, value = value, value[part]
            path.append(part)
    return value, path, owner


def _value_mark(owner: Node | NodeList | None, path: Keys, fallback: Any) -> Mark:
    if isinstance(owner, Node):
        return owner.value_mark(path[-1])
    if isinstance(owner, NodeList):
        return owner.item_mark(int(path[-1]))
    mark: Mark = fallback.mark
    return mark


def _for_kind(node: object) -> str:
    kind = kind_of(node)
    return f" for `kind: {shorten(inert(kind), 40)}`" if kind else ""


def _missing(name: str, where: Any, path: Keys, owner: Any, cls: type[LazyModel]) -> Finding:
    """A required field that is not there: the caret stands at the key of the mapping that lacks it."""
    mark = owner.key_mark(path[-1]) if isinstance(owner, Node) else _value_mark(owner, path, where)
    if owner is None and isinstance(where, Node) and where:
        mark = where.key_mark(next(iter(where)))
    field = next((m.field_infos()[name] for m in models(cls, path, where) if name in m.all_fields), None)
    about = f" ({field.description})" if field is not None and field.description else ""
    required = f"{quote(name)} is required{_for_kind(where)}{about}"
    container = where if isinstance(where, Node | NodeList) else owner
    return Finding(
        code="E104",
        message=f"missing field {quote(name)}",
        mark=mark,
        where=container,
        key=name,
        label=f"needs {quote(name)}",
        notes=(required,),
    )


def _unknown_field(key: object, owner: Node, classes: list[type[LazyModel]]) -> Finding:
    known = sorted({spelling for model in classes for spelling in spellings(model)} - set(map(str, owner)))
    close = difflib.get_close_matches(str(key)[:100], known, n=1, cutoff=CUTOFF)
    notes: tuple[str, ...] = ()
    if not close and known:
        shown = ", ".join(f"`{name}`" for name in known[:_MAX_SHOWN_FIELDS])
        more = len(known) - _MAX_SHOWN_FIELDS
        notes = (f"not given yet{_for_kind(owner)}: {shown}{f' and {more} more' if more > 0 else ''}",)
    return Finding(
        code="E103",
        message=f"unknown field {quote(key)}",
        mark=owner.key_mark(key),
        where=owner,
        key=key,
        label=f"did you mean {quote(close[0])}?" if close else f"not a field{_for_kind(owner) or ' here'}",
        meant=close[0] if close else "",
        notes=notes,
    )


def _pair_unknown_with_missing(findings: list[Finding]) -> list[Finding]:
    """Unknown fields that stand for a missing one take its note; that missing field is no longer an error."""
    missing = [f for f in findings if f.code == "E104"]
    result = []
    for finding in findings:
        near = {m.key: m for m in missing if m.where is finding.where}
        if finding.code == "E103" and near:
            close = difflib.get_close_matches(str(finding.key)[:100], list(near), n=1, cutoff=CUTOFF)
            wanted = near.get(close[0]) if close else None
            if wanted is not None and finding.meant in ("", wanted.key):
                missing = [m for m in missing if m is not wanted]
                label = f"did you mean {quote(wanted.key)}?"
                finding = replace(finding, label=label, notes=wanted.notes)
        result.append(finding)
    return [f for f in result if f.code != "E104" or any(f is m for m in missing)]


def _join_branches(findings: list[Finding]) -> list[Finding]:
    """The branches of a union fail one by one at the same value: one finding that names all of them."""
    result: list[Finding] = []
    first: dict[tuple[str, int], int] = {}
    for finding in findings:
        place = first.setdefault((finding.code, id(finding.mark)), len(result))
        if place == len(result) or finding.code != "E102":
            result.append(finding)
            continue
        twin = result[place]
        start, new, old = f"{quote(finding.key)} must be ", finding.message, twin.message
        if new != old and new.startswith(start) and old.startswith(start) and ", not " in old:
            head, tail = old.split(", not ", 1)
            wanted = new.removeprefix(start).split(", not ", 1)[0]
            message = old if wanted in head else f"{head} or {wanted}, not {tail}"
            result[place] = replace(twin, message=message)
    return result


def _wrong(entry: ErrorDetails, where: Any, path: Keys, owner: Any) -> Finding:
    """A value that its field does not take."""
    context = entry.get("ctx", {})
    cause = context.get("error")
    name = next((part for part in reversed(path) if isinstance(part, str)), "the document")
    field = getattr(cause, "field", None)
    if field is not None and isinstance(where, Node) and field in where:
        owner, path, where = where, [*path, field], where[field]
    code, message, label = _words(entry, str(name), where)
    hints: tuple[str, ...] = tuple(getattr(cause, "hints", ()))
    return Finding(
        code=code,
        message=message,
        mark=_value_mark(owner, path, where),
        where=owner if owner is not None else where,
        key=str(name),
        label=getattr(cause, "label", "") or label,
        notes=tuple(getattr(cause, "notes", ())),
        hints=tuple(hint for hint in hints if hint != getattr(cause, "label", "")),
    )


def _words(entry: ErrorDetails, name: str, value: object) -> tuple[str, str, str]:
    """Code, message and label of a wrong value."""
    kind, context = entry["type"], entry.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, Exception):
        code, text = getattr(cause, "code", None), getattr(cause, "message", None) or str(cause)
        return code or "E102", text if code else f"{quote(name)}: {text}", ""
    if kind in ("union_tag_invalid", "unknown_kind"):
        return "E112", f"unknown kind {_show_value(value)}", _choice(value, _kinds_in(context))
    if kind in ("literal_error", "enum"):
        choices = re.findall(r"'([^']*)'", str(context.get("expected", "")))
        text = str(context.get("expected", "")).replace("'", "`")
        return (
            "E102",
            f"{quote(name)} must be {text}, not {_show_value(value)}",
            _choice(value, choices) if choices else "",
        )
    expected = str(entry["msg"]).replace("Input should be", "must be", 1)
    if kind.endswith(("_type", "_parsing", "_from_float")):
        expected = _EXPECTED.get(kind.split("_")[0], expected)
    if not expected.startswith("must be"):
        return str(context.get("code", "E102")), f"{quote(name)}: {expected}", ""
    return "E102", f"{quote(name)} {expected}, not {_show_value(value)}", _advice(kind, value)


def _choice(value: object, choices: list[str]) -> str:
    close = difflib.get_close_matches(str(value)[:100], choices, n=1, cutoff=CUTOFF)
    if close:
        return f"did you mean `{close[0]}`?"
    return "known: " + ", ".join(f"`{choice}`" for choice in choices[:_MAX_SHOWN_FIELDS]) if choices else ""


def _advice(kind: str, value: object) -> str:
    """What to write instead of text that looks like a number or a quantity."""
    if kind.startswith("int") and isinstance(value, float) and value.is_integer():
        return f"write {int(value)}"
    if not kind.startswith(("int", "float")) or not isinstance(value, str):
        return ""
    number = re.fullmatch(r"\s*([-+]?[0-9][0-9_,]*\.?[0-9]*(?:[eE][-+]?[0-9]+)?)\s*(\S.*)?", value[:100])
    if number is None:
        return ""
    if "," in number[1] and not re.fullmatch(r"[-+]?[0-9]{1,3}(,[0-9]{3})+(\..*)?", number[1]):
        return "one number belongs here"
    digits = number[1].replace(",", "").replace("_", "")
    return "write a bare number here, without a unit" if number[2] else f"write {digits}, without quotes"


def _show_value(value: object) -> str:
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "`true`", False: "`false`"}[value]
    return f'"{shorten(inert(value), 60)}"' if isinstance(value, str) else quote(value, 60)


# ---------------------------------------------------------------------- fields that a mapping may have
def kind_of(node: object) -> str | None:
    """The `kind` of a mapping, if it has one that is text."""
    kind = node.get("kind") if isinstance(node, Node) else None
    return kind if isinstance(kind, str) else None


def spellings(model: type[LazyModel]) -> Iterator[str]:
    """The keys that `model` takes, as a file spells them."""
    return (name for name, _ in _field_names(model))


def models(cls: type[LazyModel], path: Keys, node: object) -> list[type[LazyModel]]:
    """The model classes that may describe the mapping at `path`: by annotation, else by its `kind`."""
    found: list[type[LazyModel]] = [cls]
    for part in path:
        if isinstance(part, str):
            fields = [field for model in found for name, field in _field_names(model) if part == name]
            found = [model for field in fields for model in _inside((field.annotation, *field.metadata))]
    kind = kind_of(node)
    if kind is None:
        return found
    return [model for model in found if kind in _kinds(model)] or found


def _field_names(model: type[LazyModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.field_infos().items():
        yield field.alias or name, field


def _inside(annotation: Any) -> Iterator[type[LazyModel]]:
    """The model classes inside an annotation; of a block family, the classes of all its kinds."""
    if isinstance(annotation, OneOf):
        yield from dict.fromkeys(load_kind(annotation.family, kind) for kind in KINDS[annotation.family])
    elif isinstance(annotation, tuple):
        for part in annotation:
            yield from _inside(part)
    elif isinstance(annotation, type) and not get_args(annotation):
        if issubclass(annotation, LazyModel):
            yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _inside((annotation.__origin__, *annotation.__metadata__))
    elif get_origin(annotation) is not Literal:
        yield from _inside(get_args(annotation))


def _kinds(model: type[LazyModel]) -> tuple[object, ...]:
    field = model.field_infos().get("kind")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
