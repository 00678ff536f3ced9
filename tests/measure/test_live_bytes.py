"""Live bytes of a program, as the graph predicts them and as a dispatch mode counts them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from archsim.counts.formats import choose_formats  # noqa: E402
from archsim.counts.step_graphs import StepGraphs  # noqa: E402
from archsim.graph.step import Seqs, Step  # noqa: E402
from archsim.measure.cpu_layers import Layer, _sizes, model_of  # noqa: E402
from archsim.measure.cpu_models import ModelOnCpu  # noqa: E402
from archsim.measure.cpu_plan import Case  # noqa: E402
from archsim.measure.live_bytes import live_peak_bytes  # noqa: E402
from archsim.measure.model_run import cpu_peak  # noqa: E402
from archsim.spec.parallelism import Plan  # noqa: E402

LAYERS = (
    Layer("gated", _sizes(64, 192, 4, 2, 16)),
    Layer("learned", _sizes(64, 256, dim=16)),
    Layer("crossing", _sizes(64, 96, 4, 4, 16)),
    Layer("bidirectional", _sizes(64, 256, dim=16)),
)
COPYING = (Layer("latent", _sizes(64, 64, 8, 0, 16, q_rank=32, kv_rank=48)), Layer("scan", (("d", 64), ("inner", 128))))
"""Attention that copies what it is given, and a recurrence: within 3 %, since small pieces in them are not counted."""


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.kind)
@pytest.mark.parametrize(("batch", "new", "past"), [(1, 64, 0), (1, 512, 0), (2, 1, 96)])
def test_live_bytes_are_those_that_are_counted(layer: Layer, batch: int, new: int, past: int) -> None:
    if past and layer.kind == "bidirectional":
        pytest.skip("an encoder has no cache")
    predicted, counted = both(layer, batch, new, past)
    assert predicted == pytest.approx(counted, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("layer", COPYING, ids=lambda layer: layer.kind)
@pytest.mark.parametrize(("batch", "new", "past"), [(1, 64, 0), (1, 512, 0), (2, 1, 1024)])
def test_copies_on_the_way_are_counted(layer: Layer, batch: int, new: int, past: int) -> None:
    if past and layer.kind == "scan":
        pytest.skip("a step of one token holds what is small")
    predicted, counted = both(layer, batch, new, past)
    assert predicted == pytest.approx(counted, rel=0.03)


def both(layer: Layer, batch: int, new: int, past: int) -> tuple[float, float]:
    """Predicted and counted bytes of a pass through two layers."""
    model = model_of(layer, 2, "fp32")
    timed = ModelOnCpu(model, "fp32", 1)
    call, _ = timed._call(Case(layer.name, "fp32", "eager", "decode" if past else "prefill", batch, new, past))
    with torch.no_grad():
        counted = cpu_peak(call)
    source = (Seqs(batch, past or new, 0),) if model.encoder is not None else ()
    step = Step.of(batch, new, past, absorbed=past > 0, source=source)
    graph = StepGraphs(model, choose_formats(model, "fp32", engine="torch")).rank(step, Plan())
    return live_peak_bytes(graph, batch), counted
