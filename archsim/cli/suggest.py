"""Did you mean: close names for a misspelt one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from archsim.base.diagnostics import quote


def suggested(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """One hint with the closest names, or none."""
    close = difflib.get_close_matches(name[:100].lower(), list(known), n=3, cutoff=0.6)
    if not close:
        return ()
    also = ", ".join(quote(other) for other in close[1:])
    return (f"did you mean {quote(close[0])}?" + (f" Also close: {also}" if also else ""),)
