"""Models of many layers that differ in width alone are priced and counted by columns, with the answers of one layer
after another, to the last digit and in the same types.
"""

from __future__ import annotations

from typing import Any

import pytest

from archsim.counts import graph_counts as c
from archsim.counts import layer_columns as counts
from archsim.counts.formats import choose_formats
from archsim.counts.step_graphs import StepGraphs
from archsim.graph.step import Seqs, Step
from archsim.spec.layer_columns import MANY, longest_run
from archsim.spec.load import load_hardware, model_from
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.step_pricer import StepPricer, engine_overheads

STEPS = (
    Step.decode(1, 2175), Step.prefill(3, 17), Step.prefill(2, 2048),
    Step(seqs=(Seqs(3, 1, 900), Seqs(2, 1, 77), Seqs(1, 512, 0))),
)  # fmt: skip


def layer(width: int, **more: Any) -> dict[str, Any]:
    """A layer with a feed-forward block of a width."""
    attention = {"kind": "gqa", "n_heads": 16, "n_kv_heads": 8, "d_head": 64}
    return {"norm": {"kind": "rmsnorm"}, "attention": attention, "ffn": {"kind": "swiglu", "d_ff": width}, **more}


def model_of(layers: list[dict[str, Any]], **more: Any) -> Model:
    """A decoder of these layers."""
    return model_from(
        {
            "name": "columns", "d_model": 1024, "vocab_size": 32000, "layers": layers,
            "final_norm": {"kind": "rmsnorm"}, "head": {"tied": False}, "weights": {"default": "bf16"}, **more,
        }
    )  # fmt: skip


def widths(n: int) -> list[int]:
    """Some widths that neither rise nor fall, the widest in the middle."""
    return [2048 + 64 * (i * 37 % 61) + (4096 if i == n // 2 else 0) for i in range(n)]


def distinct(**more: Any) -> list[dict[str, Any]]:
    """Layers that differ in width alone."""
    return [layer(width, **more) for width in widths(MANY + 6)]


WITHIN = {
    "alone": model_of(distinct()),
    "between others": model_of([layer(512, repeat=3), *distinct(), layer(8192, placement="post_inside")]),
    "named": model_of([each | {"name": f"block_{i}"} for i, each in enumerate(distinct())]),
    "parallel": model_of(distinct(parallel="one_norm")),
    "post-norm, tied": model_of(distinct(placement="post"), head={"tied": True}),
}


def by_layers(model: Model, formats: Any) -> StepGraphs:
    """Graphs that make every step layer by layer."""
    graphs = StepGraphs(model, formats)
    graphs.__dict__["run"] = None
    return graphs


@pytest.mark.sampled(10)
@pytest.mark.parametrize("plan", [Plan(), Plan(tp=4), Plan(tp=2, dp=2)], ids=["one", "tp", "dp"])
@pytest.mark.parametrize("weights", [None, "int4"])
@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
@pytest.mark.parametrize("device", ["h100", "t4"])
@pytest.mark.parametrize("name", WITHIN)
def test_a_step_by_columns_is_the_step_layer_by_layer(
    name: str, device: str, engine: str, weights: str | None, plan: Plan
) -> None:
    """Rows, launches, classes of kernels and interval."""
    model, hardware, overheads = WITHIN[name], load_hardware(device), engine_overheads(engine)
    formats = choose_formats(model, weights, None, engine=engine)
    columns = StepPricer.of(model, hardware, formats, overheads, plan)
    layers = StepPricer.of(model, hardware, formats, overheads, plan, graphs=by_layers(model, formats))
    for step in STEPS:
        assert columns._layer_rows(step) is not None
        one, other = columns.price(step), layers.price(step)
        assert repr(one.ops) == repr(other.ops)
        assert (one.rank.fused, one.by_class) == (other.rank.fused, other.by_class)
        assert repr(one.to_dict()) == repr(other.to_dict())
        assert columns.ideal_s(step) == layers.ideal_s(step)


@pytest.mark.parametrize("name", WITHIN)
def test_counts_by_columns_are_those_of_the_graph(name: str) -> None:
    """Parameters, those a token uses, FLOP."""
    model = WITHIN[name]
    graphs, one = StepGraphs(model, choose_formats(model)), Step.decode(1, 100)
    graph = lower(model, one)
    assert repr(counts.params(graphs, one)) == repr((c.params(graph), c.active_params(graph)))
    assert repr(counts.flops(graphs, one)) == repr(c.flops(graph))


def test_fewer_objects_are_made_than_there_are_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """No graph of all layers is lowered where a step is priced by columns."""
    model, seen = WITHIN["alone"], list[int]()

    def noted(model: Model, *rest: Any) -> Any:
        seen.append(len(model.layers))
        return lower(model, *rest)

    monkeypatch.setattr("archsim.counts.lowered_steps.lower", noted)
    formats = choose_formats(model)
    pricer = StepPricer.of(model, load_hardware("h100"), formats, engine_overheads(), Plan())
    pricer.price(STEPS[0])
    assert seen and max(seen) == 3


SHORT = [layer(width) for width in widths(MANY - 1)]
LATE = [layer(width, attention={**layer(1)["attention"], "n_heads": 16 - 8 * (i % 2)}) for i, width in
        enumerate(widths(MANY + 6))]  # fmt: skip


@pytest.mark.parametrize("layers", [SHORT, LATE], ids=["few", "other heads"])
def test_few_layers_and_layers_that_differ_elsewhere_have_no_columns(layers: list[dict[str, Any]]) -> None:
    """Nor those that begin like the names that stand for a run."""
    assert longest_run(model_of(layers)) is None
    named = [each | {"name": f"first|{i}"} for i, each in enumerate(distinct())]
    assert longest_run(model_of(named)) is None


def test_layers_that_read_what_is_far_away_are_made_one_by_one() -> None:
    """Caches that are shared along the stack, and widths that no rank gets a whole share of."""
    model = WITHIN["alone"]
    formats = choose_formats(model)
    odd = StepPricer.of(model, load_hardware("h100"), formats, engine_overheads(), Plan(tp=7))
    assert odd._layer_rows(STEPS[0]) is None
    huge = Step.prefill(1, 1 << 40)
    assert odd.on(Plan())._layer_rows(huge) is None  # counts that floating-point numbers do not hold


def test_wrong_rows_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are compared with layers that are made without columns."""
    import archsim.timing.layer_columns as columns

    model = WITHIN["alone"]
    pricer = StepPricer.of(model, load_hardware("h100"), choose_formats(model), engine_overheads(), Plan())
    values = columns._values
    monkeypatch.setattr(
        columns, "_values",
        lambda column, which, whole=False: iter([v * 1.0000001 for v in values(column, which, whole)])
        if hasattr(column, "dtype") else values(column, which, whole),
    )  # fmt: skip
    assert pricer._layer_rows(STEPS[0]) is None
