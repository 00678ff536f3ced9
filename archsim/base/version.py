"""Version numbers in the texts that people write."""

from __future__ import annotations

import re
from collections.abc import Mapping

VERSION = "0.2.0"
"""Of archsim itself."""


def version_of(text: str) -> tuple[int, ...] | None:
    """`0.6.x`, `v0.11.0rc1` or `b6000` as numbers; None where there is no version in it."""
    found = re.search(r"(\d+(?:\.\d+)+)|b(\d+)|^v?(\d+)$", text.strip().lower())
    if found is None:
        return None
    return tuple(int(part) for part in next(g for g in found.groups() if g).split("."))


def newest_until(by_version: Mapping[str, float], version: str) -> float:
    """The value of the newest version not above the one asked for, else of the oldest; without a version that of the
    newest. 0 where there is none.
    """
    order = sorted(by_version, key=lambda text: version_of(text) or ())
    if not order:
        return 0.0
    asked = version_of(version) if version else None
    below = [text for text in order if asked is None or (version_of(text) or ()) <= asked]
    return by_version[(below or order[:1])[-1]]
