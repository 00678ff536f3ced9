"""`archsim schema`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output


class Document(StrEnum):
    """Kinds of document."""

    model = "model"
    hardware = "hardware"
    system = "system"
    format = "format"  # type: ignore[assignment]
    engine = "engine"


def schema(
    kind: Annotated[Document, typer.Argument(metavar="KIND")] = Document.model,
    write: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write all of them to DIR as KIND.schema.json.")
    ] = None,
    force: o.Force = False,
    json: Annotated[bool, typer.Option("--json", help="A schema is JSON already; accepted for symmetry.")] = False,
) -> None:
    """JSON Schema of the documents, for editors and other programs."""
    from archsim.spec.schemas import text_of, write_all

    if write is None:
        output.emit(text_of(kind.value))
        return
    for path in write_all(write, force=force):
        output.emit(f"{path}\n")
