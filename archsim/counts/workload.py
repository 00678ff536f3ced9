"""Equal sequences, and the forward passes that serve them."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from archsim.base.data_class import dataclass
from archsim.base.errors import UsageError
from archsim.base.number import Num, at_points, maximum, minimum
from archsim.base.positive import check_positive
from archsim.blocks.stage import PositionsStage
from archsim.graph.step import Step
from archsim.spec.model import Model

PREFILL_TOKENS = 8192
"""Prompt tokens in flight at once: engines cut longer prefills into chunks of about this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Equal sequences: batch of them, prompt and answer tokens of each. In a sweep each may be an array. source_len:
    tokens of each one's source, of an encoder-decoder; None: as long as the prompt.
    """

    batch: Num = 1
    input_len: Num = 2048
    output_len: Num = 256
    source_len: Num | None = None

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
    return replace(load, batch=batch, input_len=prompts)


def checked_workload(batch: int, input_len: int, output_len: int, source_len: int | None = None) -> Workload:
    """The workload, or UsageError for numbers that mean nothing."""
    check_positive(batch=batch, input_len=input_len, output_len=output_len)
    return Workload(batch=batch, input_len=input_len, output_len=output_len, source_len=source_len)


def checked_source(model: Model, source_len: int | None) -> int | None:
    """The length of an encoder-decoder's source as asked for; UsageError where there is none, or none so long."""
    if source_len is None:
        return None
    check_positive(source_len=source_len)
    if model.encoder is None:
        raise UsageError(f"`--source-len`: {model.name} has no encoder before its decoder")
    rows = next((stage.rows for stage in model.encoder.front if isinstance(stage, PositionsStage)), None)
    if rows is not None and source_len > rows:
        raise UsageError(
            f"`--source-len`: the encoder of {model.name} sees at most {rows:,} vectors, not {source_len:,}"
        )
    return source_len


@dataclass(frozen=True)
class WorkloadSteps:
    """The steps that one model runs for a workload, each built once."""

    model: Model
    load: Workload

    @property
    def source(self) -> Num | None:
        """Tokens that the encoder of an encoder-decoder sees of each sequence; None of any other model."""
        if self.model.encoder is None:
            return None
        return self.load.input_len if self.load.source_len is None else self.load.source_len

    @cached_property
    def prefill(self) -> Step:
        """The prompts of the whole batch at once."""
        return Step.prefill(self.load.batch, self.load.input_len, self.source)

    @cached_property
    def decode(self) -> Step:
        """A decode step at the mean context; its caches have room for the whole answer."""
        load = self.load
        room = load.input_len + load.output_len - load.context
        return Step.decode(load.batch, load.context, room=room, source=self.source)

    def prefill_at_once(self, replicas: int = 1) -> Step:
        """The most of a prefill of more than `PREFILL_TOKENS` on a replica whose activations are alive together: a
        chunk on each, or where prompts cannot be cut (no cache, or an encoder before it) as many whole ones as fit.
        """
        if self.model.cached and self.model.encoder is None:
            return Step.prefill_chunk(PREFILL_TOKENS, batch=replicas)
        longest = maximum(self.load.input_len, 1 if self.source is None else self.source)
        together = minimum(self.load.batch, replicas * maximum(1, PREFILL_TOKENS // longest))
        return Step.prefill(together, self.load.input_len, self.source)

    @cached_property
    def one_token(self) -> Step:
        """A step of a single token, in which the parameters that a token uses can be counted."""
        if self.load.batch == 1 and self.model.encoder is None:
            return self.decode  # whose graph is wanted anyway
        return Step.prefill(1, 1, 1 if self.model.encoder is not None else None)
