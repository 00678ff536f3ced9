"""Files that measuring tools write are read as the tables that say the same."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import archsim
from archsim.accuracy.files import read_table
from archsim.accuracy.launch_flags import settings_of_flags
from archsim.accuracy.stated_acceptance import drafts_by
from archsim.accuracy.stated_load import load_of
from archsim.accuracy.stated_options import complete
from archsim.base.errors import UsageError

LLAMA_BENCH: dict[str, Any] = {
    # https://github.com/ggml-org/llama.cpp/blob/08d0baa/tools/llama-bench/README.md
    "build_commit": "8cf427ff", "build_number": 5163, "cpu_info": "AMD Ryzen 7 7800X3D 8-Core Processor",
    "gpu_info": "NVIDIA GeForce RTX 4080", "backends": "CUDA",
    "model_filename": "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    "model_type": "qwen2 7B Q4_K - Medium", "n_batch": 2048, "n_ubatch": 512, "type_k": "f16", "type_v": "f16",
    "n_gpu_layers": -1, "n_cpu_moe": 0, "split_mode": "layer", "no_kv_offload": False, "tensor_buft_overrides": "none",
    "n_prompt": 0, "n_gen": 128, "n_depth": 0, "avg_ts": 118.881588,
}  # fmt: skip

VLLM: dict[str, Any] = {  # fields of vLLM 0.33; the values are made up
    "date": "20260901-120000", "backend": "openai-chat", "model_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 40, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 9.0, "completed": 40,
    "total_input_tokens": 40960, "total_output_tokens": 5120, "output_throughput": 900.0, "mean_ttft_ms": 60.0,
    "median_ttft_ms": 55.0, "p99_ttft_ms": 130.0, "mean_tpot_ms": 7.5, "median_tpot_ms": 7.4, "p99_tpot_ms": 9.0,
}  # fmt: skip

SGLANG: dict[str, Any] = {  # fields of SGLang 0.5.23; the values are made up
    "backend": "sglang", "dataset_name": "random", "request_rate": 4.0, "max_concurrency": None,
    "random_input_len": 1024,
    "random_output_len": 256, "random_range_ratio": 0.5, "completed": 100, "total_input_tokens": 76800,
    "total_output_tokens": 19200, "output_throughput": 700.0, "mean_ttft_ms": 60.0, "median_ttft_ms": 55.0,
    "p99_ttft_ms": 130.0, "mean_tpot_ms": 7.5, "median_tpot_ms": 7.4,
    "server_info": {"model_path": "meta-llama/Llama-3.1-8B-Instruct", "tp_size": 2, "pp_size": 1, "dp_size": 1,
                    "quantization": "fp8", "kv_cache_dtype": "auto", "mem_fraction_static": 0.85,
                    "chunked_prefill_size": 4096, "max_running_requests": None, "version": "0.5.9"},
}  # fmt: skip


def write(path: Path, *records: dict[str, Any]) -> Path:
    """Records as JSON: one alone, several on lines of their own."""
    path.write_text("\n".join(json.dumps(record) for record in records))
    return path


def test_a_test_of_llama_bench_is_a_run(tmp_path: Path) -> None:
    """Model, format, device and engine are known by what the tool prints."""
    prompt = LLAMA_BENCH | {"n_prompt": 512, "n_gen": 0, "avg_ts": 7100.0}
    table = read_table(write(tmp_path / "bench.jsonl", prompt, LLAMA_BENCH))
    assert (table.kind, table.measured["value"]) == ("runs", [7100.0, 118.881588])
    assert table.question(1) == {
        "model": "Qwen2.5-7B-Instruct-Q4_K_M", "weights_dtype": "gguf_q4_k_m", "kv_dtype": "fp16",
        "device": "NVIDIA GeForce RTX 4080", "n_devices": 1, "engine": "llama.cpp", "engine_version": "b5163",
        "metric": "decode_tok_s", "definition": "decode_rate_per_seq", "batch": 1, "isl": 0, "osl": 128,
    }  # fmt: skip
    found = archsim.validate(tmp_path / "bench.jsonl").to_dict()
    assert [row["metric"] for row in found["rows"]] == ["prefill_tok_s", "decode_tok_s"] and not found["refused"]


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_every_form_of_llama_bench(form: str, tmp_path: Path) -> None:
    """`-o json`, `jsonl` and `csv` say the same."""
    path = tmp_path / f"bench.{form}"
    if form == "csv":
        with path.open("w", newline="") as stream:
            writer = csv.DictWriter(stream, [*LLAMA_BENCH], quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerow(LLAMA_BENCH | {"no_kv_offload": 0})
    else:
        path.write_text(json.dumps(LLAMA_BENCH if form == "jsonl" else [LLAMA_BENCH]))
    (row,) = archsim.validate(path).to_dict()["rows"]
    assert row["measured"] == 118.881588 and 0 < row["low"] < row["predicted"] < row["high"]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"n_prompt": 512, "n_gen": 0, "n_depth": 512}, "behind cached tokens"),
        ({"n_prompt": 1024, "n_gen": 0, "n_ubatch": 1024}, "steps of 1,024"),
        ({"n_gpu_layers": 12}, "some layers in host memory"),
        ({"n_cpu_moe": 4}, "experts in host memory"),
        ({"type_v": "q8_0"}, "another format for keys"),
        ({"split_mode": "row"}, "share each layer"),
        ({"no_kv_offload": "1"}, "the cache in host memory"),
        ({"gpu_info": "NVIDIA GeForce RTX 4090, NVIDIA GeForce RTX 3060"}, "devices of several kinds"),
        ({"model_filename": "models/7B/ggml-model-q4_0.gguf"}, "no model named `ggml-model-q4_0`"),
    ],
)
def test_what_llama_bench_can_and_archsim_cannot(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    """Such a test is refused by its reason, not predicted as another."""
    found = archsim.validate(write(tmp_path / "bench.json", LLAMA_BENCH | changed)).to_dict()
    assert not found["rows"] and why in found["refused"][0]["reason"]


@pytest.mark.parametrize(
    ("words", "format"),
    [
        ("llama 7B mostly Q4_0", "gguf_q4_0"), ("llama 8B IQ4_XS - 4.25 bpw", "gguf_iq4_xs"),
        ("llama 8B IQ3_S mix - 3.66 bpw", "gguf_iq3_m"), ("llama 8B Q3_K - Small", "gguf_q3_k_s"),
        ("llama 8B Q6_K", "gguf_q6_k"), ("gpt-oss 20B MXFP4 MoE", "mxfp4_moe"), ("llama 1B BF16", "bf16"),
        ("llama 1B F16", "fp16"), ("llama 1B all F32", "fp32"), ("llama 70B Q2_K - Medium", "gguf_q2_k"),
    ],
)  # fmt: skip
def test_file_types_in_llama_cpps_words(words: str, format: str, tmp_path: Path) -> None:
    """The file's own name may say nothing."""
    table = read_table(write(tmp_path / "bench.json", LLAMA_BENCH | {"model_type": words}))
    assert table.question(0)["weights_dtype"] == format


