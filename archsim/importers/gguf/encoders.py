"""Vision and audio encoders of llama.cpp, which lie in a file of their own beside the model (`mmproj`).

Key names: `Keys.ClipVision` of gguf-py/gguf/constants.py; what each projector reads: tools/mtmd/clip.cpp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject
from archsim.counts.towers import tower_size
from archsim.importers.gguf.reader import ENCODER, Header, Keys, TensorInfo, read_gguf
from archsim.importers.gguf.stored import join_formats
from archsim.importers.hf.towers import pictures, qwen
from archsim.importers.hf.towers.registry import MISFITS, stages
from archsim.spec.model import Tower

MOST = 10**12
"""Parameters of encoders that are believed."""

READERS = (pictures, qwen)
"""Modules whose readers of configs are registered as they are imported."""

SOUND = ("a.", "mm.a.")
"""Beginnings of the names of an audio encoder's tensors."""

TEXT = ("v.token_embd.",)
"""Vectors that the language model has in its table of tokens as well (Pixtral's end of a row)."""


def with_encoders(document: JsonObject, files: Sequence[Path]) -> JsonObject:
    """The document of a GGUF file with the encoders of that file among those beside it that is for a model of its
    width; of several that in which weights are nearest to 16 bits.
    """
    found = [header for file in files if (header := _encoders_in(file, document["d_model"])) is not None]
    if not found:
        return document
    best = min(found, key=lambda header: (abs(8 * header.bytes / _elements(header.tensors) - 16), header.path.name))
    return document | {"towers": towers_of(best, document["d_model"])}


def _encoders_in(path: Path, width: int) -> Header | None:
    """The header of a file that holds encoders for a language model of this width; None for any other file."""
    try:
        header = read_gguf(path)
    except SpecError:
        return None
    if header.values.get("general.architecture") != ENCODER or not 0 < _elements(header.tensors) <= MOST:
        return None
    stated = {header.values.get(f"{ENCODER}.{kind}.projection_dim") for kind in ("vision", "audio")}
    made = {t.shape[-1] for t in header.tensors if t.name.startswith("mm.") and len(t.shape) == 2}
    return header if width in stated | made else None


def towers_of(header: Header, width: int) -> list[JsonObject]:
    """The encoders of a file, each with its stages where they make up the file's tensors, else with their number."""
    found = []
    for name, kind in (("vision", False), ("audio", True)):
        own = [t for t in header.tensors if t.name.startswith(SOUND) == kind and not t.name.startswith(TEXT)]
        if own:
            found.append(_tower(name, header, own, width))
    return found


def _tower(name: str, header: Header, tensors: Sequence[TensorInfo], width: int) -> JsonObject:
    sizes = Counter[str]()
    for tensor in tensors:
        sizes[tensor.format or "fp32"] += tensor.elements
    stored: JsonObject = {"format": join_formats(sizes)}
    known = _stages(name, header, tensors, width)
    if known is not None:
        return known | stored
    return {
        "name": name,
        "params": _elements(tensors),
        "note": f"only the size of {header.path.name} is known",
    } | stored


def _elements(tensors: Sequence[TensorInfo]) -> int:
    return sum(tensor.elements for tensor in tensors)


def _stages(name: str, header: Header, tensors: Sequence[TensorInfo], width: int) -> JsonObject | None:
    """The tower as its family's config would describe it; None where that has not the file's parameters."""
    values = header.values
    projector = values.get(f"{ENCODER}.{name}.projector_type") or values.get(f"{ENCODER}.projector_type")
    family = FAMILIES.get(str(projector)) if name == "vision" else None
    if family is None:
        return None
    try:
        found = _as_config(name, family, Keys(header), {tensor.name: tensor for tensor in tensors}, width)
        return found if tower_size(Tower.model_validate(found)) == _elements(tensors) else None
    except MISFITS:
        return None


def _as_config(name: str, family: Family, keys: Keys, tensors: Mapping[str, TensorInfo], width: int) -> JsonObject:
    """The tower that the family's config with the file's keys describes."""
    own = {ours: n for ours, theirs in family.names.items() if (n := keys.number(f"{name}.{theirs}")) is not None}
    more, around = family.rest(keys, tensors)
    found = stages(name, own | more, around, family.model_type, width)
    if "stages" in found and "v.post_ln.weight" not in tensors:  # LLaVA takes what a layer before the last gives
        found["stages"] = [stage for stage in found["stages"] if stage.get("name") != "post_norm"]
    return found


