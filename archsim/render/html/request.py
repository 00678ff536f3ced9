"""From names to the page: models and devices opened, estimated and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, Unpack

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.options import LoadArguments
from archsim.render.html.candidates import ReportRequest, Study, study
from archsim.render.html.document import data, document
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A page and what it is about."""

    study: Study
    html: str

    def to_dict(self) -> JsonObject:
        """The `archsim.report/1` object: the estimates behind the page."""
        return data(self.study)

    def write(self, path: Path | str) -> None:
        """Writes the page, whole or not at all. Raises UsageError where the file cannot be written."""
        from archsim.calibration.writing import write_text

        if Path(path).is_dir():
            raise UsageError(f"{path} is a folder", hints=(f"name a file in it: `{Path(path) / 'report.html'}`",))
        try:
            write_text(Path(path), self.html)
        except OSError as error:
            raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def report(
    models: Sequence[tuple[str, Model, str | None]],
    hw: Sequence[tuple[str, Hardware]],
    *,
    changes: tuple[str, ...] = (),
    weights: Sequence[str] = (),
    light: bool = False,
    stamp: str = "",
    command: str = "",
    **asked: Unpack[LoadArguments],
) -> Report:
    """The page. models: name as given, model, and the format that the name implies; hw: name and device. light: no
    script. stamp, command: shown on the page. Raises UsageError where there is nothing to compare.
    """
    models, hw = _once(models), _once(hw)
    if not models or not hw:
        raise UsageError("a report is about at least one model and one device")
    question = ReportRequest(
        models=tuple(name for name, _, _ in models), hw=tuple(name for name, _ in hw), changes=changes,
        weights=tuple(dict.fromkeys(weights)) or (None,), **asked,
    )  # fmt: skip
    found = study([(model, hint) for _, model, hint in models], [device for _, device in hw], question)
    return Report(study=found, html=document(found, light=light, stamp=stamp, command=command))


Named = TypeVar("Named", bound=tuple[object, ...])


def _once(opened: Sequence[Named]) -> list[Named]:
    """Without those that are the same under another name."""
    return [one for i, one in enumerate(opened) if not any(one[1:] == other[1:] for other in opened[:i])]
