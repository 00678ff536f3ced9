"""What is inside a block: its matrices, norms and caches with their sizes, as a picture of its op graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from archsim.blocks.block import BlockSpec, FfnSpec
from archsim.graph.step import Mask
from archsim.render.drawing.canvas import PAD, RISE, Canvas, Line, Picture, box_size, folded
from archsim.render.drawing.column import MOST_KINDS, hover
from archsim.render.drawing.flow import Flow, Step, flow_of
from archsim.render.drawing.layout import arrange
from archsim.render.drawing.masks import experts_picture, mask_picture
from archsim.render.drawing.plan import Plan, StackPlan
from archsim.render.drawing.stack import LayerKind
from archsim.render.drawing.tally import Amount
from archsim.render.drawing.wires import draw_net
from archsim.render.drawing.words import humanize, inner_step, mask_lines, part_of, spec_of

ROOM = 190.0
"""Widest text of a box."""

STYLES = {"linear": "attention", "conv": "attention", "core": "cross", "part": "ffn", "block": "ffn"}
"""Kind of a box -> how it looks."""

FEWEST = 3
"""Boxes below which a block has no picture of its own; one with experts always has."""


@dataclass(frozen=True, slots=True)
class Panel:
    """The picture of a block. letters: kinds of layers that have it."""

    title: str
    letters: tuple[str, ...]
    picture: Picture


@dataclass(frozen=True, slots=True)
class _Inside:
    """A block of one kind of layer, as it is drawn. shape: what it says without shares; same shapes are drawn once."""

    title: str
    letter: str
    spec: BlockSpec | None
    flow: Flow
    amounts: dict[str, Amount]
    shape: str


def panels(plan: Plan, stack: StackPlan) -> list[Panel]:
    """A picture of each block of a stack that differs from the others."""
    shapes: dict[str, list[_Inside]] = {}
    for kind in stack.kinds[:MOST_KINDS]:
        for one in _insides(plan, stack, kind):
            shapes.setdefault(one.shape, []).append(one)
    return [_panel(plan, stack.side, same) for same in shapes.values()]


def _insides(plan: Plan, stack: StackPlan, kind: LayerKind) -> Iterator[_Inside]:
    """The blocks of a layer that have something to show."""
    twins = kind.twins(plan.tally)
    for step in flow_of(kind.blocks[0]).steps.values():
        if step.kind != "block" or step.block is None:
            continue
        spec = spec_of(kind.layer, step)
        flow = flow_of(step.block, by_part=isinstance(spec, FfnSpec) and spec.experts is not None)
        parts = any(inner.kind == "part" for inner in flow.steps.values())
        if not parts and len([inner for inner in flow.steps.values() if inner.kind != "input"]) < FEWEST:
            continue
        amounts = {key: twins.of(inner.ops) for key, inner in flow.steps.items()}
        title = _title(stack.side, spec, step)
        lines = [title, *_shape(plan, stack.side, spec, flow, amounts)]
        yield _Inside(title, kind.letter, spec, flow, amounts, "\n".join(lines))


def _shape(plan: Plan, side: str, spec: BlockSpec | None, flow: Flow, amounts: Mapping[str, Amount]) -> Iterator[str]:
    """What the boxes say, without shares of FLOP and without masks, of which one picture shows several."""
    for key, step in flow.steps.items():
        plain = Amount(single=amounts[key].single)
        hidden = mask_lines(spec, step)
        for line in inner_step(plan, side, spec, step, plain):
            if line not in hidden:
                yield line.text


def _title(side: str, spec: BlockSpec | None, step: Step) -> str:
    if spec is None:
        return humanize(step.name)
    if part_of(step) == "cross_attention":
        return f"Cross-attention ({spec.label})"
    name = spec.names(spec.kind).title
    return f"{side.capitalize()}{name[:1].lower()}{name[1:]}" if side else name


def _panel(plan: Plan, side: str, same: Sequence[_Inside]) -> Panel:
    """The picture of a block that several kinds of layers have; shares are of all of them."""
    first = same[0]
    flow, sums = first.flow, _summed(same)
    texts: dict[str, list[Line]] = {}
    sizes: dict[str, tuple[float, float]] = {}
    inlays: dict[str, Picture] = {}
    for place, (key, step) in enumerate(flow.steps.items()):
        lines = inner_step(plan, side, first.spec, step, sums[key])
        if len(_masks(same, place)) > 1:
            lines = [line for line in lines if line not in mask_lines(first.spec, step)]
        texts[key] = folded(lines, ROOM)
        inlay = _inlay(same, step, place)
        if inlay is not None:
            inlays[key] = inlay
        sizes[key] = _size(step, texts[key], inlay)
    layout = arrange(sizes, flow.lines())
    canvas = Canvas()
    draw_net(canvas, flow, layout, sizes)
    for key, step in flow.steps.items():
        left, top = layout.centres[key] - sizes[key][0] / 2, layout.tops[key]
        _draw(canvas, step, (left, top, *sizes[key]), texts[key], inlays.get(key), hover(step.name, sums[key]))
    return Panel(first.title, tuple(one.letter for one in same), canvas.done(layout.width, layout.height))


def _summed(same: Sequence[_Inside]) -> dict[str, Amount]:
    """Amounts of the boxes over all that are the same; `single` is one layer's."""
    rows = zip(*(one.amounts.values() for one in same), strict=True)
    sums = [Amount(sum(a.params for a in row), row[0].single, sum(a.flops for a in row)) for row in rows]
    return dict(zip(same[0].amounts, sums, strict=True))


