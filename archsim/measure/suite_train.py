"""One optimiser step: forward, backward and AdamW, weights and both moments in bf16, nothing recomputed."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend.module import Net, build
from archsim.measure.bench import Bench
from archsim.measure.point import Point, Result
from archsim.measure.skip import Skip
from archsim.measure.suite_model import _elements, _spec, unload

STATES = 4
"""Weights, gradients and two moments."""


class Leaves:
    """Every repetition of every weight as a tensor of its own, so that gradients have the size of a layer."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.all: dict[str, dict[tuple[int, ...], Tensor]] = {}
        for name, x in net.weights().items():
            depth = len(net.loops(name))
            self.all[name] = {}
            for place in product(*map(range, x.shape[:depth])):
                self.all[name][place] = x[place].detach().clone().requires_grad_()
            x.data = torch.empty(0, dtype=x.dtype, device=x.device)

    def copy_of(self, name: str, index: Mapping[str, int]) -> Tensor:
        """As `Net.copy_of`."""
        return self.all[name][tuple(index[loop] for loop in self.net.loops(name))]

    def tensors(self) -> list[Tensor]:
        """All of them."""
        return [x for copies in self.all.values() for x in copies.values()]


def train_step(bench: Bench, point: Point) -> Result:
    """Time of one step on random tokens, logits and loss at every position."""
    unload(bench)
    model = _spec(point.model, small=bench.quick)
    need = 2 * STATES * _elements(model)
    if need > bench.free_bytes() * 0.7:
        raise Skip(f"needs {need / 1e9:.1f} GB for weights, gradients and moments")
    net = build(model, bench.device, torch.bfloat16)
    net.fused = net.fast = True
    leaves = Leaves(net)
    net.copy_of = leaves.copy_of  # type: ignore[method-assign]
    optimiser = torch.optim.AdamW(leaves.tensors(), lr=1e-4, fused=bench.cuda)
    tokens = torch.randint(0, model.vocab_size, (point["batch"], point["seq_q"]), device=bench.device)

    def step() -> None:
        with torch.enable_grad():
            logits = net(tokens)
            assert isinstance(logits, Tensor)
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            torch.autograd.backward(loss)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    step()
    if bench.cuda:
        torch.cuda.reset_peak_memory_stats()
    timing = bench.time([step], graph=False)
    peaks = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if bench.cuda else (None, None)
    return Result(timing=timing, allocated=peaks[0], reserved=peaks[1], model=model.name)
