"""The calls that a program is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from archsim.backend.axes import dims_of
from archsim.backend.fused import Kernels
from archsim.backend.module import Net
from archsim.backend.packed import Packed
from archsim.backend.run import Run, Slot
from archsim.backend.unroll import Instruction
from archsim.blocks.rope import Rope
from archsim.graph.graph import Block, Op, ops
from archsim.graph.tensor import Tensor as Named

Values = list[Tensor | None]
Call = Callable[[Values], None]


@dataclass(frozen=True, slots=True)
class Part:
    """A call, the paths of the ops that it runs, and the values that no one needs afterwards."""

    paths: tuple[str, ...]
    call: Call
    dead: tuple[int, ...]


def given(values: Values, number: int) -> Tensor:
    """A value that is computed by now."""
    x = values[number]
    assert x is not None
    return x


def names_kernel(instruction: Instruction) -> str:
    """The kernel of a block that runs as one, or ""."""
    return instruction.node.kernel if isinstance(instruction.node, Block) else ""


def paths_of(instruction: Instruction) -> tuple[str, ...]:
    """The ops that an instruction stands for."""
    if isinstance(instruction.node, Op):
        return (instruction.node.name,)
    return tuple(op.name for op, _ in ops(instruction.node))


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
        if slot not in self.buffers and slot in self.cache.states:
            return self.cache.states[slot]  # of a source, adopted from an earlier pass
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


class Target(Protocol):
    """What calls are compiled for: a module at a fixed shape, with the buffers that its calls work on."""

    net: Net
    shape: Shape
    kernels: Kernels
    packed: Packed
    run: StaticRun
    tokens: Tensor
    encoded: Tensor | None
    inputs: dict[str, Tensor]

    def rotation(self, rope: Rope, width: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the new positions."""