def _masks(same: Sequence[_Inside], place: int) -> dict[str, tuple[str, Mask]]:
    """The masks of a box of softmax attention: words -> letters of the kinds of layers that have it, and the mask."""
    found: dict[str, tuple[str, Mask]] = {}
    for one in same:
        step = list(one.flow.steps.values())[place]
        softmax = next((op for op in step.ops if op.fn == "softmax"), None) if step.kind == "core" else None
        mask = softmax.attrs.get("mask") if softmax is not None else None
        if isinstance(mask, Mask):
            words = " ".join(line.text for line in mask_lines(one.spec, step))
            letters = ", ".join(part for part in (found.get(words, ("", mask))[0], one.letter) if part)
            found[words] = letters, mask
    return found


def _inlay(same: Sequence[_Inside], step: Step, place: int) -> Picture | None:
    """The picture in a box: the masks of softmax attention, or the experts."""
    masks, spec = _masks(same, place), same[0].spec
    if len(masks) == 1:
        return mask_picture(next(iter(masks.values()))[1])
    if masks:
        return _masks_picture(masks)
    experts = spec.experts if isinstance(spec, FfnSpec) else None
    if experts is not None and any(op.fn == "dispatch" for op in step.ops):
        return experts_picture(experts.total, experts.per_token)
    return None


def _masks_picture(masks: Mapping[str, tuple[str, Mask]]) -> Picture:
    """Masks beside each other, each under the kinds of layers that have it."""
    canvas, x, height = Canvas(), 0.0, 0.0
    for words, (letters, mask) in masks.items():
        picture = mask_picture(mask)
        lines = folded([Line(f"{letters}: {words}", dim=True)], max(picture.width, 92))
        width = max(box_size(lines, 200)[0] - 2 * PAD, picture.width)
        for i, line in enumerate(lines):
            canvas.text(x, 10 + 13 * i, line.text, "s")
        canvas.group(x, 16 + 13 * (len(lines) - 1), picture)
        height = max(height, 16 + 13 * (len(lines) - 1) + picture.height)
        x += width + 14
    return canvas.done(x - 14, height)


def _size(step: Step, lines: Sequence[Line], inlay: Picture | None) -> tuple[float, float]:
    if step.kind in ("plus", "times"):
        return 16.0, 16.0
    width, height = box_size(lines, ROOM)
    if inlay is not None:
        width, height = max(width, inlay.width + 2 * PAD), height + inlay.height + 6
    return max(width, 40.0), height


def _draw(
    canvas: Canvas, step: Step, place: tuple[float, float, float, float], lines: Sequence[Line],
    inlay: Picture | None, remark: tuple[str, str],
) -> None:  # fmt: skip
    left, top, width, height = place
    if step.kind in ("plus", "times"):
        canvas.sum(left + width / 2, top + height / 2, step.kind)
        return
    style = STYLES.get(step.kind, step.kind)
    canvas.box(left, top, width, height, lines, style, remark[0])
    if inlay is not None:
        canvas.group(left + (width - inlay.width) / 2, top + RISE * len(lines) + PAD, inlay)
