"""Safetensors files and their index as models: every tensor's name, type and shape, parameters and bytes by tensor
class, packed integers understood. No data is read.

Layout: 8 bytes of length, then JSON (https://github.com/huggingface/safetensors). A header is untrusted: its length
and the number of values in it are bounded before it is parsed.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.input_file import is_file, open_input, parse_json, read_input, read_text, unusable
from archsim.base.json_types import JsonMapping, JsonObject

CLASSES = ("linear", "expert", "embedding", "head")
"""Tensor classes that are told apart; all else is "default"."""

BESIDE = re.compile(
    r"[._](scales?|qzeros|g_idx|biases|weight_scale(_inv|_2)?|weight_shape|weight_zero_point|weight_g_idx|"
    r"input_scale|input_global_scale|weight_global_scale|k_scale|v_scale|output_scale|absmax|quant_map|"
    r"nested_absmax|nested_quant_map|quant_state\.\w+|SCB|weight_format|scales_and_zeros)$"
)
"""Tensors that belong to a packed one and hold no parameters: scales, zero points, group indices."""

NOT_OURS = re.compile(
    r"(^|\.)(vision\w*|visual|audio\w*|multi_modal_projector|mm_projector|mtp|embed_vision|embed_audio)\.|rotary_emb"
)
"""Towers and modules that are counted only on request, and tables that are computed."""

TOWERS = {
    "vision": re.compile(r"(^|\.)(vision\w*|visual|multi_modal_projector|mm_projector|embed_vision)\."),
    "audio": re.compile(r"(^|\.)(audio\w*|embed_audio)\."),
}
"""Encoders beside the language model, each with its projector."""

EMBEDDING = re.compile(r"(embed_tokens|word_embeddings|wte|tok_embeddings|embed_in|shared)(\.|$)")
HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output)(\.|$)")
EXPERT = re.compile(r"experts\.|\.mlp\.experts")
ROUTER = re.compile(r"(router|\.gate|block_sparse_moe\.gate)\.(weight|bias|e_score_correction_bias)$")
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")


@dataclass(slots=True)
class Stored:
    """What a checkpoint holds, by tensor class. params: values after unpacking."""

    params: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)

    def add(self, cls: str, params: int, size: int) -> None:
        """One more tensor."""
        self.params[cls] = self.params.get(cls, 0) + params
        self.bytes[cls] = self.bytes.get(cls, 0) + size


def measure(tensors: Mapping[str, Entry], layers: int, quantised: JsonMapping) -> Stored:
    """Parameters and bytes of the language model; `quantised` is the config's own word on bits and groups."""
    stored = Stored()
    for name, entry in tensors.items():
        place = LAYER.search(name)
        if NOT_OURS.search(name) or (place is not None and int(place[1]) >= layers):
            continue
        stored.add(_class(name, entry), _params(name, entry, tensors, quantised), entry.bytes)
    return stored


def tower_params(tensors: Mapping[str, Entry]) -> dict[str, int]:
    """Parameters of the encoders that a checkpoint holds beside the language model."""
    found: dict[str, int] = {}
    for name, entry in tensors.items():
        tower = next((tower for tower, names in TOWERS.items() if names.search(name)), None)
        if tower is not None and not BESIDE.search(name):
            found[tower] = found.get(tower, 0) + entry.elements
    return found


def _class(name: str, entry: Entry) -> str:
    """The tensor class of a name. What lies beside a packed matrix belongs to it."""
    beside = BESIDE.search(name) is not None
    if EXPERT.search(name) and not name.endswith("bias") and not ROUTER.search(name):
        return "expert"
    if EMBEDDING.search(name):
        return "embedding"
    if HEAD.search(name) and not name.endswith(".bias"):
        return "head"
    if beside or (len(entry.shape) > 1 and not ROUTER.search(name) and not name.endswith("bias")):
        return "linear"
    return "default"


def _params(name: str, entry: Entry, tensors: Mapping[str, Entry], quantised: JsonMapping) -> int:
    """Values in a tensor: none in scales, several in one packed integer."""
    if name.endswith(("_blocks", ".blocks")) and entry.dtype == "U8":  # MXFP4 of gpt-oss
        return entry.elements * 2
    if BESIDE.search(name) and not (name.endswith("biases") and entry.dtype not in ("F16", "BF16", "F32")):
        return 0
    base, _, last = name.rpartition(".")
    if last == "qweight":
        return entry.elements * 32 // _gptq_bits(base, tensors, quantised)
    if last == "weight_packed":
        bits = _number(quantised, "num_bits", 4) if entry.dtype == "I32" else 4
        return entry.elements * BITS[entry.dtype] // bits
    if last == "weight" and entry.dtype == "U32":
        return entry.elements * 32 // _mlx_bits(base, entry, tensors, quantised)
    if last == "weight" and entry.dtype == "U8":  # bitsandbytes and modelopt: two values in a byte
        return entry.elements * 2
    return entry.elements


