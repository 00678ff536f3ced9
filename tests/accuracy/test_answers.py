"""Every row is predicted or refused, and no prediction knows what was measured."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accuracy import tables as t

import archsim
from archsim.accuracy.naive_roofline import CLASSES
from archsim.accuracy.summary import as_seconds
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.kernel_timer import timer

RUNS = [
    t.run("decode_tok_s", definition="decode_rate_per_seq"), t.run("decode_tok_s", definition="decode_rate_sum"),
    t.run("prefill_tok_s"), t.run("throughput_tok_s"), t.run("throughput_tok_s", batch=None),
    t.run("throughput_tok_s", definition="gen_over_wall"), t.run("throughput_tok_s", definition="all_over_wall"),
    t.run("ttft_ms", batch=1), t.run("ttft_ms"), t.run("tpot_ms"), t.run("latency_s"), t.run("weights_gb"),
    t.run("peak_mem_gb"), t.run("kv_capacity_tokens"), t.run("kv_memory_gib"),
    t.run("decode_tok_s", isl=0, osl=1024, batch=1), t.run("decode_tok_s", isl=None, osl=None, batch=1),
    t.run("weights_gb", device="any", definition="file_gib", weights_dtype="gguf_q4_0"),
]  # fmt: skip

FILES: dict[str, tuple[list[dict[str, Any]], tuple[str, ...]]] = {
    "kernels": ([t.kernel(op) for op in t.EXTENTS], ("time_us",)),
    "runs": (RUNS, ("value",)),
    "serving": ([t.point(), t.point(concurrency=64), t.point(osl=1024)], ("silicon_tpot_ms", "silicon_ttft_ms")),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_every_row_and_metric_is_answered_once(kind: str, tmp_path: Path) -> None:
    """In `rows` with finite figures low <= predicted <= high, or in `refused`."""
    rows, measured = FILES[kind]
    answer = archsim.validate(t.write(tmp_path / "f.csv", rows))
    told = answer.to_dict()
    assert (told["schema"], told["kind"]) == ("archsim.validate/1", kind)
    keys = [(row["id"], row["metric"]) for row in told["rows"] + told["refused"]]
    assert len(keys) == len(set(keys)) == len(rows) * len(measured)
    assert told["refused"] == []
    for row in told["rows"]:
        assert 0 < row["low"] <= row["predicted"] <= row["high"] < float("inf"), row
        assert row["evidence"] in ("measured", "calibrated", "transferred", "datasheet")
    assert told["summary"]["rows"] == len(keys)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FILES)
def test_predictions_are_blind(kind: str, tmp_path: Path) -> None:
    """Other, shuffled, absurd or absent measurements change no bit of any prediction."""
    rows, measured = FILES[kind]
    variants = {
        "shuffled": _changed(rows, measured, lambda i: float(random.Random(i).randint(1, 10**6))),
        "absurd": _changed(rows, measured, lambda i: ("nan", -1.0, 0.0, "", "1e300", "text")[i % 6]),
        "absent": [{k: v for k, v in row.items() if k not in measured} for row in rows],
    }
    wanted = _predictions(tmp_path, rows)
    for name, variant in variants.items():
        assert _predictions(tmp_path, variant) == wanted, name


def _changed(rows: list[dict[str, Any]], names: tuple[str, ...], make: Any) -> list[dict[str, Any]]:
    return [{**row, **{name: make(i) for name in names}} for i, row in enumerate(rows)]


def _predictions(folder: Path, rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    found = archsim.validate(t.write(folder / "blind.csv", rows)).to_dict()["rows"]
    return [tuple(row[k] for k in ("id", "metric", "predicted", "low", "high", "evidence")) for row in found]


@pytest.mark.slow
def test_unmeasured_rows_are_predicted_and_not_counted(tmp_path: Path) -> None:
    """A row without a figure has a prediction, null for the measurement, and no part in the errors."""
    answer = archsim.validate(t.write(tmp_path / "k.csv", [t.kernel(), {**t.kernel(), "time_us": ""}]))
    told = answer.to_dict()
    assert [row["measured"] for row in told["rows"]] == [100.0, None]
    assert told["rows"][0]["predicted"] == told["rows"][1]["predicted"]
    assert told["summary"]["by"]["op"]["gemm"]["scored"] == 1
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (t.kernel(device="abacus"), "abacus"),
        (t.kernel("sorting"), "sorting"),
        (t.kernel(k=""), "needs k"),
        (t.kernel(m=-4), "needs m"),
        (t.kernel(m="many"), "needs m"),
        (t.kernel("moe", topk=""), "needs topk"),
    ],
)
def test_kernel_rows_are_refused_with_a_reason(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """Without spoiling the rows beside them."""
    answer = archsim.validate(t.write(tmp_path / "k.csv", [t.kernel(), row, t.kernel()]))
    assert [refused.id for refused in answer.refused] == ["1"]
    assert reason in answer.refused[0].reason
    assert list(answer.rows.ids) == ["0", "2"]
    assert answer.rows.predicted[0] == answer.rows.predicted[1]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (t.run(model="no-such-model"), "no-such-model"),
        (t.run(device="abacus"), "abacus"),
        (t.run(device="any"), "any"),
        (t.run("sunshine"), "sunshine"),
        (t.run(definition="guess"), "guess"),
        (t.run(weights_dtype="int99"), "int99"),
        (t.run(batch="many"), "batch"),
        (t.run(isl=-5), "isl"),
        (t.run(tp=7, n_devices=7), "tp 7"),
    ],
)
def test_runs_are_refused_with_a_reason(row: dict[str, Any], reason: str, tmp_path: Path) -> None:
    """Where the model, device, metric or plan is none."""
    answer = archsim.validate(t.write(tmp_path / "r.json", [row, t.run()], "json"))
    assert [refused.id for refused in answer.refused] == ["0"]
    assert reason in answer.refused[0].reason
    assert len(answer.rows) == 1


def test_an_unknown_engine_is_none_in_particular(tmp_path: Path) -> None:
    """Predicted, and said so."""
    answer = archsim.validate(t.write(tmp_path / "r.csv", [t.run(engine="MyEngine"), t.run(engine="generic")]))
    assert len(answer.rows) == 2
    assert answer.rows.predicted[0] == answer.rows.predicted[1]
    assert any("MyEngine" in note for note in answer.notes)


@pytest.mark.slow
def test_table_rows_equal_single_calls(tmp_path: Path) -> None:
    """A row's prediction does not depend on the rows beside it."""
    rows = [t.kernel(op, device=device) for op in t.EXTENTS for device in ("H100-SXM", "L40S")]
    together = archsim.validate(t.write(tmp_path / "all.csv", rows)).rows.predicted
    for i in range(0, len(rows), 5):
        (alone,) = archsim.validate(t.write(tmp_path / "one.csv", [rows[i]])).rows.predicted
        assert together[i] == pytest.approx(alone, rel=1e-12)


