"""What `fit` refuses, and where memory sets no limit."""

from __future__ import annotations

from typing import Any

import pytest

import archsim
from archsim.base.errors import UsageError
from archsim.memory.engine_rules import limits_of, share_of
from archsim.spec.engine import Limits, load_engine
from archsim.spec.load import load_hardware
from archsim.spec.parallelism import Plan


@pytest.mark.parametrize(
    "option", [{"tp": 0}, {"max_loras": -1}, {"n_gpu_layers": -1}, {"n_cpu_moe": -1}, {"host_bandwidth": -1.0}]
)
def test_numbers_that_mean_nothing_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        archsim.fit("llama3.1-8b", "h100", **option)


def test_a_windowed_cache_sets_no_limit() -> None:
    found = archsim.fit("mistral-7b-v0.1", "h100", engine="vllm", suggest=False)
    assert found.fits
    assert found.longest is None
    assert found.to_dict()["max_model_len"] is None


def test_an_estimate_says_what_it_assumes_of_the_engine() -> None:
    notes = {n.code: n.text for n in archsim.estimate("llama3.1-8b", "h100", engine="autoawq").assumptions}
    assert {"A09", "A20", "A21"} <= set(notes)
    assert "its own rules" not in notes["A09"]


@pytest.mark.parametrize(
    ("hardware", "version", "tokens", "seqs"),
    [
        ("b200-sxm", "0.33", 16384, 1024),
        ("b200-sxm", "0.28", 16384, 1024),
        ("b200-sxm", "0.27", 8192, 1024),
        ("mi300x", "0.33", 16384, 1024),
        ("h200-sxm", "0.33", 8192, 1024),
        ("a100-sxm-80gb", "0.33", 2048, 256),
        ("a800-sxm-80gb", "0.33", 8192, 1024),
        ("dgx-spark", "0.33", 2048, 256),
        ("dgx-spark", "0.32", 8192, 1024),
        ("rtx-4090", "0.33", 2048, 256),
    ],
)
def test_batch_limits_of_vllm(hardware: str, version: str, tokens: int, seqs: int) -> None:
    """The table of get_batch_defaults in vllm/engine/arg_utils.py, for its server, at each version."""
    limits = limits_of(load_engine("vllm", version), load_hardware(hardware))
    assert (limits.tokens, limits.seqs) == (tokens, seqs)


def test_prefill_graphs_of_sglang() -> None:
    """The captured token counts of generate_prefill_cuda_graph_batch_sizes, counted from its ranges."""
    auto = load_engine("sglang", "0.5.23").memory.share.auto
    assert auto is not None and auto.prefill_graphs is not None
    assert [auto.prefill_graphs.captured(n) for n in (32, 256, 2048, 4096, 8192, 16384)] == [8, 22, 42, 50, 58, 74]
    far = auto.prefill_graphs.model_copy(update={"sizes": ((1, 10**15, 1), (10**15, 10**18, 1))})
    assert far.captured(8192) == 8192  # counted, not gone through
    older = load_engine("sglang", "0.5.13").memory.share.auto
    assert older is not None and older.prefill_graphs is None
    latent, dense = (
        archsim.fit(model, "h200", devices=8, engine="sglang@0.5.23", weights="bf16", max_model_len=4096, suggest=False)
        for model in ("deepseek-v2", "llama3.1-8b")
    )
    assert latent.memory.division.share < dense.memory.division.share


def test_deepep_buffers_of_sglang() -> None:
    """reserve_for_deepep_a2a_mb: 2 GiB beside what is free anyway, where experts lie on more ranks than gather tokens;
    reserve_for_graph_mb: 3 MiB a captured batch and replica, 4.5 where batches beyond 300 are captured.
    """
    h100, plan = load_hardware("h100"), Plan(tp=16, ep=16)
    shares = []
    for version in ("0.5.15", "0.5.16"):
        rules = load_engine("sglang", version)
        limits = limits_of(rules, h100)
        shares += [share_of(rules, h100, p, 8192, limits) * h100.memory_bytes / 2**30 for p in (plan, Plan(tp=8, ep=8))]
    assert shares[0] - shares[2] == pytest.approx(2, abs=0.1)  # the share has three digits
    assert shares[1] == shares[3]
    for graphs, each in ((300, 3), (301, 4.5)):
        limits = Limits(tokens=8192, graphs=graphs)
        one, eight = (share_of(load_engine("sglang"), h100, Plan(tp=8, dp=dp), 8192, limits) for dp in (1, 8))
        assert (one - eight) * h100.memory_bytes / 2**20 == pytest.approx(graphs * 8 * each, abs=100)


