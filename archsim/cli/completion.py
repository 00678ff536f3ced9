"""Names for shell completion, from the catalog's file names."""

from __future__ import annotations


def models(incomplete: str) -> list[str]:
    """Models whose name begins so."""
    return _names("models", incomplete)


def devices(incomplete: str) -> list[str]:
    """Devices whose name begins so."""
    return _names("hw", incomplete)


def formats(incomplete: str) -> list[str]:
    """Number formats whose name begins so."""
    return _names("formats", incomplete)


def _names(kind: str, incomplete: str) -> list[str]:
    from archsim.base.errors import ArchsimError
    from archsim.spec.catalog import names

    try:
        return [entry.name for entry in names(kind) if entry.path and entry.name.startswith(incomplete)]  # type: ignore[arg-type]
    except ArchsimError:
        return []
