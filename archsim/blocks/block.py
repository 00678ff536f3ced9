"""What a block of a layer is: how it is lowered to operations, and the facts that other packages ask it for.

A block is one class that states its facts; every command reads them from there. An attention variant extends
`AttentionSpec`, a recurrent or linear mixer `MixerSpec`, a feed-forward network `FfnSpec`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Annotated, ClassVar, Literal, NamedTuple

from archsim.base.data_class import dataclass
from archsim.base.number import divide
from archsim.blocks import tiny
from archsim.blocks.dispatch import Changes, Count, Fields, InvalidBlock, OneOf, Spec
from archsim.blocks.mask import MaskSpec
from archsim.graph.builder import Builder, Operand
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor

LATE = "late experts"
"""Where what experts gave waits among what the stack shares, until a layer adds it."""


@dataclass(slots=True)
class Context:
    """The step that is lowered, and what the stack around a block shares with it.

    cached: keys and values go to a cache (decoders) or not (encoders). memory: the encoder's output, while
    there is one, or what latents attend to. joined: latents are among their own keys. shared: tensors declared once
    per stack (relative-position tables), by their spec. caches: key/value caches by the path of the layer that owns
    them, for layers that share them; repeats: how often each block around that layer repeats.
    """

    step: Step
    cached: bool = True
    memory: Tensor | None = None
    joined: bool = False
    shared: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)
    caches: dict[str, tuple[Tensor, ...]] = field(default_factory=dict)
    path: str = ""
    loops: tuple[int, ...] = ()
    repeats: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def shared_cache(self, path: str) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """The cache of the last repetition of the layer at `path`, and which repetition that is."""
        if path not in self.caches:
            known = ", ".join(self.caches) or "none"
            raise InvalidBlock(f"kv_from: no layer `{path}` with a cache before this one; known: {known}")
        if len(self.caches[path]) != 2:
            raise InvalidBlock(f"kv_from: layer `{path}` caches a latent alone, no keys and values")
        k, v = self.caches[path]
        return k, v, tuple(n - 1 for n in self.repeats[path])


Projection = Callable[[Literal["q", "k"], Operand, str], Tensor]
"""Rows over R and D through the attention's own projection of queries or keys; the last argument names the result."""


Tempered = Callable[[str, Tensor], Tensor]
"""A tensor over T, grown by its token's position as queries are; the first argument names the result."""


class Position(Spec):
    """A position encoding inside attention. This one does nothing; each kind overrides the part that it is."""

    kind: str = "none"
    decisions = {"*": "position"}

    def declare(self, b: Builder, ctx: Context) -> None:
        """Declare what the whole stack shares (tables of relative positions)."""

    def project(self, b: Builder, x: Tensor, ctx: Context, rows: Projection, tempered: Tempered) -> None:
        """What needs more than queries and keys: the layer's input `x`, the attention's own projections, `rows`, or
        what its queries grow by with their position, `tempered`.
        """

    def rotate(self, b: Builder, name: str, x: Tensor) -> Tensor:
        """Queries or keys with positions worked in."""
        return x

    def scores(self, b: Builder, s: Tensor, q: Tensor, k: Operand, ctx: Context, scale: float) -> Tensor:
        """The scores with the position term added."""
        return s

    def rotated_size(self, d_head: int) -> int:
        """Dimensions of a head of `d_head` that are rotated in pairs."""
        return 0

    def softmax_factor(self) -> float:
        """Factor on the softmax scale."""
        return 1.0

    def latent_softmax_factor(self) -> float:
        """The same in latent attention."""
        return self.softmax_factor()

    def shrink(self, d_head: int, was: int) -> Position:
        """The encoding of heads whose size was reduced from `was` to `d_head`."""
        return self


NO_POSITION = Position.model_construct()


class BlockSpec(Spec, ABC):
    """A part of a layer that takes tokens of the model's width and returns as many.

    axis_fields: axis of its weights in the graph -> the field that holds its size, for drawings.
    """

    kind: str
    axis_fields: ClassVar[Mapping[str, str]] = {}

    @property
    def label(self) -> str:
        """What the tables of `survey` call it."""
        return self.names(self.kind).label

    @abstractmethod
    def lower(self, b: Builder, x: Tensor, ctx: Context, name: str = "block") -> Tensor:
        """The block's operations on `x`, a tensor over T and D, under `name`; returns a tensor over T and D."""

    def declare(self, b: Builder, ctx: Context) -> None:
        """Declare what all layers of the stack share; nothing by default."""

    def widths(self) -> tuple[int, ...]:
        """Extents that tensor parallelism must divide: of the axes of the block's weights that it cuts."""
        return _widths(self)

    def replicated_heads(self) -> int:
        """Heads of which ranks hold whole copies where there are more ranks than heads; 1: any number of ranks."""
        return 1


