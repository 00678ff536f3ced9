"""Kernels that do as much for each sequence whatever runs beside it, and that their roofline times, as scans in chunks.
A step's arithmetic and traffic are summed over its sequences, and what takes longer counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from archsim.graph.kernels import Traffic
from archsim.timing.kernel_calls import FusedCall
from archsim.timing.roofline import Work, seconds, times
from archsim.timing.separable import Array, Load, SeparableStep, Unit
from archsim.timing.step_pricer import launch_time
from archsim.timing.step_time import KernelCost

CACHED, NEW = 2048.0, 300.0
"""Cached tokens and chunk of the steps that constants are taken from."""


class SummedKernel:
    """Seconds of one such launch in steps with chunks. tokens: the most of a step. positions: up to which
    sequences go.
    """

    def __init__(self, step: SeparableStep, unit: Unit, tokens: int, positions: int) -> None:
        self.step, self.launch, self.tokens, self.positions = step, unit.launch, tokens, positions
        usual = step.works(self.launch, Load(1, CACHED, 1, 300, 500))
        self.formats = usual.formats
        self.later = step.of_sequence(self.launch, NEW, CACHED) - self._between(CACHED, CACHED + NEW)
        token = self._between(CACHED, CACHED + step.new)
        self.decode = step.of_decode(self.launch, CACHED) - token
        self.none = usual.sums - token - self.decode - self._between(500, 800) - self.later

    def _between(self, first: float, last: float) -> Array:
        one, other = (self.step.of_sequence(self.launch, n, 0) for n in (first, last))
        return np.asarray(other - one)

    @cached_property
    def fresh(self) -> Array:
        """What a prompt of so many tokens adds, one row for each quantity."""
        tokens = np.maximum(np.arange(self.positions + 1, dtype=float), 1)
        return self.step.of_sequence(self.launch, tokens, 0)

    @cached_property
    def acts(self) -> list[list[float]]:
        """Bytes of activations of each kernel in a step of so many tokens."""
        tokens = np.maximum(np.arange(self.tokens + 1, dtype=float) - self.step.new, 1)
        rows: list[list[float]] = self.step.works(self.launch, Load(1, CACHED, 1, tokens, 0)).acts.T.tolist()
        return rows

    @cached_property
    def _like(self) -> tuple[FusedCall, list[KernelCost]]:
        """The launch and its kernels, of any step."""
        costs, launches = self.step.lowered(self.step.step(Load(7, CACHED, 1, NEW, CACHED)))
        return launches[self.launch], [costs[k] for k in launches[self.launch].members]

    def _sums(self, decodes: int, context: float, chunks: Sequence[tuple[int, int]]) -> list[float]:
        """All that the kernels of a step do. Raises IndexError beyond the table."""
        fresh, new = self.fresh, self.step.new
        found = self.none
        if decodes:
            at, share = divmod(context / decodes, 1)
            here = int(at)
            one, next_one = (fresh[:, n + new] - fresh[:, n] for n in (here, here + 1))
            found = found + decodes * (self.decode + one + share * (next_one - one))
        for tokens, past in chunks:
            found = found + fresh[:, past + tokens]
            if past:
                found = found + (self.later - fresh[:, past])
        sums: list[float] = found.tolist()
        return sums

    def at(self, decodes: int, context: float, chunks: Sequence[tuple[int, int]]) -> dict[str, Array]:
        """Expected, low and high seconds of a step by class of kernels."""
        sums, members = iter(self._sums(decodes, context, chunks)), []
        launch, costs = self._like
        acts = self.acts[decodes * self.step.new + sum([new for new, _ in chunks])]
        for cost, formats, act in zip(costs, self.formats, acts, strict=True):
            matrix = tuple((name, next(sums)) for name in formats)
            done = Work(matrix, next(sums), next(sums), Traffic(state=next(sums), act=act), 0, next(sums) or 0)
            compute, memory, comm = times(done, self.step.pricer.timer.machine)
            ideal = seconds(compute, memory, comm)
            members.append(cost._replace(compute_s=compute, memory_s=memory, comm_s=comm, ideal_s=ideal))
        found: dict[str, Array] = {}
        for (kernel_class, _), count, time in launch_time(launch, members, ()).parts:
            each = count * np.array(time[:3], float)
            found[kernel_class] = found[kernel_class] + each if kernel_class in found else each
        return found
