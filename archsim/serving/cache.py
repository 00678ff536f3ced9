"""The cache of one replica as counts of blocks."""

from __future__ import annotations

from typing import Protocol

from archsim.base.errors import UsageError


class Cache(Protocol):
    """Blocks of one replica. Running requests hold the blocks of their cached tokens; a prefix cache also keeps those
    of requests that have ended, for prompts that begin alike.

    block: tokens of a block. total: blocks of the replica. free: blocks that can be handed out now, those that only a
    prefix cache still keeps included. settled: whether the next chunk of a prompt that has no room has none before a
    request leaves, however long others decode on.
    """

    block: int
    total: int
    free: int

    @property
    def settled(self) -> bool: ...

    def prefix(self, request: int, tokens: int) -> int:
        """Tokens at the start of the request's `tokens` that are cached already: whole blocks, and not all tokens."""
        ...

    def room(self, request: int, hit: int, tokens: int) -> int:
        """Free blocks that it takes to hold a request's first `tokens`, `hit` of which `prefix` found."""
        ...

    def admit(self, request: int, hit: int, tokens: int) -> bool:
        """Hand out the blocks of a request's first `tokens`, `hit` of which `prefix` found; False without room."""
        ...

    def extend(self, request: int, before: int, tokens: int) -> bool:
        """Hand out the blocks between a request's first `before` and first `tokens` tokens; False without room."""
        ...

    def take(self, blocks: int) -> None:
        """Hand out one more block to each of `blocks` requests that decode; there is room."""
        ...

    def store(self, request: int, computed: int) -> None:
        """A step computes a request's prompt up to so many tokens."""
        ...

    def release(self, request: int, tokens: int, computed: int) -> None:
        """A request has ended; it holds the blocks of `tokens` tokens, of which so many are computed."""
        ...

    def give_way(self, request: int, tokens: int, computed: int) -> None:
        """A request loses the blocks of `tokens` tokens, of which so many are computed, and waits again."""
        ...


class BlockCache:
    """Blocks without memory of what they held: every prompt is computed."""

    __slots__ = ("block", "free", "total")

    def __init__(self, tokens: int, block: int = 16) -> None:
        if block < 1 or tokens < block:
            raise UsageError(f"the KV cache holds {tokens:,} tokens, less than one block of {block:,}")
        self.block = block
        self.total = self.free = tokens // block

    @property
    def settled(self) -> bool:
        """Always: decodes take what is free, and a chunk takes no less."""
        return True

    def prefix(self, request: int, tokens: int) -> int:
        """Nothing is found."""
        return 0

    def room(self, request: int, hit: int, tokens: int) -> int:
        """All of them."""
        return -(-tokens // self.block)

    def admit(self, request: int, hit: int, tokens: int) -> bool:
        """The blocks of the first tokens."""
        blocks = -(-tokens // self.block)
        if blocks > self.free:
            return False
        self.free -= blocks
        return True

    def extend(self, request: int, before: int, tokens: int) -> bool:
        """The blocks of the next tokens."""
        blocks = -(-tokens // self.block) + -before // self.block
        if blocks > self.free:
            return False
        self.free -= blocks
        return True

    def take(self, blocks: int) -> None:
        """One block for each of `blocks` requests."""
        self.free -= blocks

    def store(self, request: int, computed: int) -> None:
        """Nothing is kept."""

    def release(self, request: int, tokens: int, computed: int) -> None:
        """All blocks of a request."""
        self.free += -(-tokens // self.block)

    def give_way(self, request: int, tokens: int, computed: int) -> None:
        """All blocks of a request."""
        self.free += -(-tokens // self.block)
