"""Names of serving engines as people write them."""

from __future__ import annotations

from archsim.base.diagnostics import quote
from archsim.base.errors import UnknownName

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
