"""One execution of an op graph: a rule per op kind, applied in order.

Activations live in `values` by tensor name, weights in the module, states in the cache. A repetition of a
block reads its own slice of every weight and its own slot of every state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from archsim.backend.axes import Dims, dims_of
from archsim.backend.liveness import Liveness
from archsim.blocks.layer import Layer
from archsim.graph.graph import Block, Node, Op, OpKind
from archsim.graph.passes.grad import SCANS
from archsim.graph.tensor import FP32, Use
from archsim.graph.tensor import Tensor as Named

RECOMPUTED_SCAN = "recomputed scan"
"""The kernel that trains a block of `SCANS`."""

Slot = tuple[str, tuple[int, ...]]
"""A state's name and the repetition of every block around it."""


@dataclass(slots=True)
class Cache:
    """States by name and repetition. length: tokens seen so far; source: tokens that the encoder saw.

    Token caches are (sequences, tokens, ...); after each call they are cut to what the next can still need.
    """

    length: int = 0
    source: int = 0
    states: dict[Slot, Tensor] = field(default_factory=dict)

    def trim(self, stored: Mapping[str, int]) -> None:
        """Keep only the latest `stored[name]` tokens of each cache."""
        for slot, x in self.states.items():
            kept = stored.get(slot[0])
            if kept is not None and x.shape[1] > kept:
                self.states[slot] = x[:, x.shape[1] - kept :].contiguous()


Weights = Callable[[str, Mapping[str, int]], Tensor]
"""Name and present repetitions to one copy of a weight."""


Watch = Callable[[Node], AbstractContextManager[None]]
"""What surrounds the execution of an op, or of a block that runs as one kernel."""


class Value(NamedTuple):
    """A dense tensor and the names of its dimensions."""

    x: Tensor
    dims: Dims


@dataclass(frozen=True, slots=True)
class Routing:
    """The (token, expert) pairs of a router: for each row of M its token and its expert."""

    token: Tensor
    expert: Tensor


