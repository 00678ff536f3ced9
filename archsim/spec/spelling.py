"""Spellings of names: what does not matter in one, and the suffixes that do not change a shape."""

from __future__ import annotations

import re
from collections.abc import Iterator

_IGNORED = str.maketrans("", "", "-_ ")
_SIZE = re.compile(r"[0-9]+\.[0-9]+(?=[bmt])")

SUFFIXES: dict[str, str | None] = {
    "instruct": None,
    "chat": None,
    "hf": None,
    "base": None,
    "it": None,
    "pt": None,
    "dynamic": None,
    "quantized": None,
    "gguf": None,
    "fp8": "fp8",
    "fp8-block": "fp8_block",
    "fp8-dynamic": "fp8",
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "bf16": "bf16",
    "fp16": "fp16",
    "awq": "awq_int4",
    "awq-int4": "awq_int4",
    "gptq": "gptq_int4",
    "gptq-int4": "gptq_int4",
    "gptq-int8": "gptq_int8",
    "int8": "int8",
    "int4": "int4",
    "w8a8": "w8a8",
    "w4a16": "int4",
    "bnb-4bit": "nf4",
}
"""Suffix of a checkpoint name to the weight format that it implies, None where it implies none. Versions and
dates (`-v0.1`, `-2407`) are not here: they name other checkpoints."""

_LONGEST_FIRST = sorted(SUFFIXES, key=lambda suffix: (-len(suffix), suffix))


def normalise(name: str) -> str:
    """`name` in lower case without `-`, `_`, spaces and an `org/` prefix; dots stay."""
    return name.rsplit("/", 1)[-1].lower().translate(_IGNORED)


def undotted(spelling: str) -> str:
    """A normalised spelling without its dots: only for use where the spelling with them is unknown."""
    return spelling.replace(".", "")


def may_drop_dots(asked: str, known: str) -> bool:
    """Whether `asked` may mean `known` without dots: never where it states another decimal size."""
    return all(size in known for size in _SIZE.findall(asked))


def without_suffixes(name: str) -> Iterator[tuple[str, str | None]]:
    """`name` with one more known suffix removed each time, and the weight format that those imply."""
    rest, hint = name.rsplit("/", 1)[-1].lower().replace("_", "-").replace(" ", "-"), None
    while suffix := next(
        (s for s in _LONGEST_FIRST if rest.endswith("-" + s) and len(rest) > len(s) + 1), None
    ):
        rest = rest[: -len(suffix) - 1]
        hint = hint or SUFFIXES[suffix]
        yield rest, hint
