"""One model on this processor: what is read of it equals what is counted of the spec."""

from __future__ import annotations

import json

import pytest

from archsim.base.errors import UsageError
from archsim.counts.count import count
from archsim.importers.opening import load_model
from archsim.measure.model_run import Measured, cpu_peak, measure_model
from archsim.spec.tiny import tiny

MODELS = ("llama3-8b", "gpt-oss-20b", "deepseek-v3", "mamba-2.8b", "llama4-scout", "t5-base")
"""Grouped heads, sinks and windows and experts, latent attention, a state, chunks, an encoder beside a decoder."""
BATCH, LENGTH = 2, 12
FP32 = 4


@pytest.fixture(scope="module", params=MODELS)
def found(request: pytest.FixtureRequest) -> Measured:
    """Everything read of a small model."""
    return measure_model(load_model(request.param), "cpu", batch=BATCH, input_len=LENGTH)


def test_counts_are_exact(found: Measured) -> None:
    """Parameters and FLOP of the instantiated model are those of the spec, none apart."""
    counted = count(found.model, batch=BATCH, input_len=LENGTH)
    assert found.params == counted.total
    assert found.weight_bytes >= FP32 * found.params
    assert found.phases[0].flops == counted.to_dict()["flops"]["full"]["total"]


def test_cache_bytes_are_exact(found: Measured) -> None:
    """The cache tensors after a prompt hold what the spec says, windows applied."""
    kv = count(found.model, batch=BATCH, input_len=LENGTH).to_dict()["kv_cache"]
    if found.model.encoder is not None:
        pytest.skip("cross-attention's cache is counted apart")
    assert found.kv_bytes == kv["bytes"] * FP32 // 2


def test_phases_are_timed(found: Measured) -> None:
    """A prefill and a step, each with its ops, whose times are positive; peak memory exceeds the weights."""
    assert [phase.name for phase in found.phases] == ["prefill", "decode"]
    for phase in found.phases:
        assert phase.seconds > 0
        assert phase.ops
        assert all(op.seconds > 0 and op.count > 0 for op in phase.ops)
        assert phase.allocated is not None
        assert phase.allocated > found.weight_bytes


def test_every_op_is_covered(found: Measured) -> None:
    """No op of the graph is left without a time, but views that cost nothing."""
    paths = {path for op in found.phases[0].ops for path in op.paths}
    assert any(path.endswith("logits") for path in paths)
    assert any("embedding" in path for path in paths)


def test_as_data(found: Measured) -> None:
    """The result is JSON, and says that the model was made small."""
    data = json.loads(json.dumps(found.to_dict()))
    assert data["model"].endswith("-tiny")
    assert data["asked"] in MODELS
    assert "small" in data["reduced"]


def test_an_encoder_has_no_decode_step() -> None:
    """A model without a cache is timed once through."""
    found = measure_model(load_model("bert-base"), "cpu", input_len=LENGTH)
    assert [phase.name for phase in found.phases] == ["prefill"]


def test_a_model_that_fits_is_not_made_small() -> None:
    """At full size what is small enough runs as it is."""
    small = tiny(load_model("llama3-8b"))
    found = measure_model(small, "cpu", size="full", input_len=LENGTH)
    assert (found.reduced, found.model) == ("", small)


def test_a_model_that_is_too_big_is_made_small() -> None:
    """At full size what does not fit is made small, and the result says how big it is."""
    found = measure_model(load_model("llama3-8b"), "cpu", size="full", input_len=LENGTH)
    assert "16" in found.reduced or "32" in found.reduced
    assert found.model.name == "llama3-8b-tiny"


def test_number_formats_are_checked() -> None:
    """A format that torch cannot compute a whole model in is refused."""
    with pytest.raises(UsageError, match="bf16, fp16 or fp32"):
        measure_model(load_model("llama3-8b"), "cpu", dtype="int4")


def test_peak_memory_of_a_processor() -> None:
    """Two tensors alive together count together, one after the other they do not."""
    import torch

    def one_after_another() -> None:
        for _ in range(4):
            torch.zeros(1000)

    def together() -> None:
        kept = [torch.zeros(1000) for _ in range(4)]
        assert len(kept) == 4

    assert cpu_peak(one_after_another) == 4000
    assert cpu_peak(together) == 16000
