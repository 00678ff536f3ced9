"""A model that is no document of blocks but the capture of a module."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple, cast

from archsim.base.notes import Note
from archsim.graph.graph import Block
from archsim.graph.step import Step
from archsim.spec.model import Model
from archsim.tracing.template import BlockTemplate, graph_of
from archsim.tracing.untyped import Untyped


class Graphs(NamedTuple):
    """Graphs of a module: of a prompt, and of a decode where that runs other operations. repeats: how often the longest
    loop runs.
    """

    prefill: BlockTemplate
    decode: BlockTemplate | None
    repeats: int


class TracedModel(Model):
    """A model whose graph is that of a capture. Its one layer stands for no block: nothing can cut it."""

    @property
    def graphs(self) -> Graphs:
        """What was captured, which is no field of the document."""
        return cast(Graphs, self.__dict__["_graphs"])

    @property
    def remarks(self) -> tuple[Note, ...]:
        """That it is traced, and whether it decodes."""
        decodes = "" if self.cached else "; its forward pass keeps no cache, so there is no decode step"
        text = f"traced from {self.name}: counts are exact, times are of what the module computes{decodes}"
        if any(multiplies_in_turn(graph) for graph in (self.graphs.prefill, self.graphs.decode) if graph is not None):
            text += (
                "; it multiplies weights in a loop over tokens, whose waiting from token to token is not in its times: "
                "prompts take longer"
            )
        return (Note("A45", text),)

    @property
    def shardable(self) -> bool:
        """A module does not say how to cut it."""
        return False

    @property
    def n_layers(self) -> int:
        """Repetitions of the longest loop."""
        return self.graphs.repeats

    def traced_graph(self, step: Step) -> Block:
        """The graph of a step: that of a decode where one new token runs other operations than a prompt."""
        decode = self.graphs.decode
        decodes = decode is not None and all(_is_one(s.new) and _is_past(s.past) for s in step.seqs)
        return graph_of(decode if decode is not None and decodes else self.graphs.prefill, step)


def multiplies_in_turn(template: BlockTemplate) -> bool:
    """Whether a loop over tokens has products with weights in it, as an LSTM's has: each waits for the one before."""
    blocks = [node for node in template.body if isinstance(node, BlockTemplate)]
    if template.kernel == "scan":
        ops = [node for node in template.body if not isinstance(node, BlockTemplate)]
        return any(op.kind == "contract" and any(use.tensor.kind == "weight" for use in op.reads) for op in ops)
    return any(multiplies_in_turn(block) for block in blocks)


def _is_one(new: Untyped) -> bool:
    return isinstance(new, int) and new == 1


def _is_past(past: Untyped) -> bool:
    return not isinstance(past, int) or past > 0


def most_repeats(template: BlockTemplate) -> int:
    """Repetitions of the loop that runs most often."""
    counts: Counter[str] = Counter()
    for node in template.body:
        if isinstance(node, BlockTemplate) and node.times.fixed:
            counts[node.name] = int(node.times.parts[0][0])
    return max(counts.values(), default=1)
