"""The optional parts of a checkpoint, as `--with` names them."""

from __future__ import annotations

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.spec.lower import PARTS


def checked_parts(text: str) -> tuple[str, ...]:
    """The parts in a comma-separated list, in the catalog's order. Raises UsageError for an unknown one."""
    asked = [part.strip().lower().replace("_", "-") for part in text.split(",") if part.strip()]
    for part in asked:
        if part not in PARTS:
            raise UsageError(f"no optional part {quote(part)}", hints=("known: " + ", ".join(PARTS),))
    return tuple(part for part in PARTS if part in asked)
