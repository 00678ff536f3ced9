"""What is asked of a search: the device and the load, limits, the training budget, and what is to be best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.cost.price import Price
from archsim.counts.workload import Workload
from archsim.engines.names import EngineChoice
from archsim.spec.hardware import Hardware
from archsim.training.budget import Budget
from archsim.training.laws import Law

OUTPUT = 256
"""Tokens of the answer in a request, where none are asked for; the rest of the context is the prompt."""


class Objective(NamedTuple):
    """A quantity, and 1 where less of it is better, -1 where more is."""

    name: str
    sign: int


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective
    for objective in (
        Objective("loss", 1), Objective("params", -1), Objective("tpot_s", 1), Objective("ttft_s", 1),
        Objective("memory_bytes", 1), Objective("kv_bytes", 1), Objective("usd_per_m_output", 1),
    )
}  # fmt: skip
"""What a search may make best."""

SHORT = {"tpot": "tpot_s", "ttft": "ttft_s", "memory": "memory_bytes", "kv": "kv_bytes", "cost": "usd_per_m_output",
         "usd": "usd_per_m_output"}  # fmt: skip


def objective(word: str) -> Objective:
    """An objective by its name. Raises UsageError."""
    name = SHORT.get(word.strip(), word.strip())
    if name not in OBJECTIVES:
        raise UsageError(f"`--objective {word[:40]}`: unknown objective",
                         hints=(f"known: {', '.join((*OBJECTIVES, *SHORT))}",))  # fmt: skip
    return OBJECTIVES[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a candidate must hold. Seconds, bytes; parameters from one number to another. sure: whether times are those
    of the interval's upper end.
    """

    tpot_s: float | None = None
    ttft_s: float | None = None
    memory_bytes: float | None = None
    params: tuple[float, float] | None = None
    active: tuple[float, float] | None = None
    sure: bool = False

    def to_dict(self) -> JsonObject:
        """Those that are set."""
        found: JsonObject = {
            "tpot_s": self.tpot_s, "ttft_s": self.ttft_s, "memory_bytes": self.memory_bytes, "params": self.params,
            "active": self.active,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None} | {"sure": self.sure}


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBudget:
    """What pays for training: FLOP, or tokens whatever they take. law: that turns size and tokens into a loss. rent:
    the dollars that the FLOP were computed from, None where none were given.
    """

    name: str
    law: Law
    flops: float | None = None
    tokens: float | None = None
    extrapolate: bool = False
    rent: Budget | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A search. load: its context is prompt and answer together. training: None where nothing pays for it, and no loss
    is known. price: of one device and hour, None where nothing is priced.
    """

    hardware: Hardware
    engine: EngineChoice
    weights: tuple[str | None, ...]
    kv_cache_dtype: str | None
    load: Workload
    limits: Limits
    objectives: tuple[Objective, ...]
    training: TrainingBudget | None = None
    price: Price | None = None

    def __post_init__(self) -> None:
        names = [objective.name for objective in self.objectives]
        if "loss" in names and self.training is None:
            raise UsageError(
                "the loss follows from a training budget: none is given",
                hints=("`--train-flops 1e23` or `--tokens 15T`; or `--objective params`",),
            )
        if "usd_per_m_output" in names and self.price is None:
            raise UsageError("a cost needs a price", hints=("`--price 2.5`, `--price cheapest` or a provider",))

    def asks_for(self, name: str) -> bool:
        """Whether a quantity is an objective, or is limited."""
        return any(objective.name == name for objective in self.objectives) or (
            getattr(self.limits, name, None) is not None
        )
