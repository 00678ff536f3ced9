"""Blocks of recorded prompts as runs: blocks that always stand together are one, so that a prompt has few of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

from archsim.serving.load import Run


def block_runs(
    prompts: Sequence[tuple[int, ...]], lengths: Sequence[int], size: int
) -> list[tuple[Run, ...]]:  # fmt: skip
    """Runs of each prompt that add up to its tokens. prompts: identities of blocks of `size` tokens, equal ones behind
    equal blocks; a prompt that is longer ends in tokens of its own.
    """
    inside = _inside_runs(prompts)
    return [_runs(blocks, prompt, size, inside) for blocks, prompt in zip(prompts, lengths, strict=True)]


def _inside_runs(prompts: Iterable[tuple[int, ...]]) -> set[int]:
    """Blocks that stand behind one and the same block in all prompts, which no other follows."""
    before: dict[int, int] = {}
    after: dict[int, int] = {}
    parted: set[int] = set()  # blocks before several others, and -1 - block of those behind several
    for blocks in prompts:
        last = -1
        for block in blocks:
            if before.setdefault(block, last) != last:
                parted.add(-1 - block)
            if last >= 0 and after.setdefault(last, block) != block:
                parted.add(last)
            last = block
    return {block for block, last in before.items() if last >= 0 and last not in parted and -1 - block not in parted}


def _runs(blocks: tuple[int, ...], prompt: int, size: int, inside: Collection[int]) -> tuple[Run, ...]:
    """Runs of one prompt. inside: blocks that belong to the run before them."""
    starts = [at for at, block in enumerate(blocks) if block not in inside]
    runs = [(blocks[at], min(size * end, prompt) - size * at) for at, end in pairwise([*starts, len(blocks)])]
    rest = prompt - size * len(blocks)
    return (*runs, *([(-1, rest)] if rest > 0 else []))
