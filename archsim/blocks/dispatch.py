"""The base of every spec, and the dispatch from a block's `kind` to its class.

Block modules are imported by kind, when a spec names it: building every class of the zoo would cost more than
all else a command does at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticCustomError, core_schema

Count = Annotated[int, Field(strict=True, gt=0)]
"""A positive whole number."""

KINDS: Mapping[str, Mapping[str, str]] = {
    "attention": {
        "mha": "archsim.blocks.attention:Attention",
        "gqa": "archsim.blocks.attention:Attention",
        "mqa": "archsim.blocks.attention:Attention",
        "mla": "archsim.blocks.mla:Mla",
    },
    "mixer": {
        "mamba": "archsim.blocks.mamba:Mamba",
        "mamba2": "archsim.blocks.mamba:Mamba2",
        "lightning": "archsim.blocks.linear_attention:Lightning",
        "gated_delta_net": "archsim.blocks.linear_attention:GatedDeltaNet",
        "rg_lru": "archsim.blocks.rg_lru:RgLru",
        "short_conv": "archsim.blocks.short_conv:ShortConv",
    },
    "ffn": {
        "mlp": "archsim.blocks.ffn:Ffn",
        "glu": "archsim.blocks.ffn:Ffn",
        "swiglu": "archsim.blocks.ffn:Ffn",
        "geglu": "archsim.blocks.ffn:Ffn",
        "reglu": "archsim.blocks.ffn:Ffn",
        "moe": "archsim.blocks.moe:Moe",
    },
    "position": {
        "rope": "archsim.blocks.rope:Rope",
        "alibi": "archsim.blocks.position:Alibi",
        "t5": "archsim.blocks.position:T5Bias",
        "transformer_xl": "archsim.blocks.position:TransformerXl",
        "xlnet": "archsim.blocks.position:TransformerXl",
        "deberta": "archsim.blocks.position:Deberta",
    },
}
"""family -> kind -> class. A new variant is one class and one line here."""


class Spec(BaseModel):
    """Base of all specs: frozen, and every unknown field is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    def widths(self) -> tuple[int, ...]:
        """Extents that tensor parallelism must divide (heads, feed-forward widths); none by default."""
        return ()


def load_kind(family: str, kind: str) -> type[Spec]:
    """The class of one kind, its module imported now."""
    module, name = KINDS[family][kind].split(":")
    found: type[Spec] = getattr(import_module(module), name)
    return found


FAMILY = "x-archsim-family"
"""Key that marks a family in a generated JSON Schema: listing the classes here would import all of them."""


class OneOf:
    """Annotation of a field that holds any block of one family, told apart by its `kind`."""

    def __init__(self, family: str) -> None:
        self.family = family

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        serialize = core_schema.plain_serializer_function_ser_schema(
            lambda v: v.model_dump(exclude_unset=True)
        )
        return core_schema.no_info_plain_validator_function(self._validate, serialization=serialize)

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """The family's name, which `archsim.spec.schemas` replaces by a choice of its classes."""
        return {FAMILY: self.family}

    def _validate(self, value: Any) -> Spec:
        if isinstance(value, Spec):
            return value
        if not isinstance(value, Mapping):
            raise PydanticCustomError("block_type", "a block must be a mapping with a `kind`")
        kind = value.get("kind")
        if not isinstance(kind, str) or kind not in KINDS[self.family]:
            raise PydanticCustomError(
                "unknown_kind",
                "unknown {family} kind {kind}; known: {known}",
                {"family": self.family, "kind": repr(kind), "known": ", ".join(KINDS[self.family])},
            )
        return load_kind(self.family, kind).model_validate(value)


def class_names(family: str) -> set[str]:
    """Names of the classes of one family."""
    return {target.split(":")[1] for target in KINDS[family].values()}


AttentionBlock = Annotated[Any, OneOf("attention")]
MixerBlock = Annotated[Any, OneOf("mixer")]
FfnBlock = Annotated[Any, OneOf("ffn")]
PositionBlock = Annotated[Any, OneOf("position")]


class Impossible(ValueError):
    """A spec that cannot be: `code` tells which error it is (see `archsim explain`)."""

    def __init__(self, message: str, code: str = "E110") -> None:
        super().__init__(message)
        self.code = code
