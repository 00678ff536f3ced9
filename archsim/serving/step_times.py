"""Seconds of one step of a replica: `decodes` sequences beside chunks of prompts, from tables or priced exactly.

`StepTable` looks a step up in a few microseconds; `ExactSteps` prices every step with the same pricer. Both take a step
as a scheduler counts it: how many sequences decode, the sum of their cached tokens, and each chunk as (new, past)
tokens. A chunk of one token is a decode.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from math import inf
from typing import Literal, NamedTuple, Protocol

from archsim.base.errors import UsageError
from archsim.base.last_used import LastUsed
from archsim.graph.step import Seqs, Step
from archsim.serving.decoding import step_after_step
from archsim.serving.lookup import ByClass, Places, total
from archsim.serving.step_parts import CACHED, NO_GRAPHS, SHORT, Captured, Chunk, StepInterval, StepParts
from archsim.timing.step_pricer import StepPricer
from archsim.timing.step_time import StepTime

End = Literal["low", "expected", "high"]
"""Which time: the expected one, or an end of the 80 % interval."""

FEW_TOKENS = 0.25
"""Last tokens of prompts, for each sequence in the kernel of decodes, beyond which a step is priced exactly."""


AT_END = 1e-3
"""Share of a step's time that a table at an end of its interval may miss that end by."""

MOST_ENDS = 6
"""Tables at ends of the interval that are kept: those of three usual steps."""

Rows = list[list[float]]
"""Seconds over knots of two quantities."""


class StepTimes(Protocol):
    """Whatever knows how long steps take."""

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """The time of a step with so many decoding sequences, whose cached tokens sum to `context`, and some chunks."""
        ...


class Sequences(NamedTuple):
    """A step as kernels see it: chunks of one token decode."""

    decodes: int
    context: int
    chunks: Sequence[Chunk]

    @classmethod
    def of(cls, decodes: int, context: int, chunks: Iterable[Chunk]) -> Sequences:
        """Chunks of one token go to the decodes."""
        longer = []
        for new, past in chunks:
            if new > 1:
                longer.append((new, past))
            else:
                decodes, context = decodes + 1, context + past
        return cls(decodes, context, longer)


