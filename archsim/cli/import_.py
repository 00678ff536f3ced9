"""`archsim import`."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.diagnostics import quote
from archsim.base.errors import AnswerNo, SpecError, UnknownName, UsageError
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, write_text
from archsim.cli import options as o
from archsim.cli import output

if TYPE_CHECKING:
    from archsim.spec.model import Model


def import_(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A config.json, the folder that holds one, or a catalog name.")
    ],
    out: Annotated[
        Path | None, typer.Option("-o", "--out", "--output", metavar="FILE", help="Write the spec to FILE.")
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Compare with the catalog's model of the same name; exit 1 if they differ.")
    ] = False,
    expect: Annotated[
        str | None, typer.Option("--expect", metavar="N", help="Compare with N parameters, such as 596049920 or 0.6B.")
    ] = None,
    force: o.Force = False,
    json: o.AsJson = False,
    no_color: o.NoColor = False,
) -> None:
    """A checkpoint's config.json as a spec in YAML, and a check of its size against the published one."""
    from archsim.counts.count import count

    check_output(out, force=force)
    text, document, model = spec_of(path)
    total = count(model).total
    found = compare(total, document, expect) if check or expect is not None else None
    if not json and found is not None and not found.equal:
        raise differs(found)
    written = out if found is None or found.equal else None
    if written is not None:
        write_text(written, text, force=force)
    if json:
        output.emit_json(_answer(path, document, total, written, found))
    elif written is not None or found is not None:
        output.emit(_report(written, found))
    else:
        output.emit(text)
    if found is not None and not found.equal:
        raise typer.Exit(1)


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


UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}


@dataclass(frozen=True, slots=True)
class Check:
    """A comparison: parameters counted, those published as written, where, and whether they agree."""

    total: int
    published: str
    source: str
    equal: bool

    def to_dict(self) -> JsonObject:
        """The comparison as JSON has it."""
        return asdict(self)


def spec_of(path: str) -> tuple[str, JsonObject, Model]:
    """The text of the spec, its document and the model.

    Raises UnknownName for an id of the Hub that would have to be downloaded, SpecError for a file that is no config.
    """
    from archsim.importers.hf.text import spec_text
    from archsim.importers.opening import import_document
    from archsim.spec import load

    found = import_document(path)
    if found is None:
        return _catalog_spec(path)
    file, document = found
    return spec_text(document, f"From {file.name}"), document, load.model_from(document, str(file))


def _catalog_spec(name: str) -> tuple[str, JsonObject, Model]:
    """The spec of the catalog that a name stands for."""
    import yaml

    from archsim.spec import load
    from archsim.spec.loader import content

    try:
        model, resolved = load.open_model(name)
    except UnknownName as error:
        if name.count("/") == 1 and not name.startswith((".", "/")):
            message = (
                f"{quote(name, 200)} is not in the catalog, and reading it from the Hugging Face Hub would need "
                "a download, which archsim does not make"
            )
            hints = ("download its config.json and give the path", *error.hints)
            raise UnknownName(message, hints=hints) from None
        raise
    if resolved.origin == "path":
        raise UsageError(f"{quote(name, 200)} is a spec already", hints=("`archsim show` prints it",))
    text = content(resolved.path).decode("utf-8")
    return text, yaml.safe_load(text), model


def compare(total: int, document: JsonObject, expected: str | None) -> Check:
    """The comparison with an expected size, or with the catalog's model of the same name."""
    if expected is not None:
        return Check(total, expected, f"the expected {expected}", _rounds(total, expected))
    known = _catalog(str(document["name"]))
    exact = known.published.exact if known.published is not None else None
    if exact is None:
        from archsim.counts.count import count

        exact = count(known).total
    return Check(total, f"{exact}", f"{known.name} of the catalog", total == exact)


def _catalog(name: str) -> Model:
    from archsim.spec import load

    try:
        return load.load_model(Path(name).name)
    except (UnknownName, SpecError):
        hint = "`--expect N` compares with a size that you give"
        raise UsageError(f"no published size is known for {quote(name, 200)}", hints=(hint,)) from None


def _rounds(total: int, expected: str) -> bool:
    """Whether a size is the expected one, rounded as far as that is."""
    match = re.fullmatch(r"([0-9][0-9_,]{0,30})(\.[0-9]{1,15})?([KMBT]?)", expected.strip().upper())
    if match is None or (match[2] and not match[3]):
        raise UsageError(f"{quote(expected)} is not a number of parameters", hints=("such as 596049920 or 0.6B",))
    digits = Decimal(match[1].replace(",", "").replace("_", "") + (match[2] or ""))
    step = Decimal(1).scaleb(-len((match[2] or ".")[1:])) * UNITS[match[3]]
    return abs(Decimal(total) - digits * UNITS[match[3]]) <= (step / 2 if match[3] else 0)


def differs(check: Check) -> AnswerNo:
    """The answer that the sizes are not the same."""
    words = "" if check.source.endswith(check.published) else f", which has {int(check.published):,}"
    return AnswerNo(f"{check.total:,} parameters, unlike {check.source}{words}")
