"""Every error that archsim raises on purpose.

ArchsimError
├── UsageError            exit 2   the command line or a call asks for something impossible
│   ├── UnknownName       E101     the name stands for no model, device or format that can be used
│   │   └── NoSuchName             nothing has this name
│   ├── InvalidPlan       E120     a parallel plan that does not divide the model or the devices
│   └── OutputRefused     E140     a file that must not be written: it exists, or is not a regular file
├── SpecError             exit 3   an input file is invalid
│   └── InvalidValue               the same as a ValueError, for use inside validators
│       └── UnitError     E108     (base/units.py) a quantity without a unit, or with the wrong one
├── AnswerNo              exit 1   the question was answered, and the answer is no
├── OutputFailure         exit 74  the answer cannot be written: a full disk, a closed standard output
├── ReaderGone            exit 141 whoever read standard output has closed it; nothing is said
└── InternalError         exit 70  a defect of archsim

`diagnostics.render` prints them; `archsim explain CODE` prints its paragraph in `render/texts.yaml`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

from archsim.base.json_types import JsonObject


class Span(NamedTuple):
    """A place in a text file: `line` and `column` from 1, `length` in characters, `text` the whole line."""

    file: str
    line: int
    column: int
    length: int
    text: str


class ArchsimError(Exception):
    """Base of all deliberate errors.

    `message` is one line that says what is wrong; `label` stands beside the caret; `notes` add facts, `hints`
    say what to do next; `details` is a block of text (a table) that belongs to the message. `span` is the
    place in an input file, where there is one.
    """

    exit_code: ClassVar[int] = 70
    default_code: ClassVar[str] = "E199"
    shows_code: ClassVar[bool] = True

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        hints: Iterable[str] = (),
        notes: Iterable[str] = (),
        span: Span | None = None,
        label: str = "",
        details: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.default_code
        self.hints: tuple[str, ...] = tuple(hints)
        self.notes: tuple[str, ...] = tuple(notes)
        self.span = span
        self.label = label
        self.details = details

    def __str__(self) -> str:
        """The message with its place, its notes and what to do next, for tracebacks and notebooks."""
        place = [] if self.span is None else [f"  --> {self.span.file}:{self.span.line}:{self.span.column}"]
        notes = [f"note: {note}" for note in self.notes]
        hints = [f"hint: {hint}" for hint in self.hints]
        return "\n".join([self.message, *place, *([self.details] if self.details else []), *notes, *hints])

    def to_dict(self) -> JsonObject:
        """The error as `--json` prints it."""
        result: JsonObject = {
            "schema": "archsim.error/1",
            "code": self.code,
            "message": self.message,
            "hints": list(self.hints),
        }
        if self.span is not None:
            result |= {"file": self.span.file, "line": self.span.line, "column": self.span.column}
        return result


class UsageError(ArchsimError):
    """The command line or the call asks for something that cannot be done."""

    exit_code = 2
    default_code = "E102"


class UnknownName(UsageError):
    """A name that stands for no model, device or format that can be used: unknown, ambiguous, without a spec."""

    default_code = "E101"
    shows_code = False


class NoSuchName(UnknownName):
    """Nothing at all has this name. close: names that are spelt nearly so, the closest first; the first hint."""

    def __init__(self, message: str, *, close: Sequence[str] = (), hints: Iterable[str] = ()) -> None:
        super().__init__(message, hints=(*did_you_mean(close), *hints))
        self.close = tuple(close)


def did_you_mean(close: Sequence[str]) -> tuple[str, ...]:
    """One hint with names from the closest on, or none."""
    also = ", ".join(f"`{name}`" for name in close[1:])
    return (f"did you mean `{close[0]}`?" + (f" Also close: {also}" if also else ""),) if close else ()


class InvalidPlan(UsageError):
    """A parallel plan that does not divide the model or the devices."""

    default_code = "E120"


class OutputRefused(UsageError):
    """A file that must not be written: it exists and `--force` was not given, or it is not a regular file."""

    default_code = "E140"


class OutputFailure(ArchsimError):
    """The answer cannot be written: no space, no permission, no such folder, a standard output that is closed."""

    exit_code = 74
    default_code = "E141"


class ReaderGone(ArchsimError):
    """The process that read standard output has closed the pipe: the command ends, and says nothing."""

    exit_code = 141
    default_code = "E141"


class SpecError(ArchsimError):
    """An input file that cannot be used as it is."""

    exit_code = 3
    default_code = "E102"


class InvalidValue(SpecError, ValueError):
    """A wrong value found inside a validator, which does not know its place in the file.

    pydantic sees a ValueError; the loader adds the span. `field` names the key of the mapping under
    validation that the caret belongs to, where the validator looks at several fields at once.
    """

    def __init__(self, message: str, *, field: str | None = None, **extra: Any) -> None:
        super().__init__(message, **extra)
        self.field = field

    def __str__(self) -> str:
        """The message alone: pydantic makes its own of it, and the loader adds the rest."""
        return self.message


class AnswerNo(ArchsimError):
    """The question was answered and the answer is no: it does not fit, or the error is out of tolerance."""

    exit_code = 1
    default_code = "E130"
    shows_code = False


class InternalError(ArchsimError):
    """A defect of archsim itself."""
