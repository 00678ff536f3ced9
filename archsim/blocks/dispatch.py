"""The base of every spec, and the dispatch from a block's `kind` to its class.

Block modules are imported by kind, when a spec names it: building every class of the zoo would cost more than
all else a command does at start.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from archsim.base.lazy_model import Field, LazyModel

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic_core import CoreSchema

    from archsim.base.poly import Poly

Count = Annotated[int, Field(strict=True, gt=0, le=10**9)]
"""A positive whole number."""

Activation = Literal["relu", "relu2", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"]
"""A function of single elements that needs no parameter."""

KINDS: Mapping[str, Mapping[str, str]] = {
    "attention": {
        "mha": "archsim.blocks.attention:Attention",
        "gqa": "archsim.blocks.attention:Attention",
        "mqa": "archsim.blocks.attention:Attention",
        "mla": "archsim.blocks.mla:Mla",
        "compressed": "archsim.blocks.compressed:CompressedAttention",
        "differential": "archsim.blocks.differential:DifferentialAttention",
    },
    "mixer": {
        "mamba": "archsim.blocks.mamba:Mamba",
        "mamba2": "archsim.blocks.mamba:Mamba2",
        "lightning": "archsim.blocks.linear_attention:Lightning",
        "gated_delta_net": "archsim.blocks.linear_attention:GatedDeltaNet",
        "kimi_delta": "archsim.blocks.kimi_delta:KimiDelta",
        "mlstm": "archsim.blocks.mlstm:MLstm",
        "rwkv7": "archsim.blocks.rwkv7:Rwkv7",
        "rg_lru": "archsim.blocks.recurrence:RgLru",
        "short_conv": "archsim.blocks.recurrence:ShortConv",
        "conv_module": "archsim.blocks.convolution:ConvModule",
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
        "profiles": "archsim.blocks.position:Profiles",
        "shaw": "archsim.blocks.position:Shaw",
    },
    "stage": {
        "patches": "archsim.blocks.stage:PatchesStage",
        "conv": "archsim.blocks.stage:ConvStage",
        "codes": "archsim.blocks.stage:CodesStage",
        "positions": "archsim.blocks.stage:PositionsStage",
        "class_token": "archsim.blocks.stage:ClassTokenStage",
        "drop_class": "archsim.blocks.stage:DropClassStage",
        "vectors": "archsim.blocks.stage:VectorsStage",
        "norm": "archsim.blocks.stage:NormStage",
        "layers": "archsim.blocks.stage:LayersStage",
        "merge": "archsim.blocks.stage:MergeStage",
        "pool": "archsim.blocks.stage:PoolStage",
        "taps": "archsim.blocks.stage:TapsStage",
        "linear": "archsim.blocks.stage:LinearStage",
        "network": "archsim.blocks.stage:NetworkStage",
        "attention_pool": "archsim.blocks.stage:AttentionPoolStage",
        "branch": "archsim.blocks.stage:BranchStage",
        "attend": "archsim.blocks.convolution:AttendStage",
        "latents": "archsim.blocks.latents:LatentsStage",
        "padded": "archsim.blocks.convolution:PaddedStage",
        "unused": "archsim.blocks.stage:UnusedStage",
        "conv2d": "archsim.blocks.convolution:Conv2dStage",
        "spectrum": "archsim.blocks.convolution:SpectrumStage",
        "residual": "archsim.blocks.convolution:ResidualStage",
        "grid_attention": "archsim.blocks.convolution:GridAttentionStage",
        "pooled_windows": "archsim.blocks.convolution:PooledWindowsStage",
        "fuse": "archsim.blocks.convolution:FuseStage",
        "parallel": "archsim.blocks.ways:ParallelStage",
        "together": "archsim.blocks.ways:TogetherStage",
        "mean_token": "archsim.blocks.ways:MeanTokenStage",
        "resample": "archsim.blocks.ways:ResampleStage",
        "squeeze_excite": "archsim.blocks.ways:SqueezeExciteStage",
        "split": "archsim.blocks.stage:SplitStage",
        "lstm": "archsim.blocks.ways:LstmStage",
        "affine": "archsim.blocks.ways:AffineStage",
        "channel_attention": "archsim.blocks.pooling:ChannelAttentionStage",
        "memory_attention": "archsim.blocks.pooling:MemoryAttentionStage",
        "resampler": "archsim.blocks.pooling:ResamplerStage",
    },
}
"""family -> kind -> class. A new variant is one class and one line here."""


Changes = dict[str, object]
"""Fields of a spec and what they become in a copy of it."""

Fields = dict[str, Any]
"""Fields of a spec in the normal form that architectures are compared in (see `archsim.evolution.normal_form`)."""

CLASS = "class"
"""Key of the class among the fields of a spec in normal form."""

Extent: TypeAlias = "int | Poly"
"""A size, or the letter that stands for it in a formula."""


class About(NamedTuple):
    """How a kind of block is called; what is empty is made of the kind's own name.

    words: in a sentence of `diff` and `evolve`. title: over a drawing. label: in the tables of `survey`.
    paper: the paper that defines it, with the section, for `explain`.
    """

    words: str = ""
    title: str = ""
    label: str = ""
    paper: str = ""


class Spec(LazyModel):
    """Base of all specs: frozen, and every unknown field is an error.

    A class states what other packages need to know of it in the class variables below. Each table holds what the
    class adds to those of its bases.

    about: kind -> how it is called. letters: field -> its letter in formulas, and what that stands for; other
    numbers are printed as numbers. decisions: field -> the decision of `diff` and `evolve` that sets it (`*`: all
    others). Of a field that holds a spec, the decision is whether there is one; `FIELD.kind` is the one that sets of
    which class it is, unless that class has a `kind_decision`. A spec inside another that states nothing belongs to
    the decision that its holder's field belongs to. words: field -> what it is called beside that decision.
    limits: field -> its largest value in a tiny model, where not that of `archsim.blocks.tiny`. absent: fields that a
    block of another class is taken to have, so that parts which it lacks are decisions of their own. brief: a spec in
    few words, with its fields in braces; of a class without one, the words of its kind are said.
    """

    about: ClassVar[Mapping[str, About]] = {}
    letters: ClassVar[Mapping[str, tuple[str, str]]] = {}
    decisions: ClassVar[Mapping[str, str]] = {}
    words: ClassVar[Mapping[str, str]] = {}
    limits: ClassVar[Mapping[str, int]] = {}
    absent: ClassVar[Fields] = {}
    kind_decision: ClassVar[str] = ""
    brief: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        """Adds the tables of the bases to those that the class states."""
        super().__init_subclass__()
        for name in ("about", "letters", "decisions", "words", "limits"):
            setattr(cls, name, {k: v for base in reversed(cls.__mro__) for k, v in vars(base).get(name, {}).items()})

    @classmethod
    def names(cls, kind: str) -> About:
        """How one of its kinds is called."""
        own, plain = cls.about.get(kind, About()), kind.replace("_", " ")
        return About(own.words or plain, own.title or plain.capitalize(), own.label or kind, own.paper)

    def extents(self) -> dict[str, int]:
        """Letter -> number, of the sizes that formulas write as letters."""
        found = {letter: getattr(self, field) for field, (letter, _) in self.letters.items() if hasattr(self, field)}
        return {letter: n for letter, n in found.items() if isinstance(n, int)}

    def with_extents(self, extents: Mapping[str, Extent]) -> Changes:
        """The fields that hold these letters instead of their numbers; must undo `extents`."""
        return {field: extents[letter] for field, (letter, _) in self.letters.items() if letter in extents}

    def tiny_fields(self) -> Changes:
        """Fields of a tiny model that depend on each other, beyond what `limits` says of each by itself."""
        return {}

    def normal_form(self, fields: Fields) -> Fields:
        """The fields, in which what can be written in several ways is written in one."""
        return fields

    @classmethod
    def to_document(cls, fields: Fields) -> Fields:
        """The fields as a spec file has them: the inverse of `normal_form`."""
        return fields

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """A spec of this class in few words, from its normal form."""
        if cls.brief:
            return cls.brief.format(**fields)
        return cls.names(str(fields["kind"])).words if "kind" in fields else "yes"

    @classmethod
    def comparable_fields(cls, fields: Fields) -> Fields:
        """What a spec of another class can be compared with: by default, all its fields."""
        return fields

    @classmethod
    def fields_from(cls, other: Fields) -> Fields:
        """What a spec of another class says in the fields of this one: those of the same name, and `absent`."""
        return cls.absent | {field: value for field, value in other.items() if field not in (CLASS, "kind")}


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

    def __get_pydantic_core_schema__(self, _: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        serialize = core_schema.plain_serializer_function_ser_schema(lambda v: v.model_dump(exclude_unset=True))
        return core_schema.no_info_plain_validator_function(self._validate, serialization=serialize)

    def __get_pydantic_json_schema__(self, _: object, handler: GetJsonSchemaHandler) -> dict[str, str]:
        """The family's name, which `archsim.spec.schemas` replaces by a choice of its classes."""
        return {FAMILY: self.family}

    def _validate(self, value: object) -> Spec:
        from pydantic_core import PydanticCustomError

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


class InvalidBlock(ValueError):
    """A spec that cannot be: `code` tells which error it is (see `archsim explain`)."""

    def __init__(self, message: str, code: str = "E110") -> None:
        super().__init__(message)
        self.code = code
