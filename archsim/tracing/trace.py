"""A module captured at two lengths, checked at a third, and made a model."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import torch

from archsim.base.errors import UsageError
from archsim.counts.graph_counts import flops, params
from archsim.graph.step import Step
from archsim.tracing.build import Module, attention_hints
from archsim.tracing.capture import Call, Capture, Record, TooManyOperations, Uncaptured, Value, capture, refuse_data
from archsim.tracing.emit import Emitter
from archsim.tracing.fold import Different, Point, aligned, folded
from archsim.tracing.inputs import parts
from archsim.tracing.model import Graphs, TracedModel, most_repeats
from archsim.tracing.parts import with_parts
from archsim.tracing.sizes import Reader, UnknownSize
from archsim.tracing.template import BlockTemplate, graph_of
from archsim.tracing.untyped import Untyped
from archsim.tracing.writer import CONVOLUTIONS, PRODUCTS, Facts, Kept

POINTS = (Point(2, 256), Point(3, 512))
"""Where modules are captured: lengths are multiples of the chunks that linear attention works in."""

SHORT = (Point(2, 12), Point(3, 24))
"""Where modules are captured that loop over every token."""


class Pair(NamedTuple):
    """Captures at two points."""

    first: Capture
    second: Capture
    points: tuple[Point, Point]


class Uneven(UsageError):
    """Captures of several lengths do other work than follows from each other."""


def trace(module: Module) -> TracedModel:
    """The model of a module. Raises UsageError where no forward pass can be captured, which is what the plainest choice
    of arguments ends in.
    """
    first: Uncaptured | None = None
    for choice in module.choices:
        try:
            return _at_some_lengths(choice)
        except Uncaptured as error:
            first = first or error
    assert first is not None
    raise first


def _at_some_lengths(module: Module) -> TracedModel:
    """The model of a module with its arguments, from captures at the usual lengths, at longer ones, or at shorter ones
    where nothing says how many positions the module has.
    """
    points = _points(module)
    try:
        return _traced(module, points)
    except Uncaptured:
        if module.config is not None:
            raise
        shorter = _shorter(module, points)
        if shorter is None:
            raise
        return _traced(module, shorter)
    except (Uneven, UnknownSize):  # windows that only longer texts fill; as many chunks as sequences
        longer = tuple(Point(p.batch, LONGER * p.new) for p in points)
        if _most_tokens(module) < sum(p.new for p in longer):
            raise
        return _traced(module, (longer[0], longer[1]))


LONGER = 4
"""How much longer the texts of a second try are."""


def _shorter(module: Module, points: tuple[Point, Point]) -> tuple[Point, Point] | None:
    """The longest texts below the usual ones for which a forward pass can be captured; None where there are none."""
    first, second = _halved(points)
    while second.new >= SHORTEST:
        try:
            _run(module, second)
        except (Uncaptured, TooManyOperations):
            first, second = _halved((first, second))
        else:
            return first, second
    return None


def _halved(points: tuple[Point, Point]) -> tuple[Point, Point]:
    """As many sequences, half as long."""
    first, second = points
    return Point(first.batch, first.new // 2), Point(second.batch, second.new // 2)


def _most_tokens(module: Module) -> int:
    """Tokens that a module has positions for; many where it does not say."""
    limits = [getattr(part, name, None) for part in parts(module.config) for name in POSITIONS]
    return min((limit for limit in limits if isinstance(limit, int) and limit > 0), default=2**20)


POSITIONS = ("max_position_embeddings", "max_seq_len")
"""Keys of configs for the most tokens of a text (the second is MPT's)."""


def _points(module: Module) -> tuple[Point, Point]:
    """Where a module is captured: at shorter lengths where it has few positions."""
    points = POINTS
    while points[1].new >= max(_most_tokens(module), SHORTEST):
        points = _halved(points)
    return points


SHORTEST = 32


def _traced(module: Module, points: tuple[Point, Point]) -> TracedModel:
    """The model of a module, from captures at two points."""
    pair = _prompts(module, points)
    caches = _caches(module, pair)
    prefill = _template(module, pair, caches)
    _check(module, prefill[0], pair)
    decode = _decode(module, pair, prefill[0], caches) if caches else None
    return _model(module, prefill[0], decode, prefill[1], bool(caches))


def _prompts(module: Module, points: tuple[Point, Point]) -> Pair:
    try:
        first, second = (_run(module, point) for point in points)
        return Pair(first, second, points)
    except TooManyOperations:
        first, second = (_run(module, point) for point in SHORT)
        return Pair(first, second, SHORT)


def _run(module: Module, point: Point, cache: tuple[str, Untyped] | None = None) -> Capture:
    """One capture. Raises UsageError for what does not run without data."""
    given = module.inputs(point.batch, point.new, cache)
    try:
        return capture(module.net, lambda: module.net(**given), attention_hints(module))
    except TooManyOperations:
        raise
    except Exception as error:
        raise refuse_data(error, module.name) from None


def _check(module: Module, prefill: BlockTemplate, pair: Pair) -> None:
    """Refuses a template that does not count what a third capture does, at another length."""
    longer, between = pair.points[0].new + pair.points[1].new, pair.points[1].new - pair.points[0].new // 2
    point = Point(1, longer if _most_tokens(module) >= longer else between)
    try:
        third = _run(module, point)
    except Uncaptured:  # more tokens than there are positions
        if module.config is not None:
            raise
        point = Point(1, between)
        third = _run(module, point)
    wanted = captured_flops(third.root)
    found = flops(graph_of(prefill, Step.of(point.batch, point.new, masked=False, last=False)))
    if found != wanted:
        text = f"the FLOPs of {module.name} at {point.new} tokens are {wanted:,}, not the {found:,} that follow from"
        raise Uneven(f"{text} {pair.points[0].new} and {pair.points[1].new} tokens")


# ---------------------------------------------------------------------- caches
def _caches(module: Module, pair: Pair) -> dict[int, list[Kept]]:
    """What the first capture kept, by the root that holds its numbers."""
    kept = [module.cache_of(found.result) for found in (pair.first, pair.second)]
    if kept[0] is None or kept[1] is None:
        return {}
    found: dict[int, list[Kept]] = {}
    for a, b in zip(_tensors(kept[0][1]), _tensors(kept[1][1]), strict=False):
        value = pair.first.value(a)
        if value is not None and value.root.made is not None:
            found.setdefault(id(value.root), []).append(_kept(value, tuple(b.shape), pair.points))
    return found


def _kept(value: Value, other: tuple[int, ...], points: tuple[Point, Point]) -> Kept:
    """How one tensor grows. A cache that keeps a window of its tokens may be as long at both points."""
    first, length = points[0], points[0].past + points[0].new
    sequences = first.batch if value.shape[0] % first.batch == 0 else 1
    if value.shape[1:] != other[1:]:
        return Kept(True, prod(value.shape) // (sequences * length))
    width = value.shape[1] * value.shape[-1]
    windowed = len(value.shape) == 4 and prod(value.root.shape) % (sequences * length * width) == 0
    return Kept(True, width) if windowed else Kept(False, prod(value.shape) // sequences)


def _tensors(kept: Untyped, depth: int = 4) -> list[torch.Tensor]:
    """Tensors of numbers in an object and what it holds."""
    if isinstance(kept, torch.Tensor):
        return [kept] if kept.is_floating_point() and kept.dim() > 1 else []
    if depth == 0 or isinstance(kept, (str, int, float, type(None), torch.dtype, torch.device)):
        return []
    if isinstance(kept, dict):
        parts: list[Untyped] = list(kept.values())
    elif isinstance(kept, (list, tuple)):
        parts = list(kept)
    else:
        parts = [v for name, v in vars(kept).items() if name != "config"] if hasattr(kept, "__dict__") else []
    return [tensor for part in parts for tensor in _tensors(part, depth - 1)]


# ---------------------------------------------------------------------- templates
def _template(
    module: Module, pair: Pair, caches: dict[int, list[Kept]], decode: bool = False
) -> tuple[BlockTemplate, Reader]:
    items = folded(pair.first.root)
    try:
        both = aligned(items, folded(pair.second.root), pair.points)
    except Different:
        text = f"{module.name} runs other operations at {pair.points[0].new} tokens than at {pair.points[1].new}"
        raise Uneven(text) from None
    shapes = {name: tuple(p.shape) for name, p in module.net.named_parameters()}
    reader = Reader(*_widths(pair.first.root, shapes), decode)
    causal = bool(caches) or decode
    return with_parts(Emitter(both, reader, Facts(shapes, caches, causal)).template()), reader


def _widths(root: Call, shapes: dict[str, tuple[int, ...]]) -> tuple[int, int]:
    """Width of the model and size of its vocabulary: of the first table that is looked up in, else of products."""
    for record in root.records():
        if record.name == "embedding" and record.reads[0].root.param:
            rows, width = shapes[record.reads[0].root.param]
            return width, rows
    widths = [record.writes[0].shape[-1] for record in root.records() if record.name in ("mm", "addmm")]
    return (max(set(widths), key=widths.count) if widths else 1), 0


def _decode(module: Module, pair: Pair, prefill: BlockTemplate, caches: dict[int, list[Kept]]) -> BlockTemplate | None:
    """The template of a decode step where it does not compute what a prompt of one token does. Attention alone is not
    compared: caches of a window differ by a token in how much they keep.
    """
    points = tuple(Point(p.batch, 1, p.new) for p in pair.points)
    kept = [module.cache_of(found.result) for found in (pair.first, pair.second)]
    first = _run(module, points[0], kept[0])
    wanted = captured_flops(first.root)
    step = Step.of(points[0].batch, 1, points[0].past, masked=False, last=False)
    if flops(graph_of(prefill, step)) == wanted:
        return None
    second = _run(module, points[1], kept[1])
    again = Pair(first, second, (points[0], points[1]))
    return _template(module, again, _caches(module, again), decode=True)[0]


def captured_flops(root: Call) -> int:
    """FLOP of the products of a capture, 2 a multiply-add, as torch's FlopCounterMode counts them."""
    return sum(record_flops(record) for record in root.records())


def record_flops(record: Record) -> int:
    """FLOP of one operation."""
    out = record.writes[0].shape
    size = 1
    for n in out:
        size *= n
    if record.name == "attention":
        q, k, v = (value.shape for value in record.reads[:3])
        return 2 * q[0] * q[1] * q[2] * k[-2] * (q[-1] + v[-1])
    if record.name in CONVOLUTIONS:
        weight = record.reads[1].shape
        per = 1
        for n in weight[1:]:
            per *= n
        return 2 * size * per
    if record.name not in PRODUCTS:
        return 0
    at = 1 if record.name in ("addmm", "baddbmm", "addmv") else 0
    return 2 * size * record.reads[at].shape[-1]


# ---------------------------------------------------------------------- the model
def _model(
    module: Module, prefill: BlockTemplate, decode: BlockTemplate | None, reader: Reader, cached: bool
) -> TracedModel:
    """The document of a traced model."""
    document: dict[str, Untyped] = {
        "name": module.name, "architecture": "decoder" if cached else "encoder", "d_model": reader.d_model,
        "vocab_size": max(reader.vocabulary, 1), "layers": [{"ffn": {"kind": "mlp", "d_ff": 1}}],
        "weights": _formats(module),
    }  # fmt: skip
    length = getattr(module.config, "max_position_embeddings", None) if module.config is not None else None
    if isinstance(length, int) and length > 0:
        document["max_context"] = length
    graphs = Graphs(prefill, decode, most_repeats(prefill))
    model = TracedModel.model_validate(document).model_copy(update={"_graphs": graphs})
    total = sum(p.numel() for p in module.net.parameters())
    counted = params(model.traced_graph(Step.of(1, 1)))
    if counted != total:
        raise UsageError(f"{module.name} has {total:,} parameters, of which the capture accounts for {counted:,}")
    return model


NAMES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def _formats(module: Module) -> dict[str, str]:
    """The format that most parameters are in; of a config the one that it names."""
    if module.default is not None:
        return {"default": NAMES.get(module.default, "bf16")}
    sizes: dict[str, int] = {}
    for p in module.net.parameters():
        name = str(p.dtype).removeprefix("torch.")
        sizes[name] = sizes.get(name, 0) + p.numel()
    usual = max(sizes, key=lambda name: sizes[name], default="float32")
    return {"default": NAMES.get(usual, "fp32")}
