"""`explain` knows the words that archsim prints, and puts numbers into the formulas of both phases."""

from __future__ import annotations

import json
from typing import Any

import pytest

from archsim import api
from archsim.cli import output
from archsim.render.page import Page
from archsim.render.pages.explain import look_up
from archsim.spec.catalog import names

WORDS = (
    "weights", "activations", "runtime", "calibrated", "transferred", "measured", "datasheet", "interval",
    "efficiency", "utilisation", "pareto", "rope", "swiglu", "rmsnorm", "layernorm", "ttft", "tpot", "prefill",
    "decode", "mfu", "gqa", "mla", "moe", "mha", "mqa", "ridge", "roofline", "throughput", "concurrency",
    "quantization", "router", "experts", "all-reduce", "all-to-all", "all_gather", "CUDA-graphs", "kv_tokens",
    "Activation", "kernels", "goodput", "slo", "service level", "gradients", "optimizer", "backward", "pipeline bubble",
    "exposed", "hfu", "recompute", "zero", "fsdp", "bias", "median", "coverage", "baseline", "structures", "longest",
    "non-embedding", "matmul", "scale-up domain", "in the queue", "waiting", "running", "full square", "elementwise",
)  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_words_of_the_field(word: str) -> None:
    """In any spelling, with or without an `s`."""
    found = look_up(word)
    assert found is not None and len(found.text) > 30


LABELS = {
    "estimate mixtral-8x7b --hw h100 --tp 4 --ep 4 --engine vllm --concurrency 16": (
        "Size", "Memory", "Speed", "Serving", "Where",
    ),
    "estimate mamba-2.8b --hw h100": ("Size", "Memory", "Speed", "Where"),
    "fit llama3-8b --hw h100 --engine vllm": ("Memory", "Limits"),
    "train llama3-8b --hw h100 --devices 8": ("Memory", "Step"),
    "count llama3-8b": ("Parameters",),
}  # fmt: skip
"""Question -> sections whose row labels and heads are words of the field."""


@pytest.mark.parametrize("line", LABELS)
def test_every_label_of_a_page_is_explained(line: str, archsim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What stands at the beginning of a row, and above a column."""
    pages: list[Page] = []
    monkeypatch.setattr(output, "emit_page", lambda page, *_: pages.append(page))
    assert archsim(*line.split()).code == 0
    for section in pages[0].sections:
        if section.title.startswith(LABELS[line]):
            labels = [cells[0].text for cells in section.rows] + [head for head in section.header if head]
            plain = [label.partition("(")[0].partition(" ×")[0].strip() for label in labels]
            assert not [label for label in plain if look_up(label) is None], section.title


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "gemma3-27b", "bert-base", "t5-small", "mamba-2.8b"])
@pytest.mark.parametrize("length", [1, 512, 5000])
def test_the_formula_of_a_prefill_is_the_count(name: str, length: int, archsim: Any) -> None:
    """With numbers in it, it is what `count` says of such a prompt; `ttft` is the same."""
    data = json.loads(archsim("explain", name, "ttft", "--context-len", str(length), "--json").out)
    assert data["quantity"] == "prefill"
    assert data["value"] == api.count(name, input_len=length).to_dict()["flops"]["masked"]["total"]


def test_times_of_the_question(archsim: Any) -> None:
    """With a device, the time is that of `estimate`."""
    data = json.loads(archsim("explain", "llama3-8b", "ttft", "--hw", "h100", "--ctx", "4096", "--json").out)
    own = json.loads(archsim("estimate", "llama3-8b", "--hw", "h100", "--input-len", "4096", "--json").out)
    assert data["time"]["expected_s"] == own["phases"]["prefill"]["expected_s"]
    assert "speed of light" in archsim("explain", "llama3-8b", "prefill", "--hw", "h100").out


def test_devices_are_explained(archsim: Any) -> None:
    """The ridge of every dtype with its numbers, for every device of the catalog."""
    data = json.loads(archsim("explain", "h100", "--json").out)
    assert data["ridge_flop_per_byte"]["bf16"] == pytest.approx(989.4e12 / 3.352e12)
    for entry in names("hw")[::10]:
        assert archsim("explain", entry.name).code == 0, entry.name
