"""Steps and masks: closed forms against counting every pair."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.graph.step import Mask, Seqs, Step

lengths = st.tuples(st.integers(0, 40), st.integers(1, 40))

MASKS = [
    Mask(),
    Mask(causal=False),
    Mask(window=5),
    Mask(window=1),
    Mask(chunk=6),
    Mask(top_k=7),
    Mask(top_k=8, block=4, local=1),
    Mask(top_k=6, block=2, local=2),
    Mask(top_k=8, block=4),
    Mask(prefix=9),
    Mask(causal=False, window=3),
    Mask(causal=False, window=4, global_tokens=3),
    Mask(window=5, global_tokens=2),
    Mask(window=6, block=2, vertical=3),
    Mask(window=4, block=1, vertical=2),
]


def allowed(mask: Mask, q: int, k: int) -> bool:
    """Whether position q may see position k, written from the definitions."""
    if mask.global_tokens and (k < mask.global_tokens or (not mask.causal and q < mask.global_tokens)):
        return k <= q or not mask.causal
    if not mask.causal:
        return not mask.window or abs(q - k) <= mask.window
    if mask.prefix and k < mask.prefix and q < mask.prefix:
        return True
    if k > q:
        return False
    if mask.vertical and q - k >= mask.window:
        return k // mask.block % mask.vertical == mask.vertical - 1
    if mask.chunk:
        return q // mask.chunk == k // mask.chunk
    return not mask.window or q - k < mask.window


def counted(mask: Mask, past: int, new: int) -> int:
    """Pairs of the new tokens, one by one."""
    total = past + new
    rows = [[allowed(mask, q, k) for k in range(total)] for q in range(past, total)]
    pairs = [sum(row) for row in rows]
    if mask.top_k and mask.block and not mask.local:  # whole ones that are complete, and the one that is not
        seen = range(past + 1, total + 1)
        return sum(min(n // mask.block * mask.block, mask.top_k) + n % mask.block for n in seen)
    if mask.top_k and mask.block:  # the query's own block up to itself, and whole ones before it
        most = [mask.top_k - mask.block + q % mask.block + 1 for q in range(past, total)]
        return sum(min(n, own) for n, own in zip(pairs, most, strict=True))
    return sum(min(n, mask.top_k) for n in pairs) if mask.top_k else sum(pairs)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("mask", [m for m in MASKS if m.causal and not m.prefix], ids=str)
@given(lengths)
def test_pairs_of_causal_masks(mask: Mask, length: tuple[int, int]) -> None:
    """Prefill, decode and everything between: the closed form counts each allowed pair once."""
    past, new = length
    assert mask.pairs(past, new) == counted(mask, past, new)


@pytest.mark.parametrize("mask", [m for m in MASKS if not m.causal or m.prefix], ids=str)
@given(st.integers(1, 40))
def test_pairs_of_whole_sequences(mask: Mask, new: int) -> None:
    """Masks that look ahead are for whole sequences."""
    assert mask.pairs(0, new) == counted(mask, 0, new)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("mask", MASKS, ids=str)
@given(lengths)
def test_cache_numbers(mask: Mask, length: tuple[int, int]) -> None:
    """A cache never stores more than there is, nor reads less than a query may see."""
    past, new = length
    assert 0 < mask.stored(past, new) <= past + new
    assert new <= mask.read(past, new) <= past + new
    if new == 1 and mask.causal and not mask.prefix:
        assert mask.pairs(past, 1) <= mask.read(past, 1)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=4))
def test_ragged_steps_are_sums(parts: list[tuple[int, int, int]]) -> None:
    """A mix of sequences costs what its parts cost."""
    mixed = Step(seqs=tuple(Seqs(*p) for p in parts))
    single = [Step.of(*p) for p in parts]
    for quantity in ("tokens", "n_seqs"):
        assert getattr(mixed, quantity) == sum(getattr(s, quantity) for s in single)
    for mask in (Mask(), Mask(window=3)):
        for quantity in ("stored", "read", "pairs", "appended"):
            assert getattr(mixed, quantity)(mask) == sum(getattr(s, quantity)(mask) for s in single)


def test_arrays_equal_integers() -> None:
    """A sweep over lengths goes through the same formulas."""
    past = np.arange(0, 60, dtype=float)
    for mask in (Mask(), Mask(window=7), Mask(chunk=8)):
        assert list(mask.pairs(past, 5)) == [mask.pairs(int(p), 5) for p in past]
        assert list(mask.stored(past, 5)) == [mask.stored(int(p), 5) for p in past]
