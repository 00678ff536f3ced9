"""What a model keeps between calls: keys and values, convolution windows, recurrent states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

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
