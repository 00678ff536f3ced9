"""The calls that a program is made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from archsim.backend.unroll import Instruction
from archsim.graph.graph import Block, Op, ops

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
