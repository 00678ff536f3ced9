"""Why a point is left out."""

from __future__ import annotations


class Skip(Exception):
    """A point that this device or this torch cannot run; the message says why."""