Rest = Callable[[Keys, Mapping[str, TensorInfo]], tuple[JsonObject, JsonObject]]
"""From keys and tensors to what else the encoder's config would say, and what the config around it would."""


class Family(NamedTuple):
    """How a projector's file is read. model_type: whose encoder it is. names: keys of its config, and of the file."""

    model_type: str
    names: Mapping[str, str]
    rest: Rest


USUAL: Mapping[str, str] = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count", "image_size": "image_size", "patch_size": "patch_size",
}  # fmt: skip
QWEN: Mapping[str, str] = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length", "depth": "block_count",
    "num_heads": "attention.head_count", "patch_size": "patch_size", "out_hidden_size": "projection_dim",
    "spatial_merge_size": "spatial_merge_size",
}  # fmt: skip
QWEN2 = {name: QWEN[name] for name in ("depth", "num_heads", "patch_size", "spatial_merge_size")}


def _gemma3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    """SigLIP without a head, 4 x 4 patches averaged to one."""
    side = keys.count("vision.image_size") // keys.count("vision.patch_size")
    squares = (side // (keys.number("vision.projector.scale_factor") or 4)) ** 2
    return {"model_type": "siglip_vision_model", "vision_use_head": False}, {"mm_tokens_per_image": squares}


def _llava(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    """CLIP's encoder where there is a class token, else SigLIP's."""
    kind = "clip_vision_model" if "v.class_embd" in tensors else "siglip_vision_model"
    return {"model_type": kind, "vision_use_head": False} if kind[0] == "s" else {"model_type": kind}, {}


def _pixtral(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    """Mistral 3's, which merges neighbours."""
    merge = keys.number("vision.spatial_merge_size") or 2
    bias = "mm.1.bias" in tensors
    return {"model_type": "pixtral"}, {"spatial_merge_size": merge, "multimodal_projector_bias": bias}


def _qwen2(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    d = keys.count("vision.embedding_length")
    return {"embed_dim": d, "hidden_size": keys.count("vision.projection_dim"),
            "mlp_ratio": keys.count("vision.feed_forward_length") / d}, {}  # fmt: skip


def _qwen25(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    """Every so many layers see the whole image."""
    every, count = keys.count("vision.n_wa_pattern"), keys.count("vision.block_count")
    window = {"window_size": n} if (n := keys.number("vision.window_size")) else {}
    return {"fullatt_block_indexes": list(range(every - 1, min(count, 4096), every)), **window}, {}


def _qwen3(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    """A table of positions, and layers whose vectors are merged as well."""
    table, deep = tensors.get("v.position_embd.weight"), keys.get("vision.is_deepstack_layers")
    rows = {"num_position_embeddings": table.shape[-1]} if table is not None else {}
    taps = [i for i, is_one in enumerate(deep if isinstance(deep, list) else []) if is_one]
    return {"deepstack_visual_indexes": taps, **rows}, {}


def _internvl(keys: Keys, tensors: Mapping[str, TensorInfo]) -> tuple[JsonObject, JsonObject]:
    """InternViT with the norms and biases that its first layer has; neighbours merged by a pixel shuffle."""
    first = "v.blk.0"
    own = {
        "model_type": "internvl_vision", "use_mean_pooling": True,
        "attention_bias": any(f"{first}.{part}.bias" in tensors for part in ("attn_q", "attn_qkv")),
        "use_qk_norm": f"{first}.attn_q_norm.weight" in tensors,
        "norm_type": "layer_norm" if f"{first}.ln1.bias" in tensors else "rms_norm",
    }  # fmt: skip
    return own, {"downsample_ratio": 1 / (keys.number("vision.projector.scale_factor") or 2)}


FAMILIES: Mapping[str, Family] = {
    "gemma3": Family("gemma3", USUAL, _gemma3),
    "internvl": Family("internvl", USUAL, _internvl),
    "mlp": Family("llava", USUAL, _llava),
    "pixtral": Family("mistral3", USUAL, _pixtral),
    "qwen2vl_merger": Family("qwen2_vl", QWEN2, _qwen2),
    "qwen2.5vl_merger": Family("qwen2_5_vl", QWEN, _qwen25),
    "qwen3vl_merger": Family("qwen3_vl", QWEN, _qwen3),
}  # fmt: skip
"""Projector of a file -> how its encoder is read; of any other only the size is known."""
