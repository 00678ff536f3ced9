"""Validated documents are kept from one process to the next, and never stand for a document that has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from archsim.spec import catalog, kept_documents
from archsim.spec.catalog import names
from archsim.spec.document_cache import DocumentCache, Reader
from archsim.spec.engine import load_engine
from archsim.spec.format import load_format
from archsim.spec.load import load_hardware, load_model
from archsim.spec.loader import Node


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of one file, and a cache folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(catalog, "_package_data", lambda: tmp_path)
    (tmp_path / "one.yaml").write_text("vocab_size: 1\n", "utf-8")
    return tmp_path


def read(folder: Path, calls: list[Node]) -> object:
    """The document as a new process reads it. calls: grows where the file is validated."""

    def load(reader: Reader) -> object:
        node = reader.read(folder / "one.yaml")
        calls.append(node)
        return tuple(node.items())

    cache: DocumentCache[object] = DocumentCache("test")
    return cache.get("one", load)


def test_a_document_is_validated_once_for_all_processes(folder: Path) -> None:
    calls: list[Node] = []
    assert read(folder, calls) == read(folder, calls) == (("vocab_size", 1),)
    assert len(calls) == 1


def test_a_changed_file_is_read_again(folder: Path) -> None:
    calls: list[Node] = []
    read(folder, calls)
    (folder / "one.yaml").write_text("vocab_size: 2\n", "utf-8")
    assert read(folder, calls) == (("vocab_size", 2),)
    assert read(folder, calls) == (("vocab_size", 2),)
    assert len(calls) == 2


def test_changed_code_reads_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Node] = []
    read(folder, calls)
    monkeypatch.setattr(kept_documents, "_code", lambda: "another")
    read(folder, calls)
    assert len(calls) == 2


DAMAGED = ("", "{}", "[]", "null", '{"code": 1}', "\x00", "[" * 100_000, '{"data": {"os:system": [{}, []]}}')


@pytest.mark.parametrize("text", DAMAGED, ids=range(len(DAMAGED)))
def test_a_broken_record_is_made_anew(folder: Path, text: str) -> None:
    calls: list[Node] = []
    read(folder, calls)
    (record,) = (folder / "cache" / "archsim").glob("document-*.json")
    whole = json.loads(record.read_text("utf-8"))
    broken = json.loads(text)["data"] if "data" in text else None
    record.write_text(json.dumps({**whole, "data": broken}) if broken else text, "utf-8")
    assert read(folder, calls) == (("vocab_size", 1),)
    assert len(calls) == 2


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "cache").write_text("a file", "utf-8")
    calls: list[Node] = []
    assert read(folder, calls) == read(folder, calls)
    assert len(calls) == 2


def test_files_of_a_user_are_not_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "_package_data", lambda: folder / "elsewhere")
    calls: list[Node] = []
    read(folder, calls)
    read(folder, calls)
    assert len(calls) == 2 and not (folder / "cache").exists()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("kind", "load"),
    [("models", load_model), ("hw", load_hardware), ("formats", load_format), ("engines", load_engine)],
)
def test_every_document_of_the_catalog_comes_back_as_it_was(kind: catalog.Kind, load: object) -> None:
    assert callable(load)
    for name in [entry.name for entry in names(kind) if entry.path is not None]:
        document = load(name)
        again = kept_documents.restore(json.loads(json.dumps(kept_documents.flatten(document))))
        assert again == document and type(again) is type(document), name


def test_a_kept_document_without_a_field_is_read_anew() -> None:
    """One that lost a field is no document: it is refused, so that the YAML is read again."""
    flat = json.loads(json.dumps(kept_documents.flatten(load_model("gpt2-small"))))
    ((_, content),) = flat.items()
    del content[0]["d_model"]
    with pytest.raises(ValueError, match="other fields"):
        kept_documents.restore(flat)