def test_options_say_what_a_file_does_not(tmp_path: Path) -> None:
    """A file of vLLM names neither device nor engine; with both it is the same as a table that states them."""
    path, table = write(tmp_path / "vllm.json", VLLM), tmp_path / "loaded.csv"
    refused = archsim.validate(path).to_dict()["refused"]
    assert len(refused) == 6 and {row["reason"].split(":")[0] for row in refused} == {"the row names no device"}
    told = archsim.validate(path, hw="2xh100", engine="vllm@0.11.0", tp=2, max_num_seqs=64).to_dict()["rows"]
    columns = {
        "model": "llama3.1-8b", "device": "h100-sxm", "n_devices": 2, "tp": 2, "engine": "vllm",
        "engine_version": "0.11.0", "flags": "--max-num-seqs 64", "arrival": "closed loop",
        "concurrency": 8, "n_requests": 40, "isl": 1024,
        "osl": 128,
    }  # fmt: skip
    table.write_text(",".join(columns) + "\n" + ",".join(map(str, columns.values())) + "\n")
    same = archsim.validate(table).to_dict()["rows"]
    assert [(row["metric"], row["predicted"]) for row in told] == [(row["metric"], row["predicted"]) for row in same]
    assert {row["metric"]: row["measured"] for row in told}["ttft_p99_ms"] == 130.0


def test_limits_are_flags_of_the_engine_that_a_file_names(tmp_path: Path) -> None:
    """They count whether the option or the file says which engine ran; without one nobody knows its flags."""
    path = write(tmp_path / "vllm.json", VLLM | {"backend": "vllm"})
    free, few, same = (
        [row["predicted"] for row in archsim.validate(path, hw="h100", **options).to_dict()["rows"]]
        for options in ({}, {"max_num_seqs": 2}, {"max_num_seqs": 2, "engine": "vllm"})
    )
    assert few == same != free
    with pytest.raises(UsageError, match="a row names none"):
        archsim.validate(write(tmp_path / "any.json", VLLM), hw="h100", max_num_seqs=4)
    own = read_table(write(tmp_path / "told.json", VLLM | {"backend": "vllm", "flags": "--max-num-seqs 8"}))
    flags = complete(own, {"max_num_seqs": 4}).question(0)["flags"]
    assert settings_of_flags("vllm", str(flags)).max_num_seqs == 8


