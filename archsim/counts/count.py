"""`archsim count`: what a model is made of, counted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.displayed import Tabular
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.notes import Note
from archsim.base.number import Num
from archsim.base.positive import check_positive
from archsim.counts import graph_counts as c
from archsim.counts.formats import Formats, choose_formats
from archsim.counts.images import Images, ImageWork
from archsim.counts.lowered_steps import shared_steps
from archsim.counts.towers import counted_towers, text_part_only, tower_bytes, tower_params, towers_to_dict
from archsim.counts.workload import checked_source
from archsim.graph.graph import Block, Op
from archsim.graph.step import Seqs, Step
from archsim.graph.tensor import nbytes, numel
from archsim.spec.equal_caches import with_equal_caches
from archsim.spec.lower import PARTS, lower
from archsim.spec.model import Model

EMBEDDINGS = frozenset({"embedding", "position", "head"})
ACTIVE = "total minus the routed experts that one token does not use; both embedding tables included"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCount:
    """One block of the model: repetitions in all, and its parameters, FLOP and weight bytes over all of them."""

    path: str
    count: int
    params: int
    flops: Num
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Flops:
    """FLOP of one forward pass by class; `total` = matmul + attention + conv."""

    matmul: Num
    attention: Num
    conv: Num
    elementwise: Num

    @property
    def total(self) -> Num:
        """All contractions."""
        return self.matmul + self.attention + self.conv

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        return {
            "total": self.total, "matmul": self.matmul, "attention": self.attention, "conv": self.conv,
            "elementwise": self.elementwise,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class CountResult(Tabular):
    """Exact counts of a model; see `docs/concepts.md` for each convention."""

    __repr__ = Tabular.__repr__

    model: Model
    formats: Formats
    total: int
    active: int
    embedding: int
    by_class: dict[str, int]
    weight_bytes: int
    kv_bytes_per_token: int
    kv_bytes: int
    state_bytes: int
    masked: Flops
    full: Flops
    blocks: tuple[BlockCount, ...]
    batch: int
    input_len: int
    extra: dict[str, int]
    images: ImageWork | None = None
    source_len: int | None = None

    @property
    def assumptions(self) -> tuple[Note, ...]:
        """What the counts rest on, and what of the checkpoint they leave out."""
        return (*self.formats.assumptions, *text_part_only(self.model, self.formats, self.extra))

    def to_dict(self) -> JsonObject:
        """The `archsim.count/1` object."""
        return {
            "schema": "archsim.count/1",
            "model": {"name": self.model.name, "architecture": self.model.architecture},
            "workload": {
                "batch": self.batch, "input_len": self.input_len,
                **({} if self.source_len is None else {"source_len": self.source_len}),
            },
            "params": {
                "total": self.total, "active": self.active, "embedding": self.embedding,
                "non_embedding": self.total - self.embedding, "active_convention": ACTIVE,
                "by_class": self.by_class, "extra": self.extra, "towers": tower_params(self.model),
            },
            "weights": {"bytes": self.weight_bytes, "format": self.formats.name},
            "towers": towers_to_dict(self.model, self.formats, self.extra),
            **({"images": self.images.to_dict()} if self.images else {}),
            "kv_cache": {
                "bytes_per_token": self.kv_bytes_per_token, "bytes": self.kv_bytes,
                "state_bytes": self.state_bytes, "format": self.formats.kv.name,
            },
            "flops": {"mac": c.MAC, "masked": self.masked.to_dict(), "full": self.full.to_dict()},
            "blocks": [
                {"path": b.path, "count": b.count, "params": b.params, "flops": b.flops, "bytes": b.bytes}
                for b in self.blocks
            ],
            "assumptions": [note.text for note in self.assumptions],
        }  # fmt: skip


def step_for(model: Model, batch: Num, new: Num, past: Num = 0, source: Num | None = None, **options: Any) -> Step:
    """A step of equal sequences; an encoder-decoder's source is as long as the prompt unless given."""
    if model.encoder is not None:
        options["source"] = (Seqs(batch, new if source is None else source, 0),)
    return Step.of(batch, new, past, **options)


def count(
    model: Model,
    *,
    batch: int = 1,
    input_len: int = 2048,
    weights: str | None = None,
    kv_cache_dtype: str | None = None,
    logits: str = "last",
    parts: Collection[str] = (),
    imatrix: bool | None = None,
    image: str | None = None,
    source_len: int | None = None,
) -> CountResult:
    """Parameters, bytes and FLOPs of a model.

    batch, input_len: the forward pass that FLOPs and `kv_bytes` are for. logits: head at the `last` position or
    at `all`. parts: optional modules to include (vision, audio, mtp, mlm-head). imatrix: whether a gguf file type
    was made with an importance matrix (None: if it needs one); other formats do not ask. image: size and number of the
    images of a request (`1024x768x2`): what the encoder makes of them. source_len: tokens of each source of an
    encoder-decoder, as long as the prompt unless given.
    """
    check_positive(batch=batch, input_len=input_len)
    if logits not in ("last", "all"):
        raise UsageError(f"`--logits` is `last` or `all`, not {logits!r}")

    source_len, parts = checked_source(model, source_len), checked_parts(parts)
    formats = choose_formats(model, weights, kv_cache_dtype, imatrix)
    last = logits == "last"

    def graph(step: Step) -> Block:
        return formats.apply(lower(model, step, parts))

    masked = graph(step_for(model, batch, input_len, source=source_len, last=last))
    full = graph(step_for(model, batch, input_len, source=source_len, last=last, masked=False))
    one = graph(step_for(model, 1, 1))
    towers = counted_towers(model, parts)
    total = c.params(masked) + sum(towers.values())
    state = c.state_bytes(one, role="recurrent")
    return CountResult(
        model=model, formats=formats, total=total, active=c.active_params(one) + sum(towers.values()),
        embedding=c.params(masked, where=lambda t: t.role in EMBEDDINGS), by_class=_by_class(masked),
        weight_bytes=c.weight_bytes(masked) + sum(tower_bytes(t, formats) for t in model.towers if t.name in towers),
        kv_bytes_per_token=kv_growth(model, formats), kv_bytes=c.state_bytes(masked) - batch * state,
        state_bytes=state, masked=flops_of(masked), full=flops_of(full), blocks=block_counts(masked),
        batch=batch, input_len=input_len, source_len=source_len, extra=towers,
        images=ImageWork.of(model, Images.parse(image)) if image is not None else None,
    )  # fmt: skip


