"""Equal sequences, and the forward passes that serve them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from archsim.base.data_class import dataclass
from archsim.base.number import Num, at_points, maximum, minimum
from archsim.counts.count import check_positive
from archsim.graph.step import Step
from archsim.spec.model import Model

PREFILL_TOKENS = 8192
"""Prompt tokens in flight at once: engines cut longer prefills into chunks of about this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Equal sequences: batch of them, prompt and answer tokens of each. In a sweep each may be an array."""

    batch: Num = 1
    input_len: Num = 2048
    output_len: Num = 256

    @property
    def context(self) -> Num:
        """Mean context of a decode step: the prompt and half the answer."""
        return self.input_len + self.output_len // 2

    @property
    def prompt_tokens(self) -> Num:
        """Prompt tokens of all sequences."""
        return self.batch * self.input_len


def points_of(load: Workload, mask: Any) -> Workload:
    """The batches and prompts at the points of a mask over them, one after another; the answers stay as they are."""
    batch, prompts = (at_points(value, mask) for value in (load.batch, load.input_len))
    return Workload(batch=batch, input_len=prompts, output_len=load.output_len)


def checked_workload(batch: int, input_len: int, output_len: int) -> Workload:
    """The workload, or UsageError for numbers that mean nothing."""
    check_positive(batch=batch, input_len=input_len, output_len=output_len)
    return Workload(batch=batch, input_len=input_len, output_len=output_len)


@dataclass(frozen=True)
class WorkloadSteps:
    """The steps that one model runs for a workload, each built once."""

    model: Model
    load: Workload

    @property
    def _source(self) -> Num | None:
        """Source tokens of a sequence: an encoder-decoder's prompt goes into its encoder."""
        return self.load.input_len if self.model.encoder is not None else None

    @cached_property
    def prefill(self) -> Step:
        """The prompts of the whole batch at once."""
        return Step.prefill(self.load.batch, self.load.input_len, self._source)

    @cached_property
    def decode(self) -> Step:
        """A decode step at the mean context; its caches have room for the whole answer."""
        load = self.load
        room = load.input_len + load.output_len - load.context
        return Step.decode(load.batch, load.context, room=room, source=self._source)

    def prefill_at_once(self, replicas: int = 1) -> Step:
        """The most of a prefill of more than `PREFILL_TOKENS` on a replica whose activations are alive together: a
        chunk on each, or where prompts cannot be cut (no cache, or an encoder before it) as many whole ones as fit.
        """
        if self.model.cached and self.model.encoder is None:
            return Step.prefill_chunk(PREFILL_TOKENS, batch=replicas)
        together = minimum(self.load.batch, replicas * maximum(1, PREFILL_TOKENS // self.load.input_len))
        return Step.prefill(together, self.load.input_len, self._source)

    @cached_property
    def one_token(self) -> Step:
        """A step of a single token, in which the parameters that a token uses can be counted."""
        if self.load.batch == 1 and self.model.encoder is None:
            return self.decode  # whose graph is wanted anyway
        return Step.prefill(1, 1, 1 if self.model.encoder is not None else None)