@pytest.mark.parametrize("option", [{"max_num_seqs": 4}, {"kv_tokens": 1000}, {"chunked_prefill": "off"}])
def test_options_without_effect_are_refused(option: dict[str, Any], tmp_path: Path) -> None:
    """A run list has no column for them."""
    with pytest.raises(UsageError, match="has no effect here: a run list has no column"):
        archsim.validate(write(tmp_path / "bench.json", LLAMA_BENCH), **option)


def test_a_version_is_of_the_engine_whatever_its_column_is_called(tmp_path: Path) -> None:
    """Serving points name it `backend`; another engine keeps the version that it has."""
    path = tmp_path / "points.csv"
    path.write_text("model,system,backend,isl,osl,concurrency,tpot_ms\nm,h100,,1,1,1,9\nm,h100,sglang,1,1,1,9\n")
    found = complete(read_table(path), {"engine": "vllm", "engine_version": "0.11"}).questions
    assert (found["backend"], found["engine_version"]) == (["vllm", "sglang"], ["0.11", None])


def test_what_a_file_says_stays(tmp_path: Path) -> None:
    """Options stand only for what is missing, or for a name that nobody knows."""
    path = write(tmp_path / "bench.jsonl", LLAMA_BENCH, LLAMA_BENCH | {"gpu_info": "AMD Radeon Graphics"})
    rows = archsim.validate(path, hw="strix-halo").to_dict()["rows"]
    first, second = (row["predicted"] for row in rows)
    assert first > 2 * second  # a 4080 and a laptop


def test_metadata_of_a_benchmark_is_read(tmp_path: Path) -> None:
    """`--metadata device=h100 tp=2 engine=vllm` stands beside the results."""
    table = read_table(write(tmp_path / "vllm.json", VLLM | {"device": "h100", "tp": "2", "engine": "vllm"}))
    asked = table.question(0)
    assert (asked["device"], asked["tp"], asked["engine"]) == ("h100", "2", "vllm")


def test_sglang_says_how_its_server_was_started(tmp_path: Path) -> None:
    """Plan, formats and limits come from `server_info`; lengths are as they were drawn."""
    table = read_table(write(tmp_path / "sglang.jsonl", SGLANG))
    asked = table.question(0)
    assert (asked["model"], asked["tp"], asked["weights"], asked["engine_version"]) == (
        "meta-llama/Llama-3.1-8B-Instruct", 2, "fp8", "0.5.9"
    )  # fmt: skip
    assert asked["flags"] == "--mem-fraction-static 0.85 --chunked-prefill-size 4096" and "kv_dtype" not in asked
    load = load_of(asked)
    assert (load["rate"], load["arrival"], load["length_spread"]) == (4.0, "poisson", 0.5)
    assert len(archsim.validate(tmp_path / "sglang.jsonl", hw="h100").to_dict()["rows"]) == 6


def test_drafts_are_those_of_the_server(tmp_path: Path) -> None:
    """The numbers of a tree are among its flags; drafts of other kinds are refused by their name."""
    told = {"speculative_num_steps": 4, "speculative_eagle_topk": 8, "speculative_num_draft_tokens": 32}
    server = SGLANG["server_info"] | told | {"speculative_algorithm": "EAGLE3"}
    asked = read_table(write(tmp_path / "eagle.jsonl", SGLANG | {"server_info": server})).question(0)
    found = drafts_by("eagle", 0.5, asked)
    assert (asked["speculative"], found.drafts, found.topk, found.verified) == ("yes", 4, 8, 32)
    ngram = SGLANG | {"server_info": server | {"speculative_algorithm": "NGRAM"}}
    refused = archsim.validate(write(tmp_path / "ngram.jsonl", ngram, ngram), hw="h100").to_dict()["refused"]
    assert "drafts made by `ngram` are not modelled" in refused[-1]["reason"]


