"""The schema files beside the specs."""

from __future__ import annotations

import json
from pathlib import Path

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.spec.schemas import KINDS, schema


def text_of(kind: str) -> str:
    """The file of one kind, as it is written."""
    return json.dumps(schema(kind), indent=2, ensure_ascii=False) + "\n"


def write_all(folder: Path) -> list[Path]:
    """Write `KIND.schema.json` of every kind into a folder, made if it does not exist. Raises UsageError."""
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            path = folder / f"{kind}.schema.json"
            path.write_text(text_of(kind), "utf-8")
            written.append(path)
    except OSError as error:
        raise UsageError(f"cannot write to {quote(folder, 200)}: {error.strerror}") from None
    return written
