"""`archsim import`: specs in YAML from configs, and the check of their size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim.importers.hf.describe import from_config
from archsim.importers.hf.text import WIDTH, spec_text
from archsim.spec.load import load_model, model_from

HERE = Path(__file__).parent
CONFIGS = sorted((HERE / "configs").glob("*.json"))
SMALL: dict[str, dict[str, Any]] = {
    name: config
    for file in ("small.json", "small_more.json")
    for name, config in json.loads((HERE / file).read_text()).items()
}
QWEN = str(HERE / "configs" / "qwen3-0.6b.json")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("config", [*SMALL.values(), *(json.loads(p.read_text()) for p in CONFIGS)])
def test_the_text_is_the_document(config: dict[str, Any], tmp_path: Path) -> None:
    """What is written reads back as the same document and the same model."""
    document = from_config(config, "imported")
    text = spec_text(document, "From a test")
    assert yaml.safe_load(text) == document
    path = tmp_path / "spec.yaml"
    path.write_text(text, "utf-8")
    assert load_model(str(path)) == model_from(document)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_the_text_is_readable(path: Path) -> None:
    """No line is too long, and a model is no longer than the catalog's specs are."""
    lines = spec_text(from_config(json.loads(path.read_text()), path.stem)).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert len(lines) < 120


@pytest.mark.parametrize("name", ["yes", "null", "7b", "a: b", "a #b", "{x}", "1.0", "-", " x", "ä", "a\nb", "", "~"])
def test_names_stay_text(name: str) -> None:
    """Text that YAML could take for something else is quoted."""
    assert yaml.safe_load(spec_text({"name": name}))["name"] == name


def test_it_prints_a_spec(archsim: Any) -> None:
    """Without options, the spec goes to stdout."""
    result = archsim("import", QWEN)
    assert result.code == 0
    assert result.out.startswith("# From qwen3-0.6b.json\nname: qwen3-0.6b\n")


def test_it_writes_a_spec_once(archsim: Any, tmp_path: Path) -> None:
    """A file is never overwritten without --force."""
    out = tmp_path / "spec.yaml"
    assert archsim("import", QWEN, "-o", str(out)).code == 0
    assert load_model(str(out)).n_layers == 28
    out.write_text("mine", "utf-8")
    result = archsim("import", QWEN, "-o", str(out))
    assert (result.code, out.read_text("utf-8")) == (2, "mine")
    assert "--force" in result.err
    assert archsim("import", QWEN, "-o", str(out), "--force").code == 0
    assert out.read_text("utf-8").startswith("# From")


@pytest.mark.parametrize("place", ["no/such/folder/spec.yaml", ".", "a\0b"])
def test_a_place_that_cannot_be_written(place: str, archsim: Any, tmp_path: Path) -> None:
    """An error in words."""
    assert archsim("import", QWEN, "-o", str(tmp_path / place)).code == 2


def test_a_check_against_the_catalog(archsim: Any, tmp_path: Path) -> None:
    """Equal: exit 0. Unlike: exit 1, and nothing is written."""
    result = archsim("import", QWEN, "--check")
    assert (result.code, result.out) == (0, "596,049,920 parameters, equal to qwen3-0.6b of the catalog\n")
    folder, out = tmp_path / "qwen3-0.6b", tmp_path / "spec.yaml"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(json.loads(Path(QWEN).read_text()) | {"vocab_size": 1000}))
    result = archsim("import", str(folder), "--check", "-o", str(out))
    assert result.code == 1
    assert "596,049,920" in result.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("size", "code"),
    [("596049920", 0), ("596,049,920", 0), ("0.6B", 0), ("596M", 0), ("0.60b", 0), ("596049921", 1), ("0.7B", 1),
     ("7B", 1), ("many", 2), ("-1", 2), ("1.5", 2), ("", 2)],
)  # fmt: skip
def test_a_check_against_a_number(size: str, code: int, archsim: Any) -> None:
    """A whole number has to be equal; a rounded one as far as it goes."""
    assert archsim("import", QWEN, f"--expect={size}").code == code


def test_a_check_without_anything_to_compare(archsim: Any, tmp_path: Path) -> None:
    """A name that the catalog does not have."""
    path = tmp_path / "nothing-of-that-name" / "config.json"
    path.parent.mkdir()
    path.write_text(Path(QWEN).read_text())
    result = archsim("import", str(path), "--check")
    assert (result.code, "--expect" in result.err) == (2, True)


def test_json_has_the_spec_and_the_check(archsim: Any) -> None:
    """One document with the numbers raw; the exit code says whether the sizes agree."""
    result = archsim("import", QWEN, "--json", "--expect", "7B")
    answer = json.loads(result.out)
    assert result.code == 1
    assert answer["schema"] == "archsim.import/1"
    assert answer["params"] == {"total": 596049920}
    assert answer["check"] == {
        "total": 596049920, "published": "7B", "source": "the expected 7B", "equal": False
    }  # fmt: skip
    assert answer["spec"]["d_model"] == 1024


def test_names_of_the_hub(archsim: Any, tmp_path: Path) -> None:
    """Those of the catalog give its spec; others would need a download, which is said."""
    assert archsim("import", "meta-llama/Llama-2-70b-hf").out.find("name: llama2-70b") >= 0
    result = archsim("import", "someone/some-model")
    assert (result.code, "would need a download" in result.err) == (2, True)
    spec = tmp_path / "spec.yaml"
    spec.write_text(spec_text(from_config(SMALL["llama"])), "utf-8")
    result = archsim("import", str(spec))
    assert (result.code, "a spec already" in result.err) == (2, True)


def test_the_list_of_layers_is_a_pattern() -> None:
    """Local and global layers are written as the period that they have."""
    lines = spec_text(from_config(json.loads((HERE / "configs" / "gemma3-27b.json").read_text()))).splitlines()
    assert "layers:                      # 5 local : 1 global" in lines
