"""Prompts that are longer than a step: the steps that they are computed in."""

from __future__ import annotations

from dataclasses import replace

from archsim.base.number import Num, floor, maximum, minimum, some, where
from archsim.graph.step import Seqs, Step
from archsim.timing.kernel_calls import VERIFIED


def prompt_steps(prefill: Step, most: int, replicas: int = 1) -> list[tuple[Num, Step]]:
    """(how many, step) of a prefill, whose attention replicas compute `most` tokens in a step at most (0: all of them).

    Prompts are computed in order, each cut where a step is full: full steps of one prompt, the first of them apart as
    nothing is cached before it, then what is left of all prompts. Steps in the middle of a prompt differ in the tokens
    before them alone, in which their times are nearly linear: they are as many of the mean one. Prompts of kinds, and
    those with a source, run whole. Arrays are cut point by point: a step that a point does not have counts 0 there.
    """
    if not most or len(prefill.seqs) > 1 or prefill.source or prefill.grids:
        return [(1, prefill)]
    own = prefill.fullest(replicas).seqs[0]
    cut = own.batch * own.new > most
    if not some(cut):
        return [(1, prefill)]
    full = maximum(0, floor((own.new - 1) / most))  # steps of one prompt that hold nothing else
    rest = own.new - full * most
    past = own.past + full * most
    shared = maximum(0, floor((own.batch * rest - 1) / most))  # full steps of what is left of the prompts
    left = own.batch * rest - shared * most
    last = minimum(left, rest)
    before = past + rest - last
    whole = prefill.seqs[0].batch  # of points that are not cut, whose replicas may differ by one
    batch = where(cut, replicas * maximum(left / last, 1), whole)
    parts = (
        (own.batch * minimum(full, 1), Seqs(replicas, most, own.past)),
        (own.batch * maximum(full - 1, 0), Seqs(replicas, most, own.past + most * maximum(full, 2) / 2)),
        (shared, Seqs(replicas * maximum(most / rest, 1), rest, past)),
        *_by_kernels(Seqs(batch, last, before)),
    )
    return [
        (count, replace(prefill, seqs=(seqs._replace(absorbed=own.absorbed or seqs.absorbed),)))
        for count, seqs in parts
        if some(count > 0)
    ]


def _by_kernels(last: Seqs) -> tuple[tuple[Num, Seqs], ...]:
    """Last steps by the kernels that they run in: after others, one token in those of a decode, a few in those that
    verify drafts, more in those of prompts. An array that holds several kinds is told apart, as each has its own price.
    """
    new, after = last.new, maximum(last.past, VERIFIED + 1)
    one = where((new == 1) & (last.past > 0), 1, 0)
    few = where((new > 1) & (new <= VERIFIED) & (last.past > 0), 1, 0)
    return (
        (1 - one - few, last._replace(new=where((one + few) > 0, VERIFIED + 1, new))),
        (few, last._replace(new=where(few > 0, new, VERIFIED), past=after)),
        (one, Seqs(last.batch, 1, after, absorbed=True)),
    )
