"""A step of fixed shape as a flat list of calls without host work, which a CUDA graph can capture.

A graph is unrolled once for a number of sequences, new tokens and past ones. Caches are buffers of the final
size, into which new tokens are written in place; products of one input are one product; a residual and the norm
after it, a gate, a rotation are one kernel each. What no rule covers runs by the interpreter's own rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from archsim.backend.compile.compiler import Compiler
from archsim.backend.compile.parts import Part, Shape, StaticRun, Values
from archsim.backend.fused import EAGER, Kernels
from archsim.backend.module import Net
from archsim.backend.packed import Packed
from archsim.backend.rope import frequencies
from archsim.backend.run import Cache, Slot
from archsim.backend.unroll import unroll
from archsim.blocks.rope import Rope
from archsim.graph.graph import ops


class Unsupported(Exception):
    """A step that has no program: what it needs, in words. `Net` itself runs it."""


class Program:
    """One step of `net` at a fixed shape. `tokens` and all caches keep their places from call to call.

    source: what the encoder of an encoder-decoder reads, as many tokens as the prompt has or as were cached.
    encoded: ids of what its layers see. inputs: what the graph reads by name beside them.
    """

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
        read = torch.randint(net.model.vocab_size, (shape.batch, shape.past or shape.new), device=place)
        self.source = net.source_of(read)
        self.inputs, self.encoded = net.entering(self.source)
        unrolled = unroll(net.graph(net.step(*shape, last=last)))
        self.run = StaticRun(
            weights=net.copy_of, cache=Cache(length=shape.past), tokens=self.tokens, width=net.model.d_model,
            layers=net.model.layers, past=shape.past, dtype=net.dtype, fused=True, fast=True, source=self.encoded,
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
    if shape.past and shape.new != 1:
        raise Unsupported("several new tokens after past ones")
    if shape.past and net.model.architecture == "encoder":
        raise Unsupported(f"{net.model.name} is an encoder, which has no step after a prompt")
    graph = net.graph(net.step(*shape))
    for op, _ in ops(graph):
        mask = op.attrs.get("mask")
        if mask is not None and (mask.top_k or mask.chunk):
            raise Unsupported("an indexer's choice, or attention in chunks")
        if op.fn == "compress":
            raise Unsupported("entries that stand for several tokens")
