"""Names to files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from archsim.base.errors import ArchsimError, SpecError, UnknownName
from archsim.spec import catalog
from archsim.spec.catalog import build_index, names, resolve
from archsim.spec.spelling import normalise

MODELS = {
    "llama2-70b": "name: llama2-70b\nhf_ids: [meta-llama/Llama-2-70b-hf]\n",
    "llama2-7b": "name: llama2-7b\naliases: [llama-v2-7b]\n",
    "llama3-70b": "name: llama3-70b\n",
    "llama3.1-8b": "name: llama3.1-8b\nhf_ids: [meta-llama/Llama-3.1-8B]\n",
    "opt-1.3b": "name: opt-1.3b\n",
    "opt-13b": "name: opt-13b\n",
    "pythia-12b": "name: pythia-12b\n",
    "bert-base": "name: bert-base\n",
    "mistral-7b-v0.3": "name: mistral-7b-v0.3\n",
    "qwen2.5-72b": "name: qwen2.5-72b\n",
    "qwen3-4b": "name: qwen3-4b\n",
    "gemma3-27b": "name: gemma3-27b\n",
}
STATUS = {"gpt-4": {"status": "undisclosed", "text": "no architecture was published", "aliases": ["gpt-4-0613"]}}


def write(folder: Path, files: dict[str, str]) -> Path:
    """A folder with YAML files."""
    folder.mkdir(parents=True)
    for stem, text in files.items():
        (folder / f"{stem}.yaml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def built_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An indexed built-in catalog, an empty working directory and no user paths."""
    root = tmp_path / "built-in"
    folder = write(root / "specs" / "models", MODELS)
    (folder / "index.json").write_text(json.dumps(build_index(folder, STATUS)))
    write(root / "specs" / "formats", {"fp8": "name: fp8\n", "int4-g128": "name: int4-g128\n"})
    write(root / "hardware" / "devices", {"h100-sxm": "id: h100-sxm\naliases: [h100, H100-SXM5-80GB]\n"})
    write(root / "hardware" / "systems", {"dgx-h100": "id: dgx-h100\n"})
    hardware = root / "hardware"
    (hardware / "index.json").write_text(json.dumps(build_index(hardware)))
    monkeypatch.setattr(catalog, "_built_in_roots", lambda top: [(root / top, catalog.BUILT_IN)])
    monkeypatch.delenv("ARCHSIM_PATH", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "none"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return root


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("llama2-70b", "llama2-70b"),
        ("Llama-2_70B", "llama2-70b"),
        ("meta-llama/Llama-2-70b-hf", "llama2-70b"),
        ("LLAMA V2 7B", "llama2-7b"),
        ("opt-1.3b", "opt-1.3b"),
        ("opt-13b", "opt-13b"),
        ("facebook/OPT-1.3B", "opt-1.3b"),
        ("llama-31-8b", "llama3.1-8b"),
        ("llama.2-7b", "llama2-7b"),
        ("bert-base", "bert-base"),
        ("Llama-3.1-8B-Instruct", "llama3.1-8b"),
        ("llama2-70b-chat-hf", "llama2-70b"),
        ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("Qwen/Qwen2.5-VL-72B-Instruct", "qwen2.5-72b"),
        ("Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b"),
        ("Qwen/Qwen3-4B-Thinking-2507", "qwen3-4b"),
        ("google/gemma-3-27b-it", "gemma3-27b"),
        ("Llama-3.1-8B-Instruct-GGUF", "llama3.1-8b"),
        ("llama2:7b", "llama2-7b"),
    ],
)
def test_spellings(name: str, stem: str) -> None:
    """Case, separators, organisations and chat suffixes do not matter; dots do while they decide."""
    found = resolve("models", name)
    assert (found.name, found.path.stem, found.origin, found.format_hint) == (stem, stem, "built-in", None)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "fp8"),
        ("Llama-3.1-8B-Instruct-NVFP4", "nvfp4"),
        ("Llama-3.1-8B-FP8-dynamic", "fp8_channel"),
        ("llama3.1-8b-fp8-block", "fp8_block"),
        ("llama2-7b-chat-AWQ", "awq_int4"),
        ("llama2-7b-gptq", "gptq_int4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "gptq_int4"),
        ("Qwen2.5-VL-72B-Instruct-AWQ", "awq_int4"),
        ("Qwen3-4B-Instruct-2507-FP8", "fp8"),
        ("Qwen/Qwen3-4B-Instruct-2507-FP8", "fp8_block"),
        ("zai-org/Qwen3-4B-FP8", "fp8_channel"),
        ("RedHatAI/Qwen3-4B-FP8", "fp8"),
        ("mlx-community/Llama-3.1-8B-Instruct-4bit", "mlx_4bit"),
        ("mlx-community/Llama-3.1-8B-Instruct-8bit", "mlx_8bit"),
        ("RedHatAI/Llama-3.1-8B-Instruct-quantized.w4a16", "int4"),
        ("RedHatAI/Llama-3.1-8B-Instruct-quantized.w8a8", "w8a8"),
        ("unsloth/Llama-3.1-8B-Instruct-unsloth-bnb-4bit", "nf4"),
        ("Mistral-7B-Instruct-v0.3-bnb-4bit", "nf4"),
        ("llama3.1-8b-MXFP4", "mxfp4"),
        ("bartowski/Llama-3.1-8B-Instruct-Q4_K_M-GGUF", "gguf_q4_k_m"),
        ("llama3.1:8b-instruct-q8_0", "gguf_q8_0"),
        ("Llama-3.1-8B-IQ2_XXS", "gguf_iq2_xxs"),
        ("llama2-7b.Q4_0", "gguf_q4_0"),
        ("turboderp/Llama-3.1-8B-Instruct-exl2-4.5bpw", "exl2_4.5bpw"),
        ("Llama-3.1-8B-4.5bpw-h6-exl2", "exl2_4.5bpw"),
        ("turboderp/Llama-3.1-8B-Instruct-exl3-3.5bpw", "exl3_3.5bpw"),
        ("Llama-3.1-8B-4.0bpw-exl3", "exl3_4.0bpw"),
    ],
)
def test_suffixes_choose_the_format(name: str, hint: str) -> None:
    """A format suffix resolves to the architecture and reports its format."""
    assert resolve("models", name).format_hint == hint


