"""Storage formats are chosen by tensor class, and change bytes alone."""

from __future__ import annotations

import pytest

from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.graph.graph import Block
from archsim.graph.passes.quantize import DEFAULT, quantize
from archsim.graph.tensor import BF16, FP32
from archsim.spec.format import stored_format
from archsim.spec.load import load_model
from archsim.spec.lower import lower

FP8 = stored_format("fp8")


def decode(name: str) -> Block:
    """A decode step after 63 tokens."""
    model = load_model(name)
    return lower(model, step_for(model, 1, 1, 63))


def test_bf16_is_what_a_graph_is_built_in() -> None:
    """The very same object comes back."""
    graph = decode("llama2-7b")
    assert quantize(graph, {DEFAULT: BF16}) is graph


def test_a_wider_format_doubles_the_bytes_and_nothing_else() -> None:
    """Parameters and FLOPs do not depend on storage."""
    graph = decode("llama2-7b")
    wide = quantize(graph, {DEFAULT: FP32})
    assert c.weight_bytes(wide) == 2 * c.weight_bytes(graph)
    assert (c.params(wide), c.state_bytes(wide)) == (c.params(graph), c.state_bytes(graph))


@pytest.mark.parametrize("name", ["llama2-7b", "mixtral-8x7b", "deepseek-v2"])
def test_a_class_takes_its_own_format(name: str) -> None:
    """Products in FP8 leave the embedding, the head and the norms as they were."""
    graph = decode(name)
    narrow = quantize(graph, {DEFAULT: BF16, "linear": FP8, "expert": FP8})
    left = sum(
        item.copies * c.nbytes(item.tensor)
        for item in c.inventory(graph, kind="weight")
        if item.tensor.role not in ("linear", "expert")
    )
    whole = c.weight_bytes(graph)
    assert left < c.weight_bytes(narrow) < whole
    assert c.weight_bytes(narrow) - left == pytest.approx((whole - left) / 2, rel=1e-3)


def test_a_named_tensor_goes_before_its_class() -> None:
    """One matrix back in 16 bits costs its elements."""
    graph = decode("llama2-7b")
    item = next(i for i in c.inventory(graph, kind="weight") if i.tensor.role == "linear")
    narrow = quantize(graph, {DEFAULT: FP8})
    mixed = quantize(graph, {DEFAULT: FP8}, tensors={item.tensor.name: BF16})
    same = next(i for i in c.inventory(narrow, kind="weight") if i.tensor.name == item.tensor.name)
    more = item.copies * (c.nbytes(item.tensor) - c.nbytes(same.tensor))
    assert c.weight_bytes(mixed) - c.weight_bytes(narrow) == more > 0


def test_a_narrow_cache_leaves_recurrent_states_whole() -> None:
    """Only what grows with tokens takes the cache's format; states in fp32 stay in fp32."""
    attends, recurs = decode("llama2-7b"), decode("mamba-2.8b")
    assert 2 * c.state_bytes(quantize(attends, {DEFAULT: BF16}, kv=FP8)) == c.state_bytes(attends)
    assert c.state_bytes(quantize(recurs, {DEFAULT: BF16}, kv=FP8)) == c.state_bytes(recurs)
