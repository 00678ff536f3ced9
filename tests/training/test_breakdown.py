"""What each kernel takes of a training step, and the step as a timeline."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import archsim as package
from archsim.base.errors import UsageError
from archsim.training.model_flops import model_flops

LAYOUTS = (
    {"devices": 1, "seq_len": 512, "global_batch": 8},
    {"devices": 4, "tp": 2, "pp": 2, "seq_len": 512, "global_batch": 16},
    {"devices": 4, "pp": 4, "vpp": 2, "seq_len": 256, "global_batch": 16, "recompute": "full"},
    {"devices": 8, "dp": 8, "zero": 3, "seq_len": 512, "global_batch": 16},
)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: "-".join(f"{k}{v}" for k, v in options.items()))
def test_kernels_add_up_to_the_step(options: dict[str, Any]) -> None:
    """However they are grouped: to the passes of the rank that works longest, and to its communication."""
    for by in ("op", "block", "kind"):
        answer = package.train("llama3.2-1b", "h100", by=by, **options)
        step, rows = answer.priced.step, answer.parts
        compute = sum(row.total_s for row in rows if not row.communication)
        parts = step.parts
        assert compute == pytest.approx(
            parts.forward_s + parts.backward_s + parts.recompute_s + parts.head_and_loss_s, rel=1e-9
        )
        comm = sum(row.total_s for row in rows if row.communication)
        inside = sum(each.total_s for kind, each in step.comm.items() if kind in ("tp", "cp", "ep"))
        assert comm == pytest.approx(inside, rel=1e-9)
        assert answer.to_dict()["parts"][0]["total_s"] == rows[0].total_s
    with pytest.raises(UsageError, match="cannot group by"):
        package.train("llama3.2-1b", "h100", by="colour", **options)


@pytest.mark.parametrize("options", LAYOUTS, ids=lambda options: "-".join(f"{k}{v}" for k, v in options.items()))
def test_a_timeline_ends_with_the_step(options: dict[str, Any]) -> None:
    """Every pass once, none over another on its rank, and the end is the step's expected time."""
    answer = package.train("llama3.2-1b", "h100", **options)
    events = [event for event in answer.timeline()["traceEvents"] if event["ph"] == "X"]
    layout = answer.layout
    passes = [event for event in events if "micro_batch" in event["args"]]
    assert len(passes) == 2 * layout.micro_batches * layout.stages
    assert len({(e["pid"], e["name"], e["args"]["stage"]) for e in passes}) == len(passes)
    for rank in range(layout.pp):
        own = sorted((e["ts"], e["ts"] + e["dur"]) for e in events if e["pid"] == rank + 1)
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(own))
    end = max(event["ts"] + event["dur"] for event in events) / 1e6
    assert end == pytest.approx(answer.priced.step.expected_s, rel=1e-6)


def test_trace_draws_a_training_step(archsim: Any, tmp_path: Path) -> None:
    """`trace --phase train` and `train --timeline` write one file; what is of inference is refused."""
    words = ("llama3.2-1b", "--hw", "h100", "--tp", "2", "--pp", "2", "--devices", "4")
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    assert archsim("trace", *words, "--phase", "train", "--input-len", "512", "--out", str(first)).code == 0
    assert archsim("train", *words, "--micro-batch", "1", "--seq-len", "512", "--timeline", str(second)).code == 0
    assert json.loads(first.read_text()) == json.loads(second.read_text())
    assert archsim("train", *words, "--timeline", str(second)).code == 2
    assert archsim("trace", *words, "--phase", "train", "--engine", "vllm").code == 2


def test_mfu_of_palm() -> None:
    """46.2 % at 238.3 thousand tokens/s on 6,144 TPU v4 of 275 TFLOP/s (arXiv:2204.02311, section 4.1); what it
    recomputes, which HFU counts, the paper does not say: less than all.
    """
    flops = model_flops(package.load_model("palm-540b"), 2048)
    peak = 6144 * 275e12 / 238.3e3
    assert (flops.weights + flops.attention_full) / peak == pytest.approx(0.462, abs=5e-4)
    again = (flops.weights - flops.head + flops.attention_full) / 3
    assert 0.462 < 0.578 < (flops.weights + flops.attention_full + again) / peak
