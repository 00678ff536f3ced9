"""A step of fixed shape as a flat list of calls without host work, which a CUDA graph can capture.

A graph is unrolled once for a number of sequences, new tokens and past ones. Caches are buffers of the final
size, into which new tokens are written in place; products of one input are one product; a residual and the norm
behind it, a gate, a rotation are one kernel each. What no rule covers runs by the interpreter's own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from archsim.backend.axes import dims_of
from archsim.backend.cache import Cache, Slot
from archsim.backend.compile.compiler import Compiler
from archsim.backend.compile.parts import Part, Values
from archsim.backend.fused import EAGER, Kernels
from archsim.backend.module import Net
from archsim.backend.packed import Packed
from archsim.backend.rope import frequencies
from archsim.backend.run import Run
from archsim.backend.unroll import unroll
from archsim.blocks.rope import Rope
from archsim.graph.graph import ops
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor as Named


class Unsupported(Exception):
    """A step that has no program: what it needs, in words. `Net` itself runs it."""


class Shape(NamedTuple):
    """Equal sequences: how many, with how many new tokens each after how many past ones."""

    batch: int
    new: int
    past: int


@dataclass(slots=True)
class StaticRun(Run):
    """A run whose caches are buffers of fixed size. fresh: new keys or values of a
    prefill longer than its window, which attention needs whole."""

    buffers: dict[Slot, Tensor] = field(default_factory=dict)
    fresh: dict[Slot, Tensor] = field(default_factory=dict)
    offsets: Tensor | None = None

    def state(self, tensor: Named, copy: tuple[int, ...] | None = None) -> Tensor:
        """A cache as attention reads it: the new tokens themselves in a prefill, else the whole buffer."""
        slot = self.slot(tensor, copy)
        if "C" not in tensor.axes:
            return Run.state(self, tensor, copy)
        if slot in self.fresh:
            return self.fresh[slot]
        return self.buffer(tensor, slot)

    def buffer(self, tensor: Named, slot: Slot) -> Tensor:
        """The buffer of one cache, random until it is written."""
        if slot not in self.buffers:
            batch = self.tokens.shape[0]
            size = {a: int(n) for a, n in tensor.axes.items()}
            size |= {"S": batch, "C": size["C"] // batch}
            shape = [size[d] for d in dims_of(tensor.axes)]
            self.buffers[slot] = torch.randn(shape, dtype=self.dtype, device=self.tokens.device)
        return self.buffers[slot]

    def append(self, tensor: Named, copy: tuple[int, ...] | None, new: Tensor) -> None:
        """New tokens in their places: behind the past ones, or over the oldest where a window is full."""
        slot = self.slot(tensor, copy)
        buffer = self.buffer(tensor, slot)
        room, count = buffer.shape[1], new.shape[1]
        if self.past == 0:
            for older in [s for s in self.fresh if s[0] == slot[0]]:
                del self.fresh[older]  # of the layer before: no one reads it any more
            if count > room:
                self.fresh[slot] = new
            buffer.copy_(new[:, max(count - room, 0) :])
        else:
            place = self.past if self.past < room else self.past % room
            buffer.narrow(1, place, count).copy_(new)


class Program:
    """One step of `net` at a fixed shape. `tokens` and all caches keep their places from call to call."""

    def __init__(
        self,
        net: Net,
        shape: Shape,
        kernels: Kernels = EAGER,
        packed: Packed | None = None,
        *,
        last: bool = True,
        device: str | torch.device | None = None,
    ) -> None:
        _check(net, shape)
        self.net, self.shape, self.kernels = net, shape, kernels
        self.packed = packed or Packed(net)
        place = device if device is not None else next(net.parameters()).device
        self.tokens = torch.zeros(shape.batch, shape.new, dtype=torch.long, device=place)
        self.tokens.random_(0, net.model.vocab_size)
        step = Step.of(*shape, masked=False, last=last, absorbed=net.absorbed)
        unrolled = unroll(net.graph(step))
        self.run = StaticRun(
            weights=net.copy_of, cache=Cache(length=shape.past), tokens=self.tokens, width=net.model.d_model,
            layers=net.model.layers, past=shape.past, dtype=net.dtype, fused=True, fast=True,
        )  # fmt: skip
        self.parts, self.result = Compiler(self, unrolled).compiled()
        self._values: Values = [None] * unrolled.values

    @torch.no_grad()
    def __call__(self, watch: Callable[[Part], None] | None = None) -> Tensor:
        """Logits (B, T, V) of `self.tokens`. watch: called behind every part."""
        values, run = self._values, self.run
        run.counters.clear()
        run.fresh.clear()
        run.tokens = self.tokens
        for part in self.parts:
            part.call(values)
            for number in part.dead:
                values[number] = None
            if watch is not None:
                watch(part)
        result = values[self.result]
        assert result is not None
        values[self.result] = None
        return result

    def caches(self) -> Mapping[Slot, Tensor]:
        """All token caches by name and repetition."""
        return self.run.buffers

    def adopt(self, states: Mapping[Slot, Tensor]) -> None:
        """Take over the caches that a call of the module left after the past tokens, in order of time."""
        for slot, found in states.items():
            buffer = self.run.buffers.get(slot)
            if buffer is None:
                self.run.cache.states[slot] = found
                continue
            length, room = found.shape[1], buffer.shape[1]
            places = torch.arange(self.shape.past - length, self.shape.past, device=buffer.device) % room
            buffer[:, places] = found.detach()

    def rotation(self, rope: Rope, width: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the step's positions, (T, pairs), on the device."""
        past, new = self.shape.past, self.shape.new
        dim = min(rope.dim or width, width)
        angle, factor = frequencies(rope, dim, past + new)
        turns = torch.arange(past, past + new, dtype=torch.float32)[:, None] * angle
        return (turns.cos() * factor).to(self.tokens.device), (turns.sin() * factor).to(self.tokens.device)


def _check(net: Net, shape: Shape) -> None:
    """Refuse what the buffers cannot stand for."""
    if net.model.architecture != "decoder" or net.model.encoder is not None:
        raise Unsupported(f"a program runs decoders, and {net.model.name} is none")
    if shape.past and shape.new != 1:
        raise Unsupported("several new tokens after past ones")
    graph = net.graph(Step.of(*shape, masked=False, absorbed=net.absorbed))
    for op, _ in ops(graph):
        mask = op.attrs.get("mask")
        if mask is not None and (mask.top_k or mask.chunk):
            raise Unsupported("an indexer's choice, or attention in chunks")
