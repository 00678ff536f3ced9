"""One model type or one released config, and what came of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path


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


class KeptRows:
    """Rows in a file of JSON lines, one for each name; without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
        self.path = path
        self.rows = {held["of"]: Row(**held["row"]) for held in map(json.loads, lines)}

    def row(self, of: str, make: Callable[[], Row]) -> Row:
        """The row that is kept, else a new one, which is written at once."""
        if of not in self.rows:
            self.rows[of] = make()
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"of": of, "row": asdict(self.rows[of])}) + "\n")
        return self.rows[of]
