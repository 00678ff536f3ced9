"""Which fields a mapping of a document may have: from the annotations of its spec, else from its `kind`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from archsim.blocks.dispatch import KINDS, OneOf, load_kind
from archsim.spec.node import Node


def kind_of(node: object) -> str | None:
    """The `kind` of a mapping, if it has one that is text."""
    kind = node.get("kind") if isinstance(node, Node) else None
    return kind if isinstance(kind, str) else None


def spellings(model: type[BaseModel]) -> Iterator[str]:
    """The keys that `model` takes, as a file spells them."""
    for name, field in model.model_fields.items():
        yield field.alias or name


def models(cls: type[BaseModel], path: list[Any], node: object) -> list[type[BaseModel]]:
    """The model classes that may describe the mapping at `path`: by annotation, else by its `kind`."""
    found: list[type[BaseModel]] = [cls]
    for part in path:
        if isinstance(part, str):
            fields = [field for model in found for name, field in _field_names(model) if part == name]
            found = [model for field in fields for model in _inside((field.annotation, *field.metadata))]
    kind = kind_of(node)
    if kind is None:
        return found
    return [model for model in found if kind in _kinds(model)] or found


def _field_names(model: type[BaseModel]) -> Iterator[tuple[str, FieldInfo]]:
    for name, field in model.model_fields.items():
        yield field.alias or name, field


def _inside(annotation: Any) -> Iterator[type[BaseModel]]:
    """The model classes inside an annotation; of a block family, the classes of all its kinds."""
    if isinstance(annotation, OneOf):
        yield from dict.fromkeys(load_kind(annotation.family, kind) for kind in KINDS[annotation.family])
    elif isinstance(annotation, tuple):
        for part in annotation:
            yield from _inside(part)
    elif isinstance(annotation, type) and not get_args(annotation):
        if issubclass(annotation, BaseModel):
            yield annotation
    elif get_origin(annotation) is Annotated:
        yield from _inside((annotation.__origin__, *annotation.__metadata__))
    elif get_origin(annotation) is not Literal:
        yield from _inside(get_args(annotation))


def _kinds(model: type[BaseModel]) -> tuple[Any, ...]:
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field is not None and get_origin(field.annotation) is Literal else ()
