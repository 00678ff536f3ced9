"""What a reader must know before the figures: old rules, text parts, changes that change nothing; and small rules."""

from __future__ import annotations

from typing import Any

import pytest

import archsim as a
from archsim.base.errors import UsageError
from archsim.counts.formats import choose_formats
from archsim.counts.workload import Workload
from archsim.engines.names import choose_engine
from archsim.memory.activations import PrefillActivations
from archsim.memory.engine_memory import EngineMemoryModel, EngineTensors
from archsim.spec.parallelism import Plan


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ("vllm@0.44", ("vLLM 0.33", "0.44", "11 minor versions")),
        ("sglang@1.2", ("SGLang 0.5.23", "1 major version ")),
        ("llamacpp@b10336", ("llama.cpp b10335", "1 builds")),
    ],
)  # fmt: skip
def test_rules_older_than_the_engine(archsim: Any, engine: str, words: tuple[str, ...]) -> None:
    """One line says whose rules are used and how old they are, in estimate and fit, JSON too."""
    for command in ("estimate", "fit"):
        page = " ".join(archsim(command, "llama3-8b", "--hw", "h100", "--engine", engine).out.split())
        assert all(word in page.partition("Memory")[0] for word in words)
    assert "A19" in a.estimate("llama3-8b", "h100", engine=engine).to_dict()["assumption_codes"]


@pytest.mark.parametrize("engine", ["vllm@0.22", "vllm@0.22.1", "vllm@0.9", "vllm", "llamacpp@b5000", "hf@4.40"])
def test_known_versions_say_nothing(engine: str) -> None:
    """Versions up to the newest that a document knows, its patches among them."""
    assert not [note for note in choose_engine(engine).notes if note.code == "A19"]


def test_a_name_that_stands_for_its_text_part() -> None:
    """A vision-language name that the catalog answers with its language model is said to be that."""
    found = a.estimate("Qwen/Qwen2.5-VL-7B-Instruct", "h100")
    assert "Qwen2.5-VL-7B-Instruct is counted as qwen2.5-7b" in found.assumptions[0].text
    assert found.params_total == a.estimate("qwen2.5-7b", "h100").params_total
    assert "A29" not in {note.code for note in a.estimate("Qwen/Qwen2.5-7B-Instruct", "h100").assumptions}


@pytest.mark.parametrize("change", ["extends=gpt2-small", "layer={}"])
def test_a_change_that_changes_nothing_is_refused(change: str) -> None:
    """Fields that are settled before changes are made."""
    with pytest.raises(UsageError, match="changes nothing"):
        a.count("llama3-8b", set=change)


def test_graphs_are_named_by_vendor() -> None:
    """Only NVIDIA's are CUDA graphs."""
    said = {
        hw: next(note.text for note in a.estimate("llama3.2-1b", hw).assumptions if note.code == "A08")
        for hw in ("h100", "mi300x", "m3-ultra", "tpu-v5p")
    }
    assert [hw for hw, text in said.items() if "CUDA" in text] == ["h100"] and "HIP" in said["mi300x"]


def test_activations_are_those_of_a_replica() -> None:
    """Eight replicas with a prompt each need what one needs; a long batch is cut on each replica."""
    model, hw = a.load_model("llama3.1-8b"), a.load_hardware("h100")
    tensors = EngineTensors(model, hw, choose_formats(model), choose_engine("generic"))

    def bytes_of(batch: int, dp: int) -> Any:
        prefill: PrefillActivations = EngineMemoryModel(tensors, Workload(batch=batch, input_len=4096)).prefill
        return prefill.on(Plan(dp=dp))

    assert bytes_of(8, 8) == pytest.approx(bytes_of(1, 1), rel=0.02)
    assert bytes_of(64, 8) == pytest.approx(bytes_of(8, 1), rel=0.02)


def test_cross_attention_is_as_long_in_both() -> None:
    """An encoder-decoder's request takes as much in `estimate` as in `fit`."""
    found = a.estimate("t5-large", "h100", engine="vllm", input_len=2048, output_len=1024)
    assert found.memory.kv_cache == a.fit("t5-large", "h100", engine="vllm", max_model_len=3072, suggest=False).need


def test_hints_combine_devices_and_formats() -> None:
    """Llama 3 70B on RTX 4090: two cards with Q4_K_M, or one with IQ2_XS."""
    found = a.fit("llama3-70b", "rtx-4090", engine="llama.cpp")
    changes = [change.change for change in found.suggestions]
    assert "--devices 2 --weights gguf_q4_k_m" in changes and "--weights gguf_iq2_xs" in changes
    assert all(change.verdict != "NO" for change in found.suggestions)


@pytest.mark.slow
def test_a_no_says_why_and_what_makes_it_fit(archsim: Any) -> None:
    """gpt-oss-120b at 128k on an H100: vLLM sets 7 GiB aside for 1,024 sequences, and 256 of them leave enough."""
    words = ("fit", "gpt-oss-120b", "--hw", "h100", "--engine", "vllm", "--ctx", "128k")
    verdict = " ".join(archsim(*words).out.partition("Memory")[0].split())
    assert "1,024 sequences" in verdict and "`--max-num-seqs 256` makes it fit" in verdict
    assert archsim(*words, "--max-num-seqs", "256").out.partition("Memory")[0].count("FITS") == 1
