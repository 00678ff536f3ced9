"""How an engine cuts a long prompt: how many of its tokens run in one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from archsim.base.units import parse_quantity

if TYPE_CHECKING:
    from archsim.spec.engine import Batching, Limits, Scheduler
    from archsim.spec.hardware import Hardware


def limits_for(limits: Sequence[Limits], hardware: Hardware) -> Limits:
    """The batch limits of a document for a device of this size."""
    chosen = next(
        (x for x in limits if x.below is None or hardware.memory_bytes < int(parse_quantity(x.below, "B"))), limits[-1]
    )
    if chosen.otherwise is not None and any(part in hardware.id for part in chosen.excluded):
        return type(chosen)(seqs=chosen.otherwise.seqs, tokens=chosen.otherwise.tokens)
    return chosen


def cuts_prompts(batching: Batching, context: int) -> bool:
    """Whether prompts are cut where the tokens of a step end, for a model of so many tokens of context."""
    return batching.chunked or bool(batching.chunked_above and context > batching.chunked_above)


def prompt_cut(rules: Scheduler | None, hardware: Hardware, context: int) -> int:
    """Tokens of prompts that run in one step at most where nothing runs beside them, by the engine's own limits on a
    device; 0: all, however many. rules: None where nothing is known of steps. context: the model's longest.
    """
    batching = None if rules is None else rules.batching
    if rules is None or batching is None or not cuts_prompts(batching, context):
        return 0
    tokens = limits_for(rules.limits, hardware).tokens
    return min(tokens, batching.longest_chunk or tokens)
