"""Modules with a parameter for each repetition, and with parts that run once more in the backward."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch

import archsim
from archsim.backend import build
from archsim.backend.module import Net
from archsim.graph.passes.checkpoint import recompute_of
from archsim.spec.load import load_model
from archsim.spec.model import Model
from archsim.spec.tiny import tiny

SPECS = Path(archsim.__file__).parents[1] / "specs" / "models"
NAMES = ("llama3-8b", "gemma3n-e4b", "t5-base", "deepseek-v3", "mamba-2.8b", "gpt-oss-20b")


def small(name: str) -> Model:
    """A catalog model, reduced."""
    return tiny(load_model(str(SPECS / f"{name}.yaml")))


def gradients(net: Net, recompute: str) -> dict[str, torch.Tensor]:
    """Of every parameter."""
    net.recompute = recompute_of(recompute)
    net.zero_grad()
    ids = torch.arange(24).reshape(2, 12)
    with torch.enable_grad():
        torch.manual_seed(7)
        logits = net(ids, source=net.source_of(ids))
        assert isinstance(logits, torch.Tensor)
        logits.square().mean().backward()
    return {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", NAMES)
def test_what_runs_once_more_gives_the_same_gradients(name: str) -> None:
    """Of layers, of every second layer and of attention."""
    for dialect in ("eager", "fused"):
        net = build(small(name), "cpu", stacked=False)
        net.dialect = dialect
        wanted = gradients(net, "none")
        for recompute in ("full", "every:2", "selective:attention"):
            found = gradients(net, recompute)
            assert found.keys() == wanted.keys()
            assert all(torch.allclose(found[weight], wanted[weight], atol=1e-6) for weight in wanted)


@pytest.mark.parametrize("name", NAMES)
def test_a_parameter_for_each_repetition_gives_the_slices_of_the_gradient(name: str) -> None:
    """The same numbers in the one and in the other form."""
    whole, apart = build(small(name), "cpu"), build(small(name), "cpu", stacked=False)
    places = [
        (weight, place, dict(zip(whole.loops(weight), place, strict=True)))
        for weight, x in whole.weights().items()
        for place in product(*map(range, x.shape[: len(whole.loops(weight))]))
    ]
    with torch.no_grad():
        for weight, place, index in places:
            apart.copy_of(weight, index).copy_(whole.weight(weight)[place])
    gradients(whole, "none")
    gradients(apart, "none")
    for weight, place, index in places:
        wanted, found = whole.weight(weight).grad, apart.copy_of(weight, index).grad
        if wanted is not None:
            assert torch.allclose(wanted[place], torch.zeros(()) if found is None else found, atol=1e-6), weight
