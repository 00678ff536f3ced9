"""Runs under load: each simulated at its own load, by the closed form where its engine cannot be, else refused with the
reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from accuracy import tables as t

import archsim
from archsim.accuracy.files import read_table
from archsim.accuracy.launch_flags import (
    cuts_prompts,
    drafts_of,
    run_engine,
    settings_of_flags,
    tree_of,
    with_versions_of_flags,
)
from archsim.accuracy.loaded import run_of_load, settings_of
from archsim.accuracy.loaded_run import LoadedServers, LongerStart, printed_figures, started_length
from archsim.accuracy.placement import placed_run
from archsim.accuracy.stated_load import load_of
from archsim.engines.overhead import FrontWork
from archsim.serving.acceptance import Drafting
from archsim.serving.observe import measure
from archsim.spec.load import load_model
from archsim.timing.calibration import default_store

ROW: dict[str, Any] = {
    "id": "a", "engine": "vllm", "engine_version": "0.12.0", "model": "llama3-8b", "device": "h100-sxm", "n_devices": 1,
    "tp": 1, "disaggregated": "no", "speculative": "none", "arrival": "closed loop", "concurrency": 4, "isl": 1024,
    "osl": 64, "lengths": "", "n_requests": "", "request_rate": "", "flags": "", "source": "lab", "ttft_mean_ms": 100.0,
    "ttft_p99_ms": 500.0, "tpot_mean_ms": 10.0, "output_tok_s": 1500.0,
}  # fmt: skip
METRICS = {"ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms", "tpot_mean_ms", "tpot_p50_ms", "output_tok_s"}
CLOSED_FORM = "mlcllm"


def answer(path: Path, *changes: dict[str, Any]) -> dict[str, Any]:
    rows = [ROW | {"id": str(i)} | change for i, change in enumerate(changes or ({},))]
    told: dict[str, Any] = archsim.validate(t.write(path / "f.csv", rows)).to_dict()
    return told


def predicted(told: dict[str, Any], row: str = "0") -> dict[str, float]:
    return {found["metric"]: found["predicted"] for found in told["rows"] if found["id"] == row}


@pytest.mark.slow
def test_every_metric_is_that_of_a_simulation_at_the_rows_load(tmp_path: Path) -> None:
    """A closed loop of ten requests for each in flight, at least 16, with the first wave; behind a front end."""
    told = answer(tmp_path)
    assert told["kind"] == "loaded" and not told["refused"]
    found = predicted(told)
    assert set(found) == METRICS
    assert all(row["low"] <= row["predicted"] <= row["high"] for row in told["rows"])
    run = archsim.simulate(
        "llama3-8b", "h100-sxm", engine="vllm@0.12.0", tp=1, concurrency=4, requests=40, input_len=1024, output_len=64,
        replications=1,
    )  # fmt: skip
    seen = run.to_dict()["metrics"]
    row = {name: value for name, value in ROW.items() if value != ""}
    server, requests = LoadedServers(default_store()).ready(run_of_load(row), load_of(row), settings_of(row))
    bare = printed_figures(measure(server.run(requests, FrontWork(0.0))))
    for name, metric, statistic in (("tpot_mean", "tpot_s", "mean"), ("ttft_mean", "ttft_s", "mean")):
        assert bare[f"{name}_ms"] == pytest.approx(1e3 * seen[metric][statistic]["value"], rel=0.002)
    assert found["ttft_mean_ms"] > bare["ttft_mean_ms"]


@pytest.mark.slow
def test_predictions_do_not_depend_on_what_was_measured_nor_on_other_rows(tmp_path: Path) -> None:
    """The same twice, alone or among others, whatever the measured columns say."""
    once = predicted(answer(tmp_path))
    others = ({"tpot_mean_ms": 1.0, "ttft_mean_ms": 9e9}, {"arrival": "all at once", "n_requests": 20}, {})
    told = answer(tmp_path, *others)
    assert once == predicted(told, "0") == predicted(told, "2") != predicted(told, "1")


def test_rows_of_one_server_are_predicted_one_after_another_and_stand_as_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables of steps are made once for each server, and few are kept at a time."""
    made: list[str] = []
    whole = LoadedServers._serve

    def serve(self: LoadedServers, run: Any, *rest: Any) -> Any:
        made.append(run.model)
        return whole(self, run, *rest)

    monkeypatch.setattr(LoadedServers, "_serve", serve)
    models = [{"model": name} for name in ("llama3-8b", "mistral-7b", "qwen3-8b") * 2]
    told = answer(tmp_path, *({**row, "concurrency": 1, "osl": 4} for row in models))
    assert made == ["llama3-8b", "mistral-7b", "qwen3-8b"]
    assert list(dict.fromkeys(row["id"] for row in told["rows"])) == [str(i) for i in range(6)]
    assert predicted(told, "0") == predicted(told, "3")


