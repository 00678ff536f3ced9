"""What one forward pass works on: any mix of sequences, each with new tokens after past ones.

Batching, chunked prefill, ragged continuous batches and speculative verification are only different steps;
the graph has no phase flag.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isqrt
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.errors import UsageError
from archsim.base.number import Num, absent, ceil_div, divide, everywhere, floor_div, maximum, minimum
from archsim.base.poly import Poly


class Seqs(NamedTuple):
    """`batch` sequences of `new` tokens each after `past` cached ones.

    absorbed: multiply MLA's up-projections into the query and output instead of expanding every cached latent, as
    engines do for decodes; it means nothing to other attention.
    """

    batch: Num = 1
    new: Num = 1
    past: Num = 0
    absorbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """Which (query, key) pairs attention computes, as data that counting and execution share.

    causal: key not after query. window: at most so many latest keys, the query's own included (0: no window);
    without causal a symmetric band of `window` keys to each side. chunk: only keys of the query's own chunk.
    global_tokens: that many first tokens see and are seen by all. top_k: keys kept per query by an indexer.
    prefix: that many first tokens see each other both ways. block, vertical: before the window, the last of
    every `vertical` blocks of `block` keys is seen too (block-sparse attention). block with top_k: keys are kept in
    whole blocks, the `local` last ones always; with `local` 0 blocks that are complete, and all keys of the one that
    is not besides. ratio: keys are entries of so many tokens, and a query sees those that
    are complete. context: every query of a `chunk` is multiplied with so many keys, those around the chunk, whichever
    of them it sees (encoders of sound, which have no kernel that skips).
    """

    causal: bool = True
    window: int = 0
    chunk: int = 0
    global_tokens: int = 0
    top_k: int = 0
    prefix: int = 0
    block: int = 0
    vertical: int = 0
    local: int = 0
    ratio: int = 0
    context: int = 0

    def stored(self, past: Num, new: Num) -> Num:
        """Cached tokens (or entries) that the next step can still need."""
        length = past + new
        if self.ratio:
            return floor_div(length, self.ratio)
        if self.causal and not (self.global_tokens or self.vertical):
            if self.window:
                return minimum(length, self.window)
            if self.chunk:
                return minimum(length, self.chunk)
        return length

    def read(self, past: Num, new: Num) -> Num:
        """Tokens whose keys this step reads: what the cache holds before it, and the new ones; of an indexer, at most
        what its queries keep.
        """
        length = self.reached(past, new)
        return minimum(length, self.kept * new) if self.top_k else length

    @property
    def kept(self) -> int:
        """Keys that a query keeps at most of those that an indexer chooses among, with what stands besides."""
        return self.top_k + (self.block - 1 if self.block and not self.local else 0)

    def reached(self, past: Num, new: Num) -> Num:
        """Tokens that an implementation without skipping goes over: what the cache holds before, and the new ones."""
        return self.stored(past, new) if self.ratio else self.stored(past, 0) + new

    def appended(self, past: Num, new: Num) -> Num:
        """New tokens that stay in the cache, or entries that they complete."""
        return self.stored(past, new) - self.stored(past, 0) if self.ratio else minimum(new, self.stored(past, new))

    def pairs(self, past: Num, new: Num) -> Num:
        """(query, key) pairs of one sequence that the mask allows."""
        length = past + new
        if self.ratio:
            return _entry_pairs(length, self.ratio, self.top_k) - _entry_pairs(past, self.ratio, self.top_k)
        if self.context:
            return ceil_div(length, self.chunk) * self.chunk * self.context
        if not self.causal:
            if self.chunk:
                whole = floor_div(length, self.chunk)
                return whole * self.chunk**2 + (length - whole * self.chunk) * (length - whole * self.chunk)
            return self._band(length) if self.window else new * length
        if self.top_k and self.block:
            return _chosen_pairs(length, self) - _chosen_pairs(past, self)
        if self.window or self.chunk or self.top_k:
            limit = self.window or self.chunk or self.top_k
            count = _chunked_pairs if self.chunk else _windowed_pairs
            pairs = count(length, limit) - count(past, limit)
            if self.global_tokens or self.vertical:
                pairs = pairs + self._beyond(length, limit) - self._beyond(past, limit)
            return pairs
        pairs = _causal_pairs(length) - _causal_pairs(past)
        if self.prefix:
            ahead = _causal_pairs(minimum(self.prefix, length) - 1)
            pairs = pairs + ahead - _causal_pairs(maximum(minimum(self.prefix, past) - 1, 0))
        return pairs

    def _beyond(self, length: Num, window: Num) -> Num:
        """Pairs outside the window: with global keys, or with the columns of a block-sparse pattern."""
        rows = maximum(length - window, 0)
        if self.global_tokens:
            return _windowed_pairs(rows, self.global_tokens)
        return _block_sparse_pairs(rows, self.block or 1, self.vertical)

    def _band(self, length: Num) -> Num:
        """A symmetric band of `window` keys to each side of the diagonal, plus global rows and columns."""
        side = minimum(self.window, length - 1)
        band = length * (2 * side + 1) - side * (side + 1)
        if not self.global_tokens:
            return band
        beyond = length - 1 - side  # keys right of the band in the first row, one fewer in each next
        return band + 2 * (_causal_pairs(beyond) - _causal_pairs(maximum(beyond - self.global_tokens, 0)))


def _causal_pairs(n: Num) -> Num:
    return divide(n * (n + 1), 2)


def _windowed_pairs(n: Num, window: Num) -> Num:
    m = minimum(n, window)
    return _causal_pairs(m) + (n - m) * window


def _chunked_pairs(n: Num, chunk: Num) -> Num:
    whole = floor_div(n, chunk)
    return whole * _causal_pairs(chunk) + _causal_pairs(n - whole * chunk)


def _entry_pairs(n: Num, ratio: int, most: int) -> Num:
    """Pairs of n queries and the entries of `ratio` tokens that are complete, at most `most` of each query."""
    rows = minimum(n, most * ratio) if most else n
    whole = floor_div(rows, ratio)
    pairs = divide(ratio * whole * (whole - 1), 2) + whole * (rows - ratio * whole + 1)
    return pairs + (n - rows) * most


def _chosen_pairs(n: Num, mask: Mask) -> Num:
    """Pairs of n queries that keep whole blocks: all keys at first, then the query's own block up to itself and full
    ones before it; without `local` ones, complete blocks and, besides, the tokens of the one that is not.
    """
    rows = maximum(n - mask.top_k, 0)
    if not mask.local:
        whole = floor_div(rows, mask.block)
        besides = whole * _causal_pairs(mask.block - 1) + _causal_pairs(rows - whole * mask.block)
        return _causal_pairs(n - rows) + rows * mask.top_k + besides
    return _causal_pairs(n - rows) + rows * (mask.top_k - mask.block) + _chunked_pairs(rows, mask.block)


def _block_sparse_pairs(rows: Num, block: int, vertical: int) -> Num:
    """Sum over v = 1..rows of the keys among the first v that lie in the last block of each `vertical` blocks."""
    period, lead = block * vertical, block * (vertical - 1)
    whole = floor_div(rows, period)
    rest = rows - whole * period
    full = divide(block * period * whole * (whole - 1), 2) + whole * _causal_pairs(block - 1)
    return full + (rest + 1) * whole * block + _causal_pairs(maximum(rest - lead, 0))


def square_windows(grid: tuple[int, int], tokens: int) -> int:
    """(query, key) pairs of rows x columns of patches cut into squares of so many; those at the edges are smaller."""
    side = isqrt(tokens)

    def squares(n: int) -> int:
        return n // side * side**2 + (n % side) ** 2

    return squares(grid[0]) * squares(grid[1])


CAUSAL = Mask()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One forward pass. The only workload type that a block sees.

    masked: count only the pairs that masks allow; otherwise the whole square (and padded convolutions), which is what
    an implementation without block skipping runs. last: compute logits at the last position only. room: tokens that
    each cache has room for beyond those of the step. source: the encoder's sequences, of an encoder-decoder. grids:
    rows and columns of the patches of each kind of sequence, of a vision encoder that attends in square windows.
    """

    seqs: tuple[Seqs, ...]
    masked: bool = True
    last: bool = True
    room: Num = 0
    source: tuple[Seqs, ...] = ()
    grids: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, batch: Num = 1, new: Num = 1, past: Num = 0, *, absorbed: bool = False, **options: object) -> Step:
        """A step of equal sequences."""
        return cls(seqs=(Seqs(batch, new, past, absorbed),), **options)  # type: ignore[arg-type]

    @classmethod
    def prefill(cls, batch: Num, prompt: Num, source: Num | None = None) -> Step:
        """The whole prompts of `batch` new sequences. source: tokens of each one's source, of an encoder-decoder."""
        _check_sizes(batch=batch, prompt=prompt)
        return cls(seqs=(Seqs(batch, prompt, 0),), source=_sources(batch, source))

    @classmethod
    def prefill_chunk(cls, new: Num, past: Num = 0, batch: Num = 1) -> Step:
        """The next `new` prompt tokens of each sequence, after `past` that earlier chunks have put into the cache."""
        _check_sizes(batch=batch, new=new)
        if _number_below(past, 0):
            raise UsageError(f"past must not be negative, not {past}")
        return cls(seqs=(Seqs(batch, new, past),))

    @classmethod
    def decode(cls, batch: Num, context: Num, *, new: Num = 1, room: Num = 0, source: Num | None = None) -> Step:
        """The next token of each sequence, or the `new` ones that a verify step of speculative decoding checks.

        context: tokens that the last new one attends to, itself included. room: tokens that the caches have room for
        beyond those. source: tokens of each sequence's source, of an encoder-decoder.
        """
        _check_sizes(batch=batch, context=context, new=new)
        if _number_below(context - new, 0):
            raise UsageError(f"a context of {context} tokens does not hold {new} new ones")
        seqs = (Seqs(batch, new, context - new, absorbed=True),)
        return cls(seqs=seqs, room=room, source=_sources(batch, source))

    @classmethod
    def mixed(cls, *parts: Step) -> Step:
        """Several steps as one forward pass: running decodes beside prompts, or chunks of several prompts.

        Those without sequences are left out; caches have room for the most tokens of any. UsageError where nothing is
        left, and for parts that count pairs or logits differently.
        """
        parts = tuple(part for part in parts if not absent(part.n_seqs))
        if not parts:
            raise UsageError("a step needs at least one sequence")
        if len({(part.masked, part.last) for part in parts}) > 1:
            raise UsageError("the parts of one step must agree on `masked` and `last`")
        room = parts[0].room
        for part in parts[1:]:
            room = maximum(room, part.room)
        return cls(
            seqs=tuple(seqs for part in parts for seqs in part.seqs), masked=parts[0].masked, last=parts[0].last,
            room=room, source=tuple(seqs for part in parts for seqs in part.source),
        )  # fmt: skip

    def fullest(self, replicas: int) -> Step:
        """The step of the replica with most to do, where whole sequences of each kind are dealt out over `replicas`."""
        if replicas == 1:
            return self
        seqs, source = (
            tuple(s._replace(batch=ceil_div(s.batch, replicas)) for s in kind) for kind in (self.seqs, self.source)
        )
        return replace(self, seqs=seqs, source=source)

    def filled(self, replicas: int) -> Step:
        """The step in which each of `replicas` has as much to do as the fullest; the step itself where all do."""
        if replicas == 1 or all(type(s.batch) is not Poly and everywhere(s.batch % replicas == 0) for s in self.seqs):
            return self
        fullest = self.fullest(replicas)
        seqs, source = (
            tuple(s._replace(batch=s.batch * replicas) for s in kind) for kind in (fullest.seqs, fullest.source)
        )
        return replace(self, seqs=seqs, source=source)

    @property
    def plain(self) -> bool:
        """Whether all its sizes are numbers or polynomials, none an array."""
        sizes = [n for s in (*self.seqs, *self.source) for n in s[:3]]
        return not any(hasattr(n, "dtype") for n in (*sizes, self.room))

    @property
    def kinds(self) -> tuple[type, ...]:
        """The types of its sizes, in which equal steps may differ."""
        return (*(type(n) for s in (*self.seqs, *self.source) for n in s[:3]), type(self.room))

    @property
    def n_seqs(self) -> Num:
        """Sequences in the step."""
        return self._sum(lambda s: s.batch)

    @property
    def tokens(self) -> Num:
        """New tokens in the step."""
        return self._sum(lambda s: s.batch * s.new)

    def stored(self, mask: Mask = CAUSAL) -> Num:
        """Tokens that caches hold after the step, or have room for."""
        return self._sum(lambda s: s.batch * mask.stored(s.past + self.room, s.new))

    def appended(self, mask: Mask = CAUSAL) -> Num:
        """New tokens that stay in the cache, or entries that they complete."""
        return self._sum(lambda s: s.batch * mask.appended(s.past, s.new))

    def read(self, mask: Mask = CAUSAL) -> Num:
        """Tokens whose keys and values are read."""
        return self._sum(lambda s: s.batch * mask.read(s.past, s.new))

    def pairs(self, mask: Mask = CAUSAL) -> Num:
        """(query, key) pairs computed."""
        if not self.masked and not mask.context:
            return self._sum(lambda s: s.batch * s.new * mask.reached(s.past, s.new))
        if self.grids and mask.chunk and not mask.causal:
            return sum(
                s.batch * square_windows(grid, mask.chunk) for s, grid in zip(self.seqs, self.grids, strict=True)
            )
        return self._sum(lambda s: s.batch * mask.pairs(s.past, s.new))

    def cross_pairs(self) -> Num:
        """(query, source token) pairs of cross-attention."""
        return sum(a.batch * a.new * b.new for a, b in zip(self.seqs, self.source, strict=True))

    def encoder(self) -> Step:
        """The step that the encoder runs: all source tokens at once."""
        return Step(seqs=self.source, masked=self.masked)

    def by_absorption(self) -> tuple[tuple[bool, Step], ...]:
        """(absorbed, the step's sequences that are so), absorbed ones first; one pair where all are alike."""
        kinds = {seqs.absorbed for seqs in self.seqs}
        if len(kinds) == 1:
            return ((kinds.pop(), self),)
        parts = (
            (True, tuple(s for s in self.seqs if s.absorbed)),
            (False, tuple(s for s in self.seqs if not s.absorbed)),
        )
        return tuple((absorbed, replace(self, seqs=seqs, source=())) for absorbed, seqs in parts)

    def _sum(self, f: Callable[[Seqs], Num]) -> Num:
        total: Num = f(self.seqs[0])
        for seqs in self.seqs[1:]:
            total = total + f(seqs)
        return total


def _sources(batch: Num, length: Num | None) -> tuple[Seqs, ...]:
    """The source sequences of an encoder-decoder; none without a length."""
    if length is None:
        return ()
    _check_sizes(source=length)
    return (Seqs(batch, length, 0),)


def _check_sizes(**sizes: Num) -> None:
    """UsageError for a plain number below one; arrays and polynomials pass."""
    for name, size in sizes.items():
        if _number_below(size, 1):
            raise UsageError(f"{name} must be at least 1, not {size}")


def _number_below(size: Num, least: int) -> bool:
    return isinstance(size, (int, float)) and size < least
