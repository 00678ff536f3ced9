"""Which tensors lie on which device: weights and caches of every layer, dealt out over pipeline stages."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from math import ceil

from archsim.base.data_class import dataclass
from archsim.base.number import Num, ceil_div, maximum, minimum, nearest
from archsim.counts.formats import Formats
from archsim.counts.graph_counts import inventory
from archsim.graph.graph import Block, blocks
from archsim.graph.tensor import Tensor, nbytes
from archsim.memory.kv_cache import LONGEST, LONGEST_SOURCE, Paging, is_window, tokens_of_entry
from archsim.spec.engine import CachePools, Engine, PageGroups
from archsim.spec.model import Model

INPUT_TABLES = ("embedding", "position", "embedding_other", "embedding_per_layer")
"""Roles of tensors outside of layers that belong to the first stage."""


MATRICES = ("linear", "head")
"""Roles of the matrices that devices share by their rows."""


@dataclass(frozen=True, slots=True)
class TensorCopies:
    """A tensor on a device, and how many of it."""

    tensor: Tensor
    copies: Num

    @property
    def bytes(self) -> Num:
        """Bytes of all copies."""
        return nbytes(self.tensor) * self.copies


@dataclass(frozen=True, kw_only=True)
class PipelineStage:
    """What the device of one pipeline stage holds. weights: bytes. caches: those of one request of LONGEST tokens.
    count: stages that hold the same.
    """

    weights: Num
    caches: tuple[TensorCopies, ...]
    count: int = 1

    @cached_property
    def _constant(self) -> Num:
        """Bytes of a request's recurrent states, which do not grow with its length."""
        return sum(nearest(c.bytes) for c in self.caches if not _grows(c.tensor))

    @cached_property
    def _per_slot(self) -> tuple[tuple[int, Num], ...]:
        """(tokens that the layers keep of the longest request, bytes of one token in all of them), by kind of layer."""
        found: dict[int, Num] = {}
        for cache in self.caches:
            if _grows(cache.tensor):
                stored = int(cache.tensor.axes["C"])
                found[stored] = found.get(stored, 0.0) + cache.bytes / stored
        return tuple((stored, found[stored]) for stored in sorted(found))

    def combined_with(self, other: PipelineStage) -> PipelineStage:
        """The tensors of a device that holds both stages."""
        return PipelineStage(weights=self.weights + other.weights, caches=(*self.caches, *other.caches))

    @property
    def grows(self) -> bool:
        """Whether any cache grows with the request."""
        return bool(self._per_slot)

    def request_bytes(self, length: Num, paging: Paging, source: Num | None = None) -> Num:
        """Cache and state of one request of `length` tokens, in whole pages. source: tokens of its source, of an
        encoder-decoder, where they are not as many.
        """
        if paging.groups is not None and self._equal_pages:
            return self._in_equal_pages(length, paging, paging.groups)
        if paging.pools is not None and source is None and (cell := self._pooled(paging.pools)) is not None:
            return self._in_pools(length, paging, paging.pools, cell)
        total: Num = self._constant
        for stored, each in self._per_slot:
            tokens = source if source is not None and stored == LONGEST_SOURCE else length
            total = total + nearest(each * paging.slots(stored, tokens))
        return total

    @cached_property
    def _kinds(self) -> dict[int, tuple[int, float]]:
        """(layers, bytes of a token in each) by the tokens that they keep; of recurrent states (0) bytes of a state."""
        layers: dict[int, dict[str, Num]] = {}
        total: dict[int, Num] = {}
        for cache in self.caches:
            stored = int(cache.tensor.axes["C"]) if _grows(cache.tensor) else 0
            home, own = cache.tensor.name.rpartition(".")[0], layers.setdefault(stored, {})
            own[home] = maximum(own.get(home, 0), cache.copies)
            total[stored] = total.get(stored, 0) + cache.bytes / max(stored, 1)
        counts = {stored: round(float(sum(own.values()))) for stored, own in layers.items()}
        return {stored: (n, float(total[stored]) / n) for stored, n in counts.items()}

    @cached_property
    def _equal_pages(self) -> bool:
        """Whether layers keep caches in several ways, and a token takes the same in all that grow."""
        grow = {round(each, 6) for stored, (_, each) in self._kinds.items() if stored}
        known = all(stored in (0, LONGEST) or is_window(stored) for stored in self._kinds)
        return len(self._kinds) > 1 and len(grow) == 1 and known

    def _in_equal_pages(self, length: Num, paging: Paging, groups: PageGroups) -> Num:
        """Bytes of one request where layers lie in groups of equally many, whose pages are equally large."""
        kinds = self._kinds
        of_token = next(each for stored, (_, each) in kinds.items() if stored)
        _, state = kinds.get(0, (0, 0.0))
        block = paging.block * max(1, ceil(state / (of_token * paging.block)))
        fewest, most = (f(n for n, _ in kinds.values()) for f in (min, max))
        size = most if most < 1.5 * fewest else fewest
        pages: Num = 0
        for stored, (layers, _) in kinds.items():
            tokens: Num = length
            if is_window(stored) and paging.windows == "chunk":
                kept = minimum(length, stored - 1 + groups.steps * paging.chunk)
                tokens = kept + block  # a window may begin in a page
            each = ceil_div(tokens, block) if stored else groups.states
            pages = pages + each * ceil_div(layers, size)
        return nearest(size * of_token * block * pages)

    # --------------------------------------------------------------------- pools
    @cached_property
    def _growing(self) -> tuple[Num, Num]:
        """Bytes of a token in layers that keep it or an entry with it, and in those with a window."""
        kept: Num = sum(each / tokens_of_entry(stored) for stored, each in self._per_slot if not is_window(stored))
        return kept, sum(each for stored, each in self._per_slot if is_window(stored))

    def _window_share(self, pools: CachePools) -> float:
        """Tokens that layers with a window keep, over those of the others."""
        entries = any(not is_window(stored) and tokens_of_entry(stored) > 1 for stored, _ in self._per_slot)
        return pools.entry_windows if entries else pools.windows

    def _pooled(self, pools: CachePools) -> Num | None:
        """Bytes of a token in the pools of all layers that keep tokens; None where layers are of one kind."""
        kept, windows = self._growing
        if not kept or not (windows or self._constant):
            return None
        return kept + self._window_share(pools) * windows

    def _states_over_all(self, pools: CachePools) -> float:
        """Share of the room that is set aside for states."""
        return pools.states / (1 + pools.states) if self._constant else 0.0

    def _in_pools(self, length: Num, paging: Paging, pools: CachePools, cell: Num) -> Num:
        """Bytes of the room for one request: by the pool that holds fewest of them."""
        tokens, states = paging.whole_pages(length), self._states_over_all(pools)
        if self.window:
            tokens = maximum(tokens, minimum(tokens, self.window) / self._window_share(pools))
        each = cell * tokens / (1 - states)
        return nearest(maximum(each, pools.states_of_request * self._constant / states) if states else each)

    def _tokens_of_pools(self, room: int, length: int, paging: Paging, pools: CachePools, cell: Num) -> int:
        """Tokens that the pools hold: of requests shorter than the windows, as many as the windows' pool does."""
        held = room * (1 - self._states_over_all(pools)) / cell
        if self.window:
            held *= min(1.0, self._window_share(pools) * length / min(length, self.window))
        return int(held / paging.block) * paging.block

    def requests_of_states(self, room: int, paging: Paging, *, prefixes: bool = True) -> int | None:
        """Requests whose states fit the pool of states; None where nothing limits them beside the room. prefixes:
        whether states are kept for requests that begin alike.
        """
        pools = paging.pools
        if pools is None or not self._constant or self._pooled(pools) is None:
            return None
        states = int(room * self._states_over_all(pools) / self._constant)
        return states // pools.states_of_request if prefixes else states

    @property
    def uniform(self) -> bool:
        """Whether every byte belongs to a page of the same kind: no windows, no constant states."""
        whole = all(stored in (LONGEST, LONGEST_SOURCE) for stored, _ in self._per_slot)
        return self.grows and whole and not self._constant

    @property
    def keeps_states(self) -> bool:
        """Whether a request has recurrent states, which do not grow with it."""
        return bool(self._constant)

    @property
    def window(self) -> int:
        """Tokens of the widest window of its layers; 0: none has one."""
        return max((stored for stored, _ in self._per_slot if is_window(stored)), default=0)

    def tokens(self, room: int, length: int, paging: Paging, source: int | None = None) -> int:
        """Tokens that `room` bytes hold: whole pages; where layers differ, by requests of `length`. source: as in
        `request_bytes`.
        """
        if room <= 0 or not self.caches:
            return 0
        if paging.pools is not None and source is None and (cell := self._pooled(paging.pools)) is not None:
            return self._tokens_of_pools(room, length, paging, paging.pools, cell)
        if source is None and (self.uniform or (paging.windows == "full" and not self._constant)):
            return int(room // maximum(1, self.request_bytes(paging.block, paging))) * paging.block
        return int(room / maximum(1, self.request_bytes(length, paging, source)) * length)

    @property
    def growth(self) -> int:
        """Bytes of one more token before any sliding window is full, of entries for several tokens their share."""
        return int(nearest(sum(self._growing)))


def _grows(tensor: Tensor) -> bool:
    return "C" in tensor.axes and tensor.role != "recurrent"


def layer_tensors(graph: Block, kind: str) -> list[list[TensorCopies]]:
    """The tensors of one kind of every layer in order, then of what is outside layers (embedding, head)."""
    home: dict[str, list[TensorCopies]] = {}
    leaves = leaf_layers(graph)
    names = {b.name for b in leaves}
    outside: list[TensorCopies] = []
    for item in inventory(graph, kind=kind):
        owner = owner_of(item.tensor.name, names)
        if owner is None:
            outside.append(TensorCopies(item.tensor, item.copies))
        else:
            home.setdefault(owner, []).append(TensorCopies(item.tensor, 1))
    return [*(home.get(b.name, []) for b in leaves), outside]


def leaf_layers(graph: Block) -> list[Block]:
    """Layer blocks in order of execution, repetitions written out: loops that hold no other loop."""
    found: list[Block] = []

    def visit(block: Block) -> None:
        inner = [child for child in block.body if isinstance(child, Block) and _has_loop(child)]
        for _ in range(block.times if block.carry else 1):
            if block.carry and not inner:
                found.append(block)
            for child in inner:
                visit(child)

    visit(graph)
    return found


def _has_loop(block: Block) -> bool:
    return any(b.carry for b in blocks(block))


def owner_of(name: str, names: set[str]) -> str | None:
    parts = name.split(".")
    for i in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:i])
        if path in names:
            return path
    return None