@pytest.mark.parametrize(
    ("changed", "load"),
    [
        ({}, {"concurrency": 8, "requests": 40}),
        ({"max_concurrency": None}, {"rate": float("inf"), "requests": 40}),
        ({"request_rate": 2.0}, {"rate": 2.0, "arrival": "poisson", "concurrency": 8}),
        (
            {"request_rate": 2.0, "burstiness": 0.25, "max_concurrency": None},
            {"rate": 2.0, "arrival": "gamma:2.000000"},
        ),
    ],
)
def test_arrivals(changed: dict[str, Any], load: dict[str, Any], tmp_path: Path) -> None:
    """Closed, at once, at a rate below a limit, and in bursts."""
    found = load_of(read_table(write(tmp_path / "vllm.json", VLLM | changed)).question(0))
    assert {name: found.get(name) for name in load} == load
    assert "concurrency" in load or found.get("concurrency") is None


def test_a_rate_that_changes_is_refused(tmp_path: Path) -> None:
    """A ramp is no load of one rate."""
    path = write(tmp_path / "vllm.json", VLLM | {"request_rate": 2.0, "ramp_up_strategy": "linear"})
    found = archsim.validate(path, hw="h100").to_dict()
    assert not found["rows"] and "not constant" in found["refused"][0]["reason"]


def test_the_times_of_requests_are_a_log(tmp_path: Path) -> None:
    """`--save-detailed` of an open load is replayed; requests that failed are left out."""
    detailed = VLLM | {
        "max_concurrency": None, "request_rate": 2.0, "start_times": [100.0, 100.5, 101.0],
        "input_lens": [512, 600, 700],
        "output_lens": [32, 0, 16], "ttfts": [0.05, 0.0, 0.06], "latencies": [0.3, 0.0, 0.2],
    }  # fmt: skip
    table = read_table(write(tmp_path / "vllm.json", detailed))
    assert (table.kind, table.questions["t_s"], table.questions["output"]) == ("requests", [0.0, 1.0], [32.0, 16.0])
    answer = archsim.validate(tmp_path / "vllm.json", model="llama3.1-8b", hw="h100", engine="vllm").to_dict()
    assert [row["measured"] for row in answer["rows"]] == [50.0, 300.0, 60.0, 200.0]


def test_a_log_that_says_what_served_it_needs_no_options(tmp_path: Path) -> None:
    """Model and engine are those of the file, the device of its metadata; options come before each."""
    times = {
        "max_concurrency": None, "request_rate": 2.0, "start_times": [100.0, 101.0], "input_lens": [512, 700],
        "output_lens": [32, 16], "ttfts": [0.05, 0.06], "latencies": [0.3, 0.2],
    }  # fmt: skip
    server = {"model_id": "meta-llama/Llama-3.1-8B-Instruct", "backend": "vllm"}
    silent = write(tmp_path / "silent.json", VLLM | times | server)
    stated = write(tmp_path / "stated.json", VLLM | times | server | {"device": "a100", "tp": "2"})
    with pytest.raises(UsageError, match="say what served them") as error:
        archsim.validate(silent)
    assert "add --hw HW" in str(error.value.hints)
    whole = archsim.validate(silent, model="llama3.1-8b", hw="a100", engine="vllm", tp=2).to_dict()
    assert archsim.validate(silent, hw="a100", tp=2).to_dict()["rows"] == whole["rows"]
    assert archsim.validate(stated).to_dict()["rows"] == whole["rows"]
    other = archsim.validate(stated, hw="h100", tp=1).to_dict()["rows"]
    assert other == archsim.validate(silent, model="llama3.1-8b", hw="h100", engine="vllm", tp=1).to_dict()["rows"]
    assert other != whole["rows"]


@pytest.mark.slow
@given(
    record=st.sampled_from([LLAMA_BENCH, VLLM, SGLANG]),
    changed=st.dictionaries(
        st.sampled_from(
            [*LLAMA_BENCH, *VLLM, *SGLANG, "start_times", "input_lens", "output_lens", "ttfts", "latencies"]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(max_size=20)
        | st.lists(st.integers() | st.none())
        | st.dictionaries(
            st.sampled_from(["tp_size", "dp_size", "quantization", "version"]), st.integers() | st.text()
        ),
        max_size=6,
    ),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_is_read_or_refused(record: dict[str, Any], changed: dict[str, Any], tmp_path: Path) -> None:
    """A figure, a reason, or an error of archsim's own; nothing else."""
    path = write(tmp_path / "any.json", record | changed)
    try:
        answer = archsim.validate(path, hw="h100", model="llama3.1-8b")
    except archsim.ArchsimError as error:
        assert error.exit_code != 70
        return
    assert not [row for row in answer.to_dict()["refused"] if "internal error" in row["reason"]]


def test_a_server_without_a_file_is_refused() -> None:
    """archsim's own runs state what they ran on: nothing is said in vain."""
    with pytest.raises(UsageError, match="no effect without a file"):
        archsim.validate(hw="h100")