def test_rows_of_a_table_were_timed_over_and_over(tmp_path: Path) -> None:
    """A kernel that is named found small weights in the cache; the extent that says so is no column that fills up."""
    row = t.kernel("mla_bmm", kernel="torch_bmm")
    (predicted,) = archsim.validate(t.write(tmp_path / "r.csv", [row])).rows.predicted
    call = KernelCall("mla_bmm", "bf16", "", "torch_bmm", {k: float(v) for k, v in t.EXTENTS["mla_bmm"].items()})
    warm = timer(archsim.load_hardware("h100-sxm"), "vllm 0.24.0").time(call)
    assert predicted == pytest.approx(warm.expected * 1e6)
    cold = timer(archsim.load_hardware("h100-sxm"), "vllm 0.24.0").time(call._replace(kernel=""))
    assert cold.expected > warm.expected


def test_every_class_of_the_tables_has_a_roofline() -> None:
    """The fixtures cover all classes that can be predicted; those of processors have tables of their own."""
    own = {name for name in MODELS if name.startswith("cpu_")}
    assert set(CLASSES) | set(MODELS) - {"elementwise"} - own == set(t.EXTENTS)


def test_definitions_agree_with_one_another(tmp_path: Path) -> None:
    """A sum is the batch times one; wall time is prompt and steps; its rates differ by the tokens that count."""
    asked = {
        "one": t.run("decode_tok_s", definition="decode_rate_per_seq"),
        "sum": t.run("decode_tok_s", definition="decode_rate_sum"),
        "prefill": t.run("prefill_tok_s"),
        "wall": t.run("latency_s"),
        "generated": t.run("throughput_tok_s", definition="gen_over_wall"),
        "all": t.run("throughput_tok_s", definition="all_over_wall"),
        "steady": t.run("throughput_tok_s"),
        "tpot": t.run("tpot_ms"),
    }
    rows = archsim.validate(t.write(tmp_path / "r.csv", list(asked.values()))).rows
    found = dict(zip(asked, rows.predicted.tolist(), strict=True))
    assert found["sum"] == pytest.approx(4 * found["one"])
    assert found["generated"] * found["wall"] == pytest.approx(4 * 128)
    assert found["all"] / found["generated"] == pytest.approx((512 + 128) / 128)
    assert found["wall"] == pytest.approx(4 * 512 / found["prefill"] + 127 / found["one"])
    assert found["steady"] * found["tpot"] / 1e3 == pytest.approx(4)
    assert found["steady"] < found["sum"]


