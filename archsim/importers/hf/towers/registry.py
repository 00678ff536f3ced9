"""The encoder of a multimodal config: which function reads it, and what it is where none can."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from pydantic import ValidationError

from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.processors import image_rule, sound_rule
from archsim.spec.model import Tower

Doc = JsonObject


class Around(NamedTuple):
    """What stands around an encoder: the config that it is part of, and the width of the language model. parts: the
    mappings inside that config, such as that of a projector.
    """

    config: Config
    width: int
    parts: JsonMapping = MappingProxyType({})


Reader = Callable[[Config, Around], list[Doc]]
"""From the encoder's config to its stages."""

ENCODERS: dict[tuple[str, str], tuple[Reader, JsonMapping]] = {}
"""(tower, model_type of the whole config) -> what reads it, and the defaults of the encoder's config class."""


def encoder(tower: str, *model_types: str, **defaults: object) -> Callable[[Reader], Reader]:
    """Register what reads the encoders of families. defaults: of the class of the encoder's config."""

    def register(reader: Reader) -> Reader:
        for model_type in model_types:
            ENCODERS[tower, model_type] = reader, defaults
        return reader

    return register


MISFITS = (ArithmeticError, ArchsimError, AttributeError, LookupError, TypeError, ValueError)
"""What an encoder that cannot be read causes: its size is then unknown, and the language model is read as usual."""


def stages(tower: str, own: JsonMapping, config: JsonMapping, model_type: str, width: int) -> Doc:
    """The tower as a spec has it: with stages, or with a note on why there are none."""
    if (tower, model_type) not in ENCODERS:
        return {"name": tower}
    reader, defaults = ENCODERS[tower, model_type]
    read = Config(own, defaults, f"{tower}_config.")
    inside = {key: value for key, value in config.items() if not isinstance(value, Mapping)}
    parts = {key: value for key, value in config.items() if isinstance(value, Mapping)}
    try:
        found: Doc = {"name": tower, "stages": reader(read, Around(Config(inside, {}), width, parts))}
        if rule := image_rule(model_type, Config(own, defaults), config) if tower == "vision" else None:
            found["images"] = rule
        if (sounds := sound_rule(model_type) if tower == "audio" else None) is not None:
            found["sounds"] = sounds
        Tower.model_validate(found)
    except MISFITS as error:
        return {"name": tower, "note": f"{tower}_config does not describe a known encoder: {_reason(error)}"[:200]}
    unread = [key for key in read.unread() if key.rsplit(".", 1)[-1] not in BESIDE]
    if unread:
        return {"name": tower, "note": f"config keys that are not understood: {', '.join(unread)}"[:200]}
    return found


def _reason(error: Exception) -> str:
    """What is wrong, in one line."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    if isinstance(error, KeyError):
        return f"`{error.args[0]}` is missing"
    return " ".join((error.message if isinstance(error, ArchsimError) else str(error)).split())


BESIDE = frozenset([
    "default_output_length", "drop_path", "drop_path_rate", "dropout", "dtype", "image_size", "in_chans",
    "initializer_range", "is_encoder_decoder", "layer_norm_type", "layer_scale_init_value", "layerdrop",
    "max_position_embeddings", "max_source_positions", "merge_type", "model_max_length", "n_window", "num_frames",
    "output_attentions", "output_dim", "output_hidden_states", "pooling_kernel_size", "pos_emb_time",
    "pos_emb_type", "position_embedding_size", "position_embedding_type", "positional_embedding_type",
    "projection_dim", "projection_dropout", "projector_dropout", "return_dict", "rope_parameters", "rope_scaling",
    "rope_theta", "rope_type", "scale_embedding", "spatial_patch_size", "tensor_parallel_size", "text_config",
    "tokens_per_second", "torch_dtype", "use_flash_attn", "video_attn_type", "video_max_frames",
    "vision_feature_layer", "vision_feature_select_strategy", "vocab_size", "zero_init",
])  # fmt: skip
"""Keys of encoders that change neither weights nor shapes, or that their readers look at."""
