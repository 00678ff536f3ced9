"""The loop on a processor: the plan before the clock, results that a kill cannot spoil, and figures of errors.

No test here knows a millisecond: what is compared is shares, orders and files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from archsim.measure import cpu_figures, cpu_layers, cpu_shapes
from archsim.measure.cpu_plan import Case, Predictor, cases, plan_document, plan_of, write_plan
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware, open_model

pytest.importorskip("torch")

from archsim.measure import cpu_check

ROW = {"predicted_s": 1.0, "low_s": 0.8, "high_s": 1.2, "roofline_s": 0.2}


def test_figures_of_made_up_rows() -> None:
    rows = [{**ROW, "measured_s": seconds} for seconds in (1.0, 1.1, 2.0, 0.5)]
    found = cpu_figures.errors(rows)
    assert found["rows"] == 4
    assert found["inside"] == 0.5
    assert found["mean"] == pytest.approx((0 + 1 - 1 / 1.1 + 0.5 + 1.0) / 4)
    assert found["bias"] == pytest.approx((0 + 1 / 1.1 - 1 - 0.5 + 1.0) / 4)
    assert cpu_figures.errors([{**ROW}]) == {"rows": 0}


def test_order_counts_only_what_measurements_tell_apart() -> None:
    rows = [
        {"work": 1, "predicted_s": 1.0, "measured_s": 1.0}, {"work": 1, "predicted_s": 2.0, "measured_s": 1.5},
        {"work": 1, "predicted_s": 0.5, "measured_s": 1.05}, {"work": 2, "predicted_s": 9.0, "measured_s": 0.1},
    ]  # fmt: skip
    assert cpu_figures.orders(rows, lambda row: row["work"]) == {"pairs": 2, "right": 2}
    rows[1]["predicted_s"] = 0.1
    assert cpu_figures.orders(rows, lambda row: row["work"]) == {"pairs": 2, "right": 0}


def test_savings_of_fusions_are_of_the_same_extents() -> None:
    def row(kernel: str, measured: float, predicted: float, m: int = 4) -> dict[str, object]:
        dims = {"m": m, "n": 64}
        return {"op": "cpu_elementwise", "kernel": kernel, "dtype": "fp32", "dims": dims, "measured_s": measured,
                "predicted_s": predicted}  # fmt: skip

    rows = [row("add_rmsnorm", 4.0, 3.0), row("compiled add_rmsnorm", 1.0, 1.5)]
    rows.append(row("compiled add_rmsnorm", 1.0, 1.5, m=8))  # without partners
    (found,) = cpu_figures.fusions(rows)
    assert found["fusion"] == "residual and norm"
    assert found["pairs"] == 1
    assert found["measured"] == pytest.approx(0.75)
    assert found["predicted"] == pytest.approx(0.5)
    assert found["sign_right"] == 1
    assert found["size_error"] == pytest.approx(1 / 3)


def test_held_sizes_are_not_those_of_the_fit() -> None:
    """Of stacks whole layers are kept out, of products alone whole sites."""
    layers = {layer.name: layer.held for layer in cpu_layers.LAYERS}
    assert len(layers) == len(cpu_layers.LAYERS)
    assert {layer.kind for layer in cpu_layers.LAYERS if layer.held} <= {
        layer.kind for layer in cpu_layers.LAYERS if not layer.held
    }
    assert not set(cpu_shapes.SITES) & set(cpu_shapes.HELD_SITES)
    widths = {held: {dict(x.sizes)["d"] for x in cpu_layers.LAYERS if x.held == held} for held in (True, False)}
    assert not widths[True] & widths[False]


def test_operands_said_to_come_from_memory_outgrow_the_cache() -> None:
    cache = 32 << 20
    for point in cpu_shapes.products(cache):
        assert point["bytes"] >= 2 * cache or point["bytes"] > 128 * point["n"] * point["k"] * 0.5


@pytest.mark.parametrize("layer", cpu_layers.LAYERS[:1], ids=lambda layer: layer.name)
def test_calls_of_a_stack_are_those_of_its_program(layer: cpu_layers.Layer) -> None:
    """Every priced call has parts of the program of its own, so that each can be timed."""
    from archsim.backend.compile.parts import Shape
    from archsim.backend.compile.program import Program
    from archsim.backend.module import build
    from archsim.timing.device import DeviceRates

    one = cpu_layers.Pass(layer, 2, (1, 4, 0), "eager", "fp32")
    net = build(cpu_layers.model_of(layer, 2, "fp32"), "meta")
    parts = {frozenset(part.paths) for part in Program(net, Shape(*one.shape), device="meta").parts}
    calls = cpu_layers.calls_of(one, DeviceRates(device()))
    assert {call.call.kernel for call in calls} >= {"linear", "sdpa", "add_rmsnorm", "rope", "swiglu", "append"}
    for call in calls:
        assert any(paths & set(call.ops) for paths in parts), call


def test_cases_fit_the_context_and_the_architecture() -> None:
    model, _ = open_model("gpt2-small")
    found = cases(model, "fp32")
    assert {(case.phase, case.form) for case in found} == {
        *((phase, form) for phase in ("prefill", "decode") for form in ("eager", "compiled")),
        ("train", "eager"), ("train", "recomputed"),
    }  # fmt: skip
    assert all(case.past + case.new <= 1024 for case in found)
    encoder, _ = open_model("bert-base")
    assert {case.phase for case in cases(encoder, "fp32")} == {"prefill"}


def device() -> Hardware:
    """A processor of the catalog."""
    return load_hardware("epyc-9654")


def test_the_plan_is_what_its_hash_says(tmp_path: Path) -> None:
    model, _ = open_model("smollm2-135m")
    predictor = Predictor(model, device(), "fp32")
    row = predictor.row(Case("smollm2-135m", "fp32", "eager", "decode", 1, 1, 64))
    assert row["low_s"] <= row["predicted_s"] <= row["high_s"]
    assert row["roofline_s"] <= row["predicted_s"]
    path = tmp_path / "plan.json"
    digest = write_plan(path, plan_document([row], device()))
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest() == plan_of(path)[1]
    assert plan_of(path)[0]["rows"] == [json.loads(json.dumps(row))]


def _results(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    """Cases take no time, and say that they were asked for."""
    from archsim.measure import cpu_models

    class Idle:
        def __init__(self, *_: object) -> None:
            calls.append("built")

    def measured(_: object, case: Case) -> dict[str, object]:
        calls.append(case.id)
        return {"id": case.id, "measured_s": 1.0}

    monkeypatch.setattr(cpu_models, "ModelOnCpu", Idle)
    monkeypatch.setattr(cpu_models, "measured_row", measured)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What was built and timed."""
    found: list[str] = []
    _results(monkeypatch, found)
    yield found


