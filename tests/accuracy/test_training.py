"""Lists of training runs: what becomes of a row, what it is refused for, and that figures agree with each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from archsim.accuracy.files import read_table
from archsim.accuracy.trained_models import described_model
from archsim.accuracy.training import TrainingTimes, predict_row
from archsim.accuracy.training_run import training_run
from archsim.counts.count import count

GPT3 = {
    "layers": 12, "d_model": 768, "heads": 12, "kv_heads": 12, "head_dim": 64, "d_ff": 3072, "gated_mlp": False,
    "vocab": 50257, "tied_embeddings": True, "pos_emb": "learned", "bias": True,
}  # fmt: skip
MOE = {
    "layers": 4, "d_model": 2048, "heads": 32, "kv_heads": 4, "head_dim": 128, "d_ff": 768, "gated_mlp": True,
    "vocab": 151936, "tied_embeddings": False, "pos_emb": "rope", "bias": False, "n_experts": 128, "top_k": 8,
}  # fmt: skip
MODELS = {"tiny-gpt": GPT3, "tiny-moe": MOE}
ROW = {
    "id": "a", "model": "tiny-gpt", "seq_len": 1024, "device": "a100-sxm-80gb", "n_devices": 8, "tp": 1, "pp": 1,
    "dp": 8, "cp": 1, "zero_stage": 3, "fsdp": "FULL_SHARD", "micro_batch": 4, "global_batch": 64,
    "precision": "bf16", "activation_checkpointing": "none", "metric": "step_time_s", "value": 0.1,
    "source": "foundry",
}  # fmt: skip


@pytest.fixture(scope="module")
def prices() -> TrainingTimes:
    """Prices that all tests share."""
    return TrainingTimes()


def predicted(prices: TrainingTimes, **changes: Any) -> float:
    """What is predicted of a row."""
    return predict_row(0, {**ROW, **changes}, MODELS, prices).span.expected


@pytest.mark.slow
def test_figures_of_a_run_agree(prices: TrainingTimes) -> None:
    """Tokens per second, FLOP/s, MFU and GPU hours are one step time, whatever was measured."""
    step = predicted(prices)
    rate = predicted(prices, metric="tokens_per_s_per_gpu")
    assert rate == pytest.approx(64 * 1024 / 8 / step)
    flops = predicted(prices, metric="tflops_per_gpu")
    assert predicted(prices, metric="mfu") == pytest.approx(flops / 312, rel=1e-3)
    hours = predicted(prices, metric="gpu_hours", tokens_trained=1e12)
    assert hours == pytest.approx(1e12 / rate / 3600 / 0.9)
    assert predicted(prices, value=99.0) == step


@pytest.mark.slow
def test_adapters_need_less_memory(prices: TrainingTimes) -> None:
    """Of one device: full training, LoRA and QLoRA, in falling order; torchtune prints what is allocated."""
    one = {"n_devices": 1, "dp": 1, "zero_stage": 0, "global_batch": 4, "precision": "bf16-pure", "source": "torchtune"}
    asked = {**one, "metric": "peak_memory_gb", "unit": "GiB"}
    peaks = [predicted(prices, **asked, notes=notes) for notes in ("", "LoRA", "QLoRA nf4")]
    assert peaks == sorted(peaks, reverse=True) and peaks[2] < 0.9 * peaks[0]
    assert (
        predicted(prices, **{**asked, "source": "titan2412"})
        > predicted(prices, **{**asked, "source": "fms-fsdp"}) * 0.5
    )


def test_described_models_are_counted() -> None:
    """Dimensions become the model that they describe: GPT-2's are 124,439,808 parameters."""
    assert count(described_model("gpt2", GPT3, 1024)).total == 124_439_808
    assert count(described_model("moe", MOE, 4096)).total > 2.5e9


