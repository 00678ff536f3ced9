"""Specs as plain trees in one normal form, in which two architectures can be compared and mixed field by field.

A tree is a mapping with a spec's class under `class` and every field, defaults filled in. What can be written in two
ways is written in one: each class says how (`Spec.normal_form`, and `Spec.to_document` for the way back).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeGuard

from archsim.blocks.dispatch import CLASS, Fields, Spec

Tree = Fields
"""A spec in normal form."""


def tree(spec: Spec) -> Tree:
    """A spec in normal form."""
    fields = {name: _value(getattr(spec, name)) for name in spec.all_fields}
    return spec.normal_form({CLASS: type(spec)} | fields)


def _value(value: object) -> object:
    if isinstance(value, Spec):
        return tree(value)
    if isinstance(value, (tuple, list)):
        return tuple(_value(item) for item in value)
    return dict(value) if isinstance(value, dict) else value


def is_tree(value: object) -> TypeGuard[Tree]:
    """Whether a value is a spec in normal form."""
    return isinstance(value, dict) and CLASS in value


def document(tree: Tree) -> dict[str, object]:
    """A tree as a spec file has it: fields that are None are left out, unless their default is something else."""
    own = tree[CLASS]
    stated = {
        name: value for name, value in own.to_document(tree).items()
        if name != CLASS and (value is not None or own.default_of(name) is not None)
    }  # fmt: skip
    return {name: _written(value) for name, value in stated.items()}


def _written(value: object) -> object:
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return document(value) if is_tree(value) else value


def freeze(value: object) -> Hashable:
    """A tree as something that can be compared and hashed."""
    if isinstance(value, dict):
        return tuple(sorted((key, freeze(item)) for key, item in value.items()))
    if isinstance(value, (tuple, list)):
        return tuple(map(freeze, value))
    return type(value).__name__, value
