"""Spellings of names: what does not matter in one, and the suffixes that do not change a shape."""

from __future__ import annotations

import re
from collections.abc import Iterator

_IGNORED = str.maketrans("", "", "-_ ")
_SIZE = re.compile(r"[0-9]+\.[0-9]+(?=[bmt])")

SUFFIXES: dict[str, str | None] = {
    "instruct": None,
    "chat": None,
    "thinking": None,
    "hf": None,
    "base": None,
    "it": None,
    "pt": None,
    "dynamic": None,
    "quantized": None,
    "unsloth": None,
    "uncased": None,
    "mlx": None,
    "gguf": None,
    "ud": None,
    "fp8": "fp8",
    "fp8-kv": "fp8",
    "fp8-block": "fp8_block",
    "fp8-dynamic": "fp8_channel",
    "nvfp4": "nvfp4",
    "fp4": "nvfp4",
    "mxfp4": "mxfp4",
    "bf16": "bf16",
    "fp16": "fp16",
    "f16": "fp16",
    "awq": "awq_int4",
    "awq-int4": "awq_int4",
    "awq-4bit": "awq_int4",
    "gptq": "gptq_int4",
    "gptq-int4": "gptq_int4",
    "gptq-4bit": "gptq_int4",
    "gptq-int8": "gptq_int8",
    "gptq-8bit": "gptq_int8",
    "int8": "int8",
    "int4": "int4",
    "w8a8": "w8a8",
    "w8a8-int8": "w8a8",
    "w8a16": "int8",
    "w4a16": "int4",
    "w4a16-g128": "int4",
    "quantized.w8a8": "w8a8",
    "quantized.w8a16": "int8",
    "quantized.w4a16": "int4",
    "bnb-4bit": "nf4",
    "bnb-8bit": "int8",
    **{f"{bits}bit": f"mlx_{bits}bit" for bits in (2, 3, 4, 5, 6, 8)},
}
"""Suffix of a checkpoint name to the weight format that it implies, None where it implies none. A bare `-4bit` is the
convention of mlx-community. Versions (`-v0.1`) are not here: they name other checkpoints."""

PUBLISHED = {("qwen", "fp8"): "fp8_block", ("zai-org", "fp8"): "fp8_channel"}
"""Publisher and suffix to the format of the publisher's own files, where it is not what the suffix means in general: as
`quantization_config` in their config.json says (Qwen: `weight_block_size` [128, 128]; GLM: a scale for each output
channel)."""

WITHIN = ("instruct", "chat", "it", "thinking", "vl")
"""Words that do not change the language model's shape, wherever they stand: `Qwen2.5-VL-72B`, `Instruct-v0.3`."""

FILE_TYPE = re.compile(r"[-.](i?q[1-8](?:-(?:[01]|k|nl|xs|xxs|s|m))?(?:-(?:xs|s|m|l|xl))?|mxfp4-moe)$")
"""A file type of llama.cpp at the end of a name: `-Q4_K_M`, `-iq2_xxs`, `.q8_0`."""

BITS_PER_WEIGHT = re.compile(r"-(?:(exl[23])-)?([0-9](?:\.[0-9]{1,2})?)bpw(?:-h[0-9])?(?:-(exl[23]))?$")
"""Average bits of EXL2 or EXL3 at the end of a name; EXL2's where it names neither."""

FORMAT_VERSION = re.compile(r"(?<=fp[48])-v[0-9]+$")
"""A publisher's later quantisation of the same checkpoint: `-NVFP4-v2`."""

DATE = re.compile(r"-2[0-9](?:0[1-9]|1[0-2])$")
"""Year and month at the end of a name: a newer checkpoint, which has the name's own shape where no entry of the catalog
says otherwise."""

_LONGEST_FIRST = sorted(SUFFIXES, key=lambda suffix: (-len(suffix), suffix))


def sees(name: str) -> bool:
    """Whether a name is one of a vision-language model: `Qwen2.5-VL-7B`."""
    return "vl" in re.split(r"[-_ :/]", name.lower())


def normalise(name: str) -> str:
    """`name` in lower case without `-`, `_`, spaces and an `org/` prefix; dots stay."""
    return name.rsplit("/", 1)[-1].lower().translate(_IGNORED)


def without_dots(spelling: str) -> str:
    """A normalised spelling without its dots: only for use where the spelling with them is unknown."""
    return spelling.replace(".", "")


def may_drop_dots(asked: str, known: str) -> bool:
    """Whether `asked` may mean `known` without dots: never where it states another decimal size."""
    return all(size in known for size in _SIZE.findall(asked))


def without_suffixes(name: str) -> Iterator[tuple[str, str | None]]:
    """`name` with one more known suffix removed each time, and the weight format that those imply; then the same
    without a date, and without words that change nothing wherever they stand."""
    hint: str | None = None
    publisher, _, own = name.lower().rpartition("/")
    rest = FORMAT_VERSION.sub("", re.sub(r"[_ :]", "-", own))
    ends = [(rest, hint)]
    while (found := _last(rest)) is not None:
        shorter, implied = found
        hint = hint or PUBLISHED.get((publisher, rest[len(shorter) + 1 :]), implied)
        rest = shorter
        ends.append((rest, hint))
    yield from ends if ":" in name else ends[1:]
    for rest, hint in ends:
        for other in _shorter(rest):
            yield other, hint


def _last(name: str) -> tuple[str, str | None] | None:
    """`name` less its last known suffix, and the format that this implies."""
    if found := FILE_TYPE.search(name):
        return name[: found.start()], f"gguf_{found[1].replace('-', '_')}"
    if found := BITS_PER_WEIGHT.search(name):
        return name[: found.start()], f"{found[1] or found[3] or 'exl2'}_{found[2]}bpw"
    suffix = next((s for s in _LONGEST_FIRST if name.endswith("-" + s) and len(name) > len(s) + 1), None)
    return None if suffix is None else (name[: -len(suffix) - 1], SUFFIXES[suffix])


def _shorter(name: str) -> Iterator[str]:
    """`name` without a date at its end, then without words inside, then without both."""
    inside = "-".join(word for i, word in enumerate(name.split("-")) if i == 0 or word not in WITHIN)
    undated = DATE.sub("", name)
    for other in (undated, inside, DATE.sub("", inside)):
        if other != name:
            yield other


MAKER = re.compile(r"(?:nvidia|amd|intel|tesla|quadro|geforce|instinct|radeon)[ _-]+")
"""A maker's word, or that of a line of products, before a device's own name."""

BEHIND = re.compile(r"[ _-]+(?:graphics|generation)$")
"""What drivers print behind the name of a device."""

MARKS = re.compile(r"\((?:r|tm|c)\)")
"""Of a trade mark."""


def driver_spellings(name: str) -> Iterator[str]:
    """A device's name as drivers print it (`NVIDIA GeForce RTX 3060`, `Intel(R) Arc(TM) B580 Graphics`): without marks
    and what stands behind, then with one more of the makers' words before it removed each time.
    """
    lower = name.strip().lower()
    rest = BEHIND.sub("", MARKS.sub("", lower))
    if rest != lower:
        yield rest
    while found := MAKER.match(rest):
        rest = rest[found.end() :]
        yield rest
