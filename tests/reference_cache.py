"""vLLM's blocks one by one, as its source (0.33, `v1/core/block_pool.py`) has them: a hash of all tokens up to a
block's end, reference counts, one queue of free blocks. An independent reference for runs of blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Key = tuple[object, ...]


@dataclass(eq=False)
class Block:
    key: Key | None = None
    holders: int = 0


@dataclass
class Blocks:
    """twice: whether a block was ever computed that was there already. need: blocks before a point that layers with a
    window or a state hold, of which `kept` are there; 0: all layers keep all.
    """

    block: int
    total: int
    need: int = 0
    kept: set[Key] = field(default_factory=set)
    queue: list[Block] = field(default_factory=list)
    by_key: dict[Key, list[Block]] = field(default_factory=dict)
    held: dict[int, list[Block]] = field(default_factory=dict)
    hashed: dict[int, int] = field(default_factory=dict)
    twice: bool = False

    def __post_init__(self) -> None:
        self.queue = [Block() for _ in range(self.total)]

    def in_layers_that_keep_all(self, tokens: list[object]) -> int:
        """Blocks of a prompt's beginning that layers without windows or states have."""
        return len(self._of_full_layers(tokens))

    def found(self, tokens: list[object]) -> list[Block]:
        """The blocks of a prompt's beginning; the last token is computed again."""
        blocks = self._of_full_layers(tokens)
        while self.need and blocks and not self._goes_on(tokens, len(blocks)):
            blocks.pop()
        return blocks

    def _of_full_layers(self, tokens: list[object]) -> list[Block]:
        blocks = []
        for end in range(self.block, len(tokens), self.block):
            if not (same := self.by_key.get(tuple(tokens[:end]))):
                break
            blocks.append(same[0])
        return blocks

    def _goes_on(self, tokens: list[object], blocks: int) -> bool:
        """Whether all blocks that a window needs, or the state, are there."""
        return all(
            tuple(tokens[: (i + 1) * self.block]) in self.kept for i in range(max(0, blocks - self.need), blocks)
        )

    def leave_point(self, tokens: list[object]) -> None:
        """What is needed to go on behind these tokens is kept, where their blocks can be found."""
        keys = [tuple(tokens[:end]) for end in range(self.block, len(tokens) + 1, self.block)]
        if all(self.by_key.get(key) for key in keys):
            self.kept.update(keys[-self.need :])

    def admit(self, request: int, tokens: list[object], new: int) -> bool:
        hits = self.found(tokens)
        count = -(-(len(hits) * self.block + new) // self.block) - len(hits)
        if count + sum(not b.holders for b in hits) > len(self.queue):
            return False
        for b in hits:
            if not b.holders:
                self.queue.remove(b)
            b.holders += 1
        self.held[request], self.hashed[request] = list(hits), len(hits)
        self.take(request, count)
        return True

    def take(self, request: int, count: int) -> None:
        for _ in range(count):
            b = self.queue.pop(0)
            if b.key is not None:
                self.by_key[b.key].remove(b)
                if not self.by_key[b.key]:
                    self.kept.discard(b.key)
                b.key = None
            b.holders = 1
            self.held[request].append(b)

    def extend(self, request: int, tokens: int) -> bool:
        count = -(-tokens // self.block) - len(self.held[request])
        if count > len(self.queue):
            return False
        self.take(request, max(0, count))
        return True

    def store(self, request: int, tokens: list[object]) -> None:
        """Full blocks of the first tokens get their hash."""
        for index in range(self.hashed[request], len(tokens) // self.block):
            b, key = self.held[request][index], tuple(tokens[: (index + 1) * self.block])
            same = self.by_key.setdefault(key, [])
            self.twice |= bool(same)
            b.key = key
            same.append(b)
        self.hashed[request] = max(self.hashed[request], len(tokens) // self.block)

    def release(self, request: int) -> None:
        first: list[Block] = []
        last: list[Block] = []
        for b in reversed(self.held.pop(request)):
            b.holders -= 1
            if not b.holders:
                (last if b.key is not None else first).append(b)
        self.queue = first + self.queue + last
