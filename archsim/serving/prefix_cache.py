"""Caches that keep what requests computed, so that later prompts that begin alike skip it.

They hold runs of blocks, not single blocks: a prompt of 12,000 tokens is 750 blocks of 16 but few runs, each of which
other prompts share as a whole or in its first part. Runs form a tree: a run stands below the one that its tokens
follow, so that equal places are equal beginnings, as chained hashes of blocks are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from archsim.serving.cache import BlockCache
from archsim.serving.load import Prompts
from archsim.serving.resume_points import Resuming, Span, cut, keep, last_resumable

Piece = tuple[int, int]
"""A run of a request's tokens in whole blocks: its identity, and the blocks up to its end."""

ENDLESS = 1 << 60
"""Blocks of an answer whose end nobody asks for."""


class CachedRun:
    """Blocks of one run that are cached. holders: requests that run on them; without any, they can be reused. kept: of
    these, blocks that layers with a window or a state keep as well (see `resume_points.py`).
    """

    __slots__ = ("above", "below", "blocks", "holders", "id", "kept")

    def __init__(self, id: int, blocks: int, above: CachedRun | None = None, holders: int = 0) -> None:
        self.id, self.blocks, self.above, self.holders = id, blocks, above, holders
        self.below: dict[int, CachedRun] = {}
        self.kept: list[Span] = []

    def split(self, blocks: int) -> CachedRun:
        """The first blocks as a run of their own, above the others."""
        assert self.above is not None
        first = CachedRun(self.id, blocks, self.above, self.holders)
        self.above.below[self.id] = first
        first.below[self.id] = self
        if self.kept:
            first.kept, self.kept = cut(self.kept, 0, blocks), cut(self.kept, blocks, self.blocks)
        self.above, self.blocks = first, self.blocks - blocks
        return first


class Match(NamedTuple):
    """The longest cached beginning of a request, at most `most` blocks. run: the last run, of which `part` blocks
    match. blocks: in all. reusable: of these, the ones that no request holds. beyond: blocks that match where layers
    that keep less than all tokens do not let the request go on; 0: no more than `blocks`.
    """

    request: int
    most: int
    run: CachedRun
    part: int
    blocks: int
    reusable: int
    beyond: int = 0


