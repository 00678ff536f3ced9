"""YAML with positions: what is read, what is refused, and where the message points."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import pytest
from bounded import bounded
from hypothesis import given, settings
from hypothesis import strategies as st

from archsim.base.diagnostics import render
from archsim.base.errors import InvalidValue, SpecError
from archsim.base.lazy_model import Check, Field, LazyModel, model_validator
from archsim.base.units import parse_quantity
from archsim.spec.loader import Node, merge, parse_text, read, validate

TEXT = """\
name: tiny
released: 2023-07-18
d_model: 8
rate: 1e-5
layers:
  - attention: {kind: gqa, n_heads: 8, n_kv_heads: 2}
  - &second
    attention: {kind: gqa, n_heads: 8, n_kv_heads: 4}
  - *second
"""


class Strict(LazyModel):
    """Refuses unknown fields."""


class Gqa(Strict):
    """A block whose two counts must divide."""

    kind: Literal["gqa", "mha"]
    n_heads: int
    n_kv_heads: int = Field(description="use `n_heads` for plain attention")

    @model_validator(mode="after")
    def _divides(self) -> Gqa:
        if self.n_heads % self.n_kv_heads:
            raise InvalidValue("heads do not divide", code="E110", field="n_kv_heads")
        return self


class Other(Strict):
    """A block of another kind."""

    kind: Literal["other"]
    width: int = 1


class Layer(Strict):
    """A layer that holds one block."""

    attention: Gqa


class Doc(Strict):
    """A small document."""

    name: str
    released: str = ""
    d_model: int
    rate: float = 0.0
    mixed: int | str = 0
    size: Annotated[int, Check("before", lambda v: parse_quantity(v, "B"))] = 0
    layers: tuple[Layer, ...] = ()


def fails(text: str) -> SpecError:
    """The error of a text that must not load or validate."""
    with pytest.raises(SpecError) as caught:
        validate(parse_text(text, "a.yaml"), Doc, document="model")
    return caught.value


def place(error: SpecError) -> tuple[int, int]:
    """Line and column of an error that has a place."""
    assert error.span is not None
    return error.span.line, error.span.column


def test_values_and_positions() -> None:
    """Values follow YAML 1.2, dates stay text, and every value knows its place."""
    node = parse_text(TEXT, "a.yaml")
    assert node["released"] == "2023-07-18"
    assert node["rate"] == 1e-5
    assert node["layers"][2] is node["layers"][1]
    span = node["layers"][0]["attention"].value_mark("n_heads").span()
    assert (span.line, span.column, span.length) == (6, 37, 1)
    assert validate(node, Doc).d_model == 8


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3.35e12", 3.35e12),
        ("-1.5", -1.5),
        (".5", 0.5),
        ("0x1F", 31),
        ("0o17", 15),
        ("~", None),
        ("true", True),
        ("2023-07", "2023-07"),
        ("'no'", "no"),
        ("3.35 TB/s", "3.35 TB/s"),
        ("9.0.1", "9.0.1"),
        ("!!str 12", "12"),
        ("12:99", "12:99"),
    ],
)
def test_scalars(text: str, value: object) -> None:
    """Plain scalars get the value that they look like."""
    result = parse_text(f"a: {text}", "a")["a"]
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize("word", ["no", "Yes", "on", "OFF", "y", "1:30", "017", "1_000", "0b11"])
def test_yaml_1_1_traps(word: str) -> None:
    """Spellings that YAML versions read differently are refused at their place, with what to write."""
    error = fails(f"name: x\nflag: {word}\n")
    assert (error.code, place(error)) == ("E107", (2, 7))
    assert "write" in error.label


@pytest.mark.parametrize("word", [".inf", "-.INF", ".nan", "1e999", "9" * 5000])
def test_numbers_are_finite(word: str) -> None:
    """Infinite and endless numbers are refused."""
    assert fails(f"d_model: {word}").code == "E102"


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "E109"),
        ("# only a comment\n", "E109"),
        ("- a\n- b\n", "E109"),
        ("just text", "E109"),
        ("a: 1\n---\nb: 2\n", "E106"),
        ("a: [1, 2\n", "E106"),
        ("a:\n\t- 1\n", "E106"),
        ("a: !!python/object:os.system x\n", "E106"),
        ("a: !thing {b: 1}\n", "E106"),
        ("? [a, b]\n: 1\n", "E106"),
        ("a: *nowhere\n", "E106"),
        ("a: \x01\n", "E106"),
        ("a: 1\nb: 2\na: 3\n", "E105"),
        ("a: {8: x, '8': y}\n", "E105"),
        ("a: &a [*a]\n", "E111"),
        ("a: &a {b: *a}\n", "E111"),
        ("a: " + "[" * 100_000, "E111"),
        ("a: [" + "1," * 200_001 + "]", "E111"),
        ("a: &x 1\nb: [" + "*x," * 2001 + "]", "E111"),
    ],
)
def test_refused_texts(text: str, code: str) -> None:
    """Texts that are no spec are refused with their code."""
    with pytest.raises(SpecError) as caught:
        parse_text(text, "a.yaml")
    assert caught.value.code == code


def test_duplicate_key_shows_both_lines() -> None:
    """The second of two equal keys is marked, and the first one is quoted."""
    error = fails("name: a\nd_model: 1\nname: b\n")
    assert place(error) == (3, 1)
    assert error.notes == ("first given in line 1: name: a",)


def test_alias_bomb_is_cheap() -> None:
    """Aliases that would expand to billions of values are refused before a million calls are made."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with bounded(calls=100_000):
        assert fails("\n".join(lines)).code == "E111"


