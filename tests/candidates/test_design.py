"""`archsim design`: every candidate is what `estimate` says of its spec, and the front is that of brute force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import archsim as a

SMALL = {
    "vary": ["d_model=1024-4096+512", "n_layers=12-48+6", "d_ff=2.5,3.5,4.5", "n_kv_heads=2,4,8"],
    "fix": ["d_head=128"], "context": 16384,
}  # fmt: skip


def estimate_of(candidate: Any, question: Any) -> Any:
    """The estimate of a candidate's spec under the question's load."""
    load = question.load
    return a.estimate(
        candidate.document, question.hardware, devices=1, batch=load.batch, input_len=load.input_len,
        output_len=load.output_len, weights=candidate.weights, engine=question.engine.name,
    )  # fmt: skip


def check_candidate(candidate: Any, question: Any) -> None:
    """All figures are those of `estimate` and `scaling` of the spec by itself."""
    e, found = estimate_of(candidate, question), candidate.figures
    assert (e.params_total, e.params_active) == (found["params"], found["active"])
    assert (e.memory.weights, e.memory.kv_cache) == (found["weights_bytes"], found["kv_bytes"])
    assert found["memory_bytes"] == pytest.approx(e.memory.needed, rel=1e-12)
    assert found["tpot_s"] == pytest.approx(e.metrics["tpot_s"], rel=1e-12)
    assert found["ttft_s"] == pytest.approx(e.metrics["ttft_s"], rel=1e-12)
    assert e.memory.fits


@pytest.mark.slow
def test_the_best_and_the_front_are_estimated_alike() -> None:
    """Integers equal, times within 1e-12."""
    answer = a.design("rtx-4090", train_flops=1e22, tpot="20ms", **SMALL)
    assert answer.best is not None and len(answer.front) >= 3
    for candidate in (answer.best, *answer.front[-2:]):
        check_candidate(candidate, answer.question)
    losses = [candidate.figures["loss"] for candidate in answer.front]
    assert losses == sorted(losses) and answer.plateau.count >= 1
    assert all(candidate.figures["tpot_s"] <= 0.02 for candidate in answer.front)


@pytest.mark.slow
def test_limits_never_make_it_better() -> None:
    """The best loss rises as the time per token, the memory or the parameters are limited further."""
    best = [a.design("rtx-4090", train_flops=1e22, tpot=limit, **SMALL).best for limit in ("30ms", "15ms", "8ms")]
    losses = [candidate.figures["loss"] for candidate in best]
    assert losses == sorted(losses) and losses[0] < losses[-1]
    small = a.design("rtx-4090", train_flops=1e22, params="1B-2B", memory="6GB", **SMALL).best
    assert 1e9 <= small.figures["params"] <= 2e9 and small.figures["memory_bytes"] <= 6e9


@pytest.mark.slow
def test_nothing_is_an_answer_too(archsim: Any) -> None:
    """Where no candidate keeps the limits the page says where they were lost; exit code 1."""
    result = archsim("design", "--hw", "rtx-4090", "--tpot", "1ms", "--fix", "d_model=4096", "--fix", "n_layers=32")
    assert result.code == 1 and "no candidate is fast enough" in result.out
    typed = result.out.split("`--tpot ")[1].split("`")[0]  # the next step, which opens the limit
    again = archsim("design", "--hw", "rtx-4090", "--tpot", typed, "--fix", "d_model=4096", "--fix", "n_layers=32")
    assert again.code == 0 and "Best" in again.out
    large = archsim("design", "--hw", "rtx-4090", "--params", "30B-40B", "--vary", "d_model=2048-4096+1024")
    assert large.code == 1 and "without `--params`" in large.out


@pytest.mark.slow
def test_neighbours_say_why_they_lost() -> None:
    """Each step away from the best has a reason, and one that is better in all objectives would be the best."""
    answer = a.design("rtx-4090", train_flops=1e22, tpot="10ms", **SMALL)
    assert len(answer.neighbours) >= 4 and all(n.reason for n in answer.neighbours)
    assert any("above the limit" in n.reason or "loss +" in n.reason for n in answer.neighbours)


@pytest.mark.slow
def test_a_cost_needs_a_price_and_a_loss_a_budget() -> None:
    """What cannot be known is refused."""
    for options in ({"objective": "cost"}, {"objective": "loss"}, {"objective": "beauty"}, {"vary": "d_modell=1"},
                    {"tokens": "1T", "train_flops": 1e21}, {"attention": "sparse"}, {"tpot": "fast"}):  # fmt: skip
        with pytest.raises(a.ArchsimError):
            a.design("rtx-4090", **options)
    priced = a.design("rtx-4090", price=0.5, objective="params,cost", tpot="20ms", **SMALL)
    assert priced.best.figures["usd_per_m_output"] > 0


@pytest.mark.slow
def test_other_structures_are_searched(archsim: Any, tmp_path: Path) -> None:
    """Windows, latents and experts; the best is a file that `estimate` takes."""
    file = tmp_path / "best.yaml"
    result = archsim(
        "design", "--hw", "h100", "--context", "32k", "--train-flops", "1e22", "--attention", "window:1024:5/6,mla:512",
        "--ffn", "dense,moe", "--vary", "d_model=2048,4096", "--vary", "n_layers=24,36", "--fix", "d_head=128",
        "--out", str(file), "--json",
    )  # fmt: skip
    data = json.loads(result.out)
    assert data["schema"] == "archsim.design/1" and data["best"]["caveats"]
    best = data["best"]
    assert all(
        isinstance(best[name], int) for name in ("params", "active", "memory_bytes", "weights_bytes", "kv_bytes")
    )
    assert all(isinstance(end, int) for end in data["plateau"]["ranges"]["d_model"])
    again = json.loads(
        archsim("estimate", str(file), "--hw", "h100", "--devices", "1", "--input-len", str(32768 - 256),
                "--output-len", "256", "--weights", best["weights"], "--json").out
    )  # fmt: skip
    assert again["params"]["total"] == best["params"]
    assert again["metrics"]["tpot_s"] == pytest.approx(best["tpot_s"], rel=1e-12)


@pytest.mark.slow
def test_the_front_is_written_as_specs(archsim: Any, tmp_path: Path) -> None:
    """One file for each candidate shown, which `count` takes; nothing is replaced without --force."""
    folder = tmp_path / "new" / "front"
    args = ("design", "--hw", "l40s", "--vary", "d_model=2048,3072", "--vary", "n_layers=16,24", "--fix", "d_head=128",
            "--emit", str(folder), "--json")  # fmt: skip
    data = json.loads(archsim(*args).out)
    files = sorted(folder.iterdir())
    assert len(files) == len(data["front"]) >= 2
    for file, candidate in zip(files, data["front"], strict=True):
        assert json.loads(archsim("count", str(file), "--json").out)["params"]["total"] == candidate["params"]
    assert archsim(*args).code == 2 and archsim(*args, "--force").code == 0


@pytest.mark.slow
def test_a_file_states_the_space(archsim: Any, tmp_path: Path) -> None:
    """Options of a YAML file; what is typed goes before it, what is no option is refused."""
    file = tmp_path / "space.yaml"
    file.write_text("vary: {d_model: 2048-4096+1024, n_layers: '16,32'}\nfix: {d_head: 128}\ntokens: 1T\ntpot: 30ms\n")
    data = json.loads(archsim("design", "--hw", "rtx-4090", "--space", str(file), "--tpot", "25ms", "--json").out)
    assert data["question"]["constraints"]["tpot_s"] == 0.025 and data["best"]["dimensions"]["d_head"] == 128
    file.write_text("colour: red\n")
    assert archsim("design", "--hw", "rtx-4090", "--space", str(file)).code == 2


@pytest.mark.slow
def test_a_sample_finds_the_best_of_all() -> None:
    """A sample and steps from its front against every combination: the same best, nearly the same front."""
    options: dict[str, Any] = {"hw": "rtx-4090", "train_flops": 1e22, "tpot": "15ms", "context": 16384,
                               "fix": ["d_head=128"], "objective": "loss,tpot"}  # fmt: skip
    full, sampled = a.design(**options), a.design(**options, sample=3000)
    assert sampled.found.sampled and not full.found.sampled
    assert sampled.best.numbers == full.best.numbers
    assert sampled.found.searched.combinations < full.found.searched.combinations / 4
    ours = {candidate.figures["loss"]: candidate.figures["tpot_s"] for candidate in sampled.front}
    for candidate in full.front:
        near = [t for loss, t in ours.items() if loss <= candidate.figures["loss"] + 1e-9]
        assert min(near) <= 1.01 * candidate.figures["tpot_s"]


@pytest.mark.slow
def test_the_front_is_that_of_brute_force() -> None:
    """No candidate of the whole table beats one of the front in every objective, and none is left out."""
    answer = a.design("rtx-4090", train_flops=1e22, objective="loss,tpot,memory", **SMALL)
    table = answer.found.table()
    costs = np.stack([table[name] for name in ("loss", "tpot_s", "memory_bytes")], axis=1)
    beaten = [bool(np.any(np.all(costs <= row, axis=1) & np.any(costs < row, axis=1))) for row in costs]
    assert len(np.unique(costs[~np.asarray(beaten)], axis=0)) == answer.front_size
