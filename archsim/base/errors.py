"""Every error that archsim raises on purpose.

ArchsimError
├── UsageError            exit 2   the command line or a call asks for something impossible
│   ├── UnknownName       E101     the name stands for no model, device or format that can be used
│   │   └── NoSuchName             nothing has this name
│   └── InvalidPlan       E120     a parallel plan that does not divide the model or the devices
├── SpecError             exit 3   an input file is invalid
│   └── InvalidValue               the same as a ValueError, for use inside validators
│       └── UnitError     E108     (base/units.py) a quantity without a unit, or with the wrong one
├── AnswerNo              exit 1   the question was answered, and the answer is no
└── InternalError         exit 70  a defect of archsim

`diagnostics.render` prints them; `archsim explain CODE` prints the paragraph in `EXPLAIN`.
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


class AnswerNo(ArchsimError):
    """The question was answered and the answer is no: it does not fit, or the error is out of tolerance."""

    exit_code = 1
    default_code = "E130"
    shows_code = False


class InternalError(ArchsimError):
    """A defect of archsim itself."""


EXPLAIN: dict[str, str] = {
    "E101": (
        "No model, device or format has this name. Names ignore case, `-`, `_`, spaces and an `org/` "
        "prefix; a dot is ignored only when the spelling with it is unknown, because opt-1.3b is not "
        "opt-13b. `archsim list models`, `archsim list hw` and `archsim list formats` show what there is "
        "and from which file it comes. A path is accepted wherever a name is. Some well-known models have "
        "no published architecture; they are listed with that status and cannot be computed."
    ),
    "E102": (
        "A value has the wrong type or lies outside its range: text where a number belongs, a negative "
        "count, a word that is not among the choices. The caret marks the value, and the message says what "
        "the field takes. Numbers must be finite."
    ),
    "E103": (
        "A mapping has a field that its schema does not know. Unknown fields are refused rather than "
        "ignored, because a misspelt optional field would silently change the result. `archsim schema "
        "model` (or `hardware`, `format`) prints all fields; an editor completes them through the `$schema`"
        " line at the top of the file."
    ),
    "E104": (
        "A required field is missing. The caret marks the mapping that lacks it. Which fields are required "
        "depends on the `kind` of the block; `archsim schema model` lists them."
    ),
    "E105": (
        "The same key occurs twice in one mapping, or one name is claimed by two files of a catalog. Most "
        "YAML parsers silently keep the last value, so one of the two would be lost. Remove or rename one "
        "of them."
    ),
    "E106": (
        "The file is not valid YAML, or uses a part of YAML that specs have no use for: several documents "
        "in one file, explicit tags such as `!!python/object`, or a list or mapping used as a key. Frequent"
        " causes are a tab in the indentation, a missing space after a colon, and unbalanced brackets or "
        "quotes."
    ),
    "E107": (
        "A value that YAML 1.1 and YAML 1.2 read differently: `no`, `yes`, `on`, `off`, `y` and `n` are "
        "booleans in one and text in the other; `1:30` is the number 90 or text; `017` is 15 or 17; `1_000`"
        " is a number or text. In the same way `3.35e12` is text for a YAML 1.1 parser; archsim reads it as"
        " the number that it looks like. Write `true` or `false`, write numbers in plain decimal form, and "
        "put quotes around text."
    ),
    "E108": (
        "A quantity needs a unit of the right dimension: `80 GB`, `3.35 TB/s`, `989.4 TFLOP/s`, `1830 MHz`,"
        " `5 us`. A bare number could be GB or GiB, per direction or both; so it is refused. Prefixes are "
        "decimal (kB, MB, GB, TB) or binary (KiB, MiB, GiB, TiB), and the case of a unit matters: `GB` is "
        "gigabytes, `Gb` would be gigabits, which are not accepted."
    ),
    "E109": (
        "The file cannot be read as a spec: it is missing, a directory, not a regular file, empty, larger "
        "than 4 MB, not UTF-8 text, or its top level is not a mapping of `key: value` lines."
    ),
    "E110": (
        "The values are valid one by one, but do not describe a possible shape together: heads that do not "
        "divide into key/value heads, more experts per token than experts, a window longer than the "
        "context. The message shows the numbers that disagree."
    ),
    "E111": (
        "The file uses too many aliases (2,000), holds too many values once they are expanded (200,000), or"
        " is nested too deeply (64 levels). No real spec comes near these limits; they keep a hostile file "
        "from using all memory. An anchor that contains an alias to itself is refused for the same reason."
    ),
    "E112": (
        "The `kind` of a block is not one that archsim knows. `kind` selects the fields that the block "
        "takes and the way it is computed; `archsim schema model` lists the kinds of every block."
    ),
    "E113": (
        "The stated peak departs from units x FLOP per clock x clock by more than the tolerance. A factor "
        "of two is most often a sparse peak where the dense one belongs, or a rate with 16-bit "
        "accumulation; other differences are usually another clock. Correct the peak, the clock or the unit"
        " count, each from its source."
    ),
    "E120": (
        "The parallel plan is impossible. `devices` must equal tp x pp x dp; tp must divide the attention "
        "heads and the other dimensions that it cuts, pp must not exceed the number of layers, and ep must "
        "divide tp x dp and the number of experts. The message names the number that does not divide."
    ),
    "E121": (
        "The weight or cache format cannot be used here: the model has no tensor that it applies to, its "
        "group size does not divide the dimension, or the engine does not offer it. `archsim list formats` "
        "shows all formats."
    ),
    "E130": (
        "The model does not fit on the given devices with these settings. The table shows what is needed "
        "and what is usable; the hints list the cheapest changes that would fit. Without `--devices` the "
        "smallest count that fits is chosen."
    ),
    "E199": (
        "A defect of archsim: an input that it accepted led to a state that should not exist. Please report"
        " it with the command line and the output of `archsim doctor --json`. `ARCHSIM_DEBUG=1` prints the "
        "traceback."
    ),
}