def test_merge_key() -> None:
    """`<<` takes over fields that the mapping does not give itself."""
    node = parse_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\n", "a")
    assert node["b"] == {"y": 3, "x": 1}


@pytest.mark.parametrize("content", [b"", b"a: \xff\xfe", b"\x89PNG\0\0", b"a: 1\0"])
def test_refused_files(tmp_path: Path, content: bytes) -> None:
    """Empty, binary and wrongly encoded files are E109, with the name of the file."""
    path = tmp_path / "x.yaml"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"x\.yaml") as caught:
        read(path)
    assert caught.value.code == "E109"


def test_unreadable_paths(tmp_path: Path) -> None:
    """Missing files, directories, pipes and huge files are E109, without reading them."""
    huge, pipe = tmp_path / "huge.yaml", tmp_path / "pipe.yaml"
    with open(huge, "wb") as file:
        file.truncate(10 * 2**30)
    os.mkfifo(pipe)
    for path in (tmp_path / "none.yaml", tmp_path, huge, pipe, "nul\0.yaml"):
        with pytest.raises(SpecError) as caught:
            read(path)
        assert caught.value.code == "E109"


def test_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """A UTF-8 byte order mark is not part of the first key."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: x\n")
    assert read(path) == {"name": "x"}


def test_merge() -> None:
    """Mappings merge, lists are replaced, null removes, another kind replaces whole; marks follow."""
    base = parse_text("a: {x: 1, y: 2}\nl: [1, 2]\nm: {kind: p, z: 1}\ngone: 1\n", "base")
    over = parse_text("l: [3]\na: {y: 5}\nm: {kind: q}\ngone: null\nnew: 7\n", "over")
    merged = merge(base, over)
    assert merged == {"a": {"x": 1, "y": 5}, "l": [3], "m": {"kind": "q"}, "new": 7}
    assert merged["a"].value_mark("x").source.name == "base"
    assert merged["a"].value_mark("y").span().file == "over"
    assert base["a"] == {"x": 1, "y": 2}


def test_unknown_and_missing_field_are_one_error() -> None:
    """A misspelt required field is one error with a suggestion and the note on what is required."""
    text = "name: x\nd_model: 8\nlayers:\n  - attention: {kind: gqa, n_heads: 8, n_kv_head: 2}\n"
    assert render(fails(text)) == (
        "error[E103]: unknown field `n_kv_head`\n"
        " --> a.yaml:4:40\n"
        "  |\n"
        "4 |   - attention: {kind: gqa, n_heads: 8, n_kv_head: 2}\n"
        "  |                                        ^^^^^^^^^ did you mean `n_kv_heads`?\n"
        "  |\n"
        "  = note: `n_kv_heads` is required for `kind: gqa` (use `n_heads` for plain attention)\n"
        "\n"
        "hint: `archsim explain E103` · `archsim schema model` · "
        "editors complete fields through the `$schema` line at the top"
    )


def test_optional_field_misspelt() -> None:
    """An unknown field near an optional one gets a suggestion; one near nothing gets the list."""
    error = fails("name: x\nd_model: 8\nrates: 1\n")
    assert (error.code, error.label) == ("E103", "did you mean `rate`?")
    error = fails("name: x\nd_model: 8\nzzz: 1\n")
    assert error.label == "not a field here"
    assert "`layers`" in error.notes[0]


@pytest.mark.parametrize(
    ("text", "code", "where", "words"),
    [
        ("name: x\n", "E104", (1, 1), "`d_model`"),
        ("name: x\nd_model: many\n", "E102", (2, 10), 'must be a whole number, not "many"'),
        ("name: x\nd_model: 8.5\n", "E102", (2, 10), "must be a whole number"),
        ("name: 5\nd_model: 8\n", "E102", (1, 7), "must be text, not `5`"),
        ("name: x\nd_model: 8\nmixed: [1]\n", "E102", (3, 8), "a whole number or text, not a list"),
        ("name: x\nd_model: 8\nlayers: 3\n", "E102", (3, 9), "must be a list"),
        ("name: x\nd_model: 8\nlayers: [3]\n", "E102", (3, 10), "must be a mapping"),
        ("name: x\nd_model: 8\nsize: 80\n", "E108", (3, 7), "no unit"),
    ],
)
def test_wrong_values(text: str, code: str, where: tuple[int, int], words: str) -> None:
    """Each wrong value has its code, its place and a message in plain words."""
    error = fails(text)
    assert (error.code, place(error)) == (code, where)
    assert words in error.message


def test_validator_codes_and_fields() -> None:
    """An error raised inside a validator keeps its code, and its `field` gets the caret."""
    text = "name: x\nd_model: 8\nlayers:\n  - attention: {kind: gqa, n_heads: 8, n_kv_heads: 3}\n"
    error = fails(text)
    assert (error.code, place(error)) == ("E110", (4, 52))


def test_number_written_as_text() -> None:
    """Quoted numbers and quantities where a bare number belongs get advice."""
    assert fails('name: x\nd_model: "8e3"\n').label == "write 8e3, without quotes"
    assert "bare number" in fails("name: x\nd_model: 8 GB\n").label


def test_several_errors() -> None:
    """The first error in the file is the main one, five follow as notes and the rest as a number."""
    blocks = "".join(f"  - attention: {{kind: gqa, n_heads: x{i}, n_kv_heads: 1}}\n" for i in range(8))
    error = fails("layers:\n" + blocks + "d_model: 1\nname: x\n")
    assert place(error) == (2, 37)
    assert len(error.notes) == 6
    assert error.notes[-1] == "and 2 more"


def test_unknown_kind_value() -> None:
    """A kind outside the choices names the choices or the closest one."""
    error = fails("name: x\nd_model: 8\nlayers:\n  - attention: {kind: gqq, n_heads: 8, n_kv_heads: 2}\n")
    assert error.label == "did you mean `gqa`?"


class Tagged(Strict):
    """A document with a block told apart by its kind."""

    block: Annotated[Gqa | Other, Field(discriminator="kind")]


@pytest.mark.parametrize(
    ("text", "code", "where", "label"),
    [
        ("block: {kind: mhaa}", "E112", (1, 15), "did you mean `mha`?"),
        ("block: {n_heads: 1}", "E104", (1, 1), "needs `kind`"),
        ("block: {kind: other, wide: 1}", "E103", (1, 22), "did you mean `width`?"),
    ],
)
def test_kinds(text: str, code: str, where: tuple[int, int], label: str) -> None:
    """An unknown kind gets the caret and the closest one, a missing kind a request for it."""
    with pytest.raises(SpecError) as caught:
        validate(parse_text(text, "a.yaml"), Tagged)
    assert (caught.value.code, place(caught.value), caught.value.label) == (code, where, label)


PIECES = st.sampled_from(
    ["a", "b: ", "\n", "  ", "- ", "[", "]", "{", "}", "&x ", "*x", "!!int ", "<<: ", "1e5", "no", "'", '"',
     "|", "\t", "? ", ": ", "#", "---\n", "%YAML 9.9\n", "\x00", "\ud800", "é", "0777", "1:30", ",", "\u2028"]
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.data())
def test_mutations_load_or_fail_cleanly(data: st.DataObject) -> None:
    """Any mutation of a spec loads and validates, or raises a SpecError that can be rendered."""
    text = TEXT
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 8))
        text = text[:at] + data.draw(PIECES) + text[at + cut :]
    try:
        node = parse_text(text, "a.yaml")
        assert isinstance(node, Node)
        validate(node, Doc)
    except SpecError as error:
        assert render(error)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_load_or_fail_cleanly(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    """Any file content loads or raises SpecError."""
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(content)
    try:
        read(path)
    except SpecError as error:
        assert render(error)
