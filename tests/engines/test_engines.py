"""Engine documents: every rule has a source, versions change what they should, spellings resolve."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from archsim.base.errors import ArchsimError, SpecError, UnknownName
from archsim.engines.names import aliases, choose_engine, engine_and_version
from archsim.spec import loader
from archsim.spec.catalog import files
from archsim.spec.engine import Engine, load_engine, version_of

FOLDER = Path(__file__).resolve().parents[2] / "specs" / "engines"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
RULES = ("share", "activations", "graphs", "non_torch", "windows", "states", "layout", "reserve")
"""Fields that a source must vouch for, where a document sets them."""


@pytest.mark.parametrize("name", NAMES)
def test_document(name: str) -> None:
    """The file is named as the engine, has a source with an address for every rule it sets, and ordered ranges."""
    engine = load_engine(name)
    assert engine.name == name and engine.sources
    covered = {field.split(".")[0] for source in engine.sources.values() for field in source.covers}
    assert all(source.url.startswith("https://") for source in engine.sources.values())
    own = loader.read(FOLDER / f"{name}.yaml")
    stated = {field for field in RULES if field in own["memory"]} - {"activations"}
    assert stated <= covered, stated - covered


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", NAMES)
def test_versions(name: str) -> None:
    """Every set of rules that a document holds is valid, from the newest to the oldest."""
    engine = load_engine(name)
    for limit in engine.before:
        assert isinstance(load_engine(name, limit), Engine)
        below = ".".join(str(n) for n in (*(version_of(limit) or ())[:-1], (version_of(limit) or (1,))[-1] - 1, 99))
        assert load_engine(name, below) != load_engine(name, limit)


def test_rules_by_version() -> None:
    """Shares, graphs, windows and step sizes change with the version."""
    shares = [load_engine("vllm", v).memory.share.default for v in ("0.23", "0.22", "0.21.9", "0.6.3")]
    assert shares == [0.92, 0.92, 0.90, 0.90]
    inside = [load_engine("vllm", v).memory.graphs.inside for v in ("0.21", "0.20.2")]  # type: ignore[union-attr]
    assert inside == [True, False]
    assert [load_engine("vllm", v).memory.windows for v in ("0.11", "0.9.2", "0.9.0")] == ["chunk", "chunk", "full"]
    assert [load_engine("vllm", v).memory.latent for v in ("0.7.1", "0.7.0")] == ["latent", "naive"]
    assert [load_engine("vllm", v).memory.activations.profile for v in ("0.8", "0.7.3")] == ["chunk", "length"]


@pytest.mark.parametrize(
    ("text", "version"),
    [("0.11.0", (0, 11, 0)), ("v0.8.5rc1", (0, 8, 5)), ("0.6.x", (0, 6)), ("~0.6.4", (0, 6, 4)), ("b6000", (6000,)),
     ("1", (1,)), ("", None), ("vllm", None), ("May 2024", None)],
)  # fmt: skip
def test_version_of(text: str, version: tuple[int, ...] | None) -> None:
    """Versions as people write them."""
    assert version_of(text) == version


SPELLINGS = [s for path in sorted(FOLDER.glob("*.yaml")) for s in (path.stem, *aliases(path))]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_has_rules(spelling: str) -> None:
    """Each engine of the list resolves to rules, in any case, with and without a version."""
    for name in (spelling, spelling.upper(), f"{spelling}@1.2.3", f"{spelling}@0.1"):
        chosen = choose_engine(name)
        assert chosen.name == engine_and_version(name)[0]
        assert chosen.rules.memory.non_torch


def test_assumed_version_is_named() -> None:
    """Without a version the newest rules are used, and the answer says so."""
    assert any(f"{load_engine('vllm').version} is assumed" in note.text for note in choose_engine("vllm").notes)
    assert choose_engine("vllm@0.11").notes == ()


def test_unknown() -> None:
    """An engine that is not there, and a document with a field that is none."""
    with pytest.raises(UnknownName):
        choose_engine("nonesuch")
    with pytest.raises(ArchsimError):
        load_engine("nonesuch")


def test_a_changed_document_behind_memory_as_is_read_again(tmp_path: Path) -> None:
    """The memory rules of `memory: as` follow the file that they are taken from, within one process."""
    parent, child = tmp_path / "parent.yaml", tmp_path / "child.yaml"
    text = Path(files("engines")["hf"]).read_text(encoding="utf-8")
    parent.write_text(text, encoding="utf-8")
    child.write_text(
        "schema: archsim.engine/2\nname: child\ntitle: Child\n"
        f"memory: {{as: {parent}}}\ntime: {{kernels: vllm}}\n"
        "scheduler: {chunked_prefill_with_decode: true, context: model}\n",
        encoding="utf-8",
    )
    before = load_engine(str(child)).memory.block_size
    parent.write_text(re.sub(r"block_size: \d+", f"block_size: {before + 7}", text), encoding="utf-8")
    assert load_engine(str(child)).memory.block_size == before + 7


def test_versions_that_are_no_mapping_are_refused(tmp_path: Path) -> None:
    """A list under `before`, and a version whose rules are none, are errors of the document."""
    text = Path(files("engines")["trtllm"]).read_text(encoding="utf-8")
    for wrong in ("before: [{'1.1': {notes: []}}]", "before: {'1.1': 7}"):
        path = tmp_path / "trtllm.yaml"
        path.write_text(re.sub(r"(?ms)^before:.*?(?=^\S)", wrong + "\n", text), encoding="utf-8")
        assert wrong in path.read_text(encoding="utf-8")
        with pytest.raises(SpecError):
            load_engine(str(path), "1.0")


def test_llama_cpp_reserves_logits_of_its_slots() -> None:
    """Since b10335 one row for each of four slots and one draft context; before, one ubatch, one slot, a draft context
    for every slot, and widened products on AMD.
    """
    new, old = (load_engine("llamacpp", version) for version in ("b10335", "b6000"))
    assert (new.memory.activations.logits_rows, old.memory.activations.logits_rows) == ("seqs", "tokens")
    assert (new.scheduler.limits[0].seqs, old.scheduler.limits[0].seqs) == (4, 1)
    assert new.memory.drafts and old.memory.drafts
    assert (new.memory.drafts.step, old.memory.drafts.step) == ("beside", "each_slot")
    assert (new.time.int8_alone, old.time.int8_alone) == (("NVIDIA", "AMD"), ("NVIDIA",))


def test_transformers_keeps_windows_and_latents_since() -> None:
    """Its cache is cut to the window since 4.56; multi-head latent attention is kept as the latent since 5.15."""
    rules = [load_engine("hf", version).memory for version in ("5.24", "5.14", "4.56", "4.55")]
    assert [(one.windows, one.latent) for one in rules] == [
        ("cut", "latent"), ("cut", "naive"), ("cut", "naive"), ("full", "naive")
    ]  # fmt: skip
    assert load_engine("hf", "4.40").memory.activations.logits_rows == "tokens"
    assert load_engine("autoawq").memory.windows == "full"
