"""Where no candidate keeps the limits: the limit that keeps all out, and the value that lets one in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes
from archsim.candidates.question import Limits, Objective, Question
from archsim.candidates.search import Found, best_rows, search
from archsim.candidates.space import Space


class _Limit(NamedTuple):
    """A limit that may be set. quantity: what it limits, 1 where less of it is wanted; without: takes it away."""

    field: str
    option: str
    quantity: str
    sign: int
    without: Callable[[Limits], Limits]


LIMITS = (
    _Limit("tpot_s", "--tpot", "tpot_s", 1, lambda limits: replace(limits, tpot_s=None)),
    _Limit("ttft_s", "--ttft", "ttft_s", 1, lambda limits: replace(limits, ttft_s=None)),
    _Limit("memory_bytes", "--memory", "memory_bytes", 1, lambda limits: replace(limits, memory_bytes=None)),
    _Limit("params", "--params", "params", -1, lambda limits: replace(limits, params=None)),
    _Limit("active", "--active", "active", -1, lambda limits: replace(limits, active=None)),
)
"""Every limit of a question."""


def openings(
    question: Question, base: JsonObject, spaces: Sequence[Space], sample: int | None, found: Found
) -> Iterator[str]:
    """For each limit that alone keeps all candidates out, the value that lets one in; else what else to change."""
    if not found.searched.legal:
        yield "heads times d_head must be near d_model, and key/value heads divide heads: widen `--vary`, or fix less"
        return
    opened = False
    for limit in LIMITS:
        if getattr(question.limits, limit.field) is None:
            continue
        without = search(_without(question, limit), base, spaces, sample)
        if table := without.table():
            best = best_rows(table, (Objective(limit.quantity, limit.sign),))[0]
            upper = f"{limit.field.removesuffix('_s')}_high_s"
            name = upper if question.limits.sure and upper in table else limit.quantity
            yield _advice(limit, float(table[name][best]))
            opened = True
    if not opened and not found.searched.fit:
        yield (f"no candidate leaves room on one {question.hardware.name}: a shorter `--context`, `--weights int4`, a "
               "smaller `--batch`, or smaller sizes by `--vary`")  # fmt: skip
    elif not opened:
        yield "no limit alone keeps all candidates out: loosen two, or widen the dimensions by `--vary`"


def _without(question: Question, limit: _Limit) -> Question:
    """The question with one limit left out, asked for what it limits."""
    return replace(question, limits=limit.without(question.limits), objectives=(Objective(limit.quantity, limit.sign),))


def _advice(limit: _Limit, value: float) -> str:
    """What the best candidate without a limit has."""
    if limit.quantity.endswith("_s"):
        typed = f"{math.ceil(1e5 * value) / 100:g}ms"
        return f"`{limit.option} {typed}` would do: the fastest that keeps all else has {typed.removesuffix('ms')} ms"
    if limit.quantity == "memory_bytes":
        typed = f"{math.ceil(value / 1e7) / 100:g}GB"
        return f"`{limit.option} {typed}` would do: the smallest that keeps all else takes {format_bytes(value)}"
    return f"without `{limit.option}` there are some: the largest that keeps all else has {value / 1e9:,.3g}B"