def kv_growth(model: Model, formats: Formats) -> int:
    """Bytes that one more token of one sequence adds to the cache until a layer's window, where it has one, is full.

    State of one token less state of none, which leaves out what is constant (recurrent states, an
    encoder-decoder's cross-attention cache).
    """
    growth: int = c.state_bytes(caches_of_token(model, formats), role="kv")
    return growth


def caches_of_token(model: Model, formats: Formats) -> Block:
    """The graph of a first token with layers that cache alike as one: its caches are the model's, its weights not."""
    return formats.apply(shared_steps(with_equal_caches(model)).get(step_for(model, 1, 1)))


LONG = 1 << 40
"""Tokens of a context that no window spans."""


def growth_beyond_windows(model: Model, formats: Formats) -> int | None:
    """Bytes that one more token of one sequence adds on average once every window is full, of entries for several
    tokens their share; None where every layer keeps the whole context, so that `kv_growth` holds for any length.
    """
    graph = formats.apply(shared_steps(with_equal_caches(model)).get(step_for(model, 1, 1, LONG - 1)))
    later = round(c.state_bytes(graph, role="kv") / LONG)
    return later if later < kv_growth(model, formats) else None


def windows_note(model: Model, formats: Formats) -> str:
    """What stands behind a growth of the cache: until when it holds, and what follows; empty where it always holds."""
    later = growth_beyond_windows(model, formats)
    return "" if later is None else f", until windows are full, then {f'{later:,} B' if later else 'nothing'}"


def flops_of(graph: Block) -> Flops:
    """FLOP by class."""
    return Flops(
        matmul=c.flops(graph, "matmul"), attention=c.flops(graph, "attention"), conv=c.flops(graph, "conv"),
        elementwise=c.elementwise_flops(graph),
    )  # fmt: skip


def block_counts(graph: Block) -> tuple[BlockCount, ...]:
    """Every named block, outermost first, what it holds inside included; then what lies beside the blocks, such as the
    final norm. The outermost add up to the model.
    """
    items = c.inventory(graph)
    return (*_inner_blocks(graph, items), *_beside_blocks(graph, items))


def _inner_blocks(graph: Block, items: Sequence[c.Item]) -> Iterator[BlockCount]:
    """Every named block with all that is inside."""
    held = _items_inside(items)
    for block, times in c.by_block(graph):
        inside = held.get(block.name, ())
        flops = c.flops(block) * times // block.times if block.times else 0
        yield _block_count(block.name, times, inside, flops)


def _items_inside(items: Sequence[c.Item]) -> dict[str, list[c.Item]]:
    """Items under every path that their names begin with, in one pass however many blocks there are."""
    found: dict[str, list[c.Item]] = {}
    for item in items:
        end = item.tensor.name.find(".")
        while end > 0:
            found.setdefault(item.tensor.name[:end], []).append(item)
            end = item.tensor.name.find(".", end + 1)
    return found


def _block_count(path: str, times: Num, items: Sequence[c.Item], flops: Num) -> BlockCount:
    """A row of the list: learned parameters, and the bytes of buffers too."""
    params = sum(numel(i.tensor) * i.copies for i in items if c.is_learned(i.tensor))
    return BlockCount(
        path=path, count=times, params=params, flops=flops, bytes=round(sum(nbytes(i.tensor, i.copies) for i in items))
    )  # fmt: skip


def _beside_blocks(graph: Block, items: Sequence[c.Item]) -> Iterator[BlockCount]:
    """The model's own tensors and contractions that are in no block, by the first word of their names."""
    blocks = {block.name for block in graph.body if isinstance(block, Block)}
    held: dict[str, list[c.Item]] = {}
    for item in items:
        if (first := item.tensor.name.partition(".")[0]) not in blocks:
            held.setdefault(first, []).append(item)
    work: dict[str, Num] = {}
    for op in graph.body:
        if isinstance(op, Op) and op.kind == "contract":
            first = op.name.partition(".")[0]
            work[first] = work.get(first, 0) + c.op_flops(op)
    for name in dict.fromkeys((*held, *work)):
        yield _block_count(name, 1, held.get(name, ()), work.get(name, 0))


def _by_class(graph: Block) -> dict[str, int]:
    classes: dict[str, int] = {}
    for item in c.inventory(graph):
        if c.is_learned(item.tensor):
            role = item.tensor.role
            classes[role] = classes.get(role, 0) + numel(item.tensor) * item.copies
    return dict(sorted(classes.items()))


def checked_parts(parts: str | Collection[str]) -> tuple[str, ...]:
    """Optional parts of `--with`, a list or comma-separated, in the catalog's order. Raises UsageError for another."""
    named = parts.split(",") if isinstance(parts, str) else parts
    asked = [part.strip().lower().replace("_", "-") for part in named if part.strip()]
    for part in asked:
        if part not in PARTS:
            raise UsageError(f"no optional part {quote(part)}", hints=("known: " + ", ".join(PARTS),))
    return tuple(part for part in PARTS if part in asked)