@pytest.mark.parametrize("name", ["mistral-7b-v0.2", "Mistral-7B-Instruct-v0.2", "mistral-7b", "gemma-3-27b-v2-it"])
def test_a_version_is_never_dropped(name: str) -> None:
    """Versions name other checkpoints, which may have another shape."""
    with pytest.raises(UnknownName):
        resolve("models", name)


def test_a_decimal_size_is_never_another_size() -> None:
    """Pythia has a 12B model and no 1.2B one."""
    with pytest.raises(UnknownName):
        resolve("models", "pythia-1.2b")


def test_unknown_name_lists_close_ones() -> None:
    """A misspelt name gets the closest ones and the way to all of them."""
    with pytest.raises(UnknownName, match="no model named `lama2-70b`") as caught:
        resolve("models", "lama2-70b")
    assert caught.value.code == "E101"
    assert caught.value.hints[0] == "did you mean `llama2-70b`? Also close: `llama2-7b`, `llama3-70b`"
    assert caught.value.hints[1] == "`archsim list models` shows all 12; a path to a YAML file works too"


@pytest.mark.parametrize("name", ["gpt-4", "OpenAI/GPT4", "gpt-4-0613"])
def test_undisclosed_models_say_so(name: str) -> None:
    """A model without a published architecture is refused with that reason."""
    with pytest.raises(UnknownName, match="no architecture was published"):
        resolve("models", name)


def test_devices_and_formats() -> None:
    """Devices, systems and formats resolve like models."""
    assert resolve("hw", "H100").name == "h100-sxm"
    assert resolve("hw", "h100_sxm").path.parent.name == "devices"
    assert resolve("hw", "DGX-H100").path.parent.name == "systems"
    assert resolve("formats", "INT4_G128").name == "int4-g128"


