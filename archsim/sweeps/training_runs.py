"""Training runs by the dozen: models, devices and options of `archsim train` crossed, one row for each.

A row has the figures of one answer of `archsim train`; `sweep`, `compare` and `report` show the same rows.
"""

from __future__ import annotations

import difflib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import NamedTuple

from archsim.base.diagnostics import quote
from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.ranges import parse_range
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.sweeps.columns import Column
from archsim.sweeps.where import Condition
from archsim.training.answer import request_of, train
from archsim.training.pricer import TrainingPricer
from archsim.training.train import Training

NUMBERS = ("devices", "tp", "pp", "vpp", "cp", "ep", "dp", "micro_batch", "global_batch", "seq_len")
"""Options that may be ranges of numbers."""

NAMES = ("zero", "schedule", "recompute", "recipe", "optimizer", "offload", "stack", "method")
"""Options that may have several values."""

SINGLE = ("loss", "dialect", "rank", "targets", "tokens", "price", "goodput", "objective")
"""Options that all runs have in common."""

MEMORY_PARTS = ("weights", "gradients", "optimizer", "saved", "logits", "working", "gathered", "runtime")
"""What a device holds; together its memory."""

STEP_PARTS = ("forward", "backward", "recompute", "head_and_loss", "communication", "optimizer", "bubble")
"""Where a step goes; together its time."""

RATES = ("tokens_per_s", "tokens_per_s_per_device", "mfu_causal", "mfu_full", "hfu")
"""Throughput and utilisation."""

COLUMNS: tuple[Column, ...] = (
    Column("model", "text"), Column("hw", "text"), Column("devices", "whole", better=-1),
    *(Column(name, "whole") for name in ("tp", "pp", "vpp", "cp", "ep", "dp", "zero")),
    Column("schedule", "text"),
    *(Column(name, "whole") for name in ("micro_batch", "global_batch", "seq_len")),
    *(Column(name, "text") for name in ("recipe", "optimizer", "recompute", "offload", "stack", "method")),
    Column("fits", "truth"),
    Column("memory_bytes_per_device", "number", better=-1),
    *(Column(f"memory_{name}_bytes", "number", better=-1) for name in MEMORY_PARTS),
    Column("free_bytes_per_device", "number", better=1),
    *(Column(f"step_{end}_s", "number", better=-1) for end in ("ideal", "expected", "low", "high")),
    *(Column(f"step_{name}_s", "number", better=-1) for name in STEP_PARTS),
    *(Column(name, "number", better=1) for name in RATES),
    Column("s_per_token", "number", better=-1), Column("device_s_per_m_tokens", "number", better=-1),
    Column("train_flops_per_token", "number", better=-1), Column("params", "whole", better=-1),
    *(Column(name, "number", better=-1) for name in ("days", "device_hours", "usd", "mwh")),
    Column("price", "text"), Column("bound", "text"), Column("evidence", "text"), Column("error", "text"),
)  # fmt: skip
"""In the order of output. days and the like: of a run of so many tokens, where they are given; error: why there is no
answer."""

BY_NAME = {column.name: column for column in COLUMNS}
SHORT = {"memory": "memory_bytes_per_device", "step": "step_expected_s", "mfu": "mfu_causal", "time": "s_per_token"}
"""Columns as people call them."""

MOST_RUNS = 20_000
"""Runs of one sweep at most: each takes some hundredths of a second."""


def training_column(name: str) -> Column:
    """The column of a name; `memory`, `step` and `mfu` are short for theirs. Raises UsageError for an unknown one."""
    found = BY_NAME.get(SHORT.get(name, name)) or BY_NAME.get(name + "_s")
    if found is None:
        close = difflib.get_close_matches(name, BY_NAME, 3, 0.6)
        hints = (f"did you mean {', '.join(f'`{n}`' for n in close)}?",) if close else ()
        raise UsageError(
            f"no column of training runs is named {quote(name)}", hints=(*hints, f"columns: {', '.join(BY_NAME)}")
        )
    return found


