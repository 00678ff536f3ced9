"""Data made from files are made again when a file changes, and only then."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from archsim.base.derived import cache_folder, derived, trim


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


class Maker:
    """Joins the texts of files, and counts how often it is asked."""

    def __init__(self, *files: Path) -> None:
        self.files, self.times = files, 0

    def __call__(self) -> dict[str, object]:
        self.times += 1
        return {"texts": [file.read_text() for file in self.files if file.exists()]}


def ask(folder: Path, maker: Maker) -> object:
    """The texts, made or kept."""
    return derived(folder, map(str, maker.files), maker)["texts"]


def test_made_once_and_again_after_a_change(tmp_path: Path) -> None:
    """A file that is changed, added or removed makes the data anew."""
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_text("1")
    maker = Maker(a, b)
    assert ask(tmp_path, maker) == ask(tmp_path, maker) == ["1"]
    assert maker.times == 1
    a.write_text("22")
    assert ask(tmp_path, maker) == ["22"]
    b.write_text("3")
    assert ask(tmp_path, maker) == ["22", "3"]
    b.unlink()
    assert ask(tmp_path, maker) == ["22"]
    assert maker.times == 4


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"stamp": 1, "data": {}}', "null", "[" * 100_000], ids=range(7))
def test_a_damaged_cache_is_made_anew(tmp_path: Path, cache: Path, text: str) -> None:
    """Whatever lies there, the answer is right, and the file is right afterwards."""
    a = tmp_path / "a"
    a.write_text("1")
    maker = Maker(a)
    ask(tmp_path, maker)
    (file,) = cache.iterdir()
    file.write_text(text)
    assert ask(tmp_path, maker) == ["1"]
    assert json.loads(file.read_text())["data"] == {"texts": ["1"]}


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data are made each time."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    a = tmp_path / "a"
    a.write_text("1")
    maker = Maker(a)
    assert ask(tmp_path, maker) == ask(tmp_path, maker) == ["1"]
    assert maker.times == 2


def test_two_folders_of_one_name(tmp_path: Path) -> None:
    """Each has its own file."""
    makers = []
    for name in ("one", "two"):
        file = tmp_path / name / "models" / "a"
        file.parent.mkdir(parents=True)
        file.write_text(name)
        makers.append((file.parent, Maker(file)))
    assert [ask(*pair) for pair in [*makers, *makers]] == [["one"], ["two"]] * 2
    assert [maker.times for _, maker in makers] == [1, 1]


def test_a_relative_path_is_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made from `./specs` serves from any other folder."""
    (tmp_path / "a").write_text("1")
    maker = Maker(tmp_path / "a")
    ask(tmp_path, maker)
    monkeypatch.chdir(tmp_path)
    maker.files = (Path("a"),)
    assert ask(Path(), maker) == ["1"] and maker.times == 1


def test_a_large_cache_loses_its_oldest_files(cache: Path) -> None:
    """Down to half of what it may hold; what is no cache file stays, and so does all of a small cache."""
    cache.mkdir(parents=True)
    (cache / "notes.txt").write_text("x" * 9_000)
    for i in range(10):
        file = cache / f"document-{i}.json"
        file.write_text("x" * 1_000)
        os.utime(file, (1_000 + i, 1_000 + i))
    trim(cache, most=10_000)
    assert len(list(cache.iterdir())) == 11
    trim(cache, most=9_999)
    assert {file.name for file in cache.iterdir()} == {"notes.txt", *(f"document-{i}.json" for i in range(6, 10))}
    trim(cache / "nowhere", most=0)


def test_writing_trims_first(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that writes to a cache that is too large makes room, and keeps what it writes."""
    cache.mkdir(parents=True)
    monkeypatch.setattr("archsim.base.derived.MOST_BYTES", 100)
    (cache / "document-old.json").write_text("x" * 1_000)
    (tmp_path / "a").write_text("1")
    maker = Maker(tmp_path / "a")
    assert ask(tmp_path, maker) == ask(tmp_path, maker) == ["1"]
    (file,) = cache.iterdir()
    assert maker.times == 1 and file.name != "document-old.json"


def test_processes_that_trim_at_once(tmp_path: Path, cache: Path) -> None:
    """Readers, writers and trimmers of one folder: every answer is right."""
    files = [tmp_path / f"m{i}" for i in range(8)]
    for file in files:
        file.write_text(file.name)

    def work(n: int) -> list[object]:
        folders = [files[(n + i) % len(files)] for i in range(40)]
        answers = []
        for folder in folders:
            answers.append(ask(folder, Maker(folder)) == [folder.name])
            trim(cache, most=200)
        return answers

    with ThreadPoolExecutor(8) as pool:
        assert all(all(answers) for answers in pool.map(work, range(8)))