def test_a_killed_check_goes_on_behind_what_is_there(tmp_path: Path, calls: list[str]) -> None:
    first = cpu_check.check_on_cpu("smollm2-135m", device(), out=tmp_path)
    every = [call for call in calls if call != "built"]
    assert len(every) == len(first.rows) > 4
    lines = (tmp_path / cpu_check.ROWS).read_text().splitlines(keepends=True)
    (tmp_path / cpu_check.ROWS).write_text("".join(lines[:3]) + lines[3][:20])  # two results, and one that was torn
    calls.clear()
    again = cpu_check.check_on_cpu("smollm2-135m", device(), out=tmp_path)
    assert [call for call in calls if call != "built"] == every[2:]
    assert again.plan_sha256 == first.plan_sha256
    assert [row["id"] for row in again.rows] == [row["id"] for row in first.rows]


def test_a_budget_leaves_cases_for_the_next_run(tmp_path: Path, calls: list[str]) -> None:
    found = cpu_check.check_on_cpu("smollm2-135m", device(), out=tmp_path, budget=-1.0)
    assert found.left == len(found.rows)
    assert not [call for call in calls if call != "built"]
    assert found.plan.exists()


def test_page_and_data_of_a_check(tmp_path: Path, calls: list[str]) -> None:
    from archsim.render.html.cpu_check import cpu_document
    from archsim.render.page import Page
    from archsim.render.pages.cpu_check import cpu_check_page

    found = cpu_check.check_on_cpu("smollm2-135m", device(), out=tmp_path)
    data = found.to_dict()
    assert data["plan_sha256"] == found.plan_sha256
    assert data["all"]["rows"] == len(found.rows)
    assert isinstance(cpu_check_page(found), Page)
    assert "Time of a pass" in cpu_document(found)
    told = json.loads("".join(found.json()))
    assert (told["schema"], told["kind"]) == ("archsim.validate/1", "model")
    assert {row["metric"] for row in told["rows"]} >= {"prefill_s", "decode_s"}
    assert all({"phase", "batch", "input_len"} <= row.keys() for row in told["rows"])
    assert told["summary"]["rows"] == len(told["rows"])


def test_cases_that_are_too_long_or_too_large_are_left_out() -> None:
    row = {"predicted_s": 0.1, "weight_bytes_predicted": 1e9, "cache_bytes_predicted": 0, "activation_bytes": 1e9}
    assert cpu_check.is_feasible(row, device())
    assert not cpu_check.is_feasible(row | {"predicted_s": 9.0}, device())
    assert not cpu_check.is_feasible(row | {"activation_bytes": float(device().working_set_bytes)}, device())
