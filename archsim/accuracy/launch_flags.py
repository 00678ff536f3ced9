"""What the command line of a server says, where a row states it: which engine it starts, and with which limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType

from archsim.accuracy.files import Table
from archsim.accuracy.question import engine_of, text
from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping
from archsim.engines.names import engine_and_version
from archsim.memory.engine_memory import Settings
from archsim.spec.catalog import files
from archsim.spec.engine import load_engine

FLAG = re.compile(r"(?<![\w-])--([A-Za-z][\w-]{0,60})(?:[= ]\s*([^\s-]\S{0,60}))?")
LARGEST = 10**9
"""Of a number behind a flag."""


def flags_of(command: str) -> dict[str, str]:
    """Flags and what stands behind them; hyphens and underscores are the same."""
    return {name.replace("_", "-"): value for name, value in FLAG.findall(command)}


@lru_cache(maxsize=64)
def names_of_flags(engine: str) -> Mapping[str, str]:
    """Setting -> the flag of an engine's own command line, without its hyphens."""
    return MappingProxyType(
        {key: flag.lstrip("-").replace("_", "-") for key, flag in load_engine(engine).flags.items()}
    )


def _flags_alone(engine: str) -> set[str]:
    """Without the keys of those that take JSON."""
    return {flag.partition(".")[0] for flag in names_of_flags(engine).values()}


def engine_by_flags(engine: str, command: str) -> str:
    """The engine whose flags a command has: the one that is named, unless its flags are those of one other engine."""
    given = set(flags_of(command))
    try:
        own = _flags_alone(engine_and_version(engine)[0]) if engine else set()
    except ArchsimError:
        return engine
    if not given or given & own:
        return engine
    others = [name for name in files("engines") if given & _flags_alone(name)]
    return others[0] if len(others) == 1 else engine


def settings_of_flags(engine: str, command: str) -> Settings:
    """The limits that a command states. engine: whose it is."""
    given, named = flags_of(command), names_of_flags(engine)

    def number(key: str) -> float | None:
        value = given.get(named.get(key, ""), "")
        found = float(value) if re.fullmatch(r"[0-9]{1,10}(\.[0-9]{1,9})?|\.[0-9]{1,9}", value) else 0.0
        return found if 0 < found <= LARGEST else None

    def whole(key: str) -> int | None:
        found = number(key)
        return int(found) if found and found == int(found) else None

    share = number("share")
    return Settings(
        max_num_seqs=whole("seqs"), max_num_batched_tokens=whole("tokens"), max_model_len=whole("length"),
        max_prefill_tokens=whole("prompt_tokens"),
        block_size=whole("block"), gpu_memory_utilization=share if share and share < 1 else None,
        enforce_eager=named.get("eager", "") in given,
    )  # fmt: skip


LIMITS = {"max_num_seqs": "seqs", "max_num_batched_tokens": "tokens", "gpu_memory_utilization": "share"}
"""Options that an engine's own command line has under other names."""


def command_of(engine: str, options: Mapping[str, object]) -> str:
    """The flags of an engine's command line for the limits that options state. Raises UsageError for one that the
    engine does not have.
    """
    named, found = names_of_flags(engine), []
    for option, key in LIMITS.items():
        if options.get(option) is None:
            continue
        if key not in named:
            raise UsageError(f"{load_engine(engine).title} has no flag for `--{option.replace('_', '-')}`")
        found.append(f"--{named[key]} {options[option]}")
    return " ".join(found)


def drafts_of(engine: str, command: str) -> int | None:
    """Tokens drafted one after another for a step, as a command says. engine: whose it is. Of a flag that takes JSON,
    the document of the engine names the key behind a dot; so may the command.
    """
    return _whole_of(names_of_flags(engine).get("drafts", ""), command)


def tree_of(engine: str, command: str) -> tuple[int, int | None]:
    """Drafts for the same position and tokens of the tree that a step verifies, as a command says. engine: whose it
    is. 1 and None: no tree.
    """
    topk, tokens = (_whole_of(names_of_flags(engine).get(key, ""), command) for key in ("draft_topk", "draft_tokens"))
    return (topk, tokens) if topk and topk > 1 and tokens else (1, None)


def _whole_of(own: str, command: str) -> int | None:
    """The whole number behind a flag; None where there is none, or 0. own: the flag, a key of JSON behind a dot."""
    flag, _, key = own.partition(".")
    for given in re.split(r"(?:^|\s)--", command)[1:]:
        name, value = _name_and_value(given)
        if own and name == own:
            found = WHOLE.match(value)
        elif own and name == flag:
            found = next((m for m in JSON_NUMBER.finditer(value) if m["key"].replace("_", "-") == key), None)
        else:
            continue
        return int(found["number"]) or None if found else None
    return None


WHOLE = re.compile(r"(?P<number>[0-9]{1,2})(?![0-9])")
JSON_NUMBER = re.compile(r"""["'](?P<key>\w{1,60})["']\s*:\s*(?P<number>[0-9]{1,2})(?![0-9])""")
"""Of a JSON object, a key and its number."""


def _name_and_value(given: str) -> tuple[str, str]:
    """A flag without its hyphens, and all that stands behind it."""
    name = re.split(r"[=\s]", given, maxsplit=1)[0]
    return name.replace("_", "-"), given[len(name) :].lstrip("= ")


def cuts_prompts(engine: str, command: str) -> str | None:
    """`--chunked-prefill` as a command says it: on, or nothing."""
    return "on" if names_of_flags(engine).get("chunked", "") in flags_of(command) else None


VERSION_OF_FLAGS = "version_of_flags"
"""The column of a table that has the version of the engine whose flags a row has, where that is not the one it names.
"""


def with_versions_of_flags(table: Table) -> Table:
    """The table in which rows with flags of another engine than they name have the version that the other rows of the
    same source and model state for it; nothing where those state none, or several.
    """
    rows = [table.question(row) for row in range(len(table))]
    meant = [engine_by_flags(str(row.get("engine") or ""), text(row, "flags") or "") for row in rows]
    stated: dict[tuple[object, ...], set[str]] = {}
    for row, engine in zip(rows, meant, strict=True):
        if row.get("engine") == engine and row.get("engine_version"):
            stated.setdefault((row.get("source"), row.get("model"), engine), set()).add(str(row["engine_version"]))
    versions = [
        stated.get((row.get("source"), row.get("model"), engine), set()) if row.get("engine") != engine else set()
        for row, engine in zip(rows, meant, strict=True)
    ]
    column = [next(iter(found)) if len(found) == 1 else None for found in versions]
    return replace(table, questions={**table.questions, VERSION_OF_FLAGS: column}) if any(column) else table


def run_engine(row: JsonMapping) -> tuple[str, tuple[str, ...]]:
    """The engine of a row and its version: the one whose flags it was started with, at the version that rows beside it
    state; without a version, what was out on the day of the run.
    """
    named, version, day = str(row.get("engine") or ""), row.get("engine_version"), text(row, "date") or ""
    meant = engine_by_flags(named, text(row, "flags") or "")
    if meant == named:
        return engine_of(named, version, day)
    engine, notes = engine_of(meant, row.get(VERSION_OF_FLAGS), day)
    return engine, (*notes, f"{quote(named)} with flags of {meant}: predicted as {engine}") if named else notes