@dataclass(slots=True)
class Run:
    """The state of one execution. `values` may hold what the graph reads and no op writes: a spectrum.

    width, layers: the model's. tokens, past: ids (S, T) of the stack being run, and how many came before them. fused:
    attention runs as one kernel where its body is plain. fast: experts work on the tokens sent to them, one
    after another, instead of on gathered copies of their weights. watch: a context around every op. dialect: whose
    implementations run where there will be a backward; tables: what depends on positions alone, made once. liveness:
    when activations are dropped; without it they stay. repeat: how a repetition of a block runs where not at once.
    """

    weights: Weights
    cache: Cache
    tokens: Tensor
    width: int
    layers: tuple[Layer, ...] = ()
    source: Tensor | None = None
    past: int = 0
    dtype: torch.dtype = torch.float32
    fused: bool = False
    fast: bool = False
    values: dict[str, Tensor] = field(default_factory=dict)
    index: dict[str, int] = field(default_factory=dict)
    routing: Routing | None = None
    passed: Tensor | None = None
    sinks: Tensor | None = None
    counters: dict[str, int] = field(default_factory=dict)
    watch: Watch | None = None
    dialect: str = ""
    tables: dict[Hashable, Tensor] = field(default_factory=dict)
    liveness: Liveness | None = None
    repeat: Repeat | None = None

    # ------------------------------------------------------------------ structure
    def node(self, node: Node) -> None:
        """Execute an op, or a block with all its repetitions."""
        if isinstance(node, Op):
            with self.watched(node):
                RULES[node.kind](self, node)
        elif node.name == "encoder":
            self._encoder(node)
        else:
            self._block(node)
        if self.liveness is not None:
            for name in self.liveness.dropped[node]:
                self.values.pop(name, None)

    def _encoder(self, block: Block) -> None:
        """The encoder of an encoder-decoder sees the source tokens, all of them new."""
        assert self.source is not None
        outer, self.tokens = self.tokens, self.source
        self._block(block)
        self.tokens = outer

    def _block(self, block: Block) -> None:
        first = {x.name: self.values[x.name] for x, _ in block.carry if not self._is_last_read(x.name, block)}
        for i in range(int(block.times)):
            self.index[block.name] = i
            if self.repeat is None:
                self.repetition(block)
            else:
                self.repeat(self, block)
            for x, y in block.carry:
                self.values[x.name] = self.values[y.name]
        self.values.update(first)  # what follows the block reads `y`, and `x` means what it meant before

    def _is_last_read(self, name: str, block: Block) -> bool:
        return self.liveness is not None and name in self.liveness.dropped[block]

    def repetition(self, block: Block) -> None:
        """The body of a block once, as one kernel where there is one."""
        scan = self.dialect and block.kernel in SCANS
        kernel = KERNELS.get(RECOMPUTED_SCAN if scan else block.kernel)
        if kernel is None or not self._as_one(kernel, block):
            for child in block.body:
                self.node(child)

    def _as_one(self, kernel: Kernel, block: Block) -> bool:
        with self.watched(block):
            return kernel(self, block)

    def watched(self, node: Node) -> AbstractContextManager[None]:
        """The context that watches a node, if anyone does."""
        return nullcontext() if self.watch is None else self.watch(node)

    # ------------------------------------------------------------------ values
    def read(self, use: Use) -> Value:
        """What an op reads: a weight's or state's present copy, or an activation."""
        tensor = use.tensor
        dims = dims_of(tensor.axes)
        if tensor.kind == "weight":
            x = self.weights(tensor.name, self.index)
        elif tensor.kind == "state":
            x = self.state(tensor, use.copy)
        else:
            x = self.values[tensor.name]
        return Value(_touched(x, dims, use), dims)

    def write(self, use: Use, x: Tensor) -> None:
        """Keep what an op wrote: a state in the cache, an activation under its name. A state that was cut out of a
        larger tensor would keep all of that alive, and is copied.
        """
        if use.tensor.kind == "state":
            kept = x.clone() if x.untyped_storage().nbytes() > x.nbytes else x
            self.cache.states[self.slot(use.tensor, use.copy)] = kept
        else:
            self.values[use.tensor.name] = x

    def slot(self, tensor: Named, copy: tuple[int, ...] | None = None) -> Slot:
        """Where a state lives. `copy` gives the repetitions of the outermost blocks, of a shared cache."""
        parts = tensor.name.split(".")[:-1]
        around = [".".join(parts[: i + 1]) for i in range(len(parts))]
        own = tuple(self.index.get(name, 0) for name in around)
        return tensor.name, own if copy is None else (*copy, *(0 for _ in own[len(copy) :]))

    def state(self, tensor: Named, copy: tuple[int, ...] | None = None) -> Tensor:
        """A state as it stands: zeros, and no cached tokens, before the first write."""
        slot = self.slot(tensor, copy)
        if slot not in self.cache.states:
            count = self.tokens.shape[0]
            size = {a: int(n) for a, n in tensor.axes.items()} | {"S": count, "C": 0}
            dtype = torch.float32 if tensor.format is FP32 else self.dtype
            shape = [size[d] for d in dims_of(tensor.axes)]
            self.cache.states[slot] = torch.zeros(shape, dtype=dtype, device=self.tokens.device)
        return self.cache.states[slot]

    def table(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """What depends on positions alone (angles, masks, distances): made by the first op that asks for it."""
        if key not in self.tables:
            self.tables[key] = make()
        return self.tables[key]

    def without_values(self) -> Run:
        """The same run for a body that runs once more in the backward: it holds on to no activation."""
        cache = Cache(self.cache.length, self.cache.source)
        return replace(self, cache=cache, values={}, index=dict(self.index), dialect="", watch=None,
                       liveness=None, routing=None)  # fmt: skip

    def count(self, name: str) -> int:
        """How often this was asked before, for entries that successive layers take one by one."""
        self.counters[name] = self.counters.get(name, -1) + 1
        return self.counters[name]


def _touched(x: Tensor, dims: Dims, use: Use) -> Tensor:
    """Of a table of relative positions, the rows in the middle that the present length needs."""
    rows = use.axes.get("R")
    if rows is None or "R" not in dims or int(rows) >= x.shape[dims.index("R")]:
        return x
    i = dims.index("R")
    return x.narrow(i, (x.shape[i] - int(rows)) // 2, int(rows))


def state_of(block: Block) -> Use:
    """The state that the body of a kernel writes."""
    uses = [use for op in block.body if isinstance(op, Op) for use in op.writes]
    return next(use for use in uses if use.tensor.kind == "state")


Repeat = Callable[[Run, Block], None]
"""Runs one repetition of a block."""

Rule = Callable[[Run, Op], None]
Kernel = Callable[[Run, Block], bool]
"""Runs one repetition of a block as a whole; False if it cannot, and the body runs op by op."""

RULES: dict[OpKind, Rule] = {}
KERNELS: dict[str, Kernel] = {}


def rule(kind: OpKind) -> Callable[[Rule], Rule]:
    """Register how ops of one kind are executed."""

    def register(function: Rule) -> Rule:
        RULES[kind] = function
        return function

    return register


def kernel(name: str) -> Callable[[Kernel], Kernel]:
    """Register a better way to run the bodies of one kind of block."""

    def register(function: Kernel) -> Kernel:
        KERNELS[name] = function
        return function

    return register
