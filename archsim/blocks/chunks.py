"""The chunks that a recurrent mixer cuts a prefill into: pairs inside them, and how far the last is filled up."""

from __future__ import annotations

from archsim.base.number import Num, ceil_div
from archsim.graph.step import Mask, Step


def single(step: Step) -> bool:
    """Whether every sequence has one new token: then the state alone is used.

    The reference implementations do so only where there is a state; `full` counts a chunk for a first token.
    """
    if not all(isinstance(s.new, int) and s.new == 1 for s in step.seqs):
        return False
    return step.masked or not all(isinstance(s.past, int) and s.past == 0 for s in step.seqs)


def chunk_pairs(step: Step, chunk: int, filled: bool = True) -> Num:
    """(query, key) pairs inside the chunks that a prefill is cut into; a decode step has none.

    filled: the last chunk is filled up before it is computed, which `full` counts.
    """
    if single(step):
        return 0
    if step.masked:
        return step.pairs(Mask(chunk=chunk))
    if not filled:
        whole = [(s, s.new // chunk * chunk) for s in step.seqs]
        return sum(s.batch * (n * chunk + (s.new - n) * (s.new - n)) for s, n in whole)
    return sum(s.batch * ceil_div(s.new, chunk) * chunk * chunk for s in step.seqs)


def padded(step: Step, chunk: int) -> Num:
    """Tokens rounded up to whole chunks, which an implementation computes and `full` counts."""
    if step.masked:
        return step.tokens
    return sum(s.batch * ceil_div(s.new, chunk) * chunk for s in step.seqs)