class RunAsked(NamedTuple):
    """One run. name: what the model was asked for by. options: of `archsim train`."""

    name: str
    model: Model
    hardware: Hardware
    options: JsonMapping


def crossed_runs(
    models: Sequence[tuple[str, Model]], hardware: Sequence[Hardware], options: Mapping[str, object]
) -> tuple[RunAsked, ...]:
    """Every combination, the last option fastest. options: of `archsim train`, ranges and lists as text; None counts
    as not given. Raises UsageError for what is no range, and for too many.
    """
    given = {name: value for name, value in options.items() if value is not None}
    axes = {name: values_of(name, given[name]) for name in (*NUMBERS, *NAMES) if name in given}
    rest = {name: value for name, value in given.items() if name not in axes}
    count = len(models) * len(hardware)
    for values in axes.values():
        count *= len(values)
    if count > MOST_RUNS:
        raise UsageError(f"{count:,} training runs are more than {MOST_RUNS:,}", hints=("take larger steps",))
    return tuple(
        RunAsked(name, model, device, {**rest, **dict(zip(axes, values, strict=True))})
        for (name, model), device in product(models, hardware)
        for values in product(*axes.values())
    )


def values_of(name: str, given: object) -> Sequence[object]:
    """The values of an option: a range of numbers, or names with commas between."""
    if name in NUMBERS:
        return parse_range(given, name.replace("_", "-"))  # type: ignore[arg-type]
    if isinstance(given, (str, int)):
        listed: list[object] = [part.strip() for part in str(given).split(",") if part.strip()]
    else:
        listed = list(given)  # type: ignore[call-overload]
    if not listed:
        raise UsageError(f"`--{name.replace('_', '-')}` names nothing")
    return [zero_of(value) for value in listed] if name == "zero" else listed


def zero_of(value: object) -> int:
    """A stage of ZeRO. Raises UsageError for anything else."""
    if str(value) not in ("0", "1", "2", "3"):
        raise UsageError(f"`--zero` is 0 to 3, several with commas between, not {quote(value)}")
    return int(str(value))


@dataclass(slots=True)
class RunPricer:
    """Answers runs; what runs of one model, device and setup have in common is made once."""

    pricers: dict[Hashable, TrainingPricer] = field(default_factory=dict)

    def row(self, run: RunAsked) -> JsonObject:
        """The row of a run; one without an answer says why."""
        empty: JsonObject = dict.fromkeys(BY_NAME)
        named: JsonObject = {"model": run.name, "hw": run.hardware.id}
        named |= {name: value for name, value in run.options.items() if name in empty}
        try:
            answer = train(run.model, run.hardware, request_of(run.options), pricers=self.pricers, changes=False)
        except ArchsimError as error:
            return {**empty, **named, "error": error.message}
        return {**empty, **named, **training_figures(answer)}


def training_figures(answer: Training) -> JsonObject:
    """The figures of an answer, by column."""
    data = answer.to_dict()
    plan, held, step, metrics = data["plan"], data["memory"]["per_device"], data["step"], data["metrics"]
    memory = {f"memory_{name}_bytes": held[f"{name}_bytes"] for name in MEMORY_PARTS}
    need = sum(memory.values())
    comm = sum(each["exposed_s"] for each in step["communication"])
    parts = {**step["parts"], "communication_s": comm}
    run, devices = data["run"] or {}, data["hardware"]["devices"]
    kept = ("tp", "pp", "vpp", "cp", "ep", "dp", "zero", "schedule", "micro_batch", "global_batch", "seq_len",
            "recipe", "optimizer", "recompute", "offload", "stack", "method")  # fmt: skip
    return {
        "devices": devices, **{name: plan[name] for name in kept if name in plan}, "fits": data["memory"]["fits"],
        "memory_bytes_per_device": need, **memory, "free_bytes_per_device": held["capacity_bytes"] - need,
        **{f"step_{end}_s": step[f"{end}_s"] for end in ("ideal", "expected", "low", "high")},
        **{f"step_{name}_s": parts[f"{name}_s"] for name in STEP_PARTS},
        **{name: metrics[name] for name in RATES},
        "s_per_token": 1 / metrics["tokens_per_s"], "device_s_per_m_tokens": 1e6 * devices / metrics["tokens_per_s"],
        "train_flops_per_token": data["flops"]["per_token"]["model_causal"], "params": data["params"]["total"],
        **{name: run.get(name) for name in ("days", "device_hours", "usd", "mwh")},
        "price": answer.run.price.in_words if answer.run is not None and answer.run.price is not None else None,
        "bound": step["bound"], "evidence": step["evidence"],
    }  # fmt: skip


