"""The gate for files that are read: nothing but a regular file of sane size is opened."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from archsim.base.errors import SpecError
from archsim.base.input_file import (
    MAX_DEPTH,
    is_file,
    is_folder,
    is_there,
    open_input,
    parse_json,
    read_input,
    read_text,
)


def test_a_file_is_read(tmp_path: Path) -> None:
    """Up to its limit, without the mark that some editors put in front."""
    path = tmp_path / "a"
    path.write_bytes("\ufeffänd".encode())
    assert read_text(path, 7) == "änd"
    assert read_input(path, 7) == path.read_bytes()
    with pytest.raises(SpecError, match="7 bytes, more than the limit of 6"):
        read_input(path, 6)


def test_sparse_files_are_refused_by_their_size(tmp_path: Path) -> None:
    """However little of them is stored."""
    path = tmp_path / "a"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)
    with pytest.raises(SpecError, match="10,737,418,240 bytes"):
        open_input(path, 1 << 20)


def test_what_is_no_regular_file_is_not_opened(tmp_path: Path) -> None:
    """A pipe without a writer would block for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    for name, words in (("pipe", "named pipe"), ("link", "named pipe"), (".", "folder"), ("none", "no such file")):
        with pytest.raises(SpecError, match=words) as caught:
            read_input(tmp_path / name, 10)
        assert caught.value.code == "E109"
        assert not is_file(tmp_path / name)


def test_names_that_are_no_paths() -> None:
    """An error in words, or no."""
    for name in ("a\0b", "x" * 5000):
        assert not is_file(name) and not is_folder(name) and not is_there(name)
        with pytest.raises(SpecError):
            read_input(name, 10)


def test_json_has_a_depth() -> None:
    """What is nested deeper than any document is refused before anything walks through it."""
    fine = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json("a", fine)
    for text in (f"[{fine}]", "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500):
        with pytest.raises(SpecError, match="nested"):
            parse_json("a", text)
    with pytest.raises(SpecError, match="not valid JSON"):
        parse_json("a", "{")
