"""One training step of a model as graphs: forward with its loss, backward, what is recomputed, and what is kept."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.number import Num
from archsim.counts.graph_counts import op_flops
from archsim.graph.dialect import load_dialect
from archsim.graph.graph import Block, map_tensors, ops
from archsim.graph.passes.adapters import Adapters, with_adapters
from archsim.graph.passes.checkpoint import Recompute, recompute_of
from archsim.graph.passes.grad import RECOMPUTED, backward
from archsim.graph.passes.grad_plan import Trainable, everything, plan_gradients
from archsim.graph.passes.loss import with_loss
from archsim.graph.passes.saved import Region, Saved, saved_tensors
from archsim.graph.step import Step
from archsim.graph.tensor import BF16, Format, Tensor, nbytes
from archsim.spec.lower import lower
from archsim.spec.model import Model


class TrainingFlops(NamedTuple):
    """FLOP of one step: contractions, 2 per multiply-add.

    model_causal: forward and backward, only the (query, key) pairs that masks allow; model_full: all pairs.
    executed: model_causal and what runs twice (attention scores inside the backward kernel, recomputed regions).
    """

    model_causal: Num
    model_full: Num
    executed: Num
    forward: Num
    backward: Num
    recompute: Num


@dataclass(frozen=True, slots=True)
class TrainingGraph:
    """The graphs of a step. recompute: what runs once more before its backward. saved: tensors that live from forward
    to backward. regions: what is recomputed and what that makes, of which one repetition of one region lives at a time.
    """

    step: Step
    forward: Block
    backward: Block
    recompute: Block
    saved: tuple[Saved, ...]
    regions: tuple[Region, ...]
    flops: TrainingFlops

    @property
    def saved_bytes(self) -> Num:
        """Bytes kept from forward to backward."""
        return sum(item.bytes for item in self.saved)

    @property
    def region_bytes(self) -> Num:
        """Bytes that the largest recomputed region makes anew."""
        sizes = [sum(map(nbytes, region.tensors)) for region in self.regions]
        return max(sizes, default=0)


def training_step_of(model: Model, batch: Num, length: Num) -> Step:
    """`training_step` of a model; an encoder-decoder's sources are as long as its targets."""
    return training_step(batch, length, source=length if model.encoder is not None else None)


def training_step(batch: Num, length: Num, *, masked: bool = True, source: Num | None = None) -> Step:
    """`batch` sequences of `length` tokens, logits at every position. source: as in `Step.prefill`."""
    return replace(Step.prefill(batch, length, source), masked=masked, last=False)


def training_graph(
    model: Model,
    step: Step,
    *,
    trainable: Trainable = everything,
    dialect: str = "fused",
    loss: str = "eager",
    recompute: str | Recompute = "none",
    activations: Format = BF16,
    parts: Collection[str] = (),
    adapters: Adapters | None = None,
) -> TrainingGraph:
    """The graphs of one step. `step` from `training_step`; recompute as in `passes.checkpoint`; parts as in
    `lower`. adapters: of LoRA, which then are what `trainable` should say (`is_adapter`).
    """
    policy = recompute_of(recompute) if isinstance(recompute, str) else recompute
    chosen = load_dialect(dialect)
    forward, seeds = with_loss(training_forward(model, step, activations, parts, adapters), loss)
    plan = plan_gradients(forward, trainable)
    back, walk = backward(plan, chosen, seeds)
    blocks = [region.block for region in saved_tensors(plan, chosen, walk.reached, policy).regions]
    again = Block(name="", body=tuple(blocks))
    # Attention that runs op by op keeps its whole squares, whatever the mask: what is kept is read off the full graph.
    whole, seeds = with_loss(training_forward(model, replace(step, masked=False), activations, parts, adapters), loss)
    plan = plan_gradients(whole, trainable)
    full, walk = backward(plan, chosen, seeds)
    kept = saved_tensors(plan, chosen, walk.reached, policy)
    flops = _training_flops(forward, back, again, contraction_flops(whole) + contraction_flops(full))
    return TrainingGraph(step, forward, back, again, kept.saved, kept.regions, flops)


def _training_flops(forward: Block, back: Block, again: Block, full: Num) -> TrainingFlops:
    own, gradients = contraction_flops(forward), contraction_flops(back)
    twice = contraction_flops(back, recomputed=True) + contraction_flops(again)
    return TrainingFlops(own + gradients, full, own + gradients + twice, own, gradients, twice)


def forward_and_backward(
    model: Model, step: Step, trainable: Trainable, dialect: str, loss: str, parts: Collection[str] = (),
    adapters: Adapters | None = None,
) -> Num:  # fmt: skip
    """Model FLOP of one step."""
    forward, seeds = with_loss(training_forward(model, step, BF16, parts, adapters), loss)
    back, _ = backward(plan_gradients(forward, trainable), load_dialect(dialect), seeds)
    return contraction_flops(forward) + contraction_flops(back)


def training_forward(
    model: Model, step: Step, activations: Format, parts: Collection[str] = (), adapters: Adapters | None = None
) -> Block:
    """The forward graph, its activations in a format."""
    graph = lower(model, step, parts)
    graph = graph if adapters is None else with_adapters(graph, adapters)
    return map_tensors(graph, lambda tensor: _in_format(tensor, activations))


def _in_format(tensor: Tensor, form: Format) -> Tensor:
    """An activation, or what a cache holds of it, in the format of activations."""
    if tensor.kind == "weight" or tensor.role == "recurrent" or tensor.format == form:
        return tensor
    return replace(tensor, format=form)


def contraction_flops(graph: Block, recomputed: bool = False) -> Num:
    """FLOP of the products that a graph runs for the first time, or of those that it runs once more."""
    return sum(
        op_flops(op) * n
        for op, n in ops(graph)
        if op.kind == "contract" and bool(op.attrs.get(RECOMPUTED)) == recomputed
    )