def test_rows_become_layouts() -> None:
    """Stages of ZeRO, recomputation, recipes and defaults as rows state them."""
    run = training_run(ROW, MODELS)
    assert (run.stack.name, run.layout.zero, run.recomputes, run.recipe) == ("llm-foundry", 3, ("none",), "bf16")
    shared = training_run({**ROW, "fsdp": "SHARD_GRAD_OP", "activation_checkpointing": "full"}, MODELS)
    assert (shared.layout.zero, shared.recomputes) == (2, ("full",))
    eight = training_run({**ROW, "precision": "fp8-te", "source": "nemo2407", "micro_batch": None}, MODELS)
    assert (eight.recipe, eight.layout.micro_batch, eight.assumed) == ("fp8-delayed", 1, ("micro-batch 1",))
    pipeline = training_run({**ROW, "pp": 4, "dp": 2, "micro_batch": 32, "source": "titan2412"}, MODELS)
    assert (pipeline.layout.micro_batch, pipeline.layout.micro_batches) == (8, 4)  # as many as stages
    hours = {"model": "tiny-gpt", "seq_len": 1024, "device": "a100-sxm-80gb", "metric": "gpu_hours"}
    usual = training_run(hours, MODELS).layout
    assert (usual.devices, usual.zero, usual.tokens) == (256, 3, 4_194_304)
    assert training_run(hours, MODELS).recomputes == ("none", "selective:attention", "full")
    some = training_run({**ROW, "source": "fms-fsdp", "activation_checkpointing": "selective"}, MODELS).recomputes
    assert some[0] == "every:8" and some[-1] == "full"
    wide = training_run({**ROW, "dp": 64, "n_devices": 64, "cp": None, "global_batch": 16, "micro_batch": 1}, MODELS)
    assert (wide.layout.dp, wide.layout.cp) == (16, 4)


@pytest.mark.parametrize(("changes", "reason"), [
    ({"metric": "loss"}, "no metric named"), ({"model": "no-such-model"}, "no model named"),
    ({"dp": 4}, "is not 8 devices"), ({"n_devices": None, "dp": None}, "neither n_devices nor dp"),
    ({"seq_len": None}, "no seq_len"), ({"global_batch": 10**9}, "micro-batches a step"),
    ({"zero_stage": 9}, "not a ZeRO stage"), ({"global_batch": None}, "neither global_batch nor"),
])  # fmt: skip
def test_rows_are_refused_with_a_reason(tmp_path: Path, changes: dict[str, Any], reason: str, archsim: Any) -> None:
    """A row that cannot be a run counts as refused; the others are answered."""
    path = tmp_path / "runs.yaml"
    path.write_text(yaml.safe_dump({"models": MODELS, "rows": [ROW, {**ROW, "id": "b", **changes}]}), "utf-8")
    table = read_table(path)
    assert table.kind == "training" and set(table.models) == set(MODELS)
    import archsim as package

    answer = package.validate(path).to_dict()
    assert [row["id"] for row in answer["rows"]] == ["a"]
    assert reason in answer["refused"][0]["reason"]


@pytest.mark.slow
def test_gpt3_takes_84_days(prices: TrainingTimes) -> None:
    """GPT-3 175B on 384 A100 with tp 8 and pp 12, 300B tokens: 84 days at 153 TFLOP/s (arXiv 2104.04473, section
    5.1). No figure of this run was fitted to."""
    asked = {
        "model": "gpt3-175b", "seq_len": 2048, "n_devices": 384, "tp": 8, "pp": 12, "dp": 4, "zero_stage": 0,
        "fsdp": None, "micro_batch": 1, "global_batch": 1536, "precision": "fp16", "activation_checkpointing": "full",
        "source": "narayanan-t1",
    }  # fmt: skip
    days = 300e9 / (1536 * 2048) * predicted(prices, **asked) / 86400
    assert days == pytest.approx(84, rel=0.1)
    assert predicted(prices, **asked, metric="tflops_per_gpu") == pytest.approx(153, rel=0.1)