def _gptq_bits(base: str, tensors: Mapping[str, Entry], quantised: JsonMapping) -> int:
    """Bits of a GPTQ or AWQ matrix: zero points are packed like values, scales are not."""
    zeros, scales = tensors.get(base + ".qzeros"), tensors.get(base + ".scales")
    if zeros is not None and scales is not None and zeros.elements and scales.elements:
        return _check(round(32 * zeros.elements / scales.elements), base)
    return _check(_number(quantised, "bits", 4), base)


def _mlx_bits(base: str, entry: Entry, tensors: Mapping[str, Entry], quantised: JsonMapping) -> int:
    """Bits of an MLX matrix, from its scales and the size of a group, which a module may have of its own."""
    own = quantised.get(base)
    quantised = {**quantised, **own} if isinstance(own, Mapping) else quantised
    scales = tensors.get(base + ".scales")
    if scales is None or not scales.elements:
        return _check(_number(quantised, "bits", 4), base)
    values = scales.elements * _number(quantised, "group_size", 64)
    return _check(round(32 * entry.elements / values), base)


def _check(bits: int, base: str) -> int:
    if not 1 <= bits <= 16:
        raise SpecError(f"tensor {quote(base, 100)} is packed in an unknown layout", code="E109")
    return bits


def _number(quantised: JsonMapping, key: str, default: int) -> int:
    """A number of the quantization config, wherever in it."""
    stack: list[Any] = [quantised]
    for _ in range(1000):
        if not stack:
            break
        item = stack.pop()
        if isinstance(item, Mapping):
            found = item.get(key)
            if isinstance(found, int) and 1 <= found <= 1024:
                return found
            stack += item.values()
    return default


# ---------------------------------------------------------------------- to a model
def from_safetensors(path: Path, beside: Callable[[Path], JsonObject]) -> JsonObject:
    """The document of the config.json beside a checkpoint, its weights as the checkpoint stores them.

    Raises SpecError where there is no config, or the checkpoint does not hold the model that it describes.
    """
    from archsim.spec.load import model_from
    from archsim.spec.stored_weights import stored_weights

    config = path.with_name("config.json")
    if not config.is_file():
        hint = "the header lists tensors, not the architecture: put the model's config.json next to the file"
        raise SpecError(f"{quote(path.name)} has no config.json next to it", code="E109", hints=(hint,))
    document = beside(config)
    shape, weights = stored_weights(model_from(document))
    tensors = read_tensors(path)
    found = measure(tensors, shape.layers, _quantised_formats(config))
    own: dict[str, int] = {}
    for weight in weights:
        cls = weight.tensor.role if weight.tensor.role in CLASSES else "default"
        if not weight.tensor.name.startswith(("mtp.", "mlm_head.")):
            own[cls] = own.get(cls, 0) + _numel(weight) * len(weight.layers)
    described, stored = sum(own.values()), sum(n for cls, n in found.params.items() if cls in own)
    _same(path, described, stored)
    if "read_as" in document:
        document["read_as"] += _beside_stored(described, stored)
    usual = {cls: fmt for cls, fmt in document["weights"].items() if "." not in cls}
    if towers := tower_params(tensors):
        document["towers"] = [{"name": name, "params": params} for name, params in towers.items()]
    document["weights"] = usual | {
        cls: ratio(found.bytes[cls], own[cls], usual.get(cls, usual["default"]))
        for cls in own if found.bytes.get(cls)
    }  # fmt: skip
    return document


def beside_index(config: Path, document: JsonObject) -> JsonObject:
    """The document of a config.json of an unknown type, compared with the size that the index beside it states: of
    values of one plain format. Raises SpecError (E110) where that is another model's.
    """
    from archsim.spec.format import stored_format
    from archsim.spec.load import model_from
    from archsim.spec.stored_weights import stored_weights

    index = config.with_name("model.safetensors.index.json")
    fmt = stored_format(document["weights"]["default"])
    if len(document["weights"]) > 1 or not fmt.plain or not is_file(index):
        return document
    metadata = _parse_json(index, read_input(index, MAX_HEADER)).get("metadata")
    size = metadata.get("total_size") if isinstance(metadata, dict) else None
    if not isinstance(size, int) or "towers" in document:
        return document
    described = sum(_numel(weight) * len(weight.layers) for weight in stored_weights(model_from(document))[1])
    stored = round(size / fmt.bytes)
    _same(index, described, stored)
    return document | {"read_as": document["read_as"] + _beside_stored(described, stored)}


def _beside_stored(described: int, stored: int) -> str:
    """How many parameters are stored, beside those of a config that was read from its fields."""
    if stored == described:
        return "; as many parameters as are stored"
    return f"; {abs(stored - described):,} {'more' if stored > described else 'fewer'} parameters are stored"


def _numel(weight: Any) -> int:
    from archsim.graph.tensor import numel

    return int(numel(weight.tensor))


def _quantised_formats(config: Path) -> JsonMapping:
    data = parse_json(config, read_text(config, MAX_HEADER))
    found = data.get("quantization_config") or data.get("quantization") or {}
    return found if isinstance(found, Mapping) else {}


