"""The tables whose sum is the time of a step (see `timing.separable`), each made with arrays when first needed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from copy import copy
from functools import cached_property
from math import expm1, hypot
from typing import NamedTuple

import numpy as np

from archsim.serving.lookup import (
    AS_EXPECTED,
    Array,
    ByClass,
    Error,
    Grid,
    Line,
    Places,
    added,
    geometric,
    jumps,
    knots,
    stacked,
    total,
)
from archsim.spec.engine import CapturedGraphs
from archsim.timing.kernel_calls import VERIFIED
from archsim.timing.separable import Load, Part, SeparableStep
from archsim.timing.step_pricer import StepPricer
from archsim.timing.summed_kernel import SummedKernel

SHORT = VERIFIED
"""New tokens up to which the kernel of decodes may take up a chunk."""

Chunk = tuple[int, int]
"""New tokens of a prompt in a step, and those that earlier steps or a shared prefix have put into the cache."""

USUAL_CONTEXT = 131_072
"""Cached tokens up to which tables go for a model that states no longest context."""

TILE = 128
"""Tokens of a tile of a product, at whose edges its time jumps."""

SOME = 16
"""Decodes at which further tokens of a sequence are timed."""

CACHED, NEW = 2048.0, 300.0
"""Cached tokens and chunk at which tables are made of what does not depend on them."""

FEW = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Numbers of chunks with a table of their own; others lie between two of them."""

JUMP = 5e-4
"""Relative step in the time of a prompt's attention, from one number of tokens to the next, that has knots at both
sides: edges of tiles, and of what kernels pad prompts to.
"""


class StepInterval(NamedTuple):
    """An expected time and both ends of its 80 % interval, in seconds."""

    expected: float
    low: float
    high: float


class Captured(NamedTuple):
    """Sizes of captured graphs in tokens, ascending: of steps of decodes, and of steps with chunks. A step runs in the
    smallest graph that holds it, and does that graph's products; beyond the largest one its own.
    """

    decodes: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()

    @classmethod
    def of(cls, rule: CapturedGraphs | None, sequences: int, largest: int, model: str = "") -> Captured:
        """The graphs of an engine's document. sequences: the most of a step. largest: captured batch of the device.
        model: by its name in the catalog.
        """
        if rule is None:
            return cls()
        most = min(rule.largest(model) or largest, (rule.by_sequence or largest) * sequences)
        ends = [*(first for first, _ in rule.steps[1:]), most + 1][: len(rule.steps)]
        steps = [n for (first, step), end in zip(rule.steps, ends, strict=True) for n in range(first, end, step)]
        sizes = tuple(sorted({n for n in (*rule.sizes, *steps) if n <= most}))
        return cls(sizes, sizes if rule.mixed else ())

    @property
    def most(self) -> int:
        """Tokens of the largest graph."""
        return max((0, *self.decodes[-1:], *self.mixed[-1:]))

    def padded(self, tokens: int, mixed: bool) -> int:
        """Tokens of the graph that a step runs in."""
        sizes = self.mixed if mixed else self.decodes
        at = bisect_left(sizes, tokens)
        return sizes[at] if at < len(sizes) else tokens

    def places(self, size: int, mixed: bool) -> Array:
        """`padded` of every number of tokens below `size`."""
        return np.array([min(self.padded(n, mixed), size - 1) for n in range(size)])


NO_GRAPHS = Captured()
"""Of an engine that pads no step."""