def test_an_empty_context_means_the_mean_of_the_growing_one(tmp_path: Path) -> None:
    """128 tokens from nothing are steps at 64 tokens on average: faster than after a long prompt."""
    rows = [t.run(isl=0, osl=1024, batch=1), t.run(isl=1, osl=1022, batch=1), t.run(isl=8192, osl=1024, batch=1)]
    empty, mean, long = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert empty == pytest.approx(mean, rel=1e-3)
    assert empty > long


def test_memory_figures_are_those_of_fit_and_count(tmp_path: Path) -> None:
    """In GiB; weights need no device."""
    rows = [
        t.run("weights_gb", device="any"), t.run("weights_gb", tp=2, n_devices=2),
        t.run("kv_capacity_tokens", engine="vLLM", engine_version="0.6.4", max_model_len=20000, device="RTX-3090",
              gpu_memory_utilization=0.9),
    ]  # fmt: skip
    whole, half, tokens = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert whole * 2**30 == pytest.approx(archsim.count("llama3-8b").weight_bytes)
    assert half == pytest.approx(whole / 2, rel=0.01)
    fit = archsim.fit(
        "llama3-8b", "rtx-3090", engine="vllm@0.6.4", max_model_len=20000, gpu_memory_utilization=0.9, weights="bf16"
    )
    assert tokens == fit.kv_tokens


def test_a_stated_memory_stands_for_the_devices_own(tmp_path: Path) -> None:
    """Less memory holds fewer tokens, on a device that nobody knows as well."""
    rows = [
        t.run("kv_memory_gib", device_total_gib=70), t.run("kv_memory_gib", device_total_gib=60),
        t.run("kv_memory_gib", device="some 80 GB card", device_total_gib=70),
    ]  # fmt: skip
    more, less, unknown = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert more > less
    assert unknown == pytest.approx(more, rel=0.02)


def test_greatest_load_is_what_memory_holds(tmp_path: Path) -> None:
    """Without a batch, a smaller cache format makes room for more requests and more tokens a second."""
    rows = [t.run("throughput_tok_s", batch=None, isl=4096, kv_dtype=kv) for kv in ("bf16", "fp8")]
    wide, narrow = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert narrow > wide


def test_layers_split_over_devices_do_not_speed_up_a_step(tmp_path: Path) -> None:
    """llama.cpp's devices work one after another."""
    rows = [t.run(engine="llama.cpp", weights_dtype="gguf_q4_k_m", batch=1, pp=n, n_devices=n) for n in (1, 4)]
    one, four = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert 0.8 * one < four < 1.05 * one


@pytest.mark.parametrize(("engine", "degree"), [("llama.cpp", "pp"), ("vLLM", "tp")])
def test_devices_without_degrees_are_one_group(engine: str, degree: str, tmp_path: Path) -> None:
    """Split by layers or by tensors, as the engine does."""
    bare = t.run(engine=engine, weights_dtype="gguf_q4_k_m", n_devices=4, tp=None, pp=None, ep=None)
    rows = [bare, {**bare, degree: 4}]
    guessed, stated = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert guessed == stated


def test_an_unknown_metric_with_a_definition_is_predicted(tmp_path: Path) -> None:
    """Its unit is that of its ending."""
    rows = [t.run("latency_s"), t.run("wall_clock_ms", definition="latency")]
    seconds, milliseconds = archsim.validate(t.write(tmp_path / "r.csv", rows)).rows.predicted
    assert milliseconds == pytest.approx(1e3 * seconds)


def test_suspect_points_are_predicted_and_not_counted(tmp_path: Path) -> None:
    """Their plan is not what ran."""
    answer = archsim.validate(t.write(tmp_path / "s.csv", [t.point(), t.point(parallel_suspect=1)]))
    assert answer.summary["rows"] == 4
    assert answer.by("metric")["tpot_ms"]["scored"] == 1


