"""From names to the page: models and devices opened, estimated and drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from archsim.base.errors import UsageError
from archsim.render.html.candidates import Asked, Study, study
from archsim.render.html.document import data, document
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

OWN = ("light", "stamp", "command")
"""Options of the page, beside those of the estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page and what it is about."""

    study: Study
    html: str

    def to_dict(self) -> dict[str, Any]:
        """The `archsim.report/1` object: the estimates behind the page."""
        return data(self.study)

    def write(self, path: Path | str) -> None:
        """Writes the page, whole or not at all. Raises UsageError where the file cannot be written."""
        from archsim.calibration.writing import write_text

        if Path(path).is_dir():
            raise UsageError(
                f"{path} is a folder", hints=(f"name a file in it: `{Path(path) / 'report.html'}`",)
            )
        try:
            write_text(Path(path), self.html)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def report(models: Any, hw: Any, options: Mapping[str, Any]) -> Report:
    """The page. models, hw: one or several, by name, path or as objects. Raises UsageError for unknown options."""
    page = {name: options[name] for name in OWN if name in options}
    changes = options.get("set", ())
    changes = (changes,) if isinstance(changes, str) else tuple(changes)
    opened = _once([_model(m, changes) for m in _several(models)])
    devices = _once([_device(d) for d in _several(hw)])
    if not opened or not devices:
        raise UsageError("a report is about at least one model and one device")
    asked = Asked(
        models=tuple(name for name, _, _ in opened), hw=tuple(name for name, _ in devices), changes=changes,
        weights=tuple(dict.fromkeys(_several(options.get("weights")))) or (None,), **_of_estimates(options),
    )  # fmt: skip
    found = study(
        [(model, implied) for _, model, implied in opened], [device for _, device in devices], asked
    )
    return Report(study=found, html=document(found, **page))


def _once(opened: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Without those that are the same under another name."""
    return [one for i, one in enumerate(opened) if not any(one[1:] == other[1:] for other in opened[:i])]


def _of_estimates(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that estimates take, or UsageError for one that nobody does."""
    known = {f.name for f in fields(Asked)} - {"models", "hw", "weights", "changes"}
    for name in options:
        if name not in known | {*OWN, "weights", "set"}:
            listed = ", ".join(sorted(known | {*OWN, "weights", "set"} - {"command"}))
            raise UsageError(f"no option named {name!r}", hints=(f"known: {listed}",))
    return {name: value for name, value in options.items() if name in known}


def _several(given: Any) -> Sequence[Any]:
    """One or several: a text is cut at its commas, unless it is the name of a file."""
    if given is None:
        return ()
    if isinstance(given, str):
        return (
            [given] if Path(given).exists() else [part.strip() for part in given.split(",") if part.strip()]
        )
    if isinstance(given, (Path, Model, Hardware)):
        return [given]
    return [part for one in given for part in _several(one)]


def _model(given: Any, changes: Sequence[str]) -> tuple[str, Model, str | None]:
    """Its name as given, the model, and the format that the name implies."""
    from archsim.importers.opening import open_model

    if isinstance(given, Model):
        if changes:
            raise UsageError("`set` changes a spec while it is read: give the model by name or path")
        return given.name, given, None
    model, resolved = open_model(str(given), list(changes))
    return str(given), model, resolved.format_hint


def _device(given: Any) -> tuple[str, Hardware]:
    from archsim.spec.load import load_hardware

    if isinstance(given, Hardware):
        return given.id, given
    return str(given), load_hardware(str(given))
