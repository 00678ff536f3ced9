"""How llama.cpp shares a model among devices: by layers, by the rows of matrices, by tensors, or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError

SplitMode = Literal["layer", "row", "tensor", "none"]
"""Whole layers, the rows of every matrix (layers keep the rest), every tensor and cache, or one device for all."""


def checked_mode(mode: str | None) -> SplitMode | None:
    """The mode that a text names. Raises UsageError."""
    if mode is None or mode in get_args(SplitMode):
        return cast("SplitMode | None", mode)
    raise UsageError(f"`--split-mode` is one of {', '.join(get_args(SplitMode))}, not {quote(mode)}")


def proportions(given: str | Sequence[float] | None) -> tuple[float, ...]:
    """The proportions that `3,1` or a sequence says; nothing where devices share equally. Raises UsageError."""
    parts = [part for part in given.replace("/", ",").split(",") if part.strip()] if isinstance(given, str) else given
    try:
        found = tuple(float(part) for part in parts or ())
    except ValueError:
        raise UsageError(f"`--tensor-split` is proportions such as 3,1, not {quote(str(given))}") from None
    if any(not 0 < part < 1e6 for part in found):
        raise UsageError("`--tensor-split` has a proportion above 0 for each device that is used")
    return found