class PrefixCache(BlockCache):
    """vLLM's cache of blocks by chained hash (`v1/core/block_pool.py` and `kv_cache_manager.py` of 0.33).

    Full blocks can be found from the moment their computation is scheduled. The last token of a prompt is computed
    again, and with it its block. Blocks of requests that have ended, prompt and answer, stay until they are reused:
    the longest unused first, of one request the last block first; blocks that nobody can find go before all others.
    A request that gave way finds its own blocks.

    Where two requests compute the same block at the same time, both hold one; the second cannot be found while the
    first is held.

    prompts: what prompts share; None: nothing but what a request that gave way left itself. resuming: where layers with
    windows or states let a prompt go on; None: wherever its tokens are found.
    """

    shares_twice = False
    """Whether a request that computed what another holds goes on with the other's blocks."""

    __slots__ = ("_answers", "_depth", "_gave_way", "_input_len", "_junction", "_kept", "_leaf", "_match", "_none",
                 "_pieces", "_points", "_resuming", "_runs", "_unknown")  # fmt: skip

    def __init__(
        self, tokens: int, block: int, input_len: Sequence[int], prompts: Prompts | None = None,
        resuming: Resuming | None = None,
    ) -> None:  # fmt: skip
        super().__init__(tokens, block)
        self._resuming = resuming
        self._points: dict[int, list[int]] = {}  # blocks after which a request that runs will leave a point to go on
        self._junction = (-1, 0)  # of the request that was looked up last, blocks found beyond where it can go on
        self._input_len = input_len
        self._runs = None if prompts is None else prompts.runs
        self._answers = None if prompts is None else prompts.answers
        self._unknown = self.total  # free blocks that nobody can find
        self._kept: OrderedDict[CachedRun, None] = OrderedDict()  # runs without holders, the longest unused first
        self._leaf: dict[int, CachedRun] = {}  # the last run that a request holds
        self._depth: dict[int, int] = {}  # blocks up to its end
        self._pieces: dict[int, list[Piece]] = {}
        self._gave_way: set[int] = set()
        self._match = self._none = Match(-1, 0, CachedRun(-1, 0, holders=1), 0, 0, 0)

    # ------------------------------------------------------------------------------------------ as of `Cache`
    @property
    def settled(self) -> bool:
        """As of `Cache`: not where a prompt can go on at few points alone, since one block that decodes take may end
        what it would take of others from the last point on.
        """
        return self._resuming is None

    def prefix(self, request: int, tokens: int) -> int:
        """As of `Cache`."""
        if self._runs is None and request not in self._gave_way:
            return 0
        match = self._longest(request, (tokens - 1) // self.block)
        self._junction = (request, match.beyond)
        return match.blocks * self.block

    def room(self, request: int, hit: int, tokens: int) -> int:
        """As of `Cache`: what is found but held by nobody is free now, and no longer then."""
        reusable = self._longest(request, hit // self.block).reusable if hit else 0
        return -(-tokens // self.block) - hit // self.block + reusable

    def admit(self, request: int, hit: int, tokens: int) -> bool:
        """As of `Cache`."""
        if self.room(request, hit, tokens) > self.free:
            return False
        if self._resuming is not None:
            self._plan_points(self._resuming, request, hit // self.block)
        if hit:
            match = self._longest(request, hit // self.block)
            self._leaf[request], self._depth[request] = self._hold(match.run, match.part), hit // self.block
        self.take(-(-tokens // self.block) - hit // self.block)
        return True

    def extend(self, request: int, before: int, tokens: int) -> bool:
        """As of `Cache`."""
        blocks = -(-tokens // self.block) + -before // self.block
        if blocks > self.free:
            return False
        self.take(blocks)
        return True

    def take(self, blocks: int) -> None:
        """As of `Cache`: blocks that nobody can find, then those that were unused longest."""
        self.free -= blocks
        if blocks <= self._unknown:
            self._unknown -= blocks
        else:
            kept, self._unknown = blocks - self._unknown, 0
            self._reuse(kept)

    def store(self, request: int, computed: int) -> None:
        """As of `Cache`."""
        if self._runs is not None or request in self._gave_way:
            self._store(request, computed // self.block)
            if request in self._points:
                self._leave_points(request, computed // self.block)

    def release(self, request: int, tokens: int, computed: int) -> None:
        """As of `Cache`: they stay until they are reused."""
        if self._runs is None and not self._kept and request not in self._leaf:  # nobody can find any free block
            blocks = -(-tokens // self.block)
            self.free += blocks
            self._unknown += blocks
            self._points.pop(request, None)
            return
        self._gave_way.discard(request)
        self._return(request, tokens, computed, own=False)

    def give_way(self, request: int, tokens: int, computed: int) -> None:
        """As of `Cache`: the request can find them again."""
        self._gave_way.add(request)
        self._return(request, tokens, computed, own=True)

    def fill(self, after: Sequence[int] | None = None) -> None:
        """Before the first request: runs that at least two prompts begin with, the most common first, as far as there
        is room. after: as of `Requests`; the turns of one conversation count once.
        """
        runs = {0: self._none.run}
        for id, blocks, above in self._common(after):
            if above not in runs or not self._unknown:
                continue
            part = min(blocks, self._unknown)
            run = CachedRun(id, part, runs[above])
            runs[above].below[id] = run
            if self._resuming is not None:
                keep(run, part, self._resuming.need)
            self._unknown -= part
            self._kept[run] = None
            self._kept.move_to_end(run, last=False)
            if part == blocks:
                runs[id + 1] = run

    def _common(self, after: Sequence[int] | None) -> list[tuple[int, int, int]]:
        """Runs of several prompts: (identity, blocks, 1 + identity of the one above, or 0), the most common first."""
        counts: dict[int, int] = {}
        found: dict[int, tuple[int, int, int]] = {}
        for request in range(0 if self._runs is None else len(self._runs)):
            if after is not None and after[request] >= 0:
                continue
            blocks = above = 0
            for id, end in self._pieces_of(request)[:-1]:
                if id < 0:
                    break
                counts[id] = counts.get(id, 0) + 1
                if id not in found or found[id][1] < end - blocks:
                    found[id] = (id, end - blocks, above)
                blocks, above = end, id + 1
            del self._pieces[request]
        order = sorted(found, key=counts.__getitem__, reverse=True)  # stable: a run comes after those above it
        return [found[id] for id in order if counts[id] > 1]

    # ------------------------------------------------------------------------------------------ the tree
    def _pieces_of(self, request: int) -> list[Piece]:
        """A request's prompt and answer in runs of whole blocks. Runs of its own have negative identities."""
        pieces = self._pieces.get(request)
        if pieces is None:
            own, answer, at, blocks = -2 - 2 * request, -1, 0, 0
            runs = ((-1, self._input_len[request]),) if self._runs is None else self._runs[request]
            if self._answers is not None:
                answer = self._answers[request]
            pieces = self._pieces[request] = []
            for id, tokens in runs:
                at += tokens
                if at // self.block > blocks:
                    blocks = at // self.block
                    pieces.append((own if id < 0 else id, blocks))
            pieces.append((own - 1 if answer < 0 else answer, ENDLESS))
        return pieces

    def _longest(self, request: int, most: int) -> Match:
        """The longest cached beginning of at most so many blocks from which the request can go on."""
        match = self._match
        if match.request == request and match.most == most:
            return match
        match = self._cached(request, most)
        if self._resuming is not None and match.blocks:
            match = self._resumable(match, self._resuming)
        self._match = match
        return match

    def _cached(self, request: int, most: int) -> Match:
        """The longest cached beginning of at most so many blocks."""
        pieces, run, index, blocks, part, reusable = self._pieces_of(request), self._none.run, 0, 0, 0, 0
        while blocks < most:
            id, end = pieces[index]
            if blocks >= end:
                index += 1
                continue
            below = run.below.get(id)
            if below is None:
                break
            run, part = below, (end if end < most else most) - blocks
            if part > below.blocks:
                part = below.blocks
            blocks += part
            if not run.holders:
                reusable += part
            if part < run.blocks:
                break
        return Match(request, most, run, part, blocks, reusable)

    def _resumable(self, match: Match, rule: Resuming) -> Match:
        """A match up to the last point from which layers with a window or a state can go on."""
        up, part = last_resumable(match.run, match.part, rule.need)
        request, most, run, last, blocks, reusable, _ = match
        if up < 0:
            return Match(request, most, self._none.run, 0, 0, 0, blocks)
        if up == 0 and part == last:
            return match
        beyond = blocks
        for _ in range(up):
            blocks, reusable = blocks - last, reusable - (0 if run.holders else last)
            assert run.above is not None
            run = run.above
            last = run.blocks
        blocks, reusable = blocks - last + part, reusable - (0 if run.holders else last - part)
        return Match(request, most, run, part, blocks, reusable, beyond)

    def _plan_points(self, rule: Resuming, request: int, hit: int) -> None:
        """Where a request that starts after `hit` blocks will leave points from which others can go on."""
        asked, beyond = self._junction
        points = rule.points(self._replayed(request), beyond if asked == request else 0, self.block)
        self._points[request] = [point for point in points if point > hit]

    def _replayed(self, request: int) -> int:
        """Tokens of its prompt that an equal one can find."""
        return self._input_len[request] - 1

    def _leave_points(self, request: int, full: int) -> None:
        """The first `full` blocks of a request are computed: points among them can be gone on from."""
        assert self._resuming is not None
        for point in self._points[request]:
            if point <= full:
                self._leave_point(self._resuming, request, point)
        self._points[request] = [point for point in self._points[request] if point > full]

    def _leave_point(self, rule: Resuming, request: int, blocks: int) -> None:
        """Requests that begin as this one can go on after so many blocks, if these can be found."""
        match = self._cached(request, blocks)
        if match.blocks == blocks:
            keep(match.run, match.part, rule.need)
            self._match = self._none

    def _leave_last(self, rule: Resuming, request: int, computed: int) -> None:
        """A request with so many computed tokens gives its blocks back."""
        last = rule.last_point(computed, self.block)
        for point in {*self._points.pop(request, ()), last}:
            if 0 < point <= computed // self.block:
                self._leave_point(rule, request, point)

    def _hold(self, run: CachedRun, part: int) -> CachedRun:
        """One more request holds the first `part` blocks of a run, and all above them; the run that ends there."""
        self._match = self._none
        if part < run.blocks:
            run = run.split(part)
            if not run.holders:
                self.free -= part
        elif not run.holders:
            self._leave_kept(run)
        run.holders += 1
        above = run.above
        while above is not None and above.above is not None:
            if not above.holders:
                self._leave_kept(above)
            above.holders += 1
            above = above.above
        return run

    def _leave_kept(self, run: CachedRun) -> None:
        """A run without holders gets one."""
        del self._kept[run]
        self.free -= run.blocks

    def _reuse(self, blocks: int) -> None:
        """Hand out blocks that were kept: the longest unused first, of a run the last first."""
        kept, self._match = self._kept, self._none
        while blocks:
            run = next(iter(kept))
            if run.above is not None and run.blocks > blocks:
                run.blocks -= blocks
                if run.kept:
                    run.kept = cut(run.kept, 0, run.blocks)
                return
            kept.popitem(last=False)
            if run.above is not None:
                del run.above.below[run.id]
            elif run.blocks > blocks:  # the rest as well: nobody can find it
                self._unknown += run.blocks - blocks
                return
            blocks -= run.blocks

    def _store(self, request: int, full: int, *, own: bool = True, ended: bool = False) -> int:
        """Of a request's first `full` blocks, those that others could ask for (`own`: or itself) can be found from now
        on. How many of them another request holds as well: with these it stops, unless it has `ended`.
        """
        depth, leaf, twice = self._depth.get(request, 0), self._leaf.get(request, self._none.run), 0
        if depth >= full:
            return 0
        self._match = self._none
        for id, end in self._pieces_of(request):
            if id < 0 and not own:
                break
            if end <= depth:
                continue
            if end > full:
                end = full
            while depth < end:
                below = leaf.below.get(id)
                if below is None:
                    leaf, depth = self._grow(leaf, id, end - depth), end
                    continue
                if below.holders and not ended and not self.shares_twice:
                    end = full = depth
                    break
                part = min(below.blocks, end - depth)
                leaf = self._join(below, part)
                if leaf.holders > 1:
                    twice += self._count_twice(part)
                depth += part
            if depth >= full:
                break
        self._depth[request], self._leaf[request] = depth, leaf
        return twice

    def _count_twice(self, blocks: int) -> int:
        """Of blocks that another request holds as well, those that this one keeps."""
        return blocks

    def _grow(self, leaf: CachedRun, id: int, blocks: int) -> CachedRun:
        """New blocks behind a run that a request holds: longer where they continue it and nobody else holds it."""
        if leaf.id == id and leaf.holders == 1 and not leaf.below:
            leaf.blocks += blocks
            return leaf
        leaf.below[id] = run = CachedRun(id, blocks, leaf, 1)
        return run

    def _join(self, run: CachedRun, part: int) -> CachedRun:
        """A request that holds all above a run has computed its first blocks again."""
        again = not run.holders
        if part < run.blocks:
            run = run.split(part)
        elif again:
            del self._kept[run]
        run.holders += 1
        if again:  # the older blocks can no longer be found
            self._unknown += part
        return run

    def _return(self, request: int, tokens: int, computed: int, own: bool) -> None:
        """A request gives back the blocks of its first `tokens`, of which so many are computed."""
        held, full = -(-tokens // self.block), computed // self.block
        twice = 0
        if own or self._runs is not None:
            twice = self._store(request, full, own=own, ended=True)
            if self._resuming is not None:
                self._leave_last(self._resuming, request, computed)
            self._pieces.pop(request, None)
        self._points.pop(request, None)
        run, depth = self._leaf.pop(request, self._none.run), self._depth.pop(request, 0)
        kept, anonymous, self._match = self._kept, full - depth + twice, self._none
        self._unknown += held - full
        self.free += held - full + anonymous
        if anonymous:
            last = next(reversed(kept), None)
            if last is None:
                self._unknown += anonymous
            elif last.above is not None:
                kept[CachedRun(-1, anonymous)] = None
            else:
                last.blocks += anonymous
        while run.above is not None:
            run.holders -= 1
            if not run.holders:
                kept[run] = None
                self.free += run.blocks
            run = run.above


class RadixCache(PrefixCache):
    """SGLang's tree of token runs (`srt/mem_cache/radix_cache.py` of 0.5.23), in pages.

    As `PrefixCache`, but whole runs are given up at once, and of what two requests compute at the same time one copy
    stays. What a step computes can be found in that step already, where SGLang enters it at its end. A request that
    gives way leaves its prompt in the tree, not what it made since (`release_req` of `schedule_batch.py`).
    """

    shares_twice = True

    __slots__ = ()

    def _reuse(self, blocks: int) -> None:
        """Give up runs, the longest unused first, until there are enough."""
        kept, self._match = self._kept, self._none
        while blocks > 0:
            run, _ = kept.popitem(last=False)
            blocks -= run.blocks
            if run.above is not None:
                del run.above.below[run.id]
        self._unknown -= blocks  # what is left of the last run

    def give_way(self, request: int, tokens: int, computed: int) -> None:
        """As of `Cache`: what the request computed as a prompt can be found again, what it made since cannot."""
        known = max(self._input_len[request], self._depth.get(request, 0) * self.block)
        super().give_way(request, tokens, min(computed, known))

    def _replayed(self, request: int) -> int:
        """All: only whole multiples are kept."""
        return self._input_len[request]

    def _count_twice(self, blocks: int) -> int:
        """None: they are free at once."""
        self._unknown += blocks
        self.free += blocks
        return 0


CACHES = {"blocks": PrefixCache, "tree": RadixCache}
"""Kinds of prefix caches, as engine documents call them."""
