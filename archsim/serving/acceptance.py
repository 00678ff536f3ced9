"""How many drafts a step accepts: what the user says of it, as a distribution from which each step is drawn.

It depends on model, drafter and text, so it is stated or measured, never assumed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.serving.lengths import read_column
from archsim.serving.random_numbers import Stream

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

MOST = 64
"""Drafts of one step at most."""

STEPS = 1 << 24
"""Steps of one request for which draws are numbered."""

Method = Literal["ngram", "mtp", "eagle", "draft"]
FORMS = "ngram:K, mtp:K, eagle:K, eagle:K,topk=N,tokens=N (a tree) or draft:MODEL,K"
ACCEPTANCE = "a probability (0.7), shares by position (0.8,0.6,0.5), tokens a step (2.4), or FILE.csv:COLUMN of them"


@dataclass(frozen=True, slots=True)
class Drafting:
    """Speculative decoding as it is asked for. drafts: of each step, one after another. model: that drafts, for
    `draft`. accepted: the share of steps that accept at least 1, 2, .. drafts. topk: drafts for the same position, of
    a tree (EAGLE-2, arXiv:2406.16858). tokens: of the tree that a step verifies, its root among them; None: one more
    than drafts.
    """

    method: Method
    drafts: int
    accepted: tuple[float, ...]
    model: str = ""
    topk: int = 1
    tokens: int | None = None

    @property
    def verified(self) -> int:
        """Tokens that a step verifies for a sequence, whatever is accepted of them."""
        return self.tokens or self.drafts + 1

    @property
    def mean(self) -> float:
        """Drafts that a step accepts on average."""
        return sum(self.accepted)

    def __str__(self) -> str:
        tree = "" if self.tokens is None else f",topk={self.topk},tokens={self.tokens}"
        return f"{self.method}:{self.model + ',' if self.model else ''}{self.drafts}{tree}"


@dataclass(frozen=True, slots=True)
class AcceptedDrafts:
    """Draws of accepted drafts, numbered by request and step, so that they depend on nothing else."""

    accepted: tuple[float, ...]
    stream: Stream

    def of(self, request: int, first: int, count: int) -> npt.NDArray[np.int64]:
        """Drafts that the steps of a request accept, from its step `first` on."""
        import numpy as np

        draws = np.frombuffer(self.stream.uniforms(count, request * STEPS + first))
        found: npt.NDArray[np.int64] = np.sum([draws < share for share in self.accepted], axis=0, dtype=np.int64)
        return found


def parse_drafting(speculative: str | None, acceptance: str | float | None) -> Drafting | None:
    """The options `--speculative` and `--acceptance`. Raises UsageError, and SpecError (E109) for a file."""
    if speculative is None:
        if acceptance is not None:
            raise UsageError("`--acceptance` is of drafts: give `--speculative`", hints=(FORMS,))
        return None
    text, tree = _tree(str(speculative).strip())
    method, _, rest = text.partition(":")
    model, comma, count = rest.rpartition(",") if method == "draft" else ("", ",", rest)
    if method not in get_args(Method) or not comma or (method == "draft" and not model):
        raise UsageError(f"`--speculative`: {quote(speculative)} is not a drafting method", hints=(f"write {FORMS}",))
    if not re.fullmatch("[0-9]{1,3}", count) or not 1 <= int(count) <= MOST:
        raise UsageError(f"`--speculative`: {quote(count)} is not a number of drafts from 1 to {MOST}")
    if acceptance is None:
        raise UsageError(
            "`--speculative` needs `--acceptance`: how many drafts are accepted depends on model, drafter and text",
            hints=(f"give {ACCEPTANCE}; vLLM logs all of them",),
        )
    drafts = int(count)
    accepted = _accepted(str(acceptance).strip(), drafts)
    return with_tree(Drafting(cast(Method, method), drafts, accepted, model), *tree)


TREE = re.compile(r",\s*(topk|tokens)=([0-9]{1,3})(?=,|$)")
"""A number of a tree behind a way to draft."""


def _tree(text: str) -> tuple[str, tuple[int, int | None]]:
    """A way to draft without its tree, and of the tree drafts for a position and tokens. Raises UsageError for a tree
    that lacks one of both.
    """
    found = dict(TREE.findall(text))
    if not found:
        return text, (1, None)
    if len(found) < 2:
        raise UsageError(
            "`--speculative`: a tree of drafts has `topk` and `tokens`", hints=("write eagle:4,topk=4,tokens=16",)
        )
    return TREE.sub("", text), (int(found["topk"]), int(found["tokens"]))


def with_tree(drafting: Drafting, topk: int, tokens: int | None) -> Drafting:
    """The same with a tree of drafts: as many for a position, and tokens that a step verifies; None: no tree. Raises
    UsageError for what is no tree.
    """
    if tokens is None:
        return drafting
    if drafting.method not in ("mtp", "eagle"):
        raise UsageError("a tree of drafts is made by a module", hints=("eagle:4,topk=4,tokens=16",))
    layers = drafting.drafts
    most = 1 + topk + (layers - 1) * topk**2  # every one of the topk that go on has topk drafts (EAGLE-2)
    if not (1 <= topk <= MOST and layers < tokens <= min(most, MOST + 1)):
        raise UsageError(
            f"a tree of {layers} drafts in a row and {topk} for a position has {layers + 1} to "
            f"{min(most, MOST + 1)} tokens, not {tokens}"
        )
    return replace(drafting, topk=topk, tokens=tokens)


def _accepted(text: str, drafts: int) -> tuple[float, ...]:
    """The share of steps that accept at least 1, 2, .. drafts. Raises UsageError."""
    name, _, column = text.rpartition(":")
    if name:
        return _counted(read_column(Path(name), column), drafts, text)
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = [-1.0]
    if len(values) == 1 and 0 <= values[0] <= 1:
        return tuple(values[0] ** position for position in range(1, drafts + 1))
    if len(values) == 1 and 1 < values[0] <= drafts + 1:
        share = _geometric(values[0], drafts)
        return tuple(share**position for position in range(1, drafts + 1))
    if len(values) == drafts and all(0 <= v <= 1 for v in values) and values == sorted(values, reverse=True):
        return tuple(values)
    if 1 < len(values) != drafts:
        raise UsageError(f"`--acceptance`: {quote(text)} has {len(values)} positions, and a step {drafts} drafts")
    raise UsageError(
        f"`--acceptance`: {quote(text)} cannot be, of {drafts} drafts",
        hints=(f"give {ACCEPTANCE}; shares of positions never rise, and a step makes 1 to {drafts + 1} tokens",),
    )


def _geometric(tokens: float, drafts: int) -> float:
    """The probability of each draft, given those before it, with which a step makes so many tokens on average."""
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        mean = sum(share**position for position in range(drafts + 1))
        low, high = (share, high) if mean < tokens else (low, share)
    return high


def _counted(made: Sequence[int], drafts: int, text: str) -> tuple[float, ...]:
    """Of the tokens that steps made. Raises UsageError."""
    if max(made) > drafts + 1:
        raise UsageError(
            f"`--acceptance`: {quote(text)} has steps of more than {drafts + 1} tokens, of {drafts} drafts"
        )
    return tuple(sum(n > position for n in made) / len(made) for position in range(1, drafts + 1))