@pytest.mark.parametrize(
    ("hardware", "tp", "tokens", "free_mib"),
    [
        ("t4", 1, 2048, 512 + 3072 + 8 * 2 + 128),
        ("rtx-4090", 1, 2048, 512 + 3072 + 24 * 2 + 128),
        ("rtx-4090", 4, 2048, 512 + 3072 + 80 * 2 + 512),
        ("l40s", 1, 4096, 512 + 6144 + 32 * 2 + 128),
        ("h100-sxm", 8, 8192, 512 + 12288 + 512 * 2 + 1024),
        ("h100-pcie", 1, 8192, 512 + 12288 + 256 * 2 + 128),
        ("b200", 1, 16384, 512 + 24576 + 512 * 2 + 128),
    ],
)
def test_tiers_of_ktransformers(hardware: str, tp: int, tokens: int, free_mib: int) -> None:
    """Chunk, captured batch and what is kept free of the fork's server_args.py, by memory: 0.5 GiB, 1.5 MiB a token,
    2 MiB a captured sequence and an eighth of a GiB per device."""
    rules, device = load_engine("ktransformers"), load_hardware(hardware)
    limits = limits_of(rules, device)
    assert limits.tokens == tokens
    share = share_of(rules, device, Plan(tp=tp), limits.tokens, limits)
    assert share == pytest.approx(1 - free_mib * 2**20 / device.memory_bytes, abs=6e-4)


def test_versions_of_tgi() -> None:
    """Its page on version 3 says that an L4 holds 30k tokens of Llama 3.1 8B; the launcher before 3.0 takes requests of
    4,096 tokens and prefills of 4,095 + 50, and leaves 5 % of what is free after one."""
    new, old = (archsim.fit("llama3.1-8b", "l4", engine=name, suggest=False) for name in ("tgi", "tgi@2.4"))
    assert new.kv_tokens == pytest.approx(30_000, rel=0.1)
    assert (old.length, old.batched_tokens, old.seqs) == (4096, 4145, 128)
    free = old.budget.visible - old.budget.fixed
    assert old.kv_tokens == int(0.95 * free) // 131072
    assert archsim.fit("llama3.1-8b", "l4", engine="text-generation-inference 2.2", suggest=False).kv_tokens % 16 == 0


@pytest.mark.parametrize(("engine", "kv"), [("vllm", "int8"), ("vllm@0.19", "nvfp4"), ("vllm", "q8_0")])
def test_caches_that_an_engine_does_not_have(engine: str, kv: str) -> None:
    """Refused with those it has; no engine named, any is counted."""
    with pytest.raises(UsageError, match="cache") as caught:
        archsim.fit("llama3.1-8b", "h100", engine=engine, kv_cache_dtype=kv)
    assert "fp8" in caught.value.hints[0]
    assert archsim.fit("llama3.1-8b", "h100", kv_cache_dtype=kv, suggest=False).fits


@pytest.mark.parametrize(
    ("model", "state", "numbers"),
    [
        ("qwen3.5-9b", 32 * 128 * 128, 3 * 12288 + 3 * 4096),  # its widest layers are the gated feed-forward ones
        ("qwen3-next-80b-a3b", 32 * 128 * 128, None),
        ("mamba2-2.7b", 80 * 64 * 128, None),
    ],
)
def test_a_step_keeps_recurrent_states_once_a_chunk(model: str, state: int, numbers: int | None) -> None:
    """What one token adds to the states of a layer is as large as they are: chunked kernels sum it over 64 tokens, or
    256, and never write it.
    """
    found = archsim.fit(
        model, "h100", devices=4, tp=1, pp=4, engine="vllm", max_num_batched_tokens=16384, max_num_seqs=1,
        without="vision" if model == "qwen3.5-9b" else None, max_model_len=4096, suggest=False,
    )  # fmt: skip
    per_token = found.budget.activations / 16384 / 2
    assert per_token < state / 10
    assert numbers is None or per_token == pytest.approx(numbers, rel=0.001)
