"""The loss behind a model's outputs.

`eager`: logits, and the log-probabilities of every token over the whole vocabulary, in fp32. `chunked`: the loss of a
few tokens at a time, so that nothing of size tokens x vocabulary outlives its chunk. `vocab_parallel`: every rank has
its part of the vocabulary and keeps its part of the probabilities (Megatron). `compiled`: one kernel forward and one
backward, on the logits themselves (torch.compile). `none`: the gradient of the outputs is given, as for a loss outside
of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from archsim.base.errors import UsageError
from archsim.graph.graph import Block, Op
from archsim.graph.tensor import FP32, Tensor

LOSSES = ("eager", "chunked", "vocab_parallel", "compiled", "none")

CHUNKS = 8
"""Pieces of a chunked loss (torchtune's default)."""

TRANSIENT: Mapping[str, float] = {
    "eager": 4 + 4, "chunked": (2 + 4 + 4 + 4) / CHUNKS, "vocab_parallel": 2, "compiled": 2, "none": 2,
}  # fmt: skip
"""Bytes for each logit at the loss beside what is kept. eager: the gradients of log-probabilities and of fp32 logits;
chunked: logits, their fp32 copy, log-probabilities and a gradient, of one chunk; else the gradient in 16 bits."""
RATE = 8
"""Vector FLOP per logit: maximum, difference, exponential, sum, logarithm."""

HEADS = ("head", "mlm_head", "pooler")
"""Top-level blocks whose result is the model's, the first that is there."""


def with_loss(graph: Block, loss: str) -> tuple[Block, list[Tensor]]:
    """The graph with its loss, and the tensors that a backward starts from. UsageError for an unknown loss."""
    if loss not in LOSSES:
        raise UsageError(f"no loss implementation `{loss}`; known: {', '.join(LOSSES)}", code="E161")
    outputs = results(graph)
    if loss == "none":
        return graph, outputs
    logits = next((tensor for tensor in outputs if "V" in tensor.axes), None)
    if logits is None:
        raise UsageError("this model has no output over the vocabulary to take a loss of", code="E161",
                         hints=("an encoder has one where its spec states an `mlm_head`",))  # fmt: skip
    tokens = Tensor("loss.tokens", {"T": logits.axes["T"]}, "act", FP32)
    op = Op(kind="map", name="loss.cross_entropy", reads=(logits.part(),), writes=(tokens.part(),), fn="cross_entropy",
            rate=RATE * logits.axes["V"], attrs={"implementation": loss}, part="output head")  # fmt: skip
    block = Block(name="loss", body=(op,))
    return replace(graph, body=(*graph.body, block)), [tokens]


def results(graph: Block) -> list[Tensor]:
    """What the model gives: logits, or hidden states where there is no head."""
    by_name = {node.name: node for node in graph.body if isinstance(node, Block)}
    heads = [by_name[name] for name in HEADS if name in by_name]
    return [last_result(heads[0])] if heads else [last_result(graph)]


def last_result(block: Block) -> Tensor:
    """What a block leaves behind: its last op's result."""
    last = block.body[-1]
    if isinstance(last, Op):
        return last.writes[0].tensor
    return last.carry[-1][1] if last.carry else last_result(last)