@dataclass(frozen=True, kw_only=True)
class HeldWeights:
    """The weights on a device, and what they take in any format."""

    each: tuple[TensorCopies, ...]

    @cached_property
    def alike(self) -> tuple[TensorCopies, ...]:
        """Weights of one role and shape as copies of a single one: formats that go by roles store them alike."""
        copies: dict[Hashable, Num] = {}
        first: dict[Hashable, Tensor] = {}
        for weight in self.each:
            tensor = weight.tensor
            key = tensor.role, tuple(tensor.axes.items()), tensor.inner
            first.setdefault(key, tensor)
            copies[key] = copies.get(key, 0) + weight.copies
        return tuple(TensorCopies(tensor, copies[key]) for key, tensor in first.items())

    def bytes_in(self, formats: Formats) -> Num:
        """Bytes of all of them in these formats."""
        weights = self.each if formats.tensors else self.alike
        return sum(nbytes(formats.stored(weight.tensor)) * weight.copies for weight in weights)


# ---------------------------------------------------------------------- pipeline stages
def layer_counts(layers: int, stages: int, rule: str, parts: Sequence[float] = ()) -> list[int]:
    """Layers of every stage. rule: where those go that are left over, as in the engine document. parts: proportions in
    which devices share the layers, where they are not equal and the output matrix counts as a layer.
    """
    each, over = divmod(layers, stages)
    counts = [each] * stages
    if rule == "output":  # llama.cpp: the output matrix counts as one more layer
        ends = list(accumulate(parts or [1] * stages))
        places = [bisect_right([end * (layers + 1) for end in ends], layer * ends[-1]) for layer in range(layers)]
        return [places.count(i) for i in range(stages)]
    if rule == "even":
        size = -(-layers // stages)
        return [max(0, min(size, layers - i * size)) for i in range(stages)]
    if rule == "all_last":
        counts[-1] += over
        return counts
    start = {"first": 0, "last": stages - over, "before_last": stages - 1 - over}[rule]
    return [n + (start <= i < start + over) for i, n in enumerate(counts)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Weights and caches of layers in order, and what is outside of layers at the first and at the last stage."""

    weights: Sequence[Sequence[TensorCopies]]
    caches: Sequence[Sequence[TensorCopies]]
    first: Sequence[TensorCopies] = ()
    last: Sequence[TensorCopies] = ()
    last_caches: Sequence[TensorCopies] = ()

    @property
    def all_weights(self) -> tuple[TensorCopies, ...]:
        """Every weight that one device holds of all layers and of what is outside of them."""
        return _summed(self.everything)

    @property
    def everything(self) -> Sequence[Sequence[TensorCopies]]:
        """Weights by layer, then those outside of layers."""
        return [*self.weights, self.first, self.last]


def layers_of(graph: Block, count: int, rules: Engine, model: Model) -> Layers:
    """The layers of a graph for so many stages: the first has the tables of the input, the last the head.

    A tied table is copied to both ends. One device holds it once; so does the last stage of an "even" pipeline, which
    has everything that is outside of layers.
    """
    *weights, outside = layer_tensors(graph, "weight")
    *caches, rest = layer_tensors(graph, "state")
    if rules.parallelism.pipeline == "even" or count == 1:
        return Layers(weights=weights, caches=caches, last=outside, last_caches=rest)
    first = [c for c in outside if c.tensor.role in INPUT_TABLES]
    last = [c for c in outside if c.tensor.role not in INPUT_TABLES]
    if model.head is not None and model.head.tied:
        last += [c for c in first if c.tensor.name == "embedding.tokens"]
    return Layers(weights=weights, caches=caches, first=first, last=last, last_caches=rest)


def pipeline_stages(layers: Layers, count: int, rule: str, towers: int = 0) -> tuple[PipelineStage, ...]:
    """What the device of every stage holds; stages that hold the same are listed once. rule: as in `layer_counts`.
    towers: bytes of vision and audio encoders, which belong to the first stage.
    """
    return distinct_stages(every_stage(layers, count, rule, towers))


def distinct_stages(stages: Sequence[PipelineStage]) -> tuple[PipelineStage, ...]:
    """Stages that hold the same listed once, with their number."""
    found: dict[tuple[Num, tuple[tuple[str, Num], ...]], PipelineStage] = {}
    for stage in stages:
        key = stage.weights, tuple((c.tensor.name, c.copies) for c in stage.caches)
        found[key] = replace(stage, count=found[key].count + 1) if key in found else stage
    return tuple(found.values())


def every_stage(
    layers: Layers, count: int, rule: str, towers: int = 0, parts: Sequence[float] = (), rows: bool = False
) -> list[PipelineStage]:
    """What the device of each stage holds, in order. parts: proportions of the devices, see `layer_counts`. rows:
    whether every matrix is shared by all devices in these proportions; the rest, and caches, go with their layers.
    """
    found: list[PipelineStage] = []
    shared = _matrix_bytes(layers.everything) if rows else 0
    of_all, at = [part / sum(parts or [count]) for part in parts or [1.0] * count], 0
    for i, size in enumerate(layer_counts(len(layers.weights), count, rule, parts)):
        own = [*layers.weights[at : at + size], layers.first if i == 0 else ()]
        own.append(layers.last if i == count - 1 else ())
        kept = [*layers.caches[at : at + size], layers.last_caches if i == count - 1 else ()]
        weights = sum(n * sum(c.bytes for c in layer) for layer, n in _alike(own))
        weights += shared * of_all[i] - (_matrix_bytes(own) if rows else 0)
        found.append(PipelineStage(weights=round(weights) + (towers if i == 0 else 0), caches=_summed(kept)))
        at += size
    return found


def _matrix_bytes(layers: Sequence[Sequence[TensorCopies]]) -> Num:
    """Bytes of the matrices that every token is multiplied by: neither experts nor tables of the input."""
    return sum(c.bytes for layer in layers for c in layer if c.tensor.role in MATRICES)


def _alike(layers: Sequence[Sequence[TensorCopies]]) -> list[tuple[Sequence[TensorCopies], int]]:
    """Distinct layers, and how often each is there: repetitions of a layer are the very same object."""
    times = Counter(map(id, layers))
    return [(layer, times[key]) for key, layer in {id(layer): layer for layer in layers}.items()]


def _summed(layers: Sequence[Sequence[TensorCopies]]) -> tuple[TensorCopies, ...]:
    """The caches of some layers, with repeated layers counted as copies."""
    copies: dict[str, Num] = {}
    tensors: dict[str, Tensor] = {}
    for layer, times in _alike(layers):
        for cache in layer:
            name = cache.tensor.name
            tensors.setdefault(name, cache.tensor)
            copies[name] = copies.get(name, 0) + times * cache.copies
    return tuple(TensorCopies(tensor, copies[name]) for name, tensor in tensors.items())
