"""Names of serving engines as people write them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName
from archsim.base.version import version_of

if TYPE_CHECKING:
    from archsim.spec.engine import Engine

ALIASES = {
    "generic": ("generic",),
    "vllm": ("vllm",),
    "sglang": ("sglang", "sgl"),
    "trtllm": ("trtllm", "tensorrtllm", "nim"),
    "llamacpp": ("llamacpp", "llama.cpp", "ollama", "lmstudio"),
    "hf": ("hf", "transformers", "huggingface", "optimumhabana"),
    "gptfast": ("gptfast",),
    "exllamav2": ("exllamav2", "exllama"),
    "mlcllm": ("mlcllm", "mlc"),
    "autoawq": ("autoawq", "autoawqgemm", "autoawqgemm/gemv"),
    "autoawqgemv": ("autoawqgemv",),
    "tinychat": ("tinychat",),
    "qserve": ("qserve",),
}
"""Canonical name -> spellings, compared without case; blanks, hyphens and underscores may stand between letters."""


RULES = {
    "gptfast": "hf", "exllamav2": "hf", "mlcllm": "hf", "autoawq": "hf", "autoawqgemv": "hf",
    "tinychat": "hf", "qserve": "hf"
}  # fmt: skip
"""Engines without a file of their own, and whose memory rules stand for theirs: nothing is reserved ahead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """An engine's memory rules. version: as asked for, empty where assumed."""

    name: str
    version: str
    rules: Engine
    notes: tuple[str, ...]


def engine_of(name: str) -> Chosen:
    """The memory rules of `NAME[@VERSION]`, and what had to be assumed. Raises UnknownName."""
    engine, _ = canonical(name)
    stated = name.partition("@")[2] or name
    version = stated if version_of(stated) else ""
    from archsim.spec.engine import load_engine

    rules = load_engine(RULES.get(engine, engine), version)
    notes = []
    if engine in RULES:
        notes.append(f"{engine} has no memory rules of its own: those of {rules.title} are used")
    if rules.before and not version:
        notes.append(
            f"no version of {rules.title} given: {rules.version} is assumed; `--engine {engine}@VERSION`"
        )
    return Chosen(name=engine, version=version, rules=rules, notes=tuple(notes))


def named(name: str) -> tuple[str, str]:
    """An engine's canonical name, and the version named with it (empty: none). Raises UnknownName."""
    engine, rest = _longest(name.strip().lower())
    return engine, rest.strip(" @=-_()")


def canonical(name: str) -> tuple[str, tuple[str, ...]]:
    """The engine's canonical name, and what the version or build named with it amounts to.

    The spelling must end where a word does: `vLLM 0.9`, `vllm==1.0`, `vllm@v0.6` and `TensorRT-LLM PyTorch backend`
    are engines, `vllmx` is none. Raises UnknownName.
    """
    engine, rest = _longest(name.strip().lower())
    if engine == "generic":
        return engine, ()
    version = rest.strip(" @=-_()")
    shown = f"{engine} {version}" if version else f"{engine}, no version given"
    return engine, (f"engine {shown}: the plan and memory rules are the generic ones, but for layer splits",)


@lru_cache(maxsize=256)
def _longest(text: str) -> tuple[str, str]:
    """The engine whose spelling covers most of the text's start, and what follows it."""
    if text in ALIASES:
        return text, ""
    found = [
        (match.end(), engine)
        for engine, spellings in ALIASES.items()
        for spelling in spellings
        if (match := re.match(r"[ _-]*".join(map(re.escape, spelling)) + r"(?![a-z](?!\d))", text))
    ]
    if not found:
        import difflib

        close = difflib.get_close_matches(text[:40], ALIASES, n=1)
        hints = tuple(f"did you mean `{name}`?" for name in close)
        raise UnknownName(f"no engine named {quote(text)}", hints=(*hints, "known: " + ", ".join(ALIASES)))
    end, engine = max(found)
    return engine, text[end:]