def _same(path: Path, own: int, stored: int) -> None:
    """The checkpoint must hold the model; index tables and buffers may make a small difference."""
    if abs(own - stored) > 5e-3 * own:
        raise SpecError(
            f"{quote(path.name)} holds {stored:,} parameters, its config.json describes {own:,}", code="E110"
        )


def ratio(size: int, elements: int, usual: str) -> str:
    """Exactly `size` bytes for `elements` values, in the words of `spec.format.stored`, named after a format."""
    from archsim.spec.format import stored_format

    fmt = stored_format(usual)
    if fmt.plain and size == elements * fmt.bytes:
        return usual
    low, more = divmod(8 * size, elements)
    if low < 1:
        raise SpecError(f"{size:,} bytes are too few for {elements:,} parameters", code="E110")
    parts = [f"{n}*{bits}bit" for n, bits in ((elements - more, low), (more, low + 1)) if n]
    label = "" if not re.fullmatch(r"[\w.-]{1,60}", fmt.name) else f"{fmt.name}="
    return f"{label}{'+'.join(parts)}@{fmt.compute}"


MAX_HEADER = 32 * 2**20
MAX_CONTAINERS = 1_000_000
MAX_VALUES = 4_000_000
MAX_TENSORS = 300_000
MAX_SHARDS = 2048
MAX_ELEMENTS = 2**50

BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "I64": 64, "I32": 32, "I16": 16, "I8": 8, "U64": 64,
    "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64,
}  # fmt: skip
"""Type names -> bits per stored element."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor as stored."""

    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """Stored elements; packed ones hold several values each."""
        return prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of its data."""
        return -(-self.elements * BITS[self.dtype] // 8)


def read_tensors(path: Path) -> dict[str, Entry]:
    """All tensors of a file, or of all files that an index names. Raises SpecError (E109)."""
    if not path.name.endswith(".index.json"):
        return _one(path)
    whole: dict[str, Entry] = {}
    for shard in _shards(path):
        whole |= _one(shard)
        if len(whole) > MAX_TENSORS:
            raise unusable(path, f"more than {MAX_TENSORS:,} tensors")
    return whole


def _shards(path: Path) -> list[Path]:
    """The files of an index, which lie beside it."""
    files = _parse_json(path, read_input(path, MAX_HEADER)).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(f, str) for f in files.values()):
        raise unusable(path, "it has no `weight_map`")
    names = sorted(set(files.values()))
    if len(names) > MAX_SHARDS or any(name in ("", ".", "..") or name != os.path.basename(name) for name in names):
        raise unusable(path, "its `weight_map` does not name files next to it")
    missing = [name for name in names if not is_file(path.with_name(name))]
    if missing:
        listed = ", ".join(quote(name, 100) for name in missing[:3])
        raise unusable(path, f"{len(missing)} of {len(names)} files are missing: {listed}")
    return [path.with_name(name) for name in names]


def _one(path: Path) -> dict[str, Entry]:
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 10:
            raise unusable(path, "it is not a safetensors file")
        try:
            (length,) = struct.unpack("<Q", file.read(8))
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise unusable(path, f"a header of {length:,} bytes")
            document = _parse_json(path, file.read(length))
        except (OSError, struct.error) as error:
            raise unusable(path, f"it cannot be read: {type(error).__name__}") from None
    return {name: _entry(path, name, value) for name, value in document.items() if name != "__metadata__"}


def _parse_json(path: Path, data: bytes) -> JsonObject:
    """The mapping in a bounded piece of JSON."""
    containers = data.count(b"{") + data.count(b"[")
    if containers > MAX_CONTAINERS or data.count(b",") > MAX_VALUES:
        raise unusable(path, "its header holds more values than that of any model")
    try:
        document = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError):
        raise unusable(path, "its header is not valid JSON") from None
    if not isinstance(document, dict) or len(document) > MAX_TENSORS:
        raise unusable(path, "its header is not a mapping of tensors")
    return document


def _entry(path: Path, name: str, value: object) -> Entry:
    """One tensor, its shape checked against the place of its data."""
    fields: JsonObject = value if isinstance(value, dict) else {}
    dtype, shape, place = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in BITS:
        raise unusable(path, f"tensor {quote(name, 100)} has the unknown type {quote(str(dtype)[:40])}")
    if not isinstance(shape, list) or len(shape) > 8 or not all(map(_size, shape)) or prod(shape) > MAX_ELEMENTS:
        raise unusable(path, f"tensor {quote(name, 100)} has an impossible shape")
    entry = Entry(dtype, tuple(shape))
    if not (isinstance(place, list) and len(place) == 2 and all(map(_size, place))):
        raise unusable(path, f"tensor {quote(name, 100)} has no valid data_offsets")
    if place[1] - place[0] != entry.bytes:
        raise unusable(path, f"tensor {quote(name, 100)} has a size that does not match its data_offsets")
    return entry


def _size(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and 0 <= n <= MAX_ELEMENTS