@pytest.mark.slow
def test_more_in_flight_are_served_faster_together_and_slower_each(tmp_path: Path) -> None:
    told = answer(tmp_path, {}, {"concurrency": 16, "n_requests": 40})
    few, many = predicted(told, "0"), predicted(told, "1")
    assert many["output_tok_s"] > few["output_tok_s"]
    assert many["tpot_mean_ms"] > few["tpot_mean_ms"] and many["ttft_mean_ms"] > few["ttft_mean_ms"]


LOADS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"concurrency": 1}, {"concurrency": 1, "requests": 16}),
    ({"lengths": "random, uniform 0.8..1 of nominal"}, {"concurrency": 4, "requests": 40, "length_spread": 0.8}),
    ({"lengths": "sharegpt", "arrival": "all at once", "n_requests": "984"},
     {"rate": float("inf"), "requests": 984, "input_len": "sharegpt:1024"}),
    ({"arrival": "all at once, at most 512 in flight"}, {"concurrency": 512, "requests": 1000}),
    ({"arrival": "open loop (Poisson)", "request_rate": 4}, {"rate": 4.0, "arrival": "poisson"}),
    ({"arrival": "open loop", "request_rate": "8", "n_requests": 500},
     {"rate": 8.0, "arrival": "constant", "requests": 500}),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), LOADS)
def test_the_load_is_what_the_columns_say(changes: dict[str, Any], expected: dict[str, Any]) -> None:
    found = load_of({name: value for name, value in (ROW | changes).items() if value != ""})
    assert {name: found.get(name) for name in expected} == expected


def test_limits_of_the_engine_are_read_from_its_flags() -> None:
    flags = "vllm serve M -tp 2 --max-num-seqs=256 --max-num-batched-tokens 16384 --gpu-memory-utilization 0.85"
    found = settings_of({"flags": flags})
    assert (found.max_num_seqs, found.max_num_batched_tokens, found.gpu_memory_utilization) == (256, 16384, 0.85)
    assert settings_of({}) == settings_of({"flags": "--max-num-seqs many"})


def test_an_engine_that_cannot_be_simulated_is_answered_by_the_closed_form(tmp_path: Path) -> None:
    """Throughput is then what TTFT, TPOT and the requests that run say; percentiles have no answer."""
    told = answer(tmp_path, {"engine": CLOSED_FORM, "engine_version": "", "osl": 1024, "concurrency": 1})
    found = predicted(told)
    assert set(found) == METRICS - {"ttft_p50_ms", "ttft_p99_ms"}
    assert [row["metric"] for row in told["refused"]] == ["ttft_p50_ms", "ttft_p99_ms"]
    assert any("closed form" in note for note in told["notes"])
    cycle_ms = found["ttft_mean_ms"] + 1023 * found["tpot_mean_ms"]
    assert found["output_tok_s"] == pytest.approx(1024 / cycle_ms * 1e3)


def test_shorter_requests_are_quicker_in_the_closed_form(tmp_path: Path) -> None:
    """Lengths between 0.8 and 1 of the nominal are 0.9 of it in the mean."""
    engine = {"engine": CLOSED_FORM, "engine_version": ""}
    told = answer(tmp_path, engine | {"lengths": "random, uniform 0.8..1 of nominal"}, engine | {"isl": 922, "osl": 58})
    assert predicted(told, "0") == predicted(told, "1")


POOLS = {
    "disaggregated": "yes", "engine": "somebody-vllm", "prefill_devices": 2, "prefill_tp": 1, "prefill_workers": 2,
    "decode_devices": 2, "decode_tp": 2, "decode_workers": 1,
}  # fmt: skip


def test_pools_are_those_of_the_columns() -> None:
    """Each with its degrees, workers and replicas; the engine is the one that a layer above it names."""
    wide = {"prefill_ep": "", "decode_devices": 16, "decode_tp": 8, "decode_ep": 8, "decode_workers": 2,
            "dp_attention": "yes", "model": "deepseek-v3"}  # fmt: skip
    run = placed_run(run_of_load(ROW | POOLS))
    assert run.decode is not None and run.engine == "vllm" and "version not stated" in run.notes[0]
    assert (run.tp, run.workers, run.replicas, run.decode.tp, run.decode.workers) == (1, 2, 1, 2, 1)
    second = run_of_load(ROW | POOLS | wide).decode
    assert second is not None
    assert (second.tp, second.dp, second.ep, second.devices, second.workers) == (1, 8, 8, 8, 2)


