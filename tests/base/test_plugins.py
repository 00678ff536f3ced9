"""Models, devices and importers of other packages are found by their entry points."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "plugin_package"
CONFIG = {"model_type": "acorn", "width": 1024, "depth": 4, "heads": 8, "inner": 4096, "vocab_size": 1000}
LLAMA = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8,
         "intermediate_size": 4096, "vocab_size": 1000, "rms_norm_eps": 1e-5}  # fmt: skip


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of packages as pip leaves it: the package and what its metadata say."""
    packages = tmp_path / "packages"
    shutil.copytree(PACKAGE / "acorn_models", packages / "acorn_models")
    about = packages / "acorn_models-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: acorn-models\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(
        "[archsim.data]\nacorn = acorn_models\n\n[archsim.importers]\nacorn = acorn_models.reader\n"
    )
    return packages


@pytest.fixture
def run(installed: Path, archsim_process: Any, tmp_path: Path) -> Any:
    """Runs a command line where the package is installed; returns its JSON."""
    paths = f"{installed}:{Path(__file__).resolve().parents[2]}"

    def call(*words: str, env: str = paths) -> Any:
        settings = {"PYTHONPATH": env, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        return json.loads(archsim_process([*words, "--json"], env=settings).out)

    return call


@pytest.mark.slow
def test_a_package_brings_a_model_and_a_device(run: Any) -> None:
    """By name and alias, in every command; gone with the package, though its data were kept."""
    answer = run("estimate", "oak", "--hw", "acorn-1")
    assert answer["model"]["name"] == "acorn-9b" and answer["memory"]["fits"]
    assert "acorn-9b" in {model["name"] for model in run("list", "models")["entries"]}
    assert run("count", "acorn-9b", env=str(Path(__file__).resolve().parents[2]))["code"] == "E101"


@pytest.mark.slow
def test_a_package_brings_an_importer(run: Any, tmp_path: Path) -> None:
    """A config of its type counts like the Llama that it is."""
    for name, config in (("acorn", CONFIG), ("llama", LLAMA)):
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    own, llama = (run("count", str(tmp_path / f"{name}.json"))["params"]["total"] for name in ("acorn", "llama"))
    assert own == llama > 0


@pytest.mark.slow
def test_a_package_that_fails_is_named(run: Any, installed: Path, tmp_path: Path) -> None:
    """Where its importer is needed, the error names the package; what comes with archsim still opens."""
    (installed / "acorn_models" / "reader.py").write_text("import nowhere_at_all\n")
    for name, config in (("acorn", CONFIG), ("llama", LLAMA)):
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    message = run("count", str(tmp_path / "acorn.json"))["message"]
    assert "acorn-models 1.0" in message and "nowhere_at_all" in message
    assert run("count", str(tmp_path / "llama.json"))["params"]["total"] > 0
    shutil.rmtree(installed / "acorn_models")
    found = run("doctor")["plugins"]
    assert [one["problem"] for one in found if one["group"] == "archsim.data"] == ["no such package"]