def test_paths(tmp_path: Path) -> None:
    """Files and folders are taken as they are; a missing file is E109."""
    (tmp_path / "Some-Model").mkdir()
    config = tmp_path / "Some-Model" / "config.json"
    config.write_text("{}")
    (tmp_path / "mine.yaml").write_text("name: x\n")
    assert resolve("models", str(tmp_path / "mine.yaml")).name == "mine"
    assert resolve("models", str(config)).name == "Some-Model"
    assert resolve("models", str(tmp_path / "Some-Model")).origin == "path"
    with pytest.raises(SpecError, match="no such file"):
        resolve("models", "./missing.yaml")


def test_user_folders_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`./specs` comes before `$ARCHSIM_PATH`, and both before the built-in data."""
    write(tmp_path / "work" / "specs" / "models", {"llama2-7b": "name: llama2-7b\n"})
    write(tmp_path / "extra" / "specs" / "models", {"llama2-7b": "", "llama2-70b": "name: llama2-70b\n"})
    write(tmp_path / "flat" / "models", {"flat": "name: flat\n"})
    monkeypatch.setenv("ARCHSIM_PATH", f"{tmp_path / 'extra'}:{tmp_path / 'flat'}:{tmp_path / 'nowhere'}")
    assert resolve("models", "llama2-7b").origin == "./specs"
    assert resolve("models", "llama2-70b").origin == "$ARCHSIM_PATH"
    assert resolve("models", "flat").name == "flat"
    listed = {entry.name: entry for entry in names("models")}
    assert listed["llama2-7b"].origin == "./specs"
    assert listed["llama2-7b"].path == resolve("models", "llama2-7b").path


def test_names_inside_user_files(tmp_path: Path) -> None:
    """Aliases inside a user's file resolve; a broken file beside it is no obstacle."""
    files = {"mine": "name: My Model\naliases: [mm-1]\n", "broken": "a: [", "no": "name: 5\naliases: 7\n"}
    write(tmp_path / "work" / "specs" / "models", files)
    assert resolve("models", "my-model").name == "mine"
    assert resolve("models", "MM1").name == "mine"


def test_listing_has_aliases_and_status() -> None:
    """The list has every name once, sorted, with aliases and the status of those without a spec."""
    listed = names("models")
    assert [entry.name for entry in listed] == sorted([*MODELS, "gpt-4"])
    by_name = {entry.name: entry for entry in listed}
    assert by_name["llama2-7b"].aliases == ("llamav27b",)
    assert by_name["gpt-4"].path is None
    assert by_name["gpt-4"].status == "no architecture was published"


def test_index_refuses_a_shared_spelling(tmp_path: Path) -> None:
    """One spelling may open only one file."""
    folder = write(tmp_path / "clash", {"a": "name: a\naliases: [x-1]\n", "b": "name: b\naliases: [X1]\n"})
    with pytest.raises(SpecError, match="claimed by `a` and `b`"):
        build_index(folder)


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"format": 2, "names": {}}', '{"format": 1, "names": {}, "status": {"a": 1}}']
)
def test_broken_index(tmp_path: Path, text: str) -> None:
    """A user's index that cannot be read is an invalid input file."""
    folder = write(tmp_path / "work" / "specs" / "models", {"a": "name: a\n"})
    (folder / "index.json").write_text(text)
    with pytest.raises(SpecError, match=r"index\.json"):
        resolve("models", "a")


@example("-")
@given(st.text(max_size=300))
def test_any_name_resolves_or_fails_cleanly(name: str) -> None:
    """Any text is a known name, a path, or one of our errors."""
    try:
        assert resolve("models", name).path
    except ArchsimError as error:
        assert error.code in ("E101", "E109")


@given(st.text(alphabet="aB1.-_ /", max_size=20))
def test_normalise_is_idempotent(name: str) -> None:
    """A normalised spelling is its own normal form."""
    assert normalise(normalise(name)) == normalise(name)


def test_a_folder_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bare name is one of the catalog: the error says how the folder of that name is meant."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(UnknownName) as caught:
        resolve("models", "checkpoint")
    assert "`./checkpoint` is the folder here" in caught.value.hints
    assert resolve("models", "./checkpoint").path == Path("checkpoint")
    with pytest.raises(UnknownName) as caught:
        resolve("models", "elsewhere")
    assert not any("./" in hint for hint in caught.value.hints)