def test_the_first_step_is_longer_not_the_shortest() -> None:
    """Fleets look at their replicas by the shortest step: it holds nothing of a first use."""

    class Steps:
        def seconds(self, decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> float:
            return 1.0

    times = LongerStart(Steps(), 5.0)
    assert [times.seconds(1, 1, chunks) for chunks in ((), [(8, 0)], [(8, 0)], ())] == [1.0, 6.0, 1.0, 1.0]


@pytest.mark.slow
def test_the_speed_of_light_has_no_front_end() -> None:
    """What runs show of front ends and first steps is measured, and no bound of first tokens."""
    servers, run = LoadedServers(default_store()), placed_run(run_of_load(ROW))
    found = servers.figures(run, load_of(ROW), settings_of(ROW))
    server, requests = servers.ready(run, load_of(ROW), settings_of(ROW))
    alone = printed_figures(measure(server.run(requests, FrontWork(0.0))))
    for metric in ("ttft_mean_ms", "ttft_p50_ms", "ttft_p99_ms"):
        assert found[metric].naive < alone[metric] < found[metric].expected


@pytest.mark.slow
def test_pools_are_simulated_with_and_without_drafts(tmp_path: Path) -> None:
    """Answers of a pool of their own wait for no prompts; drafts that are accepted make them quicker."""
    mixed = {"n_devices": 2, "tp": 2, "concurrency": 16}
    told = answer(tmp_path, mixed, POOLS | {"concurrency": 16})
    assert not told["refused"]
    assert predicted(told, "1")["tpot_mean_ms"] < predicted(told, "0")["tpot_mean_ms"]
    servers, run = LoadedServers(default_store()), placed_run(run_of_load(ROW | POOLS))
    server, _ = servers.ready(run, load_of(ROW), settings_of(ROW))
    assert (server.engine.fleet.replicas, server.engine.fleet.decode_replicas, server.engine.devices) == (2, 1, 4)
    none, all_of_them = (servers.expected(run, load_of(ROW), settings_of(ROW), Drafting("eagle", 3, (share,) * 3))
                         for share in (0.0, 1.0))  # fmt: skip
    assert 2 < none["tpot_mean_ms"] / all_of_them["tpot_mean_ms"] < 4.1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"disaggregated": "yes"}, "needs prefill_devices"),
        ({"disaggregated": "yes", "prefill_devices": 3, "prefill_workers": 2}, "the same for each of prefill_workers"),
        ({"speculative": "mtp"}, "how many drafts are accepted"),
        ({"arrival": "open loop (Poisson)"}, "need a rate"),
        ({"concurrency": ""}, "concurrency"),
        ({"isl": 0}, "isl and osl"),
        ({"model": "deepseek-v3"}, "of weights on each device"),
        ({"engine": CLOSED_FORM, "engine_version": "", "arrival": "all at once"}, "not in a steady state"),
    ],
)
def test_what_has_no_answer_is_refused(changes: dict[str, Any], reason: str, tmp_path: Path) -> None:
    told = answer(tmp_path, changes)
    assert not told["rows"] and len(told["refused"]) == len(METRICS)
    assert all(reason in row["reason"] for row in told["refused"])


def test_an_engine_is_the_one_whose_flags_it_was_started_with() -> None:
    """A row that says one engine and has the flags of another alone is of the other, as of the day of the run."""
    row = {"engine": "sglang", "engine_version": "0.5.9", "date": "2026-03-15"}
    assert run_engine(row | {"flags": "--reasoning-parser=x --max-model-len=32768"})[0] == "vllm@0.17.0"
    assert run_engine(row | {"flags": "--context-length=32768"})[0] == "sglang@0.5.9"
    assert run_engine(row | {"flags": "--port 8000"})[0] == "sglang@0.5.9"


def test_the_version_of_flags_is_the_one_that_rows_beside_state(tmp_path: Path) -> None:
    """Rows named for one engine with flags of another: of the version that the same source states for it with this
    model, if it is one. Versions of other models and sources say nothing.
    """
    flags = {"flags": "--max-model-len=32768"}
    named = ROW | {"engine": "sglang", "engine_version": "0.5.9"}
    rows = [
        named | flags, ROW | {"engine_version": "0.17.1"}, named | {"flags": "--context-length=32768"},
        ROW | {"engine_version": "0.10.0", "source": "other"},
        ROW | {"engine_version": "0.11.0", "model": "llama3-70b"},
    ]  # fmt: skip

    def engines(rows: list[dict[str, Any]]) -> list[str]:
        table = read_table(t.write(tmp_path / "f.csv", rows))
        found = with_versions_of_flags(table)
        return [run_engine(found.question(row))[0] for row in range(len(found))]

    assert engines(rows)[:3] == ["vllm@0.17.1", "vllm@0.17.1", "sglang@0.5.9"]
    assert engines([*rows, ROW | {"engine_version": "0.18.0"}])[0] == "vllm"
    assert engines(rows[:1]) == ["vllm"]


