"""What the public sweep's scripts say of limits reaches the servers of its rows, by pool and layout, and no other."""

from __future__ import annotations

from typing import Any

import pytest

from archsim.accuracy.launch_flags import settings_of_flags
from archsim.accuracy.loaded import run_of_load, settings_of
from archsim.accuracy.loaded_run import pools_of
from archsim.accuracy.stated_acceptance import drafts_by
from archsim.accuracy.sweep_limits import COMPARED, MOST, READ_AS, completed_flags, own_limit, says_of, sweep_limits
from archsim.memory.engine_memory import Settings
from archsim.spec.load import load_model

SWEEP = "SemiAnalysisAI/InferenceX results"
ROW: dict[str, Any] = {
    "source": SWEEP, "engine": "sglang", "model": "deepseek-ai/DeepSeek-R1-0528", "weights": "fp8", "device": "mi325x",
    "date": "2026-05-18", "engine_version": "0.5.12", "n_devices": 8, "tp": 8, "ep": 1, "dp_attention": "no",
    "disaggregated": "no", "speculative": "none", "arrival": "closed loop", "concurrency": 64, "isl": 1024,
    "osl": 1024, "flags": "lmsysorg/sglang:v0.5.12-rocm700-mi30x",
}  # fmt: skip
POOLS = {
    "disaggregated": "yes", "n_devices": 24, "tp": "", "ep": "", "prefill_devices": 8, "prefill_tp": 8,
    "prefill_ep": 1, "prefill_workers": 1, "decode_devices": 16, "decode_tp": 8, "decode_ep": 1, "decode_workers": 2,
}  # fmt: skip
MORI = POOLS | {"engine": "mori-sglang", "device": "mi355x", "date": "2026-03-03", "engine_version": "0.5.9"}
DYNAMO = POOLS | {
    "engine": "dynamo-sglang", "device": "h100-sxm", "engine_version": "0.5.8", "speculative": "mtp",
    "prefill_devices": 16, "prefill_tp": 16, "decode_devices": 32, "decode_tp": 16,
}  # fmt: skip
REPLICAS = {"dp_attention": "yes", "prefill_ep": 8, "decode_ep": 8}


def told(seqs: int | None, tokens: int | None, prompts: int | None, share: float | None) -> Settings:
    return Settings(
        max_num_seqs=seqs, max_num_batched_tokens=tokens, max_prefill_tokens=prompts, gpu_memory_utilization=share
    )


def test_entries_name_what_is_known() -> None:
    """A key that is misspelt, or a model that the catalog does not have, would never be found."""
    which = {"engine", "device", "family", "model", "weights", "pool", "drafts", "dp_attention", "experts", "isl", "tp"}
    what = {"seqs", "seqs_each", "tokens", "tokens_each", "prompt_tokens", "share", "drafts", "kv", "in_flight_per_seq"}
    for limits in sweep_limits():
        assert limits.script and set(limits.of) <= which | set(COMPARED) and set(limits.say) <= what
        assert "model" not in limits.of or load_model(limits.of["model"]).name == limits.of["model"]


@pytest.mark.parametrize(
    ("changes", "expected", "kv"),
    [
        ({}, told(None, 131072, 131072, 0.8), "fp8"),
        ({"date": "2025-12-15"}, told(None, 196608, 196608, 0.8), None),
        ({"device": "mi355x"}, told(None, 196608, 196608, 0.8), "fp8"),
        ({"device": "mi355x", "date": "2026-02-27"}, told(None, 196608, 196608, 0.8), None),
        ({"device": "mi355x", "weights": "fp4", "isl": 8192}, told(None, 32768, 32768, 0.8), "fp8"),
        ({"device": "mi355x", "weights": "fp4", "isl": 8192, "concurrency": 8}, told(None, 196608, 196608, 0.8), "fp8"),
        ({"device": "b200-sxm", "weights": "fp4"}, told(256, 16384, None, 0.85), "fp8"),
        ({"device": "b200-sxm", "tp": 4}, told(32, 8192, 8192, 0.95), "fp8"),
        ({"model": "zai-org/GLM-5-FP8"}, Settings(), None),
        ({"kv_dtype": "bf16"}, told(None, 131072, 131072, 0.8), "bf16"),
    ],
)  # fmt: skip
def test_one_server_is_told_what_its_script_says(changes: dict[str, Any], expected: Settings, kv: str | None) -> None:
    row = ROW | changes
    assert settings_of(row) == expected and run_of_load(row).kv == kv


@pytest.mark.parametrize(
    ("changes", "prefill", "decode"),
    [
        (MORI, told(128, 262144, None, 0.8), told(128, None, None, 0.85)),
        (MORI | {"decode_ep": 8}, told(128, 262144, None, 0.8), told(256, None, None, 0.85)),
        (MORI | REPLICAS, told(24, 65536, None, 0.8), told(1280, None, None, 0.85)),
        (MORI | REPLICAS | {"date": "2026-05-27"}, told(MOST, 65536, None, 0.8), told(1280, None, None, 0.85)),
        (MORI | {"weights": "fp4"}, told(128, 16384, None, 0.8), told(128, None, None, 0.85)),
        (DYNAMO, told(2, 2048, 2048, 0.6), told(128, None, None, 0.9)),
        (DYNAMO | {"dp_attention": "yes", "decode_ep": 16}, told(4, 2048, 2048, 0.6), told(64, None, None, 0.85)),
    ],
)  # fmt: skip
def test_each_pool_is_told_its_own(changes: dict[str, Any], prefill: Settings, decode: Settings) -> None:
    row = ROW | changes
    run = run_of_load(row, drafts=True)
    assert run.decode is not None and settings_of(row) == prefill
    assert pools_of(run, run.decode).decode_settings == decode
    assert settings_of_flags("sglang", run.command) == prefill


