"""When each call of a step was over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from archsim.graph.graph import Node
from archsim.measure.bench import event

SLEEP_CYCLES = 200_000_000
"""The device waits so long while a step's calls are issued, so that its own time is seen and not the host's."""


class Stamps:
    """Times between one call of a step and the next."""

    def __init__(self, cuda: bool) -> None:
        self.cuda = cuda
        self.paths: list[tuple[str, ...]] = []
        self.depth = 0
        if cuda:
            torch.cuda.synchronize()
            torch.cuda._sleep(SLEEP_CYCLES)  # type: ignore[no-untyped-call]
        self.stamps: list[Any] = [self._now()]

    def add(self, paths: tuple[str, ...]) -> None:
        """A call is over."""
        self.paths.append(paths)
        self.stamps.append(self._now())

    @contextmanager
    def around(self, node: Node) -> Iterator[None]:
        """Stamp the end of a node; of one inside another only the outer."""
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
        if not self.depth:
            self.add((node.name,))

    def seconds(self) -> list[tuple[tuple[str, ...], float]]:
        """Paths and seconds of every call."""
        if self.cuda:
            torch.cuda.synchronize()
            times = [a.elapsed_time(b) / 1e3 for a, b in zip(self.stamps, self.stamps[1:], strict=False)]
        else:
            times = [(b - a) / 1e9 for a, b in zip(self.stamps, self.stamps[1:], strict=False)]
        return list(zip(self.paths, times, strict=True))

    def _now(self) -> Any:
        if not self.cuda:
            return time.perf_counter_ns()
        stamp = event()
        stamp.record()
        return stamp
