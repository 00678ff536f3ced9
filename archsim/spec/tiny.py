"""A model of the same kinds and patterns, small enough to run anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from archsim.blocks.dispatch import Changes, Spec
from archsim.blocks.tiny import LIMITS

if TYPE_CHECKING:
    from archsim.spec.model import Model

S = TypeVar("S", bound=Spec)


def tiny(model: Model) -> Model:
    """`model` with every block kind, pattern and option kept, and all sizes reduced.

    Ratios that blocks depend on survive: shared key/value heads, groups of experts, half-rotated heads,
    inner widths that heads must fill.
    """
    return _reduced(model).model_copy(update={"name": f"{model.name}-tiny", "published": None})


def _reduced(spec: S) -> S:
    """A copy of a spec: each field limited by its name, then what depends on several of them."""
    limits = LIMITS | dict(spec.limits)
    changes: Changes = {}
    for name in spec.all_fields:
        value = getattr(spec, name)
        small = _limit(value, limits.get(name))
        if small is not value:
            changes[name] = small
    return spec.model_copy(update=changes | spec.tiny_fields())


def _limit(value: object, limit: int | None) -> object:
    if isinstance(value, Spec):
        return _reduced(value)
    if isinstance(value, tuple) and any(isinstance(item, Spec) for item in value):
        return tuple(_reduced(item) if isinstance(item, Spec) else item for item in value)
    if limit is not None and isinstance(value, int) and not isinstance(value, bool):
        return min(value, limit)
    return value
