"""Steps of speculative decoding: a verify step of `drafts` + 1 tokens a sequence, or of a tree of them, and the time
that makes the drafts.

Drafts come from the model's own next-token module (MTP), from a trained layer on top of the model (EAGLE), from a
smaller model, or from the prompt's own n-grams. Which drafts are accepted is not said here: a replica draws it from an
acceptance that its user states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.blocks.layer import walk_layers
from archsim.counts.step_graphs import StepGraphs
from archsim.engines.overhead import NO_HOST
from archsim.serving.step_parts import NO_GRAPHS, Captured, Chunk
from archsim.serving.step_times import End, StepTable, StepTimes
from archsim.spec.model import Model, Mtp
from archsim.timing.step_pricer import StepPricer


@dataclass(frozen=True, slots=True)
class Sum:
    """Step times added up, each with a factor."""

    terms: tuple[tuple[float, StepTimes], ...]

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`."""
        return sum([factor * times.seconds(decodes, context, chunks) for factor, times in self.terms])


@dataclass(frozen=True, slots=True)
class Speculation:
    """Steps with `drafts` drafts for each decoding sequence, whatever is accepted of them.

    verify: the model's step of all tokens that it verifies for a sequence. first: the drafter's pass over what the
    model has accepted at most, and over the step's chunks, whose states it also needs; further: each of its other
    passes, of one token, or of one for each branch of a tree. None where drafts cost no device time (n-grams are looked
    up by the host while the device runs).
    """

    drafts: int
    verify: StepTimes
    first: StepTimes | None = None
    further: StepTimes | None = None

    def seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """As of `StepTimes`: a verify step, and the drafts for the next one. context: cached tokens before the step."""
        return self.verify.seconds(decodes, context, chunks) + self.draft_seconds(decodes, context, chunks)

    def draft_seconds(self, decodes: int, context: int, chunks: Sequence[Chunk]) -> float:
        """The drafter's part of a step."""
        if self.first is None or self.further is None:
            return 0.0
        time = self.first.seconds(decodes, context, chunks)
        sequences = decodes + len(chunks)
        if self.drafts > 1:
            reached = context + decodes + sum([new + past for new, past in chunks])
            time += (self.drafts - 1) * self.further.seconds(sequences, reached, ())
        return time


class Tree(NamedTuple):
    """A tree of drafts. topk: branches that go on from each position; tokens: that a step verifies, root and all."""

    topk: int
    tokens: int


@dataclass(frozen=True, slots=True)
class TableLimits:
    """What tables are made for, as of `StepTable`, and which end of the interval."""

    tokens: int = 8192
    sequences: int = 1024
    context: int = 0
    captured: Captured = NO_GRAPHS
    end: End = "expected"

    def table(self, pricer: StepPricer, new: int = 1, captured: Captured = NO_GRAPHS) -> StepTable:
        """A table of steps in which each decode takes `new` tokens."""
        table = StepTable(
            pricer, tokens=self.tokens, sequences=self.sequences, context=self.context, new=new, captured=captured
        )
        return table.at(self.end)


def ngram(pricer: StepPricer, drafts: int, limits: TableLimits) -> Speculation:
    """Drafts looked up in the sequence itself."""
    return Speculation(_checked(drafts), limits.table(pricer, drafts + 1, limits.captured))


def mtp(pricer: StepPricer, drafts: int, limits: TableLimits, tree: Tree | None = None) -> Speculation:
    """Drafts by the model's own next-token module, once for each. Raises UsageError for a model without one."""
    model = pricer.graphs.model
    if model.mtp is None:
        raise UsageError(
            f"{model.name} has no next-token module", hints=("draft with `eagle:K`, `draft:MODEL,K` or `ngram:K`",)
        )
    return _by_module(pricer, drafts, limits, model.mtp, tree)


def eagle(pricer: StepPricer, drafts: int, limits: TableLimits, tree: Tree | None = None) -> Speculation:
    """Drafts by one layer like the model's first, on its states and embeddings merged (EAGLE, arXiv:2401.15077), once
    for each; embedding and output head are the model's.
    """
    model = pricer.graphs.model
    if model.final_norm is None:
        raise UsageError(f"{model.name} has no final norm to build an EAGLE layer with")
    return _by_module(pricer, drafts, limits, Mtp(norm=model.final_norm, layer=walk_layers(model.layers)[0]), tree)


def draft_model(pricer: StepPricer, drafter: StepPricer, drafts: int, limits: TableLimits) -> Speculation:
    """Drafts by a smaller model on a plan of its own, once for each. It also runs over all prompts."""
    verify = ngram(pricer, drafts, limits)
    return replace(
        verify, first=limits.table(drafter, drafts + 1), further=limits.table(drafter),
    )  # fmt: skip


def _by_module(
    pricer: StepPricer, drafts: int, limits: TableLimits, module: Mtp, tree: Tree | None = None
) -> Speculation:
    """Drafts by one module on top of the model, in the same step of the host. tree: None: one draft for a position.
    The branches of a tree share one reading of the sequence (SGLang's FlashAttention back end, topk queries a
    sequence).
    """
    found, branches = ngram(pricer, drafts, limits), 1
    if tree is not None:
        found = replace(found, verify=limits.table(pricer, tree.tokens, limits.captured))
        branches = tree.topk
    return replace(
        found, first=_module(pricer, module, limits, drafts + 1), further=_module(pricer, module, limits, branches)
    )


def _module(pricer: StepPricer, module: Mtp, limits: TableLimits, new: int) -> Sum:
    """One pass of a module: its embedding, merge, layer and norm, and the model's head.

    Of graphs: a model of that one layer with the module, which has the layer twice and the head once, less the same
    model with two layers, and once that of one layer.
    """
    layer = module.layer.model_copy(update={"repeat": 1})
    alone = module.model_copy(update={"n": 1, "layer": layer})
    one = pricer.graphs.model.model_copy(update={"layers": (layer,), "mtp": alone})
    two = one.model_copy(update={"layers": (layer.model_copy(update={"repeat": 2}),)})
    with_module = _pricer_of(pricer, one, ("mtp",))
    return Sum((
        (1.0, limits.table(with_module, new)), (-1.0, limits.table(_pricer_of(pricer, two), new)),
        (1.0, limits.table(_pricer_of(pricer, one), new)),
    ))  # fmt: skip


def _pricer_of(pricer: StepPricer, model: Model, parts: tuple[str, ...] = ()) -> StepPricer:
    """The pricer of another model in the same formats, without a host of its own."""
    graphs = StepGraphs(model, pricer.graphs.formats, parts)
    overheads = pricer.overheads._replace(host=NO_HOST)
    return StepPricer(graphs, pricer.timer, overheads, pricer.plan)


def _checked(drafts: int) -> int:
    if drafts < 1:
        raise UsageError(f"speculation needs at least 1 draft, not {drafts}")
    return drafts
