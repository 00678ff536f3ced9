"""Training steps of a module on a processor: one whole, and the backward of each of its operators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd.profiler import record_function
from torch.autograd.profiler_util import FunctionEvent
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from archsim.backend.module import Net, build
from archsim.graph.graph import Node
from archsim.graph.passes.checkpoint import recompute_of
from archsim.spec.model import Model
from archsim.timing.classes.cpu import OPTIMIZER

MARK = "@"
"""What the names of ranges begin with that stand for operators of the graph."""
NODE = "autograd::engine::evaluate_function"
LOSS = "loss.cross_entropy"
RATE = 1e-6


class TrainedOnCpu:
    """A module with random weights in fp32, its optimizer, and random tokens. recompute: what runs once more in the
    backward.
    """

    def __init__(self, model: Model, recompute: str = "none") -> None:
        self.model = model
        self.net: Net = build(model, "cpu", torch.float32, stacked=False)
        self.net.fused = self.net.fast = True
        self.net.recompute = recompute_of(recompute)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=RATE, fused=True)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the parameters."""
        return sum(p.nbytes for p in self.net.parameters())

    @property
    def state_bytes(self) -> int:
        """Bytes of the optimizer's states; none before the first step."""
        return sum(x.nbytes for state in self.optimizer.state.values() for x in state.values())

    def tokens(self, batch: int, length: int) -> Tensor:
        """Random ids (B, T)."""
        return torch.randint(0, self.model.vocab_size, (batch, length))

    def step(self, tokens: Tensor) -> None:
        """Forward, loss of every token, backward, update."""
        with torch.enable_grad():
            torch.autograd.backward(self._loss(tokens))
        with record_function(MARK + OPTIMIZER):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def _loss(self, tokens: Tensor) -> Tensor:
        """Of every token; nothing but autograd holds the logits when it is known."""
        logits = self.net(tokens, source=tokens if self.model.encoder is not None else None)
        assert isinstance(logits, Tensor)
        with record_function(MARK + LOSS):
            return functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    def backward_seconds(self, tokens: Tensor) -> dict[str, float]:
        """Seconds of the backward of each operator in one step, the mean of its executions, by its path in the graph;
        those of the update as `optimizer`.
        """
        self.net.watch = watched
        try:
            with profile(activities=[ProfilerActivity.CPU]) as profiled:
                self.step(tokens)
        finally:
            self.net.watch = None
        return seconds_by_path(profiled.events() or [])


@contextmanager
def watched(node: Node) -> Iterator[None]:
    """The range of an operator in a profile."""
    with record_function(MARK + node.name):
        yield


def seconds_by_path(events: list[FunctionEvent]) -> dict[str, float]:
    """The backward of each operator. A node of the backward has the number of the forward call that made it; sums of
    gradients and their way into parameters have none and belong to the node before.
    """
    owners, runs = dict[int, str](), dict[str, int]()
    seconds: dict[str, float] = {}
    for event in events:
        path = _path(event)
        if event.name.startswith(MARK):
            runs[event.name[1:]] = runs.get(event.name[1:], 0) + 1
        elif path and event.sequence_nr >= 0:
            owners.setdefault(event.sequence_nr, path)
    owner = ""
    for event in sorted(events, key=lambda each: each.time_range.start):
        if event.name.startswith(NODE):
            owner = owners.get(event.sequence_nr, owner)
            seconds[owner] = seconds.get(owner, 0.0) + _seconds(event)
        elif event.name == MARK + OPTIMIZER:
            seconds[OPTIMIZER] = _seconds(event)
    return {path: total / runs.get(path, 1) for path, total in seconds.items() if path}


def _seconds(event: FunctionEvent) -> float:
    return float(event.time_range.end - event.time_range.start) / 1e6


def _path(event: FunctionEvent) -> str:
    """The operator of the graph that an event is within; empty for those of no operator."""
    for one in _around(event):
        if one.name.startswith(MARK):
            return str(one.name[1:])
    return ""


def _around(event: FunctionEvent | None) -> Iterator[FunctionEvent]:
    while event is not None:
        yield event
        event = event.cpu_parent