def test_a_run_without_a_version_is_of_the_newest_of_its_day() -> None:
    """Also behind another program's name; a day that is none says nothing."""
    assert run_engine({"engine": "sglang", "date": "2025-12-14"})[0] == "sglang@0.5.6"
    assert run_engine({"engine": "mori-sglang", "date": "2026-03-01T10:00"})[0] == "sglang@0.5.9"
    assert run_engine({"engine": "sglang", "date": "last week"})[0] == "sglang"
    assert run_engine({"engine": "sglang", "engine_version": "0.5.12", "date": "2025-12-14"})[0] == "sglang@0.5.12"


def test_prompts_are_cut_where_the_command_says_so() -> None:
    assert cuts_prompts("trtllm", "trtllm-serve M --max_seq_len=40960 --enable_chunked_prefill") == "on"
    assert settings_of_flags("trtllm", "trtllm-serve M --max_seq_len=40960").max_model_len == 40960
    assert cuts_prompts("trtllm", "trtllm-serve M") is None


def test_drafts_are_as_many_as_the_command_says() -> None:
    """Each engine's own flag; nothing where it does not say."""
    assert drafts_of("sglang", "sglang --speculative-num-steps 4 --speculative-eagle-topk 4") == 4
    assert drafts_of("sglang", "sglang --speculative_num_steps=2") == 2
    tree = "--speculative-num-steps 4 --speculative-eagle-topk 4 --speculative-num-draft-tokens 16"
    chain = "--speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 4"
    assert tree_of("sglang", tree) == (4, 16) and tree_of("sglang", chain) == (1, None)
    assert tree_of("vllm", tree) == (1, None) and tree_of("sglang", "") == (1, None)
    for config in ('--speculative-config={"method":"mtp","num_speculative_tokens":1}',
                   '--speculative-config {"model": "org/a-b", "num_speculative_tokens": 1}',
                   "--speculative-config.num_speculative_tokens 1"):  # fmt: skip
        assert drafts_of("vllm", f"vllm serve M {config} --port 8000") == 1
    assert drafts_of("vllm", "vllm serve M --max-num-seqs 4") is None
    assert drafts_of("vllm", "--speculative-num-steps 4") is None
    assert drafts_of("hf", "--speculative-num-steps 4") is None


def test_a_case_that_is_named_for_its_rate_ran_at_it() -> None:
    """Also where the profile's own rate stands beside."""
    row = ROW | {"arrival": "open loop", "request_rate": "8"}
    assert load_of(row)["rate"] == 8
    assert load_of(row | {"notes": "Rate 16; profile 8RPS; peak in flight 97"})["rate"] == 16
    assert load_of(row | {"notes": "Rate limits apply"})["rate"] == 8


def test_a_cache_that_an_engine_started_with_holds_its_longest_request() -> None:
    """That of the model where nothing limits it, or what the engine takes by itself."""
    spec = load_model("llama3.1-8b")
    assert started_length("vllm@0.11.0", spec) == spec.max_context
    assert started_length("llamacpp", spec) == 4096


@pytest.mark.slow
def test_pools_that_ran_had_room(tmp_path: Path) -> None:
    """Where the engine's own share of memory does not hold the weights of attention replicas and none is stated, the
    server ran with a larger one; a share that is stated and does not hold them is refused.
    """
    columns = {
        "id": "a", "model": "deepseek-r1", "device": "h100", "n_devices": "32", "dp_attention": "yes",
        "disaggregated": "yes", "prefill_devices": "16", "prefill_tp": "16", "prefill_ep": "1", "prefill_workers": "1",
        "decode_devices": "16", "decode_tp": "16", "decode_ep": "16", "decode_workers": "1", "weights": "fp8_block",
        "engine": "sglang", "engine_version": "0.5.8", "arrival": "closed loop", "concurrency": "1", "isl": "512",
        "osl": "32", "n_requests": "4", "tpot_mean_ms": "17", "flags": "",
    }  # fmt: skip
    small = {**columns, "id": "b", "flags": "--mem-fraction-static 0.6"}
    path = tmp_path / "loaded.csv"
    path.write_text("\n".join(",".join(row) for row in (columns, columns.values(), small.values())) + "\n", "utf-8")
    found = archsim.validate(path).to_dict()
    assert {row["id"] for row in found["rows"]} == {"a"}
    assert any(row["id"] == "b" and "does not fit" in row["reason"] for row in found["refused"])
