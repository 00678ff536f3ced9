"""What a drawing of a model shows: its stacks, the kinds of their layers, and the amounts of every part."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from archsim.blocks.layer import Layer, count_layers, layer_name
from archsim.counts.count import step_for
from archsim.counts.graph_counts import active_params
from archsim.graph.graph import Block, Node
from archsim.render.drawing.flow import nodes_by_name
from archsim.render.drawing.stack import LayerKind, layer_kinds, round_ends
from archsim.render.drawing.tally import Amount, Tally
from archsim.render.drawing.traits import Box
from archsim.spec.lower import lower
from archsim.spec.model import Embedding, Model

TOKENS = 2048
"""Length of the sequence that shares of FLOP are for, where the context is as long."""


@dataclass(frozen=True)
class StackPlan:
    """A stack of layers and what stands before and behind it. side: `encoder ` of an encoder-decoder's encoder.
    titles: name of a block before or behind the layers -> its box, where the spec says what it is. rounds: what groups
    of layers compute at the end of each round.
    """

    layers: tuple[Layer, ...]
    kinds: Sequence[LayerKind]
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    embedding: Embedding
    prefix: str = ""
    side: str = ""
    titles: Mapping[str, Box] = field(default_factory=dict)
    rounds: tuple[Node, ...] = ()

    @property
    def depth(self) -> int:
        """Layers in all."""
        return count_layers(self.layers)


class Plan:
    """A model, the graph of one forward pass over `tokens` tokens, and what each operation of it holds."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.tokens = min(TOKENS, model.max_context or TOKENS)
        self.graph = lower(model, step_for(model, 1, self.tokens, last=True))
        self.blocks: Mapping[str, Block] = nodes_by_name(self.graph)
        self.tally = Tally(self.graph)
        self.whole: Amount = self.tally.whole()

    @cached_property
    def active(self) -> int:
        """Parameters that one token uses."""
        return int(active_params(lower(self.model, step_for(self.model, 1, 1))))

    @cached_property
    def encoder(self) -> StackPlan | None:
        """The encoder of an encoder-decoder."""
        stack = self.model.encoder
        if stack is None:
            return None
        body = self.blocks["encoder"].body
        return self._stack(stack.layers, body, stack.embedding or Embedding(), "encoder.", "encoder ")

    @cached_property
    def main(self) -> StackPlan:
        """The decoder, or the only stack."""
        body = [node for node in self.graph.body if node.name != "encoder" or self.model.encoder is None]
        return self._stack(self.model.layers, body, self.model.embedding, "", "")

    def _stack(
        self, layers: tuple[Layer, ...], body: Iterable[Node], embedding: Embedding, prefix: str, side: str
    ) -> StackPlan:  # fmt: skip
        names = {prefix + layer_name(layers, i) for i in range(len(layers))}
        nodes = list(body)
        places = [i for i, node in enumerate(nodes) if node.name in names]
        if not places:  # a capture of a module, which has blocks of its own
            return StackPlan(layers=layers, kinds=(), before=tuple(nodes), after=(), embedding=embedding, side=side)
        return StackPlan(
            layers=layers, kinds=layer_kinds(layers, self.blocks, prefix), before=tuple(nodes[: places[0]]),
            after=tuple(nodes[places[-1] + 1 :]), embedding=embedding, prefix=prefix, side=side,
            rounds=tuple(round_ends(layers, self.blocks, prefix)),
        )  # fmt: skip

    def share(self, amount: Amount) -> str:
        """The share of a part in all FLOP; empty where it is too small to print."""
        share = 100 * amount.flops / self.whole.flops if self.whole.flops else 0.0
        return f"{share:.1f} % of FLOP" if share >= 0.05 else ""


def amount_text(plan: Plan, amount: Amount, times: int = 1) -> str:
    """Parameters, exactly, and the share of FLOP."""
    shared = amount.params - amount.single * times
    if times > 1 and amount.single and shared >= 0:
        held = f"{amount.single:,} × {times:,}" + (f" + {shared:,} shared" if shared else "")
    else:
        held = f"{amount.params:,}" + (f" for all {times:,} layers" if times > 1 and not amount.single else "")
    return " · ".join(part for part in (held if amount.params else "", plan.share(amount)) if part)