@lru_cache(maxsize=1024)
def _widths(block: BlockSpec) -> tuple[int, ...]:
    from archsim.graph.passes.shard import cut_extents  # `count` of a model needs no sharding: cold start

    b, ctx = Builder(T=1, D=1, S=1, V=1), Context(Step.of())
    block.declare(b, ctx)
    block.lower(b, b.tensor("x", "T D"), ctx)
    return cut_extents(b.graph())


class AttentionSpec(BlockSpec):
    """Softmax attention over the tokens of a sequence, with `n_heads` query heads."""

    n_heads: Count

    caches_heads: ClassVar[bool] = True
    """Whether keys and values are cached head by head, so that their number is one of the design."""

    rotated: ClassVar[str] = "d_head"
    """The field with the width of the part of a head that positions rotate."""

    letters = {
        "n_heads": ("N", "heads"), "d_head": ("H", "head size"), "d_head_v": ("Hv", "value head size"),
        "q_rank": ("Qr", "query latent"), "kv_rank": ("R", "key/value latent"),
    }  # fmt: skip
    decisions = {
        "n_heads": "heads", "d_head": "head_size", "d_head_v": "head_size", "q_rank": "query_latent",
        "position": "position", "mask": "windows", "norm": "norm_type", "bias": "biases", "*": "attention_extras",
    }  # fmt: skip

    def lower_cross(self, b: Builder, x: Tensor, ctx: Context) -> Tensor:
        """Attention of decoder tokens over the encoder's output. Raises InvalidBlock where there is no such form."""
        raise InvalidBlock(f"`kind: {self.kind}` cannot be a layer's `cross_attention`")

    @property
    def kv_heads(self) -> int:
        """Key/value heads that are cached, or expanded from what is cached."""
        return self.n_heads

    @property
    def groups(self) -> int:
        """Query heads per key/value head."""
        return divide(self.n_heads, self.kv_heads)  # type: ignore[no-any-return]

    @property
    def head_size(self) -> int:
        """Width of a head's output."""
        return int(getattr(self, "d_head", 0))

    @property
    def borrows(self) -> bool:
        """Whether it takes the choice of keys of a layer before it."""
        return False

    @property
    def has_bias(self) -> bool:
        """Whether a projection to queries, keys or values has a bias."""
        return bool(getattr(self, "bias", False))

    @property
    def visible(self) -> MaskSpec:
        """The mask; causal where the class has no `mask`."""
        return getattr(self, "mask", None) or MaskSpec()

    @property
    def encoding(self) -> Position:
        """The position encoding inside the attention; without one, one that does nothing."""
        return getattr(self, "position", None) or NO_POSITION

    def tiny_fields(self) -> Changes:
        """Position encodings shrink with the heads that they rotate."""
        was = int(getattr(self, self.rotated, 0))
        if not self.encoding.rotated_size(was):
            return {}
        return {"position": self.encoding.shrink(min(was, tiny.LIMITS[self.rotated]), was)}


class MixerSpec(BlockSpec):
    """A recurrent or linear mixer of tokens: a state of constant size in place of a cache that grows."""

    decisions = {"*": "mixer_sizes"}
    letters = {
        "n_heads": ("N", "heads"), "d_head": ("H", "head size"), "d_inner": ("I", "inner width"),
        "d_state": ("S", "state size"),
    }  # fmt: skip

    @classmethod
    def fields_from(cls, other: Fields) -> Fields:
        """Sizes of one mixer mean something else in another."""
        return {}


class Experts(NamedTuple):
    """What the tokens of a layer are routed to: how many experts, of which each uses `per_token`, and the `shared` ones
    that all use. dense: a network stands beside them.
    """

    total: int
    per_token: int
    shared: int
    dense: bool


class FfnSpec(BlockSpec):
    """A feed-forward network, or several that tokens are routed to."""

    decisions = {"d_ff": "d_ff", "*": "ffn"}
    letters = {"d_ff": ("F", "feed-forward width")}

    @property
    def networks(self) -> tuple[FfnSpec, ...]:
        """The plain networks in it: itself, or the experts and what stands beside them."""
        return (self,)

    @property
    def inner_width(self) -> int:
        """Numbers that a token has between its first and its last matrix."""
        return int(getattr(self, "d_ff", 0))

    @property
    def experts(self) -> Experts | None:
        """What tokens are routed to; None where every token uses the whole network."""
        return None

    @property
    def activation_label(self) -> str:
        """The activation's name as tables print it."""
        return self.label


AttentionBlock = Annotated[AttentionSpec, OneOf("attention")]
MixerBlock = Annotated[MixerSpec, OneOf("mixer")]
FfnBlock = Annotated[FfnSpec, OneOf("ffn")]
PositionBlock = Annotated[Position, OneOf("position")]
