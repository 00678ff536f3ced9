"""One model type or one released config, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Row:
    """verdict: equal, different, refused, no class (transformers cannot build it), or no default. known: parameters of
    the class. counted_by_importer: of the importer. towers: whether the sum with all towers is that of the class, None
    without towers. traced_as: parameters that a trace accounts for. reason: of a refusal.
    """

    name: str
    verdict: str
    known: int | None = None
    counted_by_importer: int | None = None
    towers: bool | None = None
    traced_as: int | None = None
    reason: str = ""
    trace_reason: str = ""

    def traced(self, size: int | None, reason: str) -> Row:
        """With what a trace gave."""
        return replace(self, traced_as=size, trace_reason=reason)

    @property
    def counted(self) -> bool:
        """Whether the importer or a trace counts what the class has."""
        return self.verdict == "equal" or self.traced_as is not None
