"""Version numbers in the texts that people write."""

from __future__ import annotations

import re

VERSION = "0.2.0"
"""Of archsim itself."""


def version_of(text: str) -> tuple[int, ...] | None:
    """`0.6.x`, `v0.11.0rc1` or `b6000` as numbers; None where there is no version in it."""
    found = re.search(r"(\d+(?:\.\d+)+)|b(\d+)|^v?(\d+)$", text.strip().lower())
    if found is None:
        return None
    return tuple(int(part) for part in next(g for g in found.groups() if g).split("."))
