"""Names of serving engines as people write them."""

from __future__ import annotations

from dataclasses import dataclass

from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName
from archsim.spec.engine import Engine, load_engine, version_of

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
    "autoawq": ("autoawq", "autoawqgemm", "autoawqgemv", "autoawqgemm/gemv", "tinychat"),
    "qserve": ("qserve",),
}
"""Canonical name -> spellings, compared without case, blanks, hyphens and underscores."""


RULES = {
    "gptfast": "hf", "exllamav2": "hf", "mlcllm": "hf", "autoawq": "hf", "qserve": "hf"
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
    rules = load_engine(RULES.get(engine, engine), version)
    notes = []
    if engine in RULES:
        notes.append(f"{engine} has no memory rules of its own: those of {rules.title} are used")
    if rules.before and not version:
        notes.append(
            f"no version of {rules.title} given: {rules.version} is assumed; `--engine {engine}@VERSION`"
        )
    return Chosen(name=engine, version=version, rules=rules, notes=tuple(notes))


def canonical(name: str) -> tuple[str, tuple[str, ...]]:
    """The engine's canonical name, and what the version given (`NAME@VERSION`) amounts to."""
    bare, _, version = name.partition("@")
    key = bare.lower().translate(str.maketrans("", "", " -_"))
    for engine, spellings in ALIASES.items():
        if key in spellings or key.rstrip("0123456789.v") in spellings:
            if engine == "generic":
                return engine, ()
            shown = f"{engine} {version}" if version else f"{engine}, no version given"
            return engine, (
                f"engine {shown}: the plan and memory rules are the generic ones, but for layer splits",
            )
    raise UnknownName(f"no engine named {quote(name)}", hints=("known: " + ", ".join(ALIASES),))