class Better(NamedTuple):
    """A column that runs are ordered by, and 1 where more of it is better, -1 where less is."""

    column: Column
    sign: int


def training_objectives(names: Iterable[str]) -> tuple[Better, ...]:
    """Columns of a Pareto set by name; `min:` or `max:` before one says which way is better. Raises UsageError."""
    found = []
    for text in dict.fromkeys(name.strip() for name in names if name.strip()):
        way, _, name = text.rpartition(":")
        column = training_column(name)
        sign = {"min": -1, "max": 1, "": column.better}.get(way)
        if not sign or column.kind in ("text", "truth"):
            able = ", ".join(each.name for each in COLUMNS if each.better)
            raise UsageError(f"{quote(text)} is no objective", hints=(f"objectives: {able}",))
        found.append(Better(column, sign))
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSweep(Tabular):
    """What is swept, and what is kept of it. where: of the runs. pareto: of those that fit; empty: all."""

    __repr__ = Tabular.__repr__

    runs: tuple[RunAsked, ...]
    columns: tuple[Column, ...] = COLUMNS
    where: Condition | None = None
    pareto: tuple[Better, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the answer."""
        return tuple(column.name for column in self.columns)

    def priced(self) -> Iterator[JsonObject]:
        """The whole row of every run that meets the condition, as they come."""
        pricer = RunPricer()
        for run in self.runs:
            row = pricer.row(run)
            if self.where is None or (row["error"] is None and bool(self.where(row))):
                yield row

    def kept(self, rows: Iterable[JsonObject]) -> list[JsonObject]:
        """What stays of priced rows: the Pareto set where one is asked for."""
        return front_of(list(rows), self.pareto) if self.pareto else list(rows)

    def only(self, rows: Iterable[JsonObject]) -> list[JsonObject]:
        """Rows with the columns of the answer."""
        return [{name: row[name] for name in self.names} for row in rows]

    def rows(self) -> list[JsonObject]:
        """The rows of the answer."""
        return self.only(self.kept(self.priced()))

    def to_dict(self) -> JsonObject:
        """The `archsim.sweep/1` object."""
        return {"schema": "archsim.sweep/1", "columns": list(self.names), "rows": self.rows(), "notes": []}


def front_of(rows: Sequence[JsonObject], wanted: Sequence[Better]) -> list[JsonObject]:
    """Those of the runs that fit which no other beats in every objective, the best in the first objective first."""

    def cost(row: JsonObject) -> tuple[float, ...]:
        return tuple(-each.sign * row[each.column.name] for each in wanted)

    able = [row for row in rows if row["fits"] and all(row[each.column.name] is not None for each in wanted)]
    kept: list[JsonObject] = []
    for row in sorted(able, key=cost):
        own = cost(row)
        if not any(all(a <= b for a, b in zip(cost(other), own, strict=True)) for other in kept):
            kept.append(row)
    return kept


def training_sweep(
    models: Sequence[tuple[str, Model]], hardware: Sequence[Hardware], options: Mapping[str, object], *,
    columns: Iterable[str] = (), where: str | None = None, pareto: Iterable[str] = (),
) -> TrainingSweep:  # fmt: skip
    """Every combination of models, devices and options. Raises UsageError for columns and conditions that cannot be."""
    named = tuple(dict.fromkeys(training_column(name.strip()) for name in columns if name.strip()))
    return TrainingSweep(
        runs=crossed_runs(models, hardware, options), columns=named or COLUMNS,
        where=None if where is None else Condition.of(where, training_column),
        pareto=training_objectives(pareto),
    )  # fmt: skip
