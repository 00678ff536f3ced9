"""Estimates: published figures, plans, and what must hold for every model, device and workload."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from archsim import api
from archsim.base.errors import AnswerNo, InvalidPlan, UnknownName, UsageError
from archsim.predict.estimate import Estimate, estimate
from archsim.spec.catalog import names
from archsim.spec.load import load_hardware, load_model


def run(model: str, hw: str, **options: object) -> Estimate:
    """An estimate by names."""
    return estimate(load_model(model), load_hardware(hw), **options)  # type: ignore[arg-type]


def test_llama2_70b_needs_two_h100() -> None:
    """The headline: 137.95 GB of bf16 weights take two 80 GB devices, cut by tensor parallelism."""
    answer = run("llama2-70b", "h100")
    assert (answer.plan.devices, answer.plan.tp) == (2, 2)
    assert answer.memory.fits
    assert answer.chosen


@pytest.mark.parametrize(("batch", "milliseconds"), [(1, 3.83), (32, 14.6)])
def test_mixtral_decode_reads_the_experts_that_the_batch_hits(batch: int, milliseconds: float) -> None:
    """Speed of light on two H100: 2 of 8 experts for one token, all of them for 32."""
    answer = run("mixtral-8x7b", "h100", devices=2, batch=batch)
    assert answer.decode is not None
    assert answer.decode.ideal_s * 1e3 == pytest.approx(milliseconds, rel=0.05)


def test_an_encoder_has_no_decode() -> None:
    """BERT answers in one pass."""
    answer = run("bert-base", "a100")
    assert answer.decode is None
    assert answer.metrics["tpot_s"] is None
    assert answer.to_dict()["phases"]["decode"] is None


def test_explicit_devices_that_are_too_small_are_answered() -> None:
    """The budget comes back with fits = false; the command makes an exit code of it."""
    answer = run("llama2-70b", "h100", devices=1)
    assert not answer.memory.fits
    assert answer.memory.free < 0


def test_nothing_fits() -> None:
    """A model too large for any linked group is a plain no."""
    with pytest.raises(AnswerNo, match="deepseek-v3"):
        run("deepseek-v3", "rtx-4090", weights="bf16")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tp": 3}, "tp 3 does not divide"),
        ({"tp": 2, "devices": 3}, "not a multiple"),
        ({"ep": 2}, "has no experts"),
        ({"pp": 200, "tp": 1}, "more than the 80 layers"),
    ],
)
def test_invalid_degrees_name_the_valid_ones(options: dict[str, int], words: str) -> None:
    """Degrees that cannot be are refused in words."""
    with pytest.raises(InvalidPlan, match=words):
        run("llama2-70b", "h100", **options)


@pytest.mark.parametrize("options", [{"batch": 0}, {"input_len": -1}, {"devices": "many"}, {"devices": 0}])
def test_meaningless_numbers_are_usage_errors(options: dict[str, object]) -> None:
    """Zero sequences, negative lengths and words for numbers."""
    with pytest.raises(UsageError):
        run("llama2-70b", "h100", **options)


def test_unknown_engine_is_named() -> None:
    """Engines are compared by spelling, unknown ones refused."""
    assert run("llama2-70b", "h100", engine="vLLM@0.9").plan.engine == "vllm"
    with pytest.raises(UnknownName, match="no engine"):
        run("llama2-70b", "h100", engine="vlm")


def test_llama_cpp_splits_layers() -> None:
    """Its several devices work one after another."""
    plan = run("llama2-70b", "h100", engine="llama.cpp").plan
    assert (plan.tp, plan.pp) == (1, 2)


def test_formats_move_bytes_and_peaks() -> None:
    """fp8 weights halve the bytes and raise the peak; embeddings, head and norms stay in bf16."""
    wide, narrow = run("llama2-70b", "h100", devices=2), run("llama2-70b", "h100", devices=2, weights="fp8")
    kept = 2 * 32000 * 8192 + (2 * 80 + 1) * 8192
    expected = (68976648192 - kept) / 2 + 2 * kept / 2
    assert narrow.memory.weights == pytest.approx(expected, rel=1e-3)
    assert wide.decode is not None and narrow.decode is not None
    assert narrow.decode.ideal_s < 0.52 * wide.decode.ideal_s
    assert narrow.prefill.ideal_s < 0.6 * wide.prefill.ideal_s


def test_a_missing_dtype_is_computed_wider_and_said() -> None:
    """An A100 has no fp8 units: the products run in bf16, announced."""
    answer = run("llama2-70b", "a100", weights="fp8")
    assert any(note.code == "A12" and "fp8" in note.text and "a100" in note.text for note in answer.assumptions)


MODELS = sorted(entry.name for entry in names("models") if entry.path is not None)
DEVICES = ["h100-sxm", "a100-sxm-80gb", "rtx-4090", "mi300x", "tpu-v5p", "b200-sxm", "apple-m3-ultra", "l4"]


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=st.sampled_from(MODELS),
    hw=st.sampled_from(DEVICES),
    batch=st.sampled_from([1, 3, 16, 100]),
    input_len=st.sampled_from([1, 128, 2048, 20000]),
    weights=st.sampled_from([None, "bf16", "fp8", "int4"]),
)
def test_nothing_beats_its_physical_bound(model: str, hw: str, batch: int, input_len: int, weights: str | None) -> None:
    """Over catalog x devices x workloads: no phase is faster than bytes/bandwidth or FLOP/peak."""
    try:
        answer = run(model, hw, batch=batch, input_len=input_len, weights=weights)
    except AnswerNo:
        return
    device = answer.hardware
    peak = max(answer_peak for answer_peak in _peaks(device))
    for phase in (answer.prefill, answer.decode):
        if phase is None:
            continue
        in_turn = 1 if phase.pieces else answer.plan.pp  # stages of a decode step follow one another
        assert phase.ideal_s * 1.000001 >= phase.bytes * in_turn / device.bandwidth
        assert phase.ideal_s * 1.000001 >= phase.flops * in_turn / peak
        assert phase.ideal_s <= phase.low_s <= phase.expected_s <= phase.high_s
    if answer.decode is not None:
        read = sum(op.weight_bytes for op in answer.decode.ops) / answer.plan.pp
        assert read <= answer.memory.weights * 1.01 * max(1, answer.plan.pp)


def _peaks(device: object) -> list[float]:
    return [value for value in device.to_dict()["peaks_flops"].values() if value]  # type: ignore[attr-defined]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("field", ["batch", "input_len", "output_len"])
def test_time_grows_with_work(field: str) -> None:
    """More sequences or longer ones never take less time."""
    before = 0.0
    for value in (1, 7, 64, 500, 2048):
        answer = run("mixtral-8x7b", "h100", devices=8, **{field: value})
        assert answer.decode is not None
        total = answer.prefill.ideal_s + answer.decode.ideal_s
        assert total >= before
        before = total


def test_to_dict_has_plain_numbers_only() -> None:
    """The JSON object holds numbers, strings and booleans, never NaN."""
    import json

    text = json.dumps(run("deepseek-v3", "h200").to_dict(), allow_nan=False)
    assert '"schema": "archsim.estimate/1"' in text


def test_products_on_the_vector_unit_queue_there() -> None:
    """A device without matrix units adds elementwise work to its products; one with them overlaps both."""
    answer = run("bert-base", "apple-m4-max", input_len=8192)
    peak = answer.hardware.peak_flops("bf16")
    assert peak.unit == "vector"
    assert answer.prefill.ideal_s > 1.01 * answer.prefill.flops / peak.flops


def test_groups_beyond_a_node_use_both_levels() -> None:
    """tp 16 on H100: an eighth of the sum crosses the network, the rest stays on NVLink, at the same time."""
    one, two = (run("llama3-8b", "h100", tp=tp, input_len=8192) for tp in (8, 16))
    seconds = [sum(op.comm_s for op in a.prefill.ops if op.kind == "all_reduce") for a in (one, two)]
    size = 8192 * 4096 * 2
    per_reduce = max(size / 450e9, 2 * (1 / 2) * (size / 8) / 50e9)  # NVLink switches add up 8 ranks themselves
    reduces = 2 * 32 + 1
    assert seconds[1] == pytest.approx(reduces * per_reduce, rel=1e-6)
    assert seconds[0] < seconds[1]


def test_pipeline_stages_share_a_prefill_and_follow_in_decode() -> None:
    """Pieces of a prompt keep all stages busy at best; one decode step passes through them in turn."""
    flat, deep = (run("llama2-70b", "h100", tp=2, pp=pp, batch=32) for pp in (1, 4))
    assert deep.prefill.ideal_s == pytest.approx(flat.prefill.ideal_s / 4, rel=1e-2)
    assert flat.decode is not None and deep.decode is not None
    assert deep.decode.ideal_s == pytest.approx(flat.decode.ideal_s, rel=1e-2)
    assert deep.prefill.expected_s > flat.prefill.expected_s / 4


def test_a_batch_that_dp_does_not_divide_keeps_its_tokens() -> None:
    """Whole sequences are dealt out, so one rank has most attention; experts see the true number of tokens."""
    plan = {"tp": 1, "dp": 8, "ep": 8}
    answers = {n: run("deepseek-v3", "h200", batch=n, **plan) for n in (1, 8, 9, 16)}
    times = {n: a.prefill.ideal_s for n, a in answers.items()}
    assert times[1] < times[8] < times[9] < times[16]
    work = {n: _flops(a, "moe.moe.down") for n, a in answers.items()}
    assert work[8] == pytest.approx(8 * work[1]) and work[9] == pytest.approx(9 * work[1])
    attention = {n: _flops(a, "moe.attention.core.qk") for n, a in answers.items()}
    assert attention[1] == attention[8] < attention[9] == attention[16]


def _flops(answer: Estimate, path: str) -> float:
    """FLOP of the kernel at `path` in prefill."""
    return next(op.flops for op in answer.prefill.ops if op.path == path)


def test_encoders_are_not_cut_into_chunks() -> None:
    """Every token sees every other: activations grow with the prompt, beyond the size of a chunk."""
    short, long = (run("t5-large", "h100", input_len=n).memory.activations for n in (8192, 32768))
    assert long > 3.9 * short


@pytest.mark.parametrize(
    ("model", "input_len", "output_len", "warned"),
    [
        ("bert-base", 512, 256, False),
        ("bert-base", 513, 1, True),
        ("t5-large", 512, 256, False),
        ("gpt2-xl", 1000, 100, True),
    ],
)
def test_context_warnings(model: str, input_len: int, output_len: int, warned: bool) -> None:
    """An encoder sees the prompt alone; source and target of a translation are separate."""
    answer = run(model, "h100", input_len=input_len, output_len=output_len)
    assert any(note.code == "W01" for note in answer.warnings) == warned


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("engine", "weights", "asked", "cache"),
    [
        ("generic", "fp8", None, "bf16"), ("vllm", "fp8", None, "bf16"), ("trtllm", None, None, "bf16"),
        ("trtllm", "int4", None, "bf16"), ("trtllm", "fp8", None, "fp8"), ("TensorRT-LLM 1.0", "fp8", "auto", "fp8"),
        ("nim", "nvfp4", None, "fp8"), ("trtllm", "fp8", "bf16", "bf16"), ("vllm", "fp8", "fp8", "fp8"),
    ],
)  # fmt: skip
def test_caches_follow_checkpoints(engine: str, weights: str | None, asked: str | None, cache: str) -> None:
    """An engine that keeps the cache format of FP8 checkpoints has an FP8 cache, everywhere, and says so."""
    options: dict[str, Any] = {"weights": weights, "kv_cache_dtype": asked, "engine": engine}
    found = api.estimate("llama3-8b", "h100", **options)
    assert found.formats.kv.name == cache
    assert any("follows" in note.text for note in found.assumptions) is (cache == "fp8" and asked in (None, "auto"))
    fitted = api.fit("llama3-8b", "h100", **options)
    assert fitted.to_dict()["per_device"]["kv_bytes_per_token"] == found.kv_bytes_per_token


def test_degrees_that_no_link_joins() -> None:
    """Memory is enough; what is missing is said to be the link."""
    with pytest.raises(InvalidPlan, match="joins 8 devices"):
        api.estimate("llama3-8b", "generic-ddr5-desktop", dp=8, weights="int4")
