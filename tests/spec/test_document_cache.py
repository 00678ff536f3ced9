"""Models and devices by name are read once, and again once a file behind them changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from archsim.base.errors import SpecError, UnknownName
from archsim.spec.document_cache import DocumentCache, Reader
from archsim.spec.load import load_hardware, load_model

DEVICE = "schema: archsim.hardware/1\nid: mine\nname: Mine\nvariant_of: h100-sxm\nmemory: {capacity: %d GB}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    return tmp_path


def test_one_object_while_nothing_changes() -> None:
    """By any spelling of the name; another list of changes is another model."""
    assert load_model("llama2-70b") is load_model("meta-llama/Llama-2-70b-hf")
    assert load_hardware("h100") is load_hardware("h100-sxm")
    other = load_model("llama2-70b", ["d_model=4096"])
    assert other is not load_model("llama2-70b") and other.d_model == 4096
    assert load_model("llama2-70b", ["d_model=4096"]) is other


def test_a_changed_file_is_read_again(folder: Path) -> None:
    """Also where it has the same size and is written within one tick of the clock."""
    path = folder / "mine.yaml"
    for width in (4096, 8192, 4096, 2048):
        path.write_text(f"name: mine\nextends: llama2-7b\nd_model: {width}\n")
        assert load_model(str(path)).d_model == width
    for capacity in (40, 96, 40):
        path.write_text(DEVICE % capacity)
        assert load_hardware(str(path)).memory_bytes == capacity * 10**9


def test_a_changed_base_is_read_again(folder: Path) -> None:
    """The file that another one extends belongs to it, and so does the name by which it is found."""
    (folder / "specs" / "models").mkdir(parents=True)
    child, base = folder / "child.yaml", folder / "specs" / "models" / "base-1.yaml"
    child.write_text("name: child\nextends: base-1\n")
    base.write_text("name: base-1\nextends: llama2-7b\nd_model: 8192\n")
    assert load_model(str(child)).d_model == 8192
    base.write_text("name: base-1\nextends: llama2-7b\nd_model: 2048\n")
    assert load_model(str(child)).d_model == 2048
    base.unlink()
    with pytest.raises(UnknownName):
        load_model(str(child))


def test_a_file_that_is_gone_or_broken(folder: Path) -> None:
    """What was kept of it is not given out."""
    path = folder / "mine.yaml"
    path.write_text("name: mine\nextends: llama2-7b\n")
    load_model(str(path))
    path.write_text("name: mine\nextends: [\n")
    with pytest.raises(SpecError):
        load_model(str(path))
    path.unlink()
    with pytest.raises(SpecError):
        load_model(str(path))


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest document goes first."""
    monkeypatch.setattr("archsim.spec.document_cache.MOST", 2)
    cache: DocumentCache[object] = DocumentCache()
    loads: list[int] = []

    def load(key: int) -> object:
        return cache.get(key, lambda reader: loads.append(key) or Reader())

    first = load(1)
    assert load(1) is first and loads == [1]
    load(2)
    load(3)
    assert load(1) is not first and loads == [1, 2, 3, 1]
