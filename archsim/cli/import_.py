"""`archsim import`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.json_types import JsonObject
from archsim.cli import options as o
from archsim.cli import output

if TYPE_CHECKING:
    from archsim.cli.import_check import Check


def import_(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A config.json, the folder that holds one, or a name of the catalog.")
    ],
    out: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write the spec to FILE.")] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the catalog's model of the same name; exit 1 if unlike.")
    ] = False,
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="N", help="Compare with N parameters, such as 596049920 or 0.6B.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
    json: o.AsJson = False,
    no_color: o.NoColor = False,
) -> None:
    """A checkpoint's config.json as a spec in YAML, and a check of its size against the published one."""
    from archsim.cli import import_check
    from archsim.counts.count import count

    text, document, model = import_check.spec_of(path)
    total = count(model).total
    found = import_check.compare(total, document, expect) if check or expect is not None else None
    if not json and found is not None and not found.equal:
        raise import_check.differs(found)
    written = _write(out, text, force) if out is not None and (found is None or found.equal) else None
    if json:
        output.emit_json(_answer(path, document, total, written, found))
    elif written is not None or found is not None:
        output.emit(_report(written, found))
    else:
        output.emit(text)
    if found is not None and not found.equal:
        raise typer.Exit(1)


def _write(path: Path, text: str, force: bool) -> Path:
    """Write the spec. Raises UsageError where a file would be lost, or the place cannot be written."""
    from archsim.base.diagnostics import quote
    from archsim.base.errors import UsageError

    try:
        with path.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{quote(str(path), 200)} is there already", hints=("`--force` replaces it",)) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise UsageError(f"cannot write {quote(str(path), 200)}: {reason}") from None
    return path


def _report(written: Path | None, check: Check | None) -> str:
    """What was done, one line each."""
    lines = [f"{written}"] if written is not None else []
    if check is not None:
        lines.append(f"{check.total:,} parameters, equal to {check.source}")
    return "".join(line + "\n" for line in lines)


def _answer(path: str, document: JsonObject, total: int, written: Path | None, check: Check | None) -> JsonObject:
    return {
        "schema": "archsim.import/1",
        "source": path,
        "file": None if written is None else str(written),
        "model": {"name": document["name"]},
        "params": {"total": total},
        "check": None if check is None else check.to_dict(),
        "spec": document,
    }
