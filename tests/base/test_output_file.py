"""Files that archsim writes are whole or not there, and nothing that was there before is lost."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from bounded import small_files

from archsim.base.errors import OutputFailure, OutputRefused
from archsim.base.output_file import OutputFile, check_output, replacing, write_bytes, write_text

ROOT = Path(__file__).resolve().parents[2]


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    """Neither the private mode of a temporary file nor more than the mask allows."""
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "a", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_what_exists_stays(tmp_path: Path) -> None:
    """Without force it is refused, before anything is done; with it only the content changes."""
    path = tmp_path / "a"
    path.write_text("mine")
    path.chmod(0o604)
    if os.getuid() == 0:
        os.chown(path, 1234, 4321)
    before = path.stat()
    for attempt in (check_output, OutputFile, lambda p: write_text(p, "new")):
        with pytest.raises(OutputRefused, match="exists"):
            attempt(path)
    assert path.read_text() == "mine"
    write_text(path, "new", force=True)
    after = path.stat()
    assert path.read_text() == "new"
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["pipe", "folder", "socket", "link to a pipe"])
def test_only_regular_files_are_replaced(tmp_path: Path, kind: str, force: bool) -> None:
    """A pipe, a folder, a socket, and a link to one stay what they are, and are not opened."""
    import socket

    path = tmp_path / "a"
    if kind == "folder":
        path.mkdir()
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
    else:
        os.mkfifo(path)
    target = path
    if kind.startswith("link"):
        target = tmp_path / "b"
        target.symlink_to(path)
    before = path.lstat()
    with pytest.raises(OutputRefused, match="is a "):
        write_text(target, "x", force=force)
    assert path.lstat() == before
    assert {p.name for p in tmp_path.iterdir()} == {"a", target.name}


def test_a_link_to_a_file_stays_a_link(tmp_path: Path) -> None:
    """What it points to is replaced."""
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    write_text(tmp_path / "b", "new", force=True)
    assert (tmp_path / "b").is_symlink() and (tmp_path / "a").read_text() == "new"


def test_a_file_that_comes_in_between_stays(tmp_path: Path) -> None:
    """Another program's file of that name, made while ours is being written."""
    with pytest.raises(OutputRefused, match="exists"), replacing(tmp_path / "a") as stream:
        stream.write(b"ours")
        (tmp_path / "a").write_text("theirs")
    assert (tmp_path / "a").read_text() == "theirs"
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_the_second_writer_is_refused(tmp_path: Path) -> None:
    """While one process writes, another is told; afterwards the place is free, and no name of a temporary is taken."""
    path = tmp_path / "a"
    mine = tmp_path / "a.part"
    mine.write_text("mine")
    code = "import sys; from archsim.base.output_file import write_text; write_text(sys.argv[1], 'two')"
    command = [sys.executable, "-c", code, str(path)]
    with replacing(path) as stream:
        stream.write(b"one")
        done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
        assert done.returncode != 0 and "another process is writing" in done.stderr
    assert path.read_text() == "one" and mine.read_text() == "mine"
    assert {p.name for p in tmp_path.iterdir()} == {"a", "a.part"}


def test_a_lock_that_was_left_behind_is_no_hindrance(tmp_path: Path) -> None:
    """Of a process that was killed; a file of that name that holds something is somebody's, and stays."""
    (tmp_path / ".a.lock").touch()
    write_text(tmp_path / "a", "x")
    (tmp_path / ".b.lock").write_text("mine")
    write_text(tmp_path / "b", "x")
    assert {p.name for p in tmp_path.iterdir()} == {"a", "b", ".b.lock"}


@pytest.mark.parametrize("before", [None, "old"])
def test_no_room(tmp_path: Path, before: str | None) -> None:
    """No empty or half file, and what was there stays."""
    path = tmp_path / "a"
    if before is not None:
        path.write_text(before)
    with small_files(1000), pytest.raises(OutputFailure) as caught:
        write_bytes(path, b"x" * 100_000, force=True)
    assert caught.value.exit_code == 74
    assert {p.name: p.read_text() for p in tmp_path.iterdir()} == ({} if before is None else {"a": before})


def test_no_space_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is only found full when the file is synced."""

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputFailure, match="no space left"):
        write_text(tmp_path / "a", "x")
    assert not list(tmp_path.iterdir())


def test_an_error_of_the_writer_leaves_nothing(tmp_path: Path) -> None:
    """Whatever ends the block."""
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "a") as stream:
        stream.write(b"x")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", ["no/such/folder/a", "a\0b", ""])
def test_impossible_places(tmp_path: Path, place: str) -> None:
    """Refused in words, no folder made."""
    with pytest.raises(OutputRefused):
        write_text(os.path.join(tmp_path, place), "x")
    assert not list(tmp_path.iterdir())