class ExactSteps:
    """Prices every step, in milliseconds of work.

    new: tokens that each decoding sequence takes, more than one where drafts are verified. captured: sizes of the
    engine's captured graphs. end: which time.
    """

    def __init__(
        self, pricer: StepPricer, *, new: int = 1, captured: Captured = NO_GRAPHS, end: End = "expected"
    ) -> None:
        if pricer.graphs.model.architecture != "decoder":
            raise UsageError(f"{pricer.graphs.model.name} is not a decoder: its requests are not served token by token")
        self.pricer, self.new, self.captured, self.end = pricer, new, captured, end

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        time = self.time(decodes, context, chunks)
        expected, value = float(time.expected_s), float(getattr(time, f"{self.end}_s"))
        return value + value / expected * self._padding_s(decodes, chunks)

    def _padding_s(self, decodes: int, chunks: Sequence[Chunk]) -> float:
        """Seconds of the tokens that a captured graph has more than the step."""
        tokens = decodes * self.new + sum([new for new, _ in chunks])
        more = self.captured.padded(tokens, bool(chunks))
        if more == tokens:
            return 0.0
        return self._of_tokens[more] - self._of_tokens[tokens]

    @cached_property
    def _of_tokens(self) -> list[float]:
        """Seconds of what depends on new tokens alone, for as many as the largest graph has."""
        return StepParts.tokens_of(self.pricer, self.new, self.captured.most).values

    def time(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> StepTime:
        """The step with its kernels, without what captured graphs have more."""
        return self.pricer.price(self.step(decodes, context, chunks))

    def step(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> Step:
        """The step on every data-parallel rank, each with as much to do. Raises UsageError where there is nothing."""
        if self.new == 1:
            decodes, context, chunks = Sequences.of(decodes, context, chunks)
        if not decodes and not chunks:
            raise UsageError("a step needs at least one sequence")
        ranks = self.pricer.plan.dp
        own = (Seqs(decodes * ranks, self.new, context / decodes, absorbed=True),) if decodes else ()
        return Step(seqs=(*own, *(Seqs(ranks, new, past) for new, past in chunks)))


class StepTable:
    """Tables of one pricer's steps, made once; `seconds` takes from half a microsecond to five.

    tokens, sequences, context: the most new tokens and sequences of a step, and cached tokens of a sequence, of one
    data-parallel rank; steps beyond them are priced exactly. new, captured: as of `ExactSteps`.
    """

    def __init__(
        self, pricer: StepPricer, *, tokens: int = 8192, sequences: int = 1024, context: int = 0, new: int = 1,
        captured: Captured = NO_GRAPHS,
    ) -> None:  # fmt: skip
        if pricer.overheads.launch_s:
            raise UsageError(
                f"{pricer.overheads.name} waits for launches of single kernels, which no table of steps knows",
                hints=("compute every step: --exact",),
            )
        self.exact = ExactSteps(pricer, new=new, captured=captured)
        self.limits, self._new = (tokens, sequences), new
        self._ends = LastUsed[tuple[End, str], StepTable](MOST_ENDS)
        self._read(StepParts(pricer, new, tokens + sequences * new, sequences, context, captured))

    def _read(self, parts: StepParts) -> None:
        """The lists that are looked up; rows of numbers of decodes are made when such a step is first asked for."""
        tokens, sequences = self.limits
        self.parts = parts
        self._alone = parts.alone.values
        self._alone_rows: list[list[float]] = [[] for _ in range(sequences + 1)]
        self._cache_rows: list[list[float]] = [[] for _ in range(sequences + 1)]
        self._cached, self._inner, self._inverse = _places(parts.alone_cache.y)
        self._ends_of = [*self._inner, inf]
        self._tokens: Sequence[float] = parts.tokens.values
        self._sequences, self._decodes = parts.sequences.values, parts.decodes.values
        kernels = parts.chunks(1)
        self._kernels, self._chunk = [grid.values for grid in kernels], parts.one_chunk
        self._past, self._past_inner, self._past_inverse = _places(kernels[0].y)
        self._low: Sequence[int]
        self._share: Sequence[float]
        self._low, self._share = kernels[0].x.segments(tokens + 1)
        self._rest = parts.more_than_attention
        self._waits = parts.pricer.overheads.host.launch_s[0] > 0
        self._rows: dict[int, tuple[list[Rows], list[Rows], float]] = {}

    def forget_classes(self) -> None:
        """Keeps the seconds that were read, in arrays, which take a quarter of the memory of lists. What classes of
        kernels take, and ends of the interval, are made again when somebody asks.
        """
        self._ends = LastUsed[tuple[End, str], StepTable](MOST_ENDS)
        self.parts = self.parts.unread()
        self.parts.pricer.graphs.forget_arrays()
        self._tokens, self._share = array("d", self._tokens), array("d", self._share)
        self._low = array("l", self._low)

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        try:
            if not chunks:
                row = self._alone_rows[decodes]
                cached = context / decodes
                j = bisect_right(self._inner, cached)
                low = row[j]
                return self._alone[decodes] + low + (row[j + 1] - low) * (cached - self._cached[j]) * self._inverse[j]
            time = self._with_chunks(decodes, context, chunks)
            if not self._waits:
                return time
            tokens, count = sum([new for new, _ in chunks]), len(chunks)
            if tokens == count:  # all of them decode
                return time
            return self.parts.launched_s(time, decodes, decodes * self._new + tokens, decodes + count)
        except (IndexError, ZeroDivisionError):
            if self._has_row(decodes):
                return self.seconds(decodes, context, chunks)
            return self.exact.seconds(decodes, context, chunks)

    def _with_chunks(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """A step with chunks, without waiting for launches."""
        if len(chunks) == 1:
            new, past = chunks[0]
            if new > SHORT:
                return self._with_one(decodes, context, new, past)
        return self._with_several(decodes, context, chunks)

    def _has_row(self, decodes: int) -> bool:
        """Makes the rows of a number of decodes; False where they are there, or beyond the tables."""
        if not 0 < decodes < len(self._alone_rows) or self._alone_rows[decodes]:
            return False
        self._alone_rows[decodes] = self.parts.alone_cache.row(decodes)
        self._cache_rows[decodes] = self.parts.cache.row(decodes)
        return True

    def decoding(self, decodes: int, context: int) -> Iterator[float]:
        """`seconds` of steps one after the other in which the same sequences decode."""
        if not 0 < decodes < len(self._alone_rows):
            yield from step_after_step(self, decodes, context)
        row, knots, inverse, ends = self._alone_rows[decodes], self._cached, self._inverse, self._ends_of
        if not row:
            self._has_row(decodes)
            row = self._alone_rows[decodes]
        alone, cached = self._alone[decodes], context / decodes
        j = bisect_right(self._inner, cached)
        while True:
            low, knot, slope, end = row[j], knots[j], inverse[j], ends[j]
            rise = row[j + 1] - low
            while cached < end:
                yield alone + low + rise * (cached - knot) * slope
                context += decodes
                cached = context / decodes
            j += 1

    def _with_one(self, decodes: int, context: int, new: int, past: int) -> float:
        """A step with one chunk."""
        i, j = self._low[new], bisect_right(self._past_inner, past)
        share = (past - self._past[j]) * self._past_inverse[j]
        row, above = self._chunk[i], self._chunk[i + 1]
        low = row[j]
        low += (row[j + 1] - low) * share
        high = above[j]
        high += (above[j + 1] - high) * share
        tokens = decodes * self._new + new
        time = low + (high - low) * self._share[new] + self._tokens[tokens] + self._sequences[decodes + 1]
        if self._rest:
            time += self.parts.rest_s(decodes, context, ((new, past),), new)
        if not decodes:
            return time
        row, cached = self._cache_rows[decodes], context / decodes
        j = bisect_right(self._inner, cached)
        low = row[j]
        low += (row[j + 1] - low) * (cached - self._cached[j]) * self._inverse[j]
        return time + self._decodes[decodes] + low

    def _with_several(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """A step with several chunks, which share one ragged kernel (see `StepParts.chunks_s`)."""
        knots, inner, inverse = self._past, self._past_inner, self._past_inverse
        places, tokens = [], 0
        for new, past in chunks:
            if new <= SHORT:
                return self._with_short(decodes, context, chunks)
            tokens += new
            j = bisect_right(inner, past)
            places.append((self._low[new], j, (past - knots[j]) * inverse[j], self._share[new]))
        time = self._tokens[decodes * self._new + tokens] + self._sequences[decodes + len(chunks)]
        few, more, way = self._rows_of(len(chunks))
        for shares, others, alone in zip(few, more, self._kernels, strict=True):
            together = longest = 0.0
            for i, j, v, w in places:
                row, above = shares[i], shares[i + 1]
                low, high = row[j], above[j]
                low += (row[j + 1] - low) * v
                together += low + (high + (above[j + 1] - high) * v - low) * w
                row, above = alone[i], alone[i + 1]
                low, high = row[j], above[j]
                low += (row[j + 1] - low) * v
                low += (high + (above[j + 1] - high) * v - low) * w
                if low > longest:
                    longest = low
            if way:
                together += (_sum_at(others, places) - together) * way
            time += together if together > longest else longest
        if self._rest:
            time += self.parts.rest_s(decodes, context, chunks, tokens)
        return time + self._decodes_s(decodes, context) if decodes else time

    def _rows_of(self, count: int) -> tuple[list[Rows], list[Rows], float]:
        """The share of one of equal chunks in each kernel, over its tokens and those before it: of the nearest numbers
        of chunks with tables at or below so many and above, and the way from these to those.
        """
        if count not in self._rows:
            few, more, way = self.parts.between(count)
            low, high = ([grid.values for grid in self.parts.chunks(n)] for n in (few, more))
            self._rows[count] = low, high, way
        return self._rows[count]

    def _decodes_s(self, decodes: int, context: float) -> float:
        """What depends on the decodes of a step with chunks."""
        if not self._cache_rows[decodes]:
            self._has_row(decodes)
        row, cached = self._cache_rows[decodes], context / decodes
        j = bisect_right(self._inner, cached)
        low = row[j]
        low += (row[j + 1] - low) * (cached - self._cached[j]) * self._inverse[j]
        return self._decodes[decodes] + low

    def _with_short(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """A step with a few last tokens of a prompt, or one."""
        if self._new == 1:
            decodes, context, chunks = Sequences.of(decodes, context, chunks)
            if not chunks:
                return self.seconds(decodes, context, ())
        tokens = sum([new for new, _ in chunks])
        time = self._tokens[decodes * self._new + tokens] + self._sequences[decodes + len(chunks)]
        if self.parts.joins_apart and any(new <= SHORT and past > new for new, past in chunks):
            return self.exact.seconds(decodes, context, chunks)
        longer, reading, cached, verified = self.parts.by_kernel(decodes, context, chunks)
        if len(longer) < len(chunks):  # their kernel waits for the longest sequence, where that is not a decode
            short = [chunk for chunk in chunks if chunk not in longer]
            if sum([new for new, _ in short]) > reading * FEW_TOKENS or max(map(sum, short)) > cached / reading:
                return self.exact.seconds(decodes, context, chunks)
        if reading:
            time += self._decodes_s(reading, cached) + verified
        if longer:
            time += sum(self.parts.chunks_s(longer))
        return time + self.parts.rest_s(decodes, context, chunks, tokens) if self._rest else time

    # ------------------------------------------------------------------ other questions
    def classes(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> dict[str, float]:
        """What each class of kernels takes of a step, the engine's host among them: why it takes so long."""
        found, world = self._by_class(decodes, context, chunks), self.parts.world
        return {name: float(total({name: values}, (), world)) for name, values in found.items()}

    def interval(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> StepInterval:
        """The expected time of a step and both ends of its 80 % interval."""
        return self.parts.interval(self._by_class(decodes, context, chunks))

    def _by_class(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> ByClass:
        return self.parts.by_class(*self._as_run(decodes, context, chunks))

    def _as_run(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> Sequences:
        """A step with chunks of one token as decodes, where decodes have one new token."""
        return Sequences.of(decodes, context, chunks) if self._new == 1 else Sequences(decodes, context, chunks)

    def gang_seconds(self, ranks: Sequence[tuple[int, int, Sequence[Chunk]]]) -> float:
        """A step of data-parallel attention ranks, each with its (decodes, context, chunks).

        They wait for one another in every layer: all do the products of the fullest rank's tokens (engines pad to it),
        after the slowest rank's attention. Idle ranks take part. Experts get equal shares of what all ranks send.
        """
        steps = [self._as_run(*rank) for rank in ranks]
        busy = [step for step in steps if step.decodes or step.chunks]
        if not any(step.chunks for step in busy):
            most = max([step.decodes for step in busy])
            return (
                max([self.seconds(step.decodes, step.context, ()) - self._alone[step.decodes] for step in busy])
                + self._alone[most]
            )
        tokens = [step.decodes * self._new + sum([new for new, _ in step.chunks]) for step in busy]
        count = [step.decodes + len(step.chunks) for step in busy]
        own = [
            self._device_s(step) - self._tokens[t] - self._sequences[n] if step.chunks else self._decodes_s(*step[:2])
            for step, t, n in zip(busy, tokens, count, strict=True)
        ]
        time = max(own) + self._tokens[max(tokens)] + self._sequences[max(count)]
        if not self._waits or not any(step.chunks for step in busy):
            return time
        return self.parts.launched_s(time, max([step.decodes for step in busy]), max(tokens), max(count))

    def _device_s(self, step: Sequences) -> float:
        """A step with chunks, without waiting for launches; priced exactly beyond the tables."""
        try:
            return self._with_chunks(*step)
        except (IndexError, ZeroDivisionError):
            if self._has_row(step.decodes):
                return self._device_s(step)
            return self.exact.seconds(*step)

    def at(self, end: End, like: tuple[int, int, Sequence[Chunk]] | None = None) -> StepTable:
        """The table of a world in which a step is at an end of its 80 % interval: kernels of one class err together in
        all steps. like: that step; by default many decodes beside a chunk.
        """
        if end == "expected":
            return self
        sequences = max(self.limits[1] // 4, 1)
        usual = int(min(CACHED, self.parts.context))
        step = like or (sequences, sequences * usual, [(max(self.limits[0] // 8, 2), 0)])
        return self._ends.get((end, str(step)), lambda: self._at(end, step))

    def _at(self, end: End, step: tuple[int, int, Sequence[Chunk]]) -> StepTable:
        """`at` of a step, made."""
        other = copy(self)
        other.exact = ExactSteps(self.exact.pricer, new=self._new, captured=self.exact.captured, end=end)
        sequences = self._as_run(*step)
        parts = self.parts.device_by_class(*sequences)  # launches err apart from kernels
        error = self.parts.error(1 if end == "low" else 2, parts)
        other._read(self.parts.with_error(error))
        found = self.parts.interval(parts)
        wanted = found.low if end == "low" else found.high
        off = wanted - (other._device_s(sequences) if sequences.chunks else other.seconds(*step))
        if abs(off) > AT_END * wanted:  # a kernel of several prompts may wait for another of them there
            other._read(self.parts.with_error(error._replace(whole=error.whole + off / found.expected)))
        return other


def _sum_at(rows: Rows, places: Iterable[tuple[int, int, float, float]]) -> float:
    """The sum of a table at some places: row, segment of a row, and the shares of the way along and across."""
    found = 0.0
    for i, j, v, w in places:
        row, above = rows[i], rows[i + 1]
        low, high = row[j], above[j]
        low += (row[j + 1] - low) * v
        found += low + (high + (above[j + 1] - high) * v - low) * w
    return found


def _places(places: Places) -> tuple[list[float], list[float], list[float]]:
    return places.knots, places.inner, places.inverse
