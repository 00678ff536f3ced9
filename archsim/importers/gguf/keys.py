"""The metadata of a GGUF file, by key."""

from __future__ import annotations

from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.importers.gguf.reader import Header


class Keys:
    """Metadata of one architecture. Every number is checked before it is used."""

    def __init__(self, header: Header) -> None:
        self.values = header.values
        self.file = header.path.name
        self.architecture = header.values.get("general.architecture")

    def get(self, key: str) -> Any:
        """A value of the architecture, or None."""
        return self.values.get(f"{self.architecture}.{key}")

    def number(self, key: str, layer: int = 0) -> int | None:
        """A whole number from 0 to 2**40; of a list, the entry of a layer. None where there is none."""
        value = self.get(key)
        if isinstance(value, list):
            value = value[layer] if layer < len(value) else None
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**40:
            raise SpecError(f"gguf key {quote(f'{self.architecture}.{key}')}: {value!r} is no size", code="E102")
        return value

    def count(self, key: str, layer: int = 0) -> int:
        """A positive number that has to be there."""
        value = self.number(key, layer)
        if not value:
            reason = "missing" if value is None else "0"
            raise SpecError(f"gguf key {quote(f'{self.architecture}.{key}')}: {reason}", code="E102")
        return value

    def real(self, key: str, default: float) -> float:
        """A finite number, else the default."""
        value = self.get(key)
        fine = isinstance(value, (int, float)) and 0 < value < 1e30
        return float(value) if fine else default
