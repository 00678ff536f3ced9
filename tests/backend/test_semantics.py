"""What single fields of a spec mean: limits on experts, global tokens, and values that are refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from archsim.backend import build
from archsim.blocks.ffn import Ffn
from archsim.blocks.layer import depth
from archsim.blocks.moe import Moe
from archsim.counts.graph_counts import flops
from archsim.graph.graph import ops
from archsim.graph.step import Seqs, Step
from archsim.spec.lower import lower
from archsim.spec.model import Model

ATTENTION = {"kind": "mha", "n_heads": 2, "d_head": 8}
NORM = {"kind": "rmsnorm"}


def model(*layers: dict[str, Any], **fields: Any) -> Model:
    """A model of width 16."""
    base = {"name": "x", "d_model": 16, "vocab_size": 20, "final_norm": NORM, "layers": list(layers)}
    return Model.model_validate(base | fields)


def moe(**fields: Any) -> Moe:
    """Six experts, two of them per token."""
    base = {"kind": "moe", "n_experts": 6, "top_k": 2, "expert": {"kind": "swiglu", "d_ff": 12}}
    return Moe.model_validate(base | fields)


@pytest.mark.parametrize(
    ("fields", "rows"),
    [
        ({}, 2 * 9 * 2),
        ({"capacity": 2}, 2 * 6 * 2),
        ({"capacity": 100}, 2 * 9 * 2),
        ({"capacity_factor": 1.25}, 2 * 9 * 2),
        ({"router": {"choice": "expert"}}, 2 * 9 * 2),
        ({"router": {"choice": "expert"}, "capacity": 4}, 2 * 6 * 4),
        ({"router": {"choice": "expert"}, "capacity": 100}, 2 * 6 * 9),
    ],
)
def test_rows_that_experts_compute(fields: dict[str, Any], rows: int) -> None:
    """A capacity bounds them per sequence; experts that choose always take theirs."""
    block = moe(**fields)
    assert block.rows(Step.of(2, 9)) == rows
    layer = {"norm": NORM, "attention": ATTENTION, "ffn": block}
    found = [op for op, _ in ops(lower(model(layer), Step.of(2, 9))) if op.name.endswith("moe.up")]
    assert [use.axes["M"] for op in found for use in op.writes] == [rows]


def test_a_capacity_counts_for_each_sequence() -> None:
    """A short sequence does not leave its share to a long one."""
    step = Step(seqs=(Seqs(1, 2), Seqs(1, 100)))
    assert moe(capacity=3).rows(step) == 2 * 2 + 6 * 3


def test_rows_beyond_a_capacity_add_nothing() -> None:
    """With one row per expert, a repeated token is computed once; where it comes again, only the stream is left."""
    layer = {"norm": NORM, "ffn": moe(capacity=1).model_dump(exclude_none=True)}
    net = build(model(layer), "cpu")
    ids = torch.tensor([[3, 3, 3]])
    first, second, third = net(ids)[0]
    assert not torch.allclose(first, second)
    torch.testing.assert_close(second, third)


@pytest.mark.parametrize(("tokens", "length"), [(0, 12), (1, 12), (3, 12), (5, 3)])
def test_global_tokens_by_hand(tokens: int, length: int) -> None:
    """Pairs as the mask allows them, and projections: the queries of global tokens, keys and values of all."""
    mask = {"kind": "sliding", "window": 2, "bidirectional": True, "global_tokens": tokens}
    layer = {"norm": NORM, "attention": ATTENTION | {"mask": mask, "global_projections": True}}
    encoder = model(layer, architecture="encoder")
    seen = min(tokens, length)
    pairs = sum(abs(i - j) <= 2 or i < seen or j < seen for i in range(length) for j in range(length))
    graph = lower(encoder, Step.of(1, length))
    assert flops(graph, "attention") == 2 * 2 * 2 * 8 * pairs
    used = seen + 2 * length if tokens else 0
    assert flops(graph, "matmul") == 2 * 16 * 16 * (4 * length + used)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"kind": "glu", "activation": "xielu"}, "xielu"),
        ({"kind": "mlp", "clamp": 7.0}, "clamp"),
        ({"kind": "mlp", "sparsity": 0.9}, "sparsity"),
        ({"kind": "swiglu", "alpha": 1.7}, "alpha"),
    ],
)
def test_feed_forward_fields_that_mean_nothing_are_refused(fields: dict[str, Any], message: str) -> None:
    """A value that no computation would use is an error."""
    with pytest.raises(ValueError, match=message):
        Ffn.model_validate({"d_ff": 12} | fields)


def test_global_projections_need_a_view_to_both_sides() -> None:
    """A causal model has no tokens that see all."""
    with pytest.raises(ValueError, match="global_projections"):
        model({"norm": NORM, "attention": ATTENTION | {"global_projections": True}})


def test_depth_of_a_layer() -> None:
    """Layers before the one at hand, through nested and repeated groups."""
    leaf = {"norm": NORM, "attention": ATTENTION}
    inner = {"repeat": 3, "layers": [leaf | {"name": "a", "repeat": 2}, leaf | {"name": "b"}]}
    layers = model(leaf | {"name": "first"}, inner | {"name": "g"}, leaf | {"name": "last"}).layers
    assert depth(layers, "first.attention", {"first": 0}) == 0
    assert depth(layers, "g.a.attention", {"g": 2, "g.a": 1}) == 1 + 2 * 3 + 1
    assert depth(layers, "g.b.attention.core", {"g": 1, "g.b": 0}) == 1 + 3 + 2
    assert depth(layers, "last", {"last": 0}) == 10


def test_temperature_begins_with_the_second_window() -> None:
    """Queries grow where floor((position + 1) / floor_scale) is one, not before."""
    plain = {"norm": NORM, "attention": ATTENTION}
    warm = {"norm": NORM, "attention": ATTENTION | {"temperature": {"floor_scale": 4, "attn_scale": 9.0}}}
    nets = [build(model(layer), "cpu") for layer in (plain, warm)]
    nets[1].load_state_dict(nets[0].state_dict())
    ids = torch.arange(8)[None]
    a, b = (net(ids)[0] for net in nets)
    torch.testing.assert_close(a[:3], b[:3])
    assert (a[3:] - b[3:]).abs().amax(1).min() > 1e-4


def test_a_norm_of_groups_norms_each_run_of_channels_by_itself() -> None:
    """With a layer that adds nothing, logits are the normed embeddings times the head."""
    net = build(model({"ffn": {"kind": "mlp", "d_ff": 4}}, final_norm=NORM | {"groups": 4, "eps": 0.0}), "cpu")
    for name, weight in net.weights().items():
        if ".ffn." in name:
            weight.zero_()
    ids = torch.tensor([[3, 7, 1]])
    x = torch.unflatten(net.weight("embedding.tokens")[ids], -1, (4, 4))
    normed = (x * x.square().mean(-1, keepdim=True).rsqrt()).flatten(-2) * net.weight("final_norm")
    torch.testing.assert_close(net(ids), normed @ net.weight("head.w_logits").T, atol=1e-5, rtol=0)


def test_ngrams_are_looked_up_by_the_last_tokens() -> None:
    """The input is the mean of the token's vector and those of its pairs and triples, by hand."""
    embedding = {"ngrams": {"n": 3, "tables": 2, "ratio": 2}}
    net = build(model({"ffn": {"kind": "mlp", "d_ff": 4}}, final_norm=NORM | {"eps": 0.0}, embedding=embedding), "cpu")
    for name, weight in net.weights().items():
        if ".ffn." in name:
            weight.zero_()
    ids, sizes = [3, 19, 7, 3], [41, 43, 45, 47]
    table, projections = net.weight("embedding.ngrams"), net.weight("embedding.w_ngrams")
    assert table.shape == (sum(sizes), 4) and projections.shape == (4, 4, 16)
    x = []
    for at, token in enumerate(ids):
        vectors = [net.weight("embedding.tokens")[token]]
        for i, size in enumerate(sizes):
            last = [ids[at - back] if at >= back else 0 for back in range(i // 2 + 2)]
            row = sum(sizes[:i]) + sum(one * 20**back for back, one in enumerate(last)) % size
            vectors.append(table[row] @ projections[i])
        x.append(sum(vectors) / 5)
    stacked = torch.stack(x)
    normed = stacked * stacked.square().mean(-1, keepdim=True).rsqrt() * net.weight("final_norm")
    torch.testing.assert_close(net(torch.tensor([ids]))[0], normed @ net.weight("head.w_logits").T, atol=1e-5, rtol=0)
