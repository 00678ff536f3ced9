"""From what people type to a model: names, specs and config.json alike."""

import json
from pathlib import Path

import pytest

from archsim.base.errors import SpecError, UnknownName
from archsim.importers.opening import load_model, open_model
from archsim.sim.counting import count

CONFIGS = Path(__file__).parent / "configs"


@pytest.mark.parametrize("form", ["file", "folder"])
def test_a_config_json_is_a_model(form: str, tmp_path: Path) -> None:
    """The file or the folder that holds it, named after the folder."""
    folder = tmp_path / "my-checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text((CONFIGS / "bloom-560m.json").read_text())
    model = load_model(str(folder if form == "folder" else folder / "config.json"))
    assert model.name == "my-checkpoint"
    assert count(model).total == count(load_model("bloom-560m")).total


def test_changes_apply_to_imported_models_too() -> None:
    """`--set` works on whatever was opened."""
    model = load_model(str(CONFIGS / "bloom-560m.json"), ["vocab_size=1000"])
    assert model.vocab_size == 1000


def test_a_suffix_implies_a_format() -> None:
    """An -FP8 checkpoint has the base model's architecture."""
    model, resolved = open_model("deepseek-ai/DeepSeek-R1-NVFP4")
    assert (model.name, resolved.format_hint) == ("deepseek-r1", "nvfp4")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "no valid JSON"),
        ("[1]", "holds no mapping"),
        ("{}", "no `model_type`"),
        ('{"model_type": "nonsense"}', "nonsense"),
        ('{"model_type": "llama", "hidden_size": "many"}', "hidden_size"),
        ("[" * 100_000, "cannot be read"),
    ],
)
def test_what_is_no_config_is_refused(text: str, words: str, tmp_path: Path) -> None:
    """Broken JSON, other JSON, unknown types and impossible values are each an error in words."""
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(SpecError, match=words):
        load_model(str(path))


def test_sizes_are_bounded(tmp_path: Path) -> None:
    """A huge file is refused before it is read."""
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(10 * 2**30)
    with pytest.raises(SpecError, match="larger than"):
        load_model(str(path))


@pytest.mark.parametrize("name", ["no-such-model", "x" * 10_000, "a\0b"])
def test_names_that_are_no_paths_stay_names(name: str) -> None:
    """Whatever is no file is looked up in the catalog."""
    with pytest.raises((UnknownName, SpecError)):
        load_model(name)


def test_importing_every_family_needs_no_framework() -> None:
    """Configurations are read without torch or transformers."""
    import subprocess
    import sys

    code = (
        "import sys, archsim.importers.opening as o; o.load_model(sys.argv[1]);"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, str(CONFIGS / "bloom-560m.json")], check=True)
    assert json.loads((CONFIGS / "bloom-560m.json").read_text())["model_type"] == "bloom"