def test_concurrency_may_be_given_per_replica(tmp_path: Path) -> None:
    """Without a concurrency it is the batch of one replica times the replicas."""
    rows = [t.point(concurrency="", batch_size=8), t.point(concurrency=8, batch_size=3)]
    answer = archsim.validate(t.write(tmp_path / "s.csv", rows))
    by_id = {row["id"]: row["predicted"] for row in answer.to_dict()["rows"] if row["metric"] == "tpot_ms"}
    assert by_id["0"] == by_id["1"]


def test_more_requests_in_flight_never_shorten_a_token(tmp_path: Path) -> None:
    """TPOT grows with the concurrency."""
    rows = [t.point(concurrency=c) for c in (1, 2, 4, 8, 16, 32, 64, 128)]
    answer = archsim.validate(t.write(tmp_path / "s.csv", rows))
    times = [row["predicted"] for row in answer.to_dict()["rows"] if row["metric"] == "tpot_ms"]
    assert times == sorted(times)


def test_rates_count_as_the_seconds_of_a_token() -> None:
    """Time-weighted error has one unit."""
    values = np.array([4.0])
    assert as_seconds("decode_tok_s", values).tolist() == [0.25]
    assert as_seconds("time_us", values).tolist() == [4e-6]
    assert as_seconds("ttft_ms", values).tolist() == [4e-3]
    assert np.isnan(as_seconds("weights_gb", values)).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("value", [1e300, 1e-300, "1e308", 10**30, "9" * 400, "inf", -1, "many", [1], {"a": 1}])
@pytest.mark.parametrize(("op", "name"), [("gemm", "m"), ("attn_decode", "seq_kv"), ("moe", "experts"),
                                          ("nccl_all_reduce", "bytes"), ("norm", "n")])  # fmt: skip
def test_an_impossible_extent_costs_its_row_alone(tmp_path: Path, op: str, name: str, value: object) -> None:
    """It is refused with a reason, the others are answered, and no library warns."""
    rows = [t.kernel(op), {**t.kernel(op), name: value}, t.kernel(op)]
    answer = archsim.validate(t.write(tmp_path / "k.json", rows, "json")).to_dict()
    assert [row["id"] for row in answer["rows"]] == ["0", "2"]
    assert [row["id"] for row in answer["refused"]] == ["1"] and name in answer["refused"][0]["reason"]


def test_static_batches_set_whole_requests_aside(tmp_path: Path) -> None:
    """With in-flight batching off, fewer requests run, together from the first prompt to the last token."""
    shared = {"batch": None, "isl": 1024, "osl": 512, "device": "a100-sxm-80gb", "model": "llama2-13b"}
    rows = [
        t.run("throughput_tok_s", **shared, engine="TensorRT-LLM"),
        t.run("throughput_tok_s", **shared, engine="TensorRT-LLM (static batching)"),
        t.run("throughput_tok_s", **shared | {"batch": 16}, engine="TensorRT-LLM (static batching)"),
        t.run("throughput_tok_s", **shared | {"batch": 16}, engine="TensorRT-LLM", definition="gen_over_wall"),
    ]
    flight, static, sixteen, wall = (float(row[2]) for row in _predictions(tmp_path, rows))
    assert sixteen == wall and sixteen < static < flight


def test_extents_that_need_not_be_stated_are_positive_where_they_are(tmp_path: Path) -> None:
    """A row with no ranks for its experts, no KV heads or one device to send to is refused; the others are answered."""
    table = tmp_path / "t.csv"
    table.write_text(
        "op,device,dtype,engine,time_us,m,experts,topk,hidden,inter,ep,batch,seq_kv,heads,kv_heads,head_dim,n_gpus,bytes\n"
        "moe,H100-SXM,bf16,vllm 0.24.0,100,64,64,8,2048,1024,-0.0,,,,,,,\n"
        "attn_decode,H100-SXM,bf16,vllm 0.24.0,100,,,,,,,8,2048,32,-0.0,128,,\n"
        "nccl_send_recv,H100-SXM,bf16,vllm 0.24.0,100,,,,,,,,,,,,1,16777216\n"
        "attn_decode,H100-SXM,bf16,vllm 0.24.0,100,,,,,,,8,2048,32,,128,,\n"
    )
    found = archsim.validate(str(table)).to_dict()
    assert [row["id"] for row in found["rows"]] == ["3"]
    assert {each["id"]: each["reason"] for each in found["refused"]} == {
        "0": "moe needs ep as a positive number",
        "1": "attn_decode needs kv_heads as a positive number",
        "2": "the time model gives no time above zero for these extents",
    }
