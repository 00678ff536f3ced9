"""A model as a torch module that executes its op graph.

Every weight of the graph is one parameter, whose leading dimensions are the repetitions of the blocks around
it, outermost first: `layers.attention.w_q` of 32 layers is (32, D, K, G, H). To measure the memory of training every
repetition has a parameter of its own, as in models written by hand: the gradient of a slice is as large as the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor, nn

import archsim.backend.attention  # they register their rules
import archsim.backend.kernels
import archsim.backend.linear
import archsim.backend.mlstm
import archsim.backend.rwkv7
import archsim.backend.ssd  # noqa: F401
from archsim.backend.liveness import Liveness, liveness
from archsim.backend.recompute import repeat_with
from archsim.backend.run import Cache, Run, Watch
from archsim.blocks.stage import step_before, tokens_after
from archsim.graph.graph import Block, Node, Op, blocks, ops
from archsim.graph.passes.checkpoint import NO_RECOMPUTATION
from archsim.graph.step import Seqs, Step
from archsim.graph.tensor import Tensor as Named
from archsim.spec.lower import lower
from archsim.spec.model import Model

AFTER_STACK = ("head", "pooler", "mlm_head", "mtp")
"""Top-level blocks that work on the stack's result."""

GRAPHS_KEPT = 16

PAGE = 4096
"""Bytes of a page of memory, where a processor's prefetchers stop."""
LARGE = 1 << 20
"""Bytes from which a tensor begins on a page."""


Rewrite = Callable[[Block], Block]
"""A pass over the graph of every step."""


class Encoded(NamedTuple):
    """What an encoder returns: hidden states (B, T, D), the pooled first token (B, D), masked-LM logits."""

    hidden: Tensor
    pooled: Tensor | None = None
    logits: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Home:
    """Where a weight lives: its parameter, and the repeated blocks that its leading dimensions count."""

    parameter: str
    loops: tuple[str, ...]

    def copy_name(self, index: Iterable[int]) -> str:
        """The parameter of one repetition, where each has its own."""
        return "__".join((self.parameter, *map(str, index)))


