"""What the command line of a server says, where a row states it: which engine it starts, and with which limits."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from archsim.base.errors import ArchsimError
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


def engine_by_flags(engine: str, command: str) -> str:
    """The engine whose flags a command has: the one that is named, unless its flags are those of one other engine."""
    given = set(flags_of(command))
    try:
        own = set(names_of_flags(engine_and_version(engine)[0]).values()) if engine else set()
    except ArchsimError:
        return engine
    if not given or given & own:
        return engine
    others = [name for name in files("engines") if given & set(names_of_flags(name).values())]
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
        block_size=whole("block"), gpu_memory_utilization=share if share and share < 1 else None,
        enforce_eager=named.get("eager", "") in given,
    )  # fmt: skip


DRAFTS = re.compile(r"""(?:--speculative-num-steps[= ]|"num_speculative_tokens":\s*)([0-9]{1,2})(?![0-9])""")
"""How many tokens are drafted one after another: SGLang's flag, and vLLM's in its JSON."""


def drafts_of(command: str) -> int | None:
    """Drafts of a step as a command says."""
    found = DRAFTS.search(command)
    return int(found[1]) or None if found else None


def cuts_prompts(engine: str, command: str) -> str | None:
    """`--chunked-prefill` as a command says it: on, or nothing."""
    return "on" if names_of_flags(engine).get("chunked", "") in flags_of(command) else None