@pytest.mark.parametrize(
    ("changes", "drafts"),
    [
        ({}, 3), (DYNAMO, 2), (MORI, 2), (MORI | {"date": "2026-01-08"}, 3), (MORI | REPLICAS, 1),
        (MORI | {"weights": "fp4"}, 1), (MORI | {"weights": "fp4", "concurrency": 32}, 3), ({"device": "b200-sxm"}, 2),
    ],
)  # fmt: skip
def test_drafts_are_as_many_as_the_scripts_say(changes: dict[str, Any], drafts: int) -> None:
    assert drafts_by("mtp", 0.5, ROW | {"speculative": "mtp"} | changes).drafts == drafts


@pytest.mark.parametrize(
    ("changes", "seqs"),
    [
        ({"model": "zai-org/GLM-4.6-FP8"}, MOST),  # nothing is said, and 48 would be fewer than the 64 in flight
        ({}, 64),  # as many as are in flight
        ({"date": "2026-05-17"}, None),  # the script leaves it to the engine
        ({"date": "2026-05-17", "concurrency": 32}, None),
        ({"device": "mi355x", "weights": "fp4"}, None),  # the script leaves it to the engine
        ({"device": "mi355x"}, 64),
        ({"device": "mi355x", "concurrency": 4096}, 4096),
        ({"date": "2026-05-17", "arrival": "all at once"}, None),
        ({"device": "b200-sxm"}, 512),
    ],
)  # fmt: skip
def test_drafts_admit_what_is_in_flight_where_no_script_says_less(changes: dict[str, Any], seqs: int | None) -> None:
    assert settings_of(ROW | {"speculative": "mtp"} | changes).max_num_seqs == seqs


@pytest.mark.parametrize(
    ("workers", "in_flight", "dp_attention", "seqs"),
    [(3, 6, "no", 1), (3, 9, "no", 2), (3, 30, "no", 8), (2, 154, "no", 64), (3, 231, "yes", 4), (1, 308, "yes", 16),
     (1, 615, "yes", 32), (1, 4916, "yes", 256)],
)  # fmt: skip
def test_workers_of_tensorrt_llm_hold_less_than_is_in_flight(
    workers: int, in_flight: int, dp_attention: str, seqs: int
) -> None:
    """As the recipes' `max_batch_size` of a worker, or of each of its sixteen ranks with data-parallel attention."""
    row = ROW | DYNAMO | {"engine": "dynamo-trt", "speculative": "none", "concurrency": in_flight, "decode_ep": 16}
    row |= {"decode_devices": 16 * workers, "decode_workers": workers, "dp_attention": dp_attention}
    assert f"--max-batch-size {seqs} " in completed_flags(row, "decode")


def test_each_replica_has_room_where_an_engine_divides_the_limit() -> None:
    """64 in flight on 16 ranks of an unknown script: MOST on each of them, not of all together."""
    row = ROW | DYNAMO | {"model": "deepseek-v3", "dp_attention": "yes", "decode_ep": 16, "decode_devices": 16,
                          "decode_workers": 1}  # fmt: skip
    assert f"--max-running-requests {16 * MOST}" in completed_flags(row, "decode")
    assert own_limit("sglang", drafts=True) == 48 and own_limit("sglang", drafts=False) == 2048


def test_the_rows_own_flags_come_first() -> None:
    row = ROW | {"flags": "--chunked-prefill-size 4096 --max-running-requests=7", "speculative": "mtp"}
    assert settings_of(row) == told(7, 4096, 131072, 0.8)


def test_rows_of_other_sources_are_left_alone() -> None:
    for source in ("", "gpustack/gpustack", None, "our servers, sent by the InferenceX harness", "InferenceX-like"):
        row = ROW | {"source": source, "speculative": "mtp"}
        assert completed_flags(row) == row["flags"] and settings_of(row) == Settings()
        run = run_of_load(row, drafts=True)
        assert run.kv is None and READ_AS not in run.notes
    assert READ_AS in run_of_load(ROW).notes


@pytest.mark.parametrize("source", [SWEEP, "InferenceX", "InferenceMAX/InferenceMAX", "inferencemax, 2026"])
def test_rows_of_the_sweep_begin_with_its_name(source: str) -> None:
    assert settings_of(ROW | {"source": source}) == told(None, 131072, 131072, 0.8)


def test_open_loops_have_no_limit_from_requests_in_flight() -> None:
    """A worker of TensorRT-LLM held one request, and `up_to: 32` was taken for true."""
    trt = ROW | DYNAMO | {"engine": "dynamo-trt", "speculative": "none", "arrival": "open loop", "concurrency": ""}
    assert "--max-batch-size" not in completed_flags(trt, "decode")
    mori = ROW | MORI | {"weights": "fp4", "speculative": "mtp", "arrival": "open loop", "concurrency": ""}
    assert says_of(mori, "decode")["drafts"] == 1


@pytest.mark.parametrize("date", ["Mar 2026", "unknown", "5/18/2026", ""])
def test_a_date_that_is_no_day_is_neither_before_nor_after_another(date: str) -> None:
    assert "kv" not in says_of(ROW | {"date": date})