class Net(nn.Module):
    """Executes the graph of `model`, lowered anew for every shape of step.

    fused: attention as one kernel where its body is plain. fast: experts run on the tokens sent to them.
    absorbed: MLA with its up-projections moved to the query and the output. watch: a context around every op.
    dialect: "eager" or "fused", the implementations to train with; tables: the last pass's tables of positions.
    stacked: one parameter for all repetitions of a weight, else one for each; recompute: what runs once more in the
    backward (`none`, `full`, `every:N`, `selective:attention`).
    """

    def __init__(
        self, model: Model, device: str, dtype: torch.dtype, parts: Collection[str] = (),
        rewrite: Rewrite | None = None, stacked: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model, self.parts, self.dtype, self.rewrite = model, tuple(parts), dtype, rewrite
        self.stacked, self.recompute = stacked, NO_RECOMPUTATION
        self.fused = self.fast = self.absorbed = False
        self.watch: Watch | None = None
        self.dialect = ""
        self.tables: dict[Hashable, Tensor] = {}
        self._homes: dict[str, Home] = {}
        self._graphs: dict[Step, Block] = {}
        graph = self.graph(_prefill(model))
        self._entry = _entry(graph)
        repeats = {b.name: 1 if b.shared else int(b.times) for b in blocks(graph)}
        for tensor in weights_of(graph):
            self._register(tensor, repeats, device)

    def _register(self, tensor: Named, repeats: Mapping[str, int], device: str) -> None:
        """A parameter, or a buffer where a weight is set by rule."""
        parts = tensor.name.split(".")
        around = [".".join(parts[:i]) for i in range(1, len(parts))]
        loops = tuple(name for name in around if repeats.get(name, 1) != 1)
        copies, own = [repeats[name] for name in loops], [int(n) for n in tensor.axes.values()]
        home = self._homes[tensor.name] = Home(tensor.name.replace(".", "__"), loops)
        if self.stacked:
            self._add(tensor, home.parameter, [*copies, *own], device)
        else:
            for index in product(*map(range, copies)):
                self._add(tensor, home.copy_name(index), own, device)

    def _add(self, tensor: Named, name: str, shape: Sequence[int], device: str) -> None:
        x = (empty_on_pages if self.stacked else torch.empty)(shape, dtype=self.dtype, device=device)
        if tensor.role == "buffer":
            self.register_buffer(name, x)
        else:
            self.register_parameter(name, nn.Parameter(x))
        if device != "meta":
            _initialise(x, tensor)

    def weight(self, name: str) -> Tensor:
        """The parameter of the graph's weight `name`, all its repetitions. Of a module with a parameter for each there
        is none: AttributeError.
        """
        found: Tensor = getattr(self, self._homes[name].parameter)
        return found

    def loops(self, name: str) -> tuple[str, ...]:
        """The repeated blocks that the leading dimensions of a weight count."""
        return self._homes[name].loops

    def weights(self) -> dict[str, Tensor]:
        """All parameters and buffers by the graph's names."""
        return {name: self.weight(name) for name in self._homes}

    def graph(self, step: Step) -> Block:
        """The op graph of one step."""
        if step not in self._graphs:
            if len(self._graphs) >= GRAPHS_KEPT:
                self._graphs.clear()
            graph = lower(self.model, step, self.parts)
            self._graphs[step] = graph if self.rewrite is None else self.rewrite(graph)
        return self._graphs[step]

    def step(self, batch: int, new: int, past: int, *, last: bool = True) -> Step:
        """A pass of equal sequences, in which an encoder reads as many tokens as the prompt has or as were cached."""
        source = (Seqs(batch, past or new, 0),) if self.model.encoder is not None else ()
        return Step.of(batch, new, past, masked=False, last=last, absorbed=self.absorbed, source=source)

    def source_of(self, ids: Tensor) -> Tensor | None:
        """What the encoder of an encoder-decoder reads: these ids (B, T), or as many random frames of sound as its
        front makes T vectors of. None of a model without one.
        """
        encoder = self.model.encoder
        if encoder is None or self._entry is None:
            return None if encoder is None else ids
        batch, count = ids.shape
        frames = step_before(encoder.front, Step.of(batch, count)).tokens
        width = [int(n) for axis, n in self._entry.axes.items() if axis != "T"]
        return torch.randn(batch, int(frames) // batch, *width, dtype=self.dtype, device=ids.device)

    def entering(self, source: Tensor | None) -> tuple[dict[str, Tensor], Tensor | None]:
        """A source as a run needs it: values that the graph reads by name, and ids of what the encoder's layers see."""
        if source is None or self._entry is None:
            return {}, source
        ids = torch.zeros(source.shape[0], self._encoded(source), dtype=torch.long, device=source.device)
        return {self._entry.name: source}, ids

    def _encoded(self, source: Tensor) -> int:
        """Vectors of each sequence that the encoder's layers see of a source."""
        encoder = self.model.encoder
        if encoder is None or self._entry is None:
            return source.shape[1]
        return int(tokens_after(encoder.front, Step.of(1, source.shape[1], 0)))

    def forward(
        self, tokens: Tensor, cache: Cache | None = None, source: Tensor | None = None, last: bool = False
    ) -> Tensor | Encoded:
        """Logits (B, T, V), at the last position only with `last`; of an encoder its hidden states.

        tokens: ids (B, T), all new. cache: what earlier calls left, updated in place. source: what the encoder of an
        encoder-decoder reads, needed while the cache is empty: ids, or the frames of a sound (B, frames, channels).
        """
        cache = Cache() if cache is None else cache
        graph = self.graph(self._step(tokens, cache, source, last))
        values, source = self.entering(source)
        run = Run(
            weights=self.copy_of, cache=cache, tokens=tokens, width=self.model.d_model, source=source,
            layers=self.model.layers, past=cache.length, dtype=self.dtype, fused=self.fused, fast=self.fast,
            values=values, watch=self.watch, dialect=self.dialect, liveness=self._liveness(graph),
            repeat=repeat_with(self.recompute),
        )  # fmt: skip
        for node in graph.body:
            run.node(node)
        self.tables = run.tables
        cache.length += tokens.shape[1]
        cache.trim(_stored_tokens(graph, tokens.shape[0]))
        return self._result(graph, run)

    def _liveness(self, graph: Block) -> Liveness | None:
        """When training drops activations; without a backward they are few, and stay."""
        return liveness(graph, self._results(graph).values()) if self.dialect or self.recompute.kind != "none" else None

    def _step(self, tokens: Tensor, cache: Cache, source: Tensor | None, last: bool) -> Step:
        batch, new = tokens.shape
        seen = cache.source if source is None else self._encoded(source)
        sources = (Seqs(batch, seen, 0),) if self.model.encoder is not None else ()
        seqs = (Seqs(batch, new, cache.length, self.absorbed),)
        return Step(seqs=seqs, masked=False, last=last, source=sources)

    def copy_of(self, name: str, index: Mapping[str, int]) -> Tensor:
        """One repetition's slice of a weight, or its own parameter."""
        home = self._homes[name]
        if not self.stacked:
            found: Tensor = getattr(self, home.copy_name(index[loop] for loop in home.loops))
            return found
        x: Tensor = getattr(self, home.parameter)
        return x[tuple(index[loop] for loop in home.loops)] if home.loops else x

    def _results(self, graph: Block) -> dict[str, str]:
        """Names of what a pass returns: the results of the parts behind the stack, and hidden states as `stack`."""
        found = {n.name: _output_name(n) for n in graph.body if isinstance(n, Block) and n.name in AFTER_STACK}
        return {**found, "stack": _hidden_states(graph)}

    def _result(self, graph: Block, run: Run) -> Tensor | Encoded:
        values = {part: run.values[name] for part, name in self._results(graph).items()}
        if self.model.architecture != "encoder":
            return values["head"]
        pooled = values["pooler"].squeeze(1) if "pooler" in values else None
        return Encoded(values["stack"], pooled, values.get("mlm_head"))


def build(
    model: Model, device: str = "meta", dtype: torch.dtype = torch.float32, parts: Collection[str] = (),
    rewrite: Rewrite | None = None, stacked: bool = True,
) -> Net:  # fmt: skip
    """The module of `model`, with random weights unless it is on the meta device. `parts`: as in `lower`. rewrite: a
    pass over its graphs (adapters). stacked: all repetitions of a weight in one parameter.
    """
    return Net(model, device, dtype, parts, rewrite, stacked)


def weights_of(graph: Block) -> Iterator[Named]:
    """Every weight that the graph names, once."""
    seen: set[str] = set()
    for op, _ in ops(graph):
        for use in (*op.reads, *op.writes):
            if use.tensor.kind == "weight" and use.tensor.name not in seen:
                seen.add(use.tensor.name)
                yield use.tensor


def _entry(graph: Block) -> Named | None:
    """What the graph reads that no op of it makes: the frames of a sound, or an image's patches."""
    made = {use.tensor.name for op, _ in ops(graph) for use in op.writes}
    reads = (use.tensor for op, _ in ops(graph) for use in op.reads)
    return next((t for t in reads if t.kind == "act" and t.name not in made), None)


def empty_on_pages(shape: Sequence[int], dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """An empty tensor; on a processor a large one begins on a page. The allocator puts it anywhere, and a product of
    one token whose rows are whole pages reads 12 to 18 % slower from between them.
    """
    count = prod(shape)
    if torch.device(device).type != "cpu" or count * dtype.itemsize < LARGE:
        return torch.empty(shape, dtype=dtype, device=device)
    room = torch.empty(count + PAGE // dtype.itemsize, dtype=dtype)
    return room[-room.data_ptr() % PAGE // dtype.itemsize :][:count].view(*shape)


def _prefill(model: Model) -> Step:
    """A step that names every weight: the start of a sequence, its source included."""
    source = (Seqs(1, 2, 0),) if model.encoder is not None else ()
    return Step.of(1, 2, 0, source=source)


def _initialise(x: Tensor, tensor: Named) -> None:
    """Random weights that keep activations of order one: norms about 1, matrices by what they sum over."""
    summed = 1
    for axis in tensor.inner:
        summed *= int(tensor.axes[axis])
    spread = summed**-0.5 if tensor.inner else 0.1
    with torch.no_grad():
        x.normal_(1.0 if tensor.role == "norm" else 0.0, spread)


def _stored_tokens(graph: Block, batch: int) -> dict[str, int]:
    """Tokens that every cache keeps after a step."""
    found: dict[str, int] = {}
    for op, _ in ops(graph):
        for use in (*op.reads, *op.writes):
            if use.tensor.kind == "state" and "C" in use.tensor.axes:
                found[use.tensor.name] = int(use.tensor.axes["C"]) // batch
    return found


def _output_name(node: Node) -> str:
    """The name of what a node leaves behind: its last op's result."""
    if isinstance(node, Op):
        return node.writes[0].tensor.name
    return node.carry[-1][1].name if node.carry else _output_name(node.body[-1])


def _hidden_states(graph: Block) -> str:
    """The result of the stack: what the last node before the heads wrote."""
    nodes = [n for n in graph.body if n.name not in AFTER_STACK]
    return _output_name(nodes[-1])
