"""What options say of all rows of a table: model, device, engine and limits, where a row itself says nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Literal

from archsim.accuracy.files import WORDS, Table
from archsim.accuracy.launch_flags import LIMITS, command_of, run_engine
from archsim.accuracy.question import text
from archsim.accuracy.rows import Kind
from archsim.base.errors import ArchsimError, UsageError
from archsim.engines.names import DEFAULT_ENGINE
from archsim.spec.catalog import is_known

STATED: Mapping[Kind, Mapping[str, tuple[str, ...]]] = {
    "loaded": {
        **{name: (name,) for name in ("model", "device", "engine", "engine_version", "tp", "n_devices")},
        **{name: (name,) for name in ("weights", "kv_dtype")}, **dict.fromkeys(LIMITS, ("flags",)),
    },
    "serving": {
        "model": ("model", "model_path"), "device": ("device", "system"), "engine": ("engine", "backend"),
        "engine_version": ("engine_version", "backend_version"), "tp": ("tp_size",),
        "weights": ("weights_dtype", "precision"), "kv_dtype": ("kv_dtype",),
    },
    "runs": {
        **{name: (name,) for name in ("model", "device", "engine", "engine_version", "tp", "n_devices", "kv_dtype")},
        "weights": ("weights_dtype",), "gpu_memory_utilization": ("gpu_memory_utilization",),
    },
}  # fmt: skip
"""What options may say of all rows of a table -> the columns that say it."""

CATALOGS: Mapping[str, Literal["models", "hw"]] = {"model": "models", "device": "hw"}
"""Of what is stated, what has a catalog."""

SERVER_OPTIONS = ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_tokens", "chunked_prefill")
"""Options that say how a server ran, which not every kind of table has columns for."""


def complete(table: Table, stated: Mapping[str, object]) -> Table:
    """The table with what is stated of all its rows where a row does not say it, or names a model or a device that is
    not known. A version is that of the engine which is stated, and of no other. Limits become flags of each row's
    engine, which the row's own flags come before. Raises UsageError for a model or a device that is not named, and for
    a limit that an engine has no flag for.
    """
    found = table
    for name, value in stated.items():
        columns = STATED.get(table.kind, {}).get(name, ())
        if not columns or columns == ("flags",):
            continue
        if not isinstance(value, (str, int, float)):
            raise UsageError(f"of all rows of a table, `{name}` is given by its name")
        found = _with_column(found, name, columns, value, stated)
    limits = {name: value for name, value in stated.items() if STATED.get(table.kind, {}).get(name) == ("flags",)}
    return _with_limits(found, limits) if limits else found


def require_use(kinds: Collection[Kind], stated: Mapping[str, object]) -> None:
    """Raises UsageError for what is stated of a server that tables of these kinds have no column for."""
    for name in SERVER_OPTIONS:
        if name in stated and "requests" not in kinds and not any(name in STATED.get(kind, {}) for kind in kinds):
            what = " and ".join(WORDS[kind] for kind in sorted(kinds))
            raise UsageError(f"`--{name.replace('_', '-')}` has no effect here: {what} has no column for it")


def _with_column(
    table: Table, name: str, columns: tuple[str, ...], value: object, stated: Mapping[str, object]
) -> Table:
    """The table with a value in the first of these columns that it has, in rows that say nothing there."""
    column = _column(table, columns)
    values = table.questions.get(column, [None] * len(table))
    kind = CATALOGS.get(name)
    kept = {one for one in set(values) if one not in (None, "") and (kind is None or is_known(kind, str(one)))}
    meant = [True] * len(table)
    if name == "engine_version":
        engines = table.questions[_column(table, STATED[table.kind]["engine"])]
        meant = [engine in (None, "", stated["engine"]) for engine in engines]
    found = [one if one in kept or not own else value for one, own in zip(values, meant, strict=True)]
    return replace(table, questions={**table.questions, column: found})


def _column(table: Table, columns: tuple[str, ...]) -> str:
    """The first of these columns that a table has, else the first."""
    return next((one for one in columns if one in table.questions), columns[0])


def _with_limits(table: Table, limits: Mapping[str, object]) -> Table:
    """The table with limits among the flags of each row, in the words of its engine; of an engine that is not known,
    as it is: such a row is refused.
    """
    flags = []
    for row in range(len(table)):
        asked = table.question(row)
        own = text(asked, "flags") or ""
        try:
            engine = run_engine(asked)[0].partition("@")[0]
        except ArchsimError:
            flags.append(own)
            continue
        if engine in ("", DEFAULT_ENGINE):
            raise UsageError("limits are those of an engine, and a row names none: `--engine` says which")
        flags.append(f"{command_of(engine, limits)} {own}".strip())
    return replace(table, questions={**table.questions, "flags": flags})