class StepParts:
    """The tables of one pricer for steps in which each decode takes `new` tokens.

    tokens, sequences: the most of a step; context: cached tokens of a sequence (0: the model's longest).
    """

    def __init__(
        self, pricer: StepPricer, new: int, tokens: int, sequences: int, context: int, captured: Captured = NO_GRAPHS
    ) -> None:
        self.pricer, self.new, self.tokens_at_most, self.sequences_at_most = pricer, new, tokens, sequences
        self.captured, self.world = captured, AS_EXPECTED
        self.context = context or pricer.graphs.model.max_context or USUAL_CONTEXT
        self.decoding, self.mixed = SeparableStep(pricer, False, new), SeparableStep(pricer, True, new)
        self._chunks: dict[int, list[Grid]] = {}
        self._as_expected: StepParts | None = None  # whose tables these are, in another world

    def unread(self) -> StepParts:
        """The same, as expected, of which no table is made yet."""
        limits = self.new, self.tokens_at_most, self.sequences_at_most, self.context
        return StepParts(self.pricer, *limits, self.captured)

    # ------------------------------------------------------------------ decodes alone
    @cached_property
    def alone(self) -> Line:
        """A step of decodes but for what depends on their cached tokens, over their number."""
        size = self.sequences_at_most + 1
        load = Load(np.maximum(np.arange(size, dtype=float), 1), CACHED, 1, NEW, 0)
        found = self.decoding.times(load, "tokens", "sequences", "decodes")
        parts, own = (
            stacked({**found, **self.decoding.seconds_outside_graph(load)}, (size,)),
            np.arange(size) * self.new,
        )
        if self.captured.decodes:
            more, tokens = self.captured.places(int(own[-1]) + 1, False)[own], self.own_tokens.parts
            for name, values in tokens.items():
                parts = added(parts, {name: values[:, np.minimum(more, self.tokens_at_most)] - values[:, own]})
        return Line(parts, size, self.world)

    @cached_property
    def alone_cache(self) -> Grid:
        """The rest of a step of decodes, over their number and mean cached tokens."""
        return self._cache(self.decoding, "cache", "chunks", "mix", "all")

    def _grid(self, x: Array, y: Array, parts: ByClass) -> Grid:
        return Grid.of(x, y, parts, self.world)

    def _cache(self, step: SeparableStep, *parts: Part) -> Grid:
        n = knots([*range(1, 33), *geometric(32, max(self.sequences_at_most, 33), 12)])
        c = knots([*range(1, 16, 2), *geometric(16, self.context, 8)])
        found = step.times(Load(n[:, None], np.maximum(c[None, :], self.new + 1), 1, NEW, 0), *parts)
        return self._grid(n, c, stacked(found, (len(n), len(c))))

    # ------------------------------------------------------------------ decodes with chunks
    @staticmethod
    def tokens_of(pricer: StepPricer, new: int, tokens: int) -> Line:
        """What depends on the new tokens of a step alone, up to so many."""
        return StepParts(pricer, new, tokens, 1, 1).own_tokens

    @cached_property
    def tokens(self) -> Line:
        """What depends on all new tokens of a step with chunks, or on those of the graph that it runs in."""
        if not self.captured.mixed:
            return self.own_tokens
        at = self.captured.places(self.tokens_at_most + 1, True)
        return Line({name: values[:, at] for name, values in self.own_tokens.parts.items()}, len(at), self.world)

    @cached_property
    def own_tokens(self) -> Line:
        """What depends on all new tokens of a step with chunks, without a graph."""
        size = self.tokens_at_most + 1
        new = np.maximum(np.arange(size, dtype=float) - self.new, 1)
        load = Load(1, CACHED, 1, new, 0)
        beside = {name: time for name, time in self.mixed.seconds_outside_graph(load).items() if name != "host"}
        return Line(stacked({**self.mixed.times(load, "tokens"), **beside}, (size,)), size, self.world)

    @cached_property
    def sequences(self) -> Line:
        """What depends on all sequences of a step with chunks: the output head, the engine's host."""
        size = self.sequences_at_most + 1
        load = Load(np.maximum(np.arange(size, dtype=float) - 1, 0), CACHED, 1, NEW, 0)
        host = {name: time for name, time in self.mixed.seconds_outside_graph(load).items() if name == "host"}
        return Line(stacked({**self.mixed.times(load, "sequences"), **host}, (size,)), size, self.world)

    @cached_property
    def decodes(self) -> Line:
        """What depends on how many decode beside chunks; nothing where none does."""
        size = self.sequences_at_most + 1
        n = np.arange(size, dtype=float)
        found = stacked(self.mixed.times(Load(np.maximum(n, 1), CACHED, 1, NEW, 0), "decodes"), (size,))
        return Line({name: values * (n > 0) for name, values in found.items()}, size, self.world)

    @cached_property
    def cache(self) -> Grid:
        """What depends on the decodes beside chunks and their mean cached tokens."""
        grid = self._cache(self.mixed, "cache", "all")
        if "all" not in self.mixed.parts:
            return grid
        n = np.array(grid.x.knots)
        usual = stacked(self.mixed.times(Load(n[:, None], CACHED, 1, NEW, 0), "all"), (len(n), 1))
        return self._grid(n, np.array(grid.y.knots), added(grid.parts, usual, -1))

    def chunks(self, count: int) -> list[Grid]:
        """What depends on so many equal chunks, for each of them, over its new tokens and those before it: one table of
        each kernel.
        """
        if count not in self._chunks:
            known = self._as_expected
            self._chunks[count] = (
                self._timed_chunks(count) if known is None
                else [grid.with_error(self.world) for grid in known.chunks(count)]
            )  # fmt: skip
        return self._chunks[count]

    def _timed_chunks(self, count: int) -> list[Grid]:
        """`chunks` by the pricer."""
        s, p = self.chunk_knots
        load = Load(1, CACHED, count, s[:, None], p[None, :])
        found = [self.mixed.times_of(load, units) for units in self.mixed.kernels_of_chunks] or [{}]
        tables = [stacked(each, (len(s), len(p))) for each in found]
        gaps = self.pricer.timer.architecture
        if gaps is not None and gaps.gap_s:
            gap = gaps.gaps(self.mixed.launches.get("chunks", 0))
            tables[0] = added(tables[0], stacked({"launch gaps": gap}, (len(s), len(p))))
        if "all" in self.mixed.parts:
            tables.append(stacked(self.mixed.times(load, "all"), (len(s), len(p))))
            tables[-1] = added(tables[-1], stacked(self.mixed.times(load._replace(past=0), "all"), (len(s), 1)), -1)
        x, y = Places(s), Places(p)
        return [
            Grid(x, y, {name: values / count for name, values in each.items()}, self.world) for each in tables
        ]  # fmt: skip

    @cached_property
    def one_chunk(self) -> list[list[float]]:
        """All kernels of a single chunk, at the knots of `chunks`."""
        grids = self.chunks(1)
        if len(grids) == 1:
            return grids[0].values
        rows: list[list[float]] = np.sum([grid.array for grid in grids], axis=0).tolist()
        return rows

    @cached_property
    def chunk_knots(self) -> tuple[Array, Array]:
        """Knots over a chunk's new tokens and those before it."""
        size = self.tokens_at_most + 2
        s, seen = np.maximum(np.arange(size, dtype=float), 1), set[int]()
        for past in (0, self.context // 4):
            values = total(stacked(self.mixed.times(Load(1, CACHED, 1, s, past), "chunks", "all"), (size,)), (size,))
            seen |= set(jumps(values, JUMP).tolist())
        return knots([*range(1, SHORT), *geometric(SHORT, size, 8), *seen]), knots([0, *geometric(16, self.context, 8)])

    @cached_property
    def chunk_tokens(self) -> Line:
        """What depends on the new tokens of all chunks."""
        size = self.tokens_at_most + 1
        load = Load(1, CACHED, 1, np.maximum(np.arange(size, dtype=float), 1), 0)
        return Line(stacked(self.mixed.times(load, "chunk tokens"), (size,)), size, self.world)

    @cached_property
    def chunk_lengths(self) -> Grid:
        """What depends on the new and earlier tokens of all chunks (the second axis is flat)."""
        edges = [*range(TILE, 64 * TILE, TILE)]
        near = [n for edge in edges for n in (edge, edge + 1)]
        length = knots([*range(1, SHORT), *near, *geometric(64 * TILE, 8 * self.context, 16)])
        new = np.minimum(length, 2 * SHORT)
        found = stacked(self.mixed.times(Load(1, CACHED, 1, new, length - new), "chunk lengths"), (len(length),))
        return self._grid(
            length, np.arange(2.0), {name: values[..., None].repeat(2, -1) for name, values in found.items()}
        )

    @cached_property
    def mix(self) -> tuple[Grid, Grid]:
        """What depends on how many decodes and chunks there are and the chunks' tokens: with one chunk, and what each
        further one adds.
        """
        return self._mix(knots([*range(1, SHORT), *geometric(SHORT, self.tokens_at_most, 8)]), 0, "mix", "all")

    @cached_property
    def short_mix(self) -> tuple[Grid, Grid]:
        """The same where all chunks are a few last tokens of prompts, which run as decodes do."""
        return self._mix(knots(range(1, SHORT + 1)), CACHED, "mix", "all")

    def _mix(self, s: Array, past: float, *parts: Part) -> tuple[Grid, Grid]:
        n = knots([0, *range(1, 4), *geometric(4, self.sequences_at_most, 4)])
        shape = len(n), len(s)
        one, two = (
            stacked(self.mixed.times(Load(n[:, None], CACHED, k, s[None, :] / k, past), *parts), shape) for k in (1, 2)
        )
        return self._grid(n, s, one), self._grid(n, s, added(two, one, -1))

    @cached_property
    def summed(self) -> tuple[SummedKernel, ...]:
        """Kernels of steps with chunks that sum what each sequence does."""
        units, most = sorted(self.mixed.parts.get("sums", ())), self.tokens_at_most
        return tuple(SummedKernel(self.mixed, unit, most, int(self.context) + most) for unit in units)

    # ------------------------------------------------------------------ what a step asks
    @property
    def more_than_attention(self) -> bool:
        """Whether more than attention depends on chunks."""
        return any(part in self.mixed.parts for part in ("chunk tokens", "chunk lengths", "mix", "sums", "all"))

    def rest_s(self, decodes: int, context: float, chunks: Sequence[Chunk], tokens: int) -> float:
        """What depends on all chunks together."""
        parts, time = self.mixed.parts, 0.0
        if "chunk tokens" in parts:
            time += self.chunk_tokens.values[tokens]
        if "chunk lengths" in parts:
            time += self.chunk_lengths.value(sum(map(sum, chunks)), 0)
        for kernel in self.summed:
            time += float(total(kernel.at(decodes, context, chunks), (), self.world))
        if "mix" in parts or "all" in parts:
            one, more = self._mix_of(chunks)
            time += one.value(decodes, tokens)
            if len(chunks) > 1:
                time += (len(chunks) - 1) * more.value(decodes, tokens)
        return time

    def _mix_of(self, chunks: Sequence[Chunk]) -> tuple[Grid, Grid]:
        if chunks[0][0] <= SHORT and all(past > 0 and new <= SHORT for new, past in chunks):
            return self.short_mix
        return self.mix

    def chunks_s(self, chunks: Sequence[Chunk]) -> list[float]:
        """Each ragged kernel of chunks: every one takes its share of a kernel in which all are like it, and the kernel
        takes at least as long as any chunk alone.
        """
        alone = [[grid.value(*chunk) for chunk in chunks] for grid in self.chunks(1)]
        if len(chunks) == 1:
            return [times[0] for times in alone]
        shares = zip(*(self.shares(len(chunks), *chunk) for chunk in chunks), strict=True)
        return [max(sum(each), *longest) for each, longest in zip(shares, alone, strict=True)]

    def shares(self, count: int, new: int, past: int) -> list[float]:
        """The share of one of so many chunks in each kernel in which all are alike."""
        few, more, share = self.between(count)
        low = [grid.value(new, past) for grid in self.chunks(few)]
        if not share:
            return low
        high = [grid.value(new, past) for grid in self.chunks(more)]
        return [a + (b - a) * share for a, b in zip(low, high, strict=True)]

    def between(self, count: int) -> tuple[int, int, float]:
        """The numbers of chunks with tables around one, and its share of the way: shares of one floor are lines over
        1 / count.
        """
        k = bisect_right(FEW, count) - 1
        if FEW[k] == count or k + 1 == len(FEW):
            return FEW[k], FEW[k], 0.0
        return FEW[k], FEW[k + 1], (1 / FEW[k] - 1 / count) / (1 / FEW[k] - 1 / FEW[k + 1])

    def by_kernel(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> tuple[Sequence[Chunk], int, int, float]:
        """The chunks of the kernel of prompts, then the sequences of the kernel of decodes, their cached tokens, and
        seconds for further tokens of each: the last few tokens of a prompt run among the decodes.
        """
        if not self.joins:
            return chunks, decodes, context, 0.0
        longer, more = [], 0
        for chunk in chunks:
            if chunk[0] <= SHORT and chunk[1] > chunk[0]:
                decodes, context, more = decodes + 1, context + sum(chunk) - 1, more + chunk[0] - 1
            else:
                longer.append(chunk)
        return longer, decodes, context, more * self.token_s if more else 0.0

    @property
    def joins(self) -> bool:
        """Whether kernels of decodes take up a few last tokens of a prompt."""
        return self.joining > 0

    @property
    def joins_apart(self) -> bool:
        """Whether some do and others do not: those of states, beside latent attention that is absorbed for decodes."""
        return 0 < self.joining < len(self.mixed.parts.get("chunks", ()))

    @cached_property
    def joining(self) -> int:
        """How many calls of prompts a few last tokens of one do not make."""
        if "chunks" not in self.mixed.parts:
            return 0
        short, usual = (self.mixed.step(Load(7, CACHED, 1, new, CACHED)) for new in (SHORT / 2, NEW))
        return self.mixed.calls(usual) - self.mixed.calls(short)

    @cached_property
    def token_s(self) -> float:
        """Seconds that one more token of a sequence adds in the kernel of decodes."""
        wide = SeparableStep(self.pricer, True, SHORT)
        one, many = (
            sum(float(time.expected) for time in step.times(Load(SOME, CACHED, 1, NEW, 0), "cache", "decodes").values())
            for step in (self.mixed, wide)
        )
        return (many - one) / (SHORT - self.new) / SOME

    @cached_property
    def launches(self) -> tuple[float, float]:
        """Kernels that the host starts for a step with chunks, without and with decodes."""
        counts = self.mixed.launches
        every = sum(counts.values())
        return every - counts.get("decodes", 0) - counts.get("cache", 0), every

    def launched_s(self, time: float, decodes: int, tokens: int, sequences: int, end: int | None = None) -> float:
        """A step with chunks that waits for its launches where no graph holds its tokens. time: without. end: as of
        `HostWork.time`; None: of this world.
        """
        captured = self.pricer.prompt_graphs
        if captured is None or tokens <= captured:
            return time
        host, end = self.pricer.overheads.host, self.world.end if end is None else end
        return max(time, host.launch_s[end] * self.launches[decodes > 0] + float(host.time(sequences, end)))

    # ------------------------------------------------------------------ why
    def by_class(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> ByClass:
        """Expected, low and high seconds of a step by class of kernels."""
        found = self.device_by_class(decodes, context, chunks)
        tokens = decodes * self.new + sum([new for new, _ in chunks])
        if not self.pricer.overheads.host.launch_s[0] or tokens == decodes * self.new + len(chunks):
            return found
        time = sum([float(times[0]) for times in found.values()])
        host = float(found["host"][0])
        waiting = []
        for end in range(3):
            own = time - host + float(found["host"][end])
            waiting.append(self.launched_s(own, decodes, tokens, decodes + len(chunks), end) - own)
        return added(found, {"host": np.array(waiting)}) if any(waiting) else found

    def device_by_class(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> ByClass:
        """The same without waiting for launches."""
        if not chunks:
            return added(self.alone.at(decodes), self.alone_cache.at(decodes, context / decodes))
        tokens = sum([new for new, _ in chunks])
        found = added(self.tokens.at(decodes * self.new + tokens), self.sequences.at(decodes + len(chunks)))
        longer, reading, cached, _ = self.by_kernel(decodes, context, chunks)
        if reading:
            found = added(added(found, self.decodes.at(reading)), self.cache.at(reading, cached / reading))
        if longer:
            few = self.between(len(longer))[0]
            for i, time in enumerate(self.chunks_s(longer)):
                shares = [self.chunks(few)[i].at(*chunk) for chunk in longer]
                together = sum([float(total(share, (), self.world)) for share in shares])
                for share in shares if together else ():
                    found = added(found, share, time / together)
        return added(found, self._rest_at(decodes, context, chunks, tokens))

    def _rest_at(self, decodes: int, context: float, chunks: Sequence[Chunk], tokens: int) -> ByClass:
        """`rest_s` by class."""
        parts, found = self.mixed.parts, ByClass()
        if "chunk tokens" in parts:
            found = added(found, self.chunk_tokens.at(tokens))
        if "chunk lengths" in parts:
            found = added(found, self.chunk_lengths.at(sum(map(sum, chunks)), 0))
        for kernel in self.summed:
            found = added(found, kernel.at(decodes, context, chunks))
        if "mix" in parts or "all" in parts:
            one, more = self._mix_of(chunks)
            found = added(added(found, one.at(decodes, tokens)), more.at(decodes, tokens), len(chunks) - 1)
        return found

    def interval(self, parts: ByClass) -> StepInterval:
        """The interval of a step: errors of one class add up, those of several as squares, as of `StepTime`."""
        expected = sum([float(times[0]) for times in parts.values()])
        low, high = (self._width(parts, end) for end in (1, 2))
        return StepInterval(expected, expected - low, expected + high)

    def _width(self, parts: ByClass, end: int) -> float:
        """Seconds from the expected time of a step to an end of its interval."""
        expected, widths = sum([float(times[0]) for times in parts.values()]), class_widths(parts, end)
        return hypot(*widths.values(), expected * self._composition(end))

    def _composition(self, end: int) -> float:
        """What a whole step may be off beyond its kernels."""
        return abs(expm1(self.pricer.overheads.composition[end - 1]))

    def error(self, end: int, like: ByClass) -> Error:
        """The world in which a step is at an end of its interval, each class by its own part in the width. Other steps
        of that world are within their intervals.
        """
        expected, width = sum([float(times[0]) for times in like.values()]), self._width(like, end)
        shares = {name: each / width for name, each in class_widths(like, end).items()}
        whole = self._composition(end) ** 2 * expected / width
        return Error(end, shares, -whole if end == 1 else whole)

    def with_error(self, error: Error) -> StepParts:
        """The same tables in another world."""
        other = copy(self)
        other.world = error
        for name, value in vars(self).items():
            if isinstance(value, (Line, Grid)):
                setattr(other, name, value.with_error(error))
            elif name in ("mix", "short_mix"):
                setattr(other, name, tuple(grid.with_error(error) for grid in value))
        other._chunks, other._as_expected = {}, self._as_expected or self
        vars(other).pop("one_chunk", None)
        return other


def class_widths(parts: ByClass, end: int) -> dict[str, float]:
    """Seconds from the expected time of each class to an end of its interval."""
    return {name: abs(float(times[end] - times[0])) for name, times in parts.items()}
