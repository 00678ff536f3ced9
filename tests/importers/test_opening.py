"""From what people type to a model: names, specs and config.json alike."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archsim.base.errors import SpecError, UnknownName
from archsim.counts.count import count
from archsim.importers.opening import load_model, open_model
from archsim.render.pages.show import find
from archsim.spec import catalog
from archsim.spec.load import load_hardware

ROOT = Path(__file__).parents[2]
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


def test_a_folder_is_opened_by_every_command_and_named_by_its_file(
    tmp_path: Path, archsim: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a slash or without; a name of the catalog stays one, whatever is in a folder that is called so."""
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "qwen3-8b"):
        Path(name).mkdir()
        Path(name, "config.json").write_text((CONFIGS / "bloom-560m.json").read_text())
    for name in ("mine", "./mine"):
        assert "mine/config.json@" in archsim("estimate", name, "--hw", "h100", cwd=tmp_path).out
    assert load_model("qwen3-8b").name == "qwen3-8b" and load_model("./qwen3-8b").vocab_size == 250880
    assert "specs/models/qwen3-8b.yaml@" in archsim("count", "qwen3-8b", cwd=tmp_path).out


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
        ("{", "not valid JSON"),
        ("[1]", "is not a mapping"),
        ("{}", "no `model_type`"),
        ('{"model_type": "nonsense"}', "nonsense"),
        ('{"model_type": "llama", "hidden_size": "many"}', "hidden_size"),
        ("[" * 100_000, "nested"),
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
    with pytest.raises(SpecError, match="more than the limit"):
        load_model(str(path))


@pytest.mark.parametrize("name", ["no-such-model", "x" * 10_000, "a\0b"])
def test_names_that_are_no_paths_stay_names(name: str) -> None:
    """Whatever is no file is looked up in the catalog."""
    with pytest.raises((UnknownName, SpecError)):
        load_model(name)


@pytest.mark.slow
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


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a text on standard input, which is read once in a process otherwise."""

    def put(text: str) -> None:
        catalog.piped_document.cache_clear()
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return put


def test_standard_input_is_a_model(piped: Callable[[str], None], archsim: Any) -> None:
    """`-`: a config.json or a spec, for every command, and shown as what it is."""
    known = count(load_model("bloom-560m")).total
    for file in (CONFIGS / "bloom-560m.json", ROOT / "specs/models/bloom-560m.yaml"):
        piped(file.read_text("utf-8"))
        assert json.loads(archsim("count", "-", "--json").out)["params"]["total"] == known
        assert "stdin@" in archsim("fit", "-", "--hw", "h100").out
    piped((CONFIGS / "bloom-560m.json").read_text("utf-8"))
    assert json.loads(archsim("import", "-", "--json").out)["params"]["total"] == known


@pytest.mark.parametrize(
    ("text", "words"), [("", "empty"), ("{", "JSON"), ("a: [", "not valid YAML"), ("x" * 5_000_000, "larger")]
)
def test_standard_input_that_is_no_model(text: str, words: str, piped: Callable[[str], None], archsim: Any) -> None:
    """An error in words, and exit code 3."""
    piped(text)
    result = archsim("count", "-")
    assert result.code == 3 and words in result.err


def test_show_finds_the_checkpoint_in_a_folder_by_its_bare_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Last of all: a name of any catalog stays that, and another kind than a model is not looked for there."""
    monkeypatch.chdir(tmp_path)
    for name in ("cfg", "h100"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text((CONFIGS / "bloom-560m.json").read_text())
    assert find("cfg").kind == find("./cfg").kind == "model"
    assert '"bloom"' in find("cfg").text() and find("h100").kind == "hw"
    with pytest.raises(UnknownName, match="no device named `cfg`"):
        find("cfg", "hw")
    with pytest.raises(UnknownName, match="no model, device, format or engine"):
        find("cfh")


def test_the_home_folder_is_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` in a path that no shell has seen, such as behind a `=`."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.json").write_text((CONFIGS / "bloom-560m.json").read_text())
    (tmp_path / "mine.yaml").write_text((ROOT / "specs/models/bloom-560m.yaml").read_text("utf-8"))
    (tmp_path / "card.yaml").write_text((ROOT / "hardware/devices/h100-sxm.yaml").read_text("utf-8"))
    assert load_model("~/mine.json").vocab_size == load_model("~/mine.yaml").vocab_size
    assert load_hardware("~/card.yaml").id == "h100-sxm"
    with pytest.raises(SpecError, match="no such file"):
        load_model("~/nothing.yaml")


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("hardware/devices/h100-sxm.yaml", "describes a device, not a model"),
        ("hardware/systems/dgx-h100.yaml", "describes a machine, not a model"),
        ("specs/formats/int4.yaml", "describes a number format, not a model"),
        ("specs/formats/gguf_q4_k_m.yaml", "describes a number format, not a model"),
        ("specs/engines/vllm.yaml", "describes a serving engine, not a model"),
    ],
)
def test_a_file_of_another_kind_is_one_sentence(file: str, words: str) -> None:
    """What it is, and where it belongs; not one complaint for each field."""
    with pytest.raises(SpecError, match=words) as caught:
        load_model(str(ROOT / file))
    assert caught.value.hints and not caught.value.notes


def test_a_model_is_no_device() -> None:
    """The other way round."""
    with pytest.raises(SpecError, match="describes a model, not a device"):
        load_hardware(str(ROOT / "specs/models/llama3.3-70b.yaml"))


def test_an_adapter_names_the_model_that_it_is_for(tmp_path: Path) -> None:
    """`adapter_config.json` describes no model."""
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"peft_type": "LORA", "r": 16, "base_model_name_or_path": "meta-llama/Llama-3.1-8B"}))
    with pytest.raises(SpecError, match="is an adapter") as caught:
        load_model(str(path))
    assert "meta-llama/Llama-3.1-8B" in caught.value.hints[0]
