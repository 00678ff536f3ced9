"""Formulas that the counting code prints of itself, against its numbers and against the papers."""

from __future__ import annotations

from pathlib import Path

import pytest

from archsim.base.poly import Poly
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.training_graph import training_graph, training_step_of
from archsim.explanation.formulas import QUANTITIES, explain
from archsim.graph.step import Step
from archsim.spec.load import load_model
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.symbolic import symbolic

ROOT = Path(__file__).resolve().parents[2]
NAMES = [path.stem for path in sorted((ROOT / "specs/models").glob("*.yaml")) if path.stem[0] != "_"]
EXPLAINED = ["llama2-70b", "deepseek-v3", "gemma3-27b", "mixtral-8x7b", "gpt2-xl", "t5-small", "bert-base"]
D, E, F, G, H, K, L, N, V, X, C = (Poly.symbol(x) for x in ("D", "E", "F", "G", "H", "K", "L", "N", "V", "X", "C"))


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", NAMES)
def test_polynomial_equals_the_count(name: str) -> None:
    """For every model of the catalog the polynomial at the model's numbers is the integer count."""
    model = load_model(name)
    letters_model, values = symbolic(model)
    poly = Poly.of(c.params(lower(letters_model, step_for(letters_model, 1, 1))))
    assert poly(**values) == c.params(lower(model, step_for(model, 1, 1)))
    assert poly.letters <= values.keys()


def parts(name: str, quantity: str) -> dict[str, Poly]:
    """The formulas of a quantity's parts."""
    return {part.part: part.poly for part in explain(load_model(name), quantity).parts}


def test_gqa_cache() -> None:
    """Grouped-query attention caches 2·L·K·H numbers per token, of 2 bytes (arXiv:2305.13245)."""
    assert explain(load_model("llama2-70b"), "kv_cache").whole.poly == 2 * L * K * H * 2


def test_mla_cache() -> None:
    """Latent attention caches kv_rank + d_rope numbers per token and layer, of 2 bytes (arXiv:2405.04434)."""
    answer = explain(load_model("deepseek-v3"), "kv_cache")
    r, hr, l1, l2 = (Poly.symbol(x) for x in ("R", "Hr", "L1", "L2"))
    assert answer.whole.poly == (r + hr) * (l1 + l2) * 2
    assert answer.whole.value == (512 + 64) * 61 * 2


def test_swiglu() -> None:
    """A gated feed-forward network has 3·D·F parameters (arXiv:2002.05202)."""
    assert parts("llama2-70b", "params")["layers.ffn"] == 3 * D * F * L


def test_gqa_projections() -> None:
    """Queries and output take D·(K·G·H) each, keys and values D·(K·H) each."""
    assert parts("llama2-70b", "params")["layers.attention"] == (2 * D * K * G * H + 2 * D * K * H) * L


def test_twelve_l_d_squared() -> None:
    """A GPT-2 block is 12·D² without biases and norms, as N·H = D and F = 4·D (arXiv:2001.08361)."""
    model = load_model("gpt2-xl")
    letters_model, _ = symbolic(model)
    graph = lower(letters_model, Step.of(1, 1, 0))
    matrices = c.params(graph, where=lambda tensor: tensor.role == "linear")
    assert matrices == (4 * D * N * H + 2 * D * F) * L
    d = model.d_model
    assert matrices(D=d, N=25, H=64, F=4 * d, L=48) == 12 * 48 * d**2


def test_moe() -> None:
    """Experts take 3·D·F each, the router D·E."""
    assert parts("mixtral-8x7b", "params")["layers.moe"] == (3 * D * F * E + D * E) * L


def test_two_flops_per_parameter() -> None:
    """A token costs 2 FLOP per matrix parameter, and 4·C·N·H per layer of attention (arXiv:2001.08361)."""
    params, flops = parts("llama2-70b", "params"), parts("llama2-70b", "flops")
    matrices = params["layers.attention"] + params["layers.ffn"] + params["head"]
    assert flops["matmul"] == 2 * matrices
    assert flops["attention"] == 4 * C * K * G * H * L


@pytest.mark.parametrize(
    ("name", "quantity"),
    [(n, q) for n in EXPLAINED for q in QUANTITIES if (n, q) != ("bert-base", "decode")],  # an encoder has none
)
@pytest.mark.sampled(4)
def test_explanation_adds_up(name: str, quantity: str) -> None:
    """Parts sum to the whole (where they are all of it), values are whole, and every letter has a meaning."""
    answer = explain(load_model(name), quantity, context=512)
    assert answer.whole.value == int(answer.whole.value)
    if quantity in ("params", "weights", "flops"):
        assert sum(part.value for part in answer.parts) == answer.whole.value
    for letter in answer.letters:
        assert answer.meaning(letter) != letter
    assert answer.sources and answer.to_dict()["schema"] == "archsim.explain/1"


@pytest.mark.sampled(16)
@pytest.mark.parametrize("name", NAMES)
def test_flops_equal_the_count(name: str) -> None:
    """The FLOP formula at context C equals what counting with numbers gives."""
    model, context = load_model(name), 700
    answer = explain(model, "flops", context)
    assert answer.whole.value == c.flops(lower(model, _step(model, context)))


def _step(model: Model, context: int) -> Step:
    if model.architecture == "encoder":
        return step_for(model, 1, context)
    return step_for(model, 1, 1, context - 1, context, absorbed=True)


def test_weights_equal_the_count() -> None:
    """Bytes of a block format are exact: the formula is a polynomial wherever no block is padded."""
    answer = explain(load_model("llama2-70b"), "weights", weights="int4")
    import archsim

    assert answer.whole.value == archsim.count("llama2-70b", weights="int4").weight_bytes
    assert "ceil_div" not in answer.whole.symbols


def test_numbers_in_place_of_letters() -> None:
    """The second line of an explanation is the first with numbers."""
    assert (2 * D * F + L).text({"D": 3, "F": 5, "L": 7}) == "2·3·5 + 7"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", ["llama3-8b", "deepseek-v3", "mamba-2.8b", "nemotron3-nano-30b-a3b", "t5-base"])
def test_training_in_letters_is_what_the_graph_counts(name: str) -> None:
    model = load_model(name)
    found = explain(model, "train", 640)
    graph = training_graph(model, training_step_of(model, 1, 640), parts=("mlm-head",))
    parts = {part.part: part.value for part in found.parts}
    assert found.whole.value == graph.flops.model_causal == parts["forward"] + parts["backward"]
    assert parts["kept for the backward"] == graph.saved_bytes
    assert parts["without masks"] == graph.flops.model_full and parts["run twice"] == graph.flops.recompute
