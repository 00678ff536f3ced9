"""Training steps on a processor: what is predicted of them, and what a profile says of each operator."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch")

from archsim.measure import trained_layers  # noqa: E402
from archsim.measure.bench import Bench, pinned  # noqa: E402
from archsim.measure.cpu_layers import Layer, _sizes, model_of  # noqa: E402
from archsim.measure.cpu_plan import RECOMPUTED, Case, Predictor  # noqa: E402
from archsim.measure.model_run import cpu_peak  # noqa: E402
from archsim.measure.suite_training import in_training  # noqa: E402
from archsim.measure.trained_layers import TrainedPass, trained_calls  # noqa: E402
from archsim.measure.trained_on_cpu import TrainedOnCpu  # noqa: E402
from archsim.spec.load import load_hardware, open_model  # noqa: E402
from archsim.timing.classes.catalog import MODELS  # noqa: E402
from archsim.timing.classes.cpu import GRADIENT, OPTIMIZER  # noqa: E402
from archsim.training.layout import Layout  # noqa: E402
from archsim.training.one_device import usual_setup  # noqa: E402
from archsim.training.pricer import Choice, TrainingPricer  # noqa: E402

LAYERS = (
    Layer("gated", _sizes(64, 192, 4, 2, 16)),
    Layer("gated", _sizes(64, 192, 4, 2, 16, vocab=30000)),
    Layer("learned", _sizes(64, 256, dim=16)),
    Layer("experts", _sizes(64, 96, 4, 4, 16, experts=4, top_k=2)),
)


def processor_name() -> str:
    """A processor of the catalog."""
    return "epyc-9654"


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
@pytest.mark.parametrize("form", RECOMPUTED)
@pytest.mark.parametrize("length", [16, 256])
def test_live_bytes_of_a_step_are_those_that_are_counted(layer: Layer, form: str, length: int) -> None:
    """Weights, gradients, both moments, what autograd keeps, and the sum of a table's two gradients."""
    trained = TrainedOnCpu(model_of(layer, 3, "fp32"), RECOMPUTED[form])
    tokens = trained.tokens(1, length)
    with pinned(1):
        trained.step(tokens)
        peak = trained.weight_bytes + trained.state_bytes + cpu_peak(lambda: trained.step(tokens))
    row = Predictor(trained.model, load_hardware(processor_name()), "fp32").row(
        Case(layer.name, "fp32", form, "train", 1, length, 0)
    )
    held = row["weight_bytes_predicted"] + row["cache_bytes_predicted"] + row["activation_bytes"]
    assert held == pytest.approx(peak, rel=0.01)


@pytest.mark.slow
def test_every_kind_of_backward_is_timed_in_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, hardware = LAYERS[0], load_hardware(processor_name())
    monkeypatch.setattr(trained_layers, "LAYERS", (layer,))
    monkeypatch.setattr(trained_layers, "LENGTHS", (16,))
    monkeypatch.setattr(trained_layers, "DEEP_BYTES", 1e5)
    points = list(trained_layers.training_points(hardware))
    bench = Bench("cpu")
    with pinned(1):
        seconds = {point.text(): in_training(bench, point).timing.us / 1e6 for point in points}
    assert min(seconds.values()) > 0
    kernels = Counter(point.kernel for point in points)
    assert {"linear gradient", "sdpa gradient", "add_rmsnorm gradient", "gather gradient", OPTIMIZER} <= set(kernels)
    one = next(point.within for point in points)
    assert isinstance(one, TrainedPass)
    assert kernels["linear gradient"] == len({p.text() for p in points if p.kernel == "linear gradient"})


def test_backwards_of_a_step_have_twice_the_products_of_its_forward() -> None:
    """An oracle beside the calls: FLOP of the training graph's own backward, products of attention left out."""
    model, hardware = model_of(LAYERS[0], 3, "fp32"), load_hardware(processor_name())
    pricer = TrainingPricer.of(model, hardware, usual_setup("torch-eager"))
    flops = pricer.graph(Layout(seq_len=32), "none").flops
    linear = [call for call, _ in trained_calls(model, 32, hardware) if call.kernel == "linear" + GRADIENT]
    heads = 4 * 16 * 2 * 2 * 32 * 33 / 2 * 3  # heads, their width, two products, pairs below the diagonal, layers
    layers = Counter(call.dims["n"] * call.dims["k"] for call in linear)
    assert all(MODELS[c.kernel_class].work(c) == 2 for c in linear)
    products = sum(2 * 32 * size * (1 if size == 4096 * 64 else 3) * count for size, count in layers.items())
    assert flops.forward == pytest.approx(products + heads, rel=1e-3)
    assert flops.backward == pytest.approx(2 * (products + heads), rel=1e-3)


def test_a_step_on_a_processor_takes_longer_than_its_forward_and_no_less_than_its_bound() -> None:
    (model, _), hardware = open_model("smollm2-135m"), load_hardware(processor_name())
    pricer = TrainingPricer.of(model, hardware, usual_setup("torch-eager"))
    steps = {form: pricer.price(Choice(Layout(seq_len=2048), recompute)) for form, recompute in RECOMPUTED.items()}
    plain, again = steps["eager"].step, steps["recomputed"].step
    assert plain.expected_s >= plain.ideal_s > 0
    forward, backward = (
        sum(k.seconds for k in steps["eager"].micro.kernels[part] if k.kernel_class == "cpu_gemm")
        for part in ("forward", "backward")
    )
    assert backward > 1.2 * forward
    assert again.expected_s > plain.expected_s
    assert again.parts.recompute_s == pytest.approx(plain.parts.forward_s, rel=0.2)
    assert {kernel.kernel_class.partition("_")[0] for kernel in steps["eager"].micro.kernels["backward"]} == {"cpu"}


def test_full_precision_keeps_sixteen_bytes_a_parameter() -> None:
    model, hardware = model_of(LAYERS[2], 3, "fp32"), load_hardware(processor_name())
    layout = Layout(seq_len=64)
    wide = TrainingPricer.of(model, hardware, usual_setup("torch-eager")).memory(Choice(layout)).most
    parameters = sum(p.numel() for p in TrainedOnCpu(model).net.parameters())
    assert wide.states.total == 16 * parameters
