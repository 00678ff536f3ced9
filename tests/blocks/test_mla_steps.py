"""MLA in steps that mix decodes over the latents with prompts that expand them."""

import pytest

from archsim.counts.graph_counts import flops
from archsim.graph.kernels import kernels_with_edges, traffic
from archsim.graph.step import Seqs, Step
from archsim.spec.load import load_model
from archsim.spec.lower import lower

DECODES = Seqs(8, 1, 4000, absorbed=True)
PROMPT = Seqs(1, 2048, 0)


def _flops(*seqs: Seqs) -> float:
    return float(flops(lower(load_model("deepseek-v3"), Step(seqs=seqs))))


def _state_bytes(*seqs: Seqs) -> float:
    graph = lower(load_model("deepseek-v3"), Step(seqs=seqs))
    return float(sum(traffic(edges, 0).state * kernel.times for kernel, edges in kernels_with_edges(graph)))


@pytest.mark.parametrize("count", [_flops, _state_bytes])
def test_a_mixed_step_is_its_parts(count: object) -> None:
    """Decodes keep the absorbed form beside a prompt: nothing is computed or read twice."""
    assert callable(count)
    assert count(DECODES, PROMPT) == count(DECODES) + count(PROMPT)


def test_absorption_belongs_to_sequences() -> None:
    """Either form for the same sequences costs differently, so a step must know which sequence takes which."""
    assert _flops(DECODES) < _flops(DECODES._replace(absorbed=False))
    assert _flops(PROMPT) < _flops(PROMPT._replace(absorbed=True))
    assert _flops(DECODES, PROMPT) < _flops(DECODES, PROMPT._replace(absorbed=True))
