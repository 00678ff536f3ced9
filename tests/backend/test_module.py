"""The module against the counts of the graph that it executes, and against other ways to compute the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import Tensor

import archsim.backend
from archsim.backend.module import LARGE, PAGE, Encoded, Net, build, empty_on_pages
from archsim.backend.oracle import count_flops, flops_full, param_count
from archsim.backend.run import Cache
from archsim.base.errors import UsageError
from archsim.counts import graph_counts as count
from archsim.graph.graph import Block
from archsim.graph.step import Seqs, Step
from archsim.spec.lower import lower
from archsim.spec.model import Model

BATCH, LENGTH, TOLERANCE = 2, 9, 1e-4
PARTS = ("mtp", "mlm-head")


def tokens(model: Model, length: int = LENGTH) -> Tensor:
    """Random ids for a batch of sequences."""
    return torch.randint(model.vocab_size, (BATCH, length))


def hidden(output: Tensor | Encoded) -> Tensor:
    """Logits of a decoder, hidden states of an encoder."""
    return output.hidden if isinstance(output, Encoded) else output


def read(net: Net, ids: Tensor) -> Tensor | None:
    """What an encoder reads: the same tokens, or a sound that is the same at every call."""
    with torch.random.fork_rng():
        torch.manual_seed(7)
        return net.source_of(ids)


def run(net: Net, ids: Tensor) -> Tensor:
    """One full forward pass; an encoder-decoder reads the same tokens on both sides."""
    return hidden(net(ids, source=read(net, ids)))


def graph(model: Model, new: int, past: int = 0) -> Block:
    """What a pass without block skipping computes, as a graph to count."""
    source = (Seqs(BATCH, LENGTH, 0),) if model.encoder else ()
    return lower(model, Step.of(BATCH, new, past, masked=False, source=source), PARTS)


def test_torch_is_imported_when_it_is_needed() -> None:
    """The package and its names are there without torch; asking for `build` imports it."""
    code = "import sys, archsim.backend as b; assert 'torch' not in sys.modules; b.build; b.Net; sys.modules['torch']"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        archsim.backend.nothing_of_the_kind


def test_parameter_count(any_model: Model) -> None:
    """The module has exactly the parameters that the graph counts."""
    assert param_count(any_model, PARTS) == count.params(graph(any_model, LENGTH))


def test_flops_of_a_prefill(any_model: Model) -> None:
    """torch counts exactly the FLOPs of the graph without masks, operator by operator."""
    assert flops_full(any_model, BATCH, LENGTH, parts=PARTS) == count.flops(graph(any_model, LENGTH))


def test_flops_of_later_steps(cached_model: Model) -> None:
    """After a prefill, one token and then several cost exactly what the graph counts."""
    net, cache = build(cached_model, parts=PARTS), Cache()
    count_flops(net, BATCH, LENGTH, cache)
    for new in (1, 3):
        past = cache.length
        assert count_flops(net, BATCH, new, cache) == count.flops(graph(cached_model, new, past))


def test_forward_is_finite(any_model: Model) -> None:
    """A pass over random weights gives finite numbers of the promised shape."""
    net = build(any_model, "cpu")
    output = run(net, tokens(any_model))
    width = any_model.embedding.rows or any_model.vocab_size if any_model.cached else any_model.d_model
    assert output.shape == (BATCH, LENGTH, width)
    assert output.isfinite().all()


def test_steps_equal_one_pass(cached_model: Model) -> None:
    """A prefill, a second chunk and single tokens give the logits of one full pass."""
    net, ids = build(cached_model, "cpu"), tokens(cached_model)
    full, cache = run(net, ids), Cache()
    source = read(net, ids)
    found = [net(ids[:, :4], cache, source), net(ids[:, 4:6], cache)]
    found += [net(ids[:, i : i + 1], cache) for i in range(6, LENGTH)]
    torch.testing.assert_close(torch.cat(found, dim=1), full, atol=TOLERANCE, rtol=0)


def test_fused_equals_unfused(any_model: Model) -> None:
    """The fused attention kernel computes what the body computes op by op, in prefill and in later steps."""
    net, ids = build(any_model, "cpu"), tokens(any_model)
    results = []
    for fused in (False, True):
        net.fused, cache = fused, Cache()
        source = read(net, ids)
        results.append(hidden(net(ids, cache, source)))
        if any_model.cached:
            results[-1] = torch.cat([results[-1], net(ids[:, :2], cache), net(ids[:, :1], cache)], dim=1)
    torch.testing.assert_close(*results, atol=TOLERANCE, rtol=0)


def test_absorbed_equals_naive(mla_model: Model) -> None:
    """MLA with its up-projections absorbed computes the same from the same weights, fused or not."""
    net, ids = build(mla_model, "cpu"), tokens(mla_model)
    naive = run(net, ids)
    net.absorbed = True
    for net.fused in (False, True):
        torch.testing.assert_close(run(net, ids), naive, atol=TOLERANCE, rtol=0)


def test_fast_experts_equal_gathered(moe_model: Model) -> None:
    """Experts that work on the tokens sent to them compute what gathered weights compute."""
    net, ids = build(moe_model, "cpu"), tokens(moe_model)
    gathered = run(net, ids)
    net.fast = True
    torch.testing.assert_close(run(net, ids), gathered, atol=TOLERANCE, rtol=0)


def test_last_logits_only(zoo: dict[str, Model]) -> None:
    """`last` gives the final position of the full logits."""
    net, ids = build(zoo["gqa"], "cpu"), tokens(zoo["gqa"])
    torch.testing.assert_close(net(ids, last=True), net(ids)[:, -1:])


def test_window_keeps_only_its_tokens(zoo: dict[str, Model]) -> None:
    """A sliding-window cache holds no more tokens than the window."""
    net, cache = build(zoo["window"], "cpu"), Cache()
    net(tokens(zoo["window"]), cache)
    assert {x.shape[1] for x in cache.states.values()} == {3}


def test_every_repetition_has_its_own_weights(zoo: dict[str, Model]) -> None:
    """In nested repetitions, each copy of a weight changes the result in a way of its own."""
    model = zoo["nested"]
    net, ids = build(model, "cpu"), tokens(model)
    weight = net.weight("layers0.local.ffn.w_up")
    assert weight.shape[:2] == (3, 2)
    results = [run(net, ids)]
    for outer in range(3):
        for inner in range(2):
            kept = weight[outer, inner].clone()
            weight[outer, inner] = 0.0
            results.append(run(net, ids))
            weight[outer, inner] = kept
    different = [(a - b).abs().max() > TOLERANCE for i, a in enumerate(results) for b in results[:i]]
    assert all(different)


def test_shared_repetitions_have_one_copy(zoo: dict[str, Model]) -> None:
    """Layers that share weights add no dimension to a parameter."""
    assert build(zoo["shared_weights"]).weight("layers.ffn.w_up").shape == (16, 24)


def test_selection_bias_is_a_buffer(zoo: dict[str, Model]) -> None:
    """A balancing bias is kept with the module but is no parameter."""
    net = build(zoo["moe_deepseek"])
    assert [name for name, _ in net.named_buffers()] == ["layers__moe__selection_bias"]


@pytest.mark.parametrize("name", ["pre", "mla", "moe_deepseek", "mamba2", "gemma3n", "t5_pair"])
def test_gradients_reach_every_parameter(zoo: dict[str, Model], name: str) -> None:
    """Every parameter takes part in the result."""
    net, ids = build(zoo[name], "cpu"), tokens(zoo[name])
    with torch.enable_grad():
        net(ids, source=read(net, ids)).square().sum().backward()
    assert [n for n, p in net.named_parameters() if p.grad is None or not p.grad.any()] == []


def test_large_tensors_begin_on_a_page() -> None:
    for elements in (LARGE // 4, LARGE // 4 + 12345, LARGE):
        x = empty_on_pages((elements,), torch.float32, "cpu")
        assert x.shape == (elements,) and x.data_ptr() % PAGE == 0
    assert empty_on_pages((3, 4), torch.bfloat16, "cpu").shape == (3, 4)
    assert empty_on_pages((LARGE,), torch.bfloat16, "meta").device.type == "meta"


def test_a_position_of_encoders_alone_is_refused() -> None:
    """Relative keys of conformers are counted, and have no function in the module."""
    net = build(
        Model.model_validate({
            "name": "shaw", "architecture": "decoder", "vocab_size": 32, "d_model": 16, "layers": [{
                "norm": {"kind": "layernorm"}, "ffn": {"kind": "mlp", "d_ff": 16, "activation": "gelu"},
                "attention": {"kind": "mha", "n_heads": 2, "d_head": 8,
                              "position": {"kind": "shaw", "rows": 9, "span": 4}},
            }],
        })
    )  # fmt: skip
    with pytest.raises(UsageError, match="`distance` have no PyTorch function"):
        net(torch.zeros(1, 4, dtype=torch.long))
