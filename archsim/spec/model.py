"""The model document: what a transformer is, as data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

from archsim.base.diagnostics import shorten
from archsim.base.displayed import Displayed
from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Field, field_validator, model_validator
from archsim.base.notes import Note
from archsim.base.number import Num, divide
from archsim.blocks import tiny
from archsim.blocks.dispatch import About, Count, Fields, InvalidBlock, Spec
from archsim.blocks.layer import MAX_REPEAT, Layer, check_names, count_layers, walk_layers
from archsim.blocks.norm import Norm
from archsim.blocks.stage import StageBlock
from archsim.spec.images import ImageRule
from archsim.spec.sounds import SoundRule

if TYPE_CHECKING:
    from archsim.blocks.block import BlockSpec
    from archsim.graph.graph import Block
    from archsim.graph.step import Step


class ModelSource(Spec):
    """Where figures come from. covers: the fields (dotted paths or top-level names) it vouches for."""

    id: str = "source"
    title: str = ""
    url: str = ""
    retrieved: str | None = None
    covers: tuple[str, ...] = ()


class Published(Spec):
    """What the authors state, for comparison; never used in a computation."""

    params: int | float | str | None = None
    active: int | float | str | None = None
    exact: int | None = None
    note: str | None = None


class Lineage(Spec):
    """The model this one was built from, and what changed."""

    parent: str | None = None
    changes: tuple[str, ...] = ()


class Positions(Spec):
    """Absolute positions added to the embedding: learned (a table of `max` + `offset` rows) or sinusoidal.

    after_projection: as wide as the model and added behind the projection of a narrower embedding (OPT-350m).
    """

    kind: Literal["learned", "sinusoidal"]
    max: Count | None = None
    offset: int = 0
    after_projection: bool = False

    about = {"learned": About(label="Learned Abs"), "sinusoidal": About(label="Sinusoidal")}
    letters = {"max": ("X", "learned positions")}
    decisions = {"max": "context", "offset": "context", "*": "position"}
    words = {"max": "position table", "offset": "offset of the table"}
    limits = {"max": tiny.CONTEXT}


class PerLayerEmbedding(Spec):
    """A second table with one small vector per token and layer (Gemma 3n)."""

    d: Count
    vocab_size: Count
    norm: Norm

    decisions = {"*": "per_layer"}
    brief = "{d:,} per layer"


class NGrams(Spec):
    """Vectors of the last 2 to `n` tokens beside that of the token (LongCat-Flash-Lite): `tables` tables for every
    length, whose rows a hash of the tokens finds, each with a projection to the model's width; the input is the mean of
    all. Table i has ratio x vocabulary + 2i + 1 rows, of d_model / (tables x (n - 1)) numbers.
    """

    n: int = Field(ge=2, le=16)
    tables: Annotated[int, Field(strict=True, ge=1, le=64)]
    ratio: Count

    decisions = {"*": "ngram_embedding"}
    limits = {"ratio": 2}
    brief = "up to {n:,} tokens"

    @property
    def count(self) -> int:
        """How many tables there are."""
        return self.tables * (self.n - 1)

    def width(self, d_model: Num) -> Num:
        """Numbers of one vector."""
        return d_model // self.count if isinstance(d_model, int) else divide(d_model, self.count)

    def rows(self, vocab_size: Num) -> list[Num]:
        """Rows of each table."""
        return [self.ratio * vocab_size + 2 * i + 1 for i in range(self.count)]


class Embedding(Spec):
    """Input side. scale: factor on the vectors, or `sqrt_d_model`. rows: table rows where padded beyond the
    vocabulary. input_rows: rows of the input table where the output table has fewer (tokens of images or sounds).
    factor: width of the table where it is smaller than d_model (ALBERT, OPT-350m), with a projection (`factor_bias`: a
    bias in it). token_types: segment table rows. tables: rows of more tables, one vector of each is added for a token
    (places on a page, columns and rows). ngrams: vectors of the last tokens. mask_token: a learned vector that
    pre-training puts in place of masked tokens (XLNet); it is stored and counted, and no step reads it.
    """

    rows: Count | None = None
    input_rows: Count | None = None
    scale: float | Literal["sqrt_d_model"] | None = None
    norm: Norm | None = None
    positions: Positions | None = None
    token_types: Count | None = None
    tables: tuple[Count, ...] = ()
    mask_token: bool = False
    factor: Count | None = None
    factor_bias: bool = False
    per_layer: PerLayerEmbedding | None = None
    ngrams: NGrams | None = None

    letters = {"rows": ("Vp", "rows of the embedding"), "factor": ("Z", "width of the embedding")}
    decisions = {
        "rows": "vocabulary", "input_rows": "vocabulary", "norm": "embedding_norm", "positions": "position",
        "token_types": "segments", "tables": "segments", "per_layer": "per_layer", "*": "embedding",
        "ngrams": "ngram_embedding",
    }  # fmt: skip
    words = {"positions": "positions", "norm": ""}


class HeadDense(Spec):
    """A product, an activation and a norm between the last layer and the output matrix (ModernBERT's decoder)."""

    activation: str = "gelu"
    bias: bool = False
    norm: Norm | None = None

    brief = "with {activation}"


class Head(Spec):
    """Output side. tied: the input table is the output matrix, dense: a step before it. softcap, scale: on logits."""

    tied: bool = False
    dense: HeadDense | None = None
    bias: bool = False
    softcap: float | None = None
    scale: float | None = None

    decisions = {"tied": "tying", "bias": "biases", "*": "logits"}
    words = {"bias": "logits"}


class MlmHead(Spec):
    """The pre-training head of an encoder: dense, activation, norm, then the (tied) decoder with a bias. dense: without
    it (XLNet), the decoder reads the last hidden state, and there is neither activation nor norm.
    """

    dense: bool = True
    activation: str = "gelu"
    norm: Norm | None = None
    tied: bool = True
    bias: bool = True


FIRST_STAGES = ("patches", "conv", "spectrum", "codes", "merge", "parallel")
"""Kinds of stages that read what a processor makes of an image or a sound."""


class Tower(Spec):
    """A vision or audio encoder with its projector: its stages, or an opaque number of parameters; neither where nobody
    says how many there are. images: how the processor resizes images; sounds: how it cuts sounds. format: that of its
    weights, where they lie in a file of their own.
    """

    name: Literal["vision", "audio"]
    params: Annotated[int, Field(strict=True, gt=0, le=10**15)] | None = None
    stages: tuple[StageBlock, ...] = ()
    images: ImageRule | None = None
    sounds: SoundRule | None = None
    format: str | None = None
    note: str | None = None

    @property
    def patch_size(self) -> int:
        """Pixels on a side of a patch; 1 where no stage says."""
        return int(getattr(self.stages[0], "size", 1)) if self.stages else 1

    @model_validator(mode="after")
    def _one_of_both(self) -> Tower:
        if self.stages and self.params is not None:
            raise InvalidBlock("a tower has `stages`, which say how many parameters it has, or `params`, not both")
        if self.stages and self.stages[0].kind not in FIRST_STAGES:
            raise InvalidBlock(f"the stages of a tower begin with one of {', '.join(FIRST_STAGES)}")
        return self

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """Which tower, and of how many parameters."""
        params = fields.get("params")
        if fields.get("stages"):
            return str(fields["name"])
        return f"{fields['name']} of {params:,} parameters" if params else f"{fields['name']} of unknown size"

    def normal_form(self, fields: Fields) -> Fields:
        """Without notes."""
        return {name: value for name, value in fields.items() if name != "note"}


class Stack(Spec):
    """Layers and what surrounds them: the encoder of an encoder-decoder. front: stages that make vectors of a sound or
    an image, in place of looking tokens up; the source is then as long as what leaves them. sounds: how the processor
    cuts a sound for them. own_table: whether its
    table of tokens is not that of the decoder (T5Gemma).
    """

    layer: Layer | None = None
    layers: tuple[Layer, ...]
    final_norm: Norm | None = None
    embedding: Embedding | None = None
    front: tuple[StageBlock, ...] = ()
    sounds: SoundRule | None = None
    own_table: bool = False

    decisions = {
        "final_norm": "norm_place",
        "embedding": "embedding",
        "own_table": "tying",
        "front": "front",
        "sounds": "front",
    }


class Mtp(Spec):
    """Multi-token prediction (DeepSeek-V3): modules that each take the trunk's state and the next token's embedding,
    merge them, and run one more layer: `layer` of the model, with what is given here on top. Shared embedding and head.
    """

    n: Count = 1
    norm: Norm
    layer: Layer

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """How many modules."""
        return f"{fields['n']} module" + ("s" if fields["n"] > 1 else "")


class StatedCache(Spec):
    """The number format that a checkpoint's quantisation states for its KV cache, and the method that states it:
    engines follow what some methods state, and leave what others state alone.
    """

    format: str
    method: Literal["modelopt", "compressed-tensors"]

    @classmethod
    def describe(cls, fields: Fields) -> str:
        """The format."""
        return str(fields["format"])


class Model(Displayed, Spec):
    """A model: identity, widths, embedding, one stack of layers (and an encoder), head, provenance.

    `layer` holds what all layers share; each entry of `layers` is merged over it, so that a family is seen at a
    glance. weights: native storage format per tensor class (default, expert, embedding, ...). kv_cache: what the
    checkpoint states of its caches. extends: another model whose document is merged underneath. unused: keys of the
    checkpoint's config, and entries of its skip list, on which no figure depends; what reads a config.json writes it.
    read_as: how a config of an unknown type was read from its fields, the caution beside every figure.
    """

    name: str
    title: str | None = None
    org: str | None = None
    released: Annotated[str, Field(pattern=r"^\d{4}(-(0[1-9]|1[0-2])(-(0[1-9]|[12]\d|3[01]))?)?$")] | None = None
    aliases: tuple[str, ...] = ()
    hf_ids: tuple[str, ...] = ()
    extends: str | None = None
    lineage: Lineage | None = None
    architecture: Literal["decoder", "encoder", "encoder-decoder"] = "decoder"
    d_model: Count
    vocab_size: Count
    max_context: Count | None = None
    embedding: Embedding = Field(default_factory=Embedding)
    layer: Layer | None = None
    layers: tuple[Layer, ...]
    final_norm: Norm | None = None
    head: Head | None = None
    pooler: bool = False
    mlm_head: MlmHead | None = None
    encoder: Stack | None = None
    mtp: Mtp | None = None
    towers: tuple[Tower, ...] = ()
    weights: dict[str, str] = Field(default_factory=lambda: {"default": "bf16"})
    kv_cache: StatedCache | None = None
    dropout: float | None = None
    confidence: Literal["verified", "published", "inferred"] | None = None
    published: Published | None = None
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    read_as: str | None = None
    sources: tuple[ModelSource, ...] = ()

    letters = {"d_model": ("D", "width of the model"), "vocab_size": ("V", "vocabulary")}
    decisions = {
        "d_model": "width", "vocab_size": "vocabulary", "max_context": "context", "architecture": "stacks",
        "encoder": "stacks", "head": "stacks", "final_norm": "norm_place", "embedding": "embedding",
        "pooler": "pooler", "mlm_head": "mlm_head", "mtp": "mtp", "towers": "towers", "weights": "format",
        "kv_cache": "format",
    }  # fmt: skip
    limits = {"d_model": tiny.WIDTH}

    @field_validator("weights")
    @classmethod
    def _with_default(cls, weights: dict[str, str]) -> dict[str, str]:
        """What no class of the file names is stored in bf16."""
        return {"default": "bf16", **weights}

    @model_validator(mode="after")
    def _consistent(self) -> Model:
        if not self.layers:
            raise InvalidBlock("a model has at least one layer: `layers` is empty")
        for stack in (self.layers, self.encoder.layers if self.encoder is not None else ()):
            if (depth := count_layers(stack)) > MAX_REPEAT:
                raise InvalidBlock(f"{shorten(f'{depth:,}', 40)} layers are more than the limit of {MAX_REPEAT:,}")
        check_names(self.layers)
        check_names(self.encoder.layers if self.encoder is not None else ())
        if (self.architecture == "encoder-decoder") != (self.encoder is not None):
            raise InvalidBlock("an `encoder` stack and `architecture: encoder-decoder` belong together")
        inner = self.encoder.embedding if self.encoder is not None else None
        if inner is not None and inner.factor != self.embedding.factor:
            raise InvalidBlock("encoder and decoder share one embedding table: both have its `factor`, or neither does")
        cross = [layer for layer in walk_layers(self.layers) if layer.cross_attention is not None]
        if cross and self.encoder is None:
            raise InvalidBlock("`cross_attention` needs an `encoder` to attend to")
        first = next((layer.attention for layer in walk_layers(self.layers) if layer.attention is not None), None)
        if first is not None and first.borrows:
            raise InvalidBlock("the first layer has no layer before it whose choice of keys it could share")
        small = [layer for layer in walk_layers(self.layers) if layer.per_layer_input is not None]
        if small and self.embedding.per_layer is None:
            raise InvalidBlock("`per_layer_input` needs the table it is taken from: `embedding: {per_layer: ...}`")
        if self.embedding.input_rows is not None and (self.head is None or self.head.tied):
            raise InvalidBlock("`input_rows` needs an output table of its own: `head: {tied: false}`")
        if self.architecture == "encoder" and self.head is not None:
            raise InvalidBlock("an encoder has an `mlm_head` or a `pooler`, not a `head`")
        return self

    @property
    def _cut_blocks(self) -> Iterator[BlockSpec]:
        """The blocks of all layers that hold weights to be cut over ranks."""
        stacks = [self.layers] + ([self.encoder.layers] if self.encoder is not None else [])
        for layer in (leaf for stack in stacks for leaf in walk_layers(stack)):
            for block in (layer.attention, layer.mixer, layer.cross_attention, layer.ffn):
                if block is not None:
                    yield block

    @cached_property
    def cut_widths(self) -> frozenset[int]:
        """Numbers of heads and feed-forward widths that occur, all of which tensor parallelism must divide."""
        return frozenset(width for block in self._cut_blocks for width in block.widths())

    @cached_property
    def replicated_heads(self) -> tuple[int, ...]:
        """Numbers of key/value heads that occur, which tensor parallelism divides or copies."""
        return tuple(sorted({block.replicated_heads() for block in self._cut_blocks}))

    @property
    def tower_names(self) -> tuple[str, ...]:
        """What the checkpoint holds beside the language model."""
        return tuple(tower.name for tower in self.towers)

    def traced_graph(self, step: Step) -> Block | None:
        """The graph of a step where the model is no document of blocks but the capture of a module; else None."""
        return None

    @property
    def remarks(self) -> tuple[Note, ...]:
        """What every answer about the model rests on."""
        return ()

    @property
    def shardable(self) -> bool:
        """Whether tensor, pipeline and expert parallelism can cut it."""
        return True

    def to_dict(self) -> JsonObject:
        """The `archsim.model/1` object: the fields that the spec states, and their sources."""
        return {
            "schema": "archsim.model/1", "name": self.name,
            "document": self.model_dump(mode="json", exclude_unset=True),
            "sources": [source.model_dump(mode="json") for source in self.sources],
        }  # fmt: skip

    @property
    def n_layers(self) -> int:
        """Layers of the decoder, or of the only stack."""
        return count_layers(self.layers)

    @property
    def cached(self) -> bool:
        """Whether the main stack keeps keys and values between steps."""
        return self.architecture != "encoder"


def merge_layers(document: JsonObject, merge: Any) -> JsonObject:
    """The document with `layer` merged under every entry of `layers`, groups opened, and under the layer of the
    prediction modules; `layer` itself is dropped.

    `merge(base, over)` is the deep merge of `archsim.spec.loader`, which keeps the positions of both sides.
    """
    for holder in (document, document.get("encoder")):
        if isinstance(holder, dict) and isinstance(holder.get("layers"), list):
            base = holder.pop("layer", None)
            if isinstance(base, dict):
                layers = holder["layers"]
                for i, entry in enumerate(layers):
                    layers[i] = _under(base, entry, merge)
                mtp = holder.get("mtp")
                if isinstance(mtp, dict) and isinstance(mtp.get("layer"), dict):
                    mtp["layer"] = merge(base, mtp["layer"])
    return document


def _under(base: JsonObject, entry: Any, merge: Any) -> Any:
    if not isinstance(entry, dict):
        return entry
    if isinstance(entry.get("layers"), list):
        for i, inner in enumerate(entry["layers"]):
            entry["layers"][i] = _under(base, inner, merge)
        return entry
    return merge(base, entry)
