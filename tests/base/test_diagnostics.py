"""Messages as people read them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.base import errors
from archsim.base.diagnostics import quote, render
from archsim.base.errors import AnswerNo, Span, SpecError, UnknownName
from archsim.cli.main import OutOfMemory
from archsim.render.glossary import EXPLAIN

LINE = "    attention: {kind: gqa, n_heads: 64, n_kv_head: 8, d_head: 128}"
FRAME = """\
error[E103]: unknown field `n_kv_head`
 --> my-70b.yaml:7:41
  |
7 |     attention: {kind: gqa, n_heads: 64, n_kv_head: 8, d_head: 128}
  |                                         ^^^^^^^^^ did you mean `n_kv_heads`?
  |
  = note: `n_kv_heads` is required for `kind: gqa`

hint: `archsim explain E103`"""


def unknown_field() -> SpecError:
    """The error of the frame above."""
    return SpecError(
        "unknown field `n_kv_head`",
        code="E103",
        span=Span("my-70b.yaml", 7, 41, 9, LINE),
        label="did you mean `n_kv_heads`?",
        notes=["`n_kv_heads` is required for `kind: gqa`"],
        hints=["`archsim explain E103`"],
    )


def test_frame() -> None:
    """An error in a file shows its place, a caret, the help, notes and hints."""
    assert render(unknown_field()) == FRAME


def test_colour_changes_no_text() -> None:
    """Colour only adds escape codes."""
    coloured = render(unknown_field(), colour=True)
    assert re.sub(r"\x1b\[[0-9;]*m", "", coloured) == FRAME
    assert coloured != FRAME


def test_usage_error() -> None:
    """An unknown name prints without a code, and each hint on its own line."""
    error = UnknownName("no model named `lama2-70b`", hints=["did you mean `llama2-70b`?", "`archsim list models`"])
    expected = "error: no model named `lama2-70b`\n\nhint: did you mean `llama2-70b`?\nhint: `archsim list models`"
    assert render(error) == expected


def test_details_follow_the_message() -> None:
    """A table that belongs to the message stands between it and the hints, with its lines kept."""
    error = AnswerNo("it does not fit", details="  needed 2\n  usable 1", hints=["what would fit\n  --devices 2"])
    assert render(error) == "error: it does not fit\n\n  needed 2\n  usable 1\n\nhint: what would fit\n  --devices 2"


def test_json_form() -> None:
    """The dictionary has the contract's keys, and the place where there is one."""
    assert unknown_field().to_dict() == {
        "schema": "archsim.error/1",
        "code": "E103",
        "message": "unknown field `n_kv_head`",
        "hints": ["`archsim explain E103`"],
        "file": "my-70b.yaml",
        "line": 7,
        "column": 41,
    }
    assert "file" not in UnknownName("x").to_dict()


@pytest.mark.slow
@given(st.text(max_size=300), st.text(max_size=600), st.integers(1, 700), st.integers(0, 700))
def test_hostile_text_is_inert(name: str, line: str, column: int, length: int) -> None:
    """Whatever a file contains, the message has only printable characters and no forged lines."""
    span = Span(name, 3, column, length, line)
    text = render(SpecError(name, span=span, label=name, notes=[name], hints=["do this"]))
    assert all(c == "\n" or c.isprintable() for c in text)
    assert text.count("\n") == 8


def test_escape_codes_and_long_names() -> None:
    """Terminal codes show as text, and a huge name is cut."""
    assert quote("\x1b[31mred\n") == "`\\x1b[31mred\\n`"
    text = render(SpecError("x" * 100_000, span=Span("f", 1, 50_000, 5, "y" * 100_000)))
    assert len(text) < 1000
    assert "…" in text


def test_caret_under_wide_characters() -> None:
    """Characters that take two columns push the caret by two."""
    text = render(SpecError("m", span=Span("f", 1, 4, 1, "名名 x")))
    assert text.splitlines()[-1] == "  |      ^"


def error_classes(cls: type[errors.ArchsimError] = errors.ArchsimError) -> list[type[errors.ArchsimError]]:
    """All classes of the tree."""
    return [cls, *(found for child in cls.__subclasses__() for found in error_classes(child))]


def test_every_class_has_an_explained_code() -> None:
    """Every error class has a code that `archsim explain` knows, and an exit code of the contract."""
    classes = error_classes()
    assert OutOfMemory in classes
    for cls in classes:
        assert cls.default_code in EXPLAIN, cls
        assert cls.exit_code in (1, 2, 3, 70, 74, 141), cls


@pytest.mark.parametrize("notes", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("hints", [0, 1, 2, 9])
@pytest.mark.parametrize("framed", [False, True])
def test_messages_have_less_than_ten_lines(notes: int, hints: int, framed: bool) -> None:
    """What is left out is counted, and at least one note and two hints are shown."""
    span = Span("f", 1, 1, 1, "text") if framed else None
    listed = [f"note {i}" for i in range(notes)]
    text = render(SpecError("m", span=span, notes=listed, hints=[f"hint {i}" for i in range(hints)]))
    assert len(text.splitlines()) < 10
    assert notes == 0 or "note 0" in text
    assert hints < 2 or "hint 1" in text
    assert notes < 1000 or "more" in text
