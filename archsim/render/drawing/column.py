"""A stack as a column: from the tokens down to the output, with every kind of layer drawn once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from archsim.graph.graph import Block, Node, Op, ops
from archsim.render.drawing.canvas import PAD, RISE, Canvas, Line, Picture, box_size, folded
from archsim.render.drawing.flow import Flow, Step, flow_of, joined
from archsim.render.drawing.layout import Layout, arrange
from archsim.render.drawing.masks import MOST_LAYERS, pattern_picture
from archsim.render.drawing.plan import Plan, StackPlan, amount_text
from archsim.render.drawing.stack import LayerKind, pattern, sequence
from archsim.render.drawing.tally import Amount
from archsim.render.drawing.traits import wiring
from archsim.render.drawing.wires import draw_stream
from archsim.render.drawing.words import Marks, layer_step, part_of, root_step

BOX = 276.0
"""Width of a box on the stream."""

EDGE = 10.0
MOST_KINDS = 8
"""Kinds of layers that are drawn; of more, the rest has one box."""


@dataclass(slots=True)
class Column:
    """A drawn stack. spine: where the stream runs; links: heights at which the encoder's output enters; entry: where
    the stream enters the layers.
    """

    picture: Picture
    spine: float
    entry: float
    links: list[float] = field(default_factory=list)


@dataclass(slots=True)
class _Frame:
    """A kind of layer, laid out but not yet drawn."""

    kind: LayerKind
    flow: Flow
    raw: dict[str, list[Line]]
    texts: dict[str, list[Line]]
    amounts: dict[str, Amount]
    sizes: dict[str, tuple[float, float]]
    layout: Layout

    @property
    def spine(self) -> float:
        """Where the stream runs, from the left of the layout."""
        stream = [key for key, step in self.flow.steps.items() if step.kind == "input" and not step.outside]
        return self.layout.centres[stream[0]] if stream else self.layout.width / 2


def column(plan: Plan, stack: StackPlan, marked: Marks, title: str = "") -> Column:
    """The stack from its embedding to its end."""
    frames = [_lay_out(plan, stack, kind, marked) for kind in stack.kinds[:MOST_KINDS]]
    shown: list[_Frame] = []
    likes = {id(frame): _like(frame, shown) for frame in frames}
    left = max([BOX / 2, *(frame.spine for frame in shown)]) + 2 * EDGE
    right = max([BOX / 2, *(frame.layout.width - frame.spine for frame in shown)]) + 2 * EDGE
    pen = _Pen(plan, stack, marked, left, left + right)
    if title:
        pen.heading(title)
    pen.roots(stack.before)
    entry = pen.y + 8
    top = pen.open(stack) if stack.kinds else 0.0
    for frame in frames:
        like = likes[id(frame)]
        if like is None:
            pen.frame(frame, len(stack.kinds) > 1)
        else:
            pen.variant(frame, *like)
    pen.rest(stack.kinds[MOST_KINDS:])
    pen.roots(stack.rounds)
    if stack.kinds:
        pen.close(top)
    pen.roots(stack.after)
    return Column(pen.canvas.done(left + right, pen.y + 4), left, entry, pen.links)


STYLES = {"attention": "attention", "cross_attention": "cross", "mixer": "mixer", "ffn": "ffn"}
"""Field of a layer -> how its box looks."""

FEW = 6
"""Lines by which a kind of layer may differ from one that is drawn, to be told instead of drawn."""


def _like(frame: _Frame, shown: list[_Frame]) -> tuple[_Frame, list[Line]] | None:
    """The drawn kind that this one is like, and the lines that say how it differs; None where it must be drawn itself,
    which adds it to those that are."""
    for other in shown:
        pairs = list(zip(other.flow.steps.values(), frame.flow.steps.values(), strict=False))
        same = len(other.flow.steps) == len(frame.flow.steps) and all(
            a.kind == b.kind and (not other.raw.get(a.key) or other.raw[a.key][0].text == frame.raw[b.key][0].text)
            for a, b in pairs if a.kind != "norm"
        )  # fmt: skip
        if not same or wiring(other.kind.layer) != wiring(frame.kind.layer):
            continue
        lines = [line for a, b in pairs for line in _news(other.raw.get(a.key, []), frame.raw.get(b.key, []))]
        if len(lines) <= FEW:
            return other, lines
    shown.append(frame)
    return None


def _news(before: Sequence[Line], lines: Sequence[Line]) -> list[Line]:
    had, has = ({line.text for line in each if not line.dim} for each in (before, lines))
    new = [line for line in lines if not line.dim and not line.bold and line.text not in had and " · " not in line.text]
    gone = [
        line for line in before if not line.dim and not line.bold and line.text not in has and " · " not in line.text
    ]
    return [*new, *(Line(f"without {line.text}") for line in gone)]


def _lay_out(plan: Plan, stack: StackPlan, kind: LayerKind, marked: Marks) -> _Frame:
    flow = joined(flow_of(kind.blocks[0]))
    twins = kind.twins(plan.tally)
    _drop_outside(flow)
    amounts = {key: twins.of(step.ops) for key, step in flow.steps.items()}
    beside = _beside(flow)
    raw: dict[str, list[Line]] = {}
    texts: dict[str, list[Line]] = {}
    sizes: dict[str, tuple[float, float]] = {}
    for key, step in flow.steps.items():
        if step.kind in ("plus", "times"):
            sizes[key] = (16.0, 16.0)
        elif step.kind == "input":
            sizes[key] = (6.0, 6.0)
        else:
            width = BOX if key not in beside else (BOX - 14) / 2
            lines = layer_step(plan, stack.side, kind.layer, step, amount_text(plan, amounts[key], kind.count), marked)
            raw[key], texts[key] = lines, folded(lines, width - 2 * PAD, most=5)
            plain = step.kind != "block" and key in beside
            sizes[key] = box_size(texts[key], width - 2 * PAD) if plain else (width, RISE * len(texts[key]) + PAD)
    layout = arrange(sizes, flow.lines(), gap=14, step=18, spine=True)
    return _Frame(kind, flow, raw, texts, amounts, sizes, layout)


def _drop_outside(flow: Flow) -> None:
    """Without what comes from outside of the layer, which is drawn as a line from there."""
    for key in [key for key, step in flow.steps.items() if step.outside]:
        del flow.steps[key]
        flow.edges = {edge: None for edge in flow.edges if edge[0] != key}


def _beside(flow: Flow) -> set[str]:
    """Boxes that stand in one row with another."""
    names = list(flow.steps)
    drawn = arrange(dict.fromkeys(names, (1.0, 1.0)), flow.lines(), spine=True)
    rows: dict[float, list[str]] = {}
    for name in names:
        rows.setdefault(drawn.tops[name], []).append(name)
    return {name for row in rows.values() if len(row) > 1 for name in row}


class _Pen:
    """Draws a column from top to bottom."""

    def __init__(self, plan: Plan, stack: StackPlan, marked: Marks, spine: float, width: float) -> None:
        self.plan, self.stack, self.marked = plan, stack, marked
        self.spine, self.width = spine, width
        self.canvas, self.y = Canvas(), 0.0
        self.links: list[float] = []
        self.first = True

    def heading(self, text: str) -> None:
        """What the column is."""
        self.canvas.text(self.spine, self.y + 13, text, "h m")
        self.y += 22

    def roots(self, nodes: Sequence[Node]) -> None:
        """What stands before or behind the layers."""
        for step in flow_of(Block(name="", body=tuple(nodes))).steps.values():
            if step.kind in ("input", "idle") and not step.ops:
                continue
            amount = self.plan.tally.of(step.ops)
            if not amount.params and step.kind not in ("block", "norm") and not amount.flops:
                continue  # a view or a sum says nothing here
            lines = root_step(self.plan, self.stack, step, amount, self.marked)
            self._arrow()
            self._box(step, lines, amount, "norm" if step.kind == "norm" else "end")

    def _arrow(self, length: float = 16.0) -> None:
        if not self.first:
            self.canvas.wire(f"M{self.spine:.1f} {self.y:.1f}v{length:g}")
            self.canvas.tip(self.spine, self.y + length)
            self.y += length
        self.first = False

    def _box(self, step: Step, lines: Sequence[Line], amount: Amount, kind: str) -> None:
        shown = folded(lines, BOX - 2 * PAD)
        height = RISE * len(shown) + PAD
        self.canvas.box(self.spine - BOX / 2, self.y, BOX, height, shown, kind, *hover(step.name, amount))
        self.y += height

    def open(self, stack: StackPlan) -> float:
        """The frame around all layers begins: how many there are and in which order they come. Its top."""
        self._arrow()
        top = self.y
        total = self.plan.tally.of(*(op for kind in stack.kinds for op in _ops_of(kind)))
        words = f"{stack.depth:,} layers" if stack.depth > 1 else "1 layer"
        differs = (f"{stack.side}layers", f"{stack.depth:,} in all") in self.marked
        held = amount_text(self.plan, total)
        x, room = 2 * EDGE, self.width - 4 * EDGE
        for line in folded([Line(words, bold=True, marked=differs), Line(held, dim=True)], room):
            self.canvas.text(x, self.y + 16, line.text, "b" if line.bold else "s")
            self.y += RISE
        if len(stack.kinds) > 1:
            self._pattern(stack, x, room)
        self.y += 6
        return top

    def _pattern(self, stack: StackPlan, x: float, room: float) -> None:
        said = pattern(stack.layers, stack.kinds, self.plan.blocks, stack.prefix)
        lines = folded([Line(said)], room, most=99)
        for line in lines if len(lines) < 3 else ():
            self.canvas.text(x, self.y + 16, line.text)
            self.y += RISE
        letters = sequence(stack.layers, stack.kinds, stack.prefix, MOST_LAYERS)
        picture = pattern_picture(letters, [kind.letter for kind in stack.kinds], room)
        self.canvas.group(x, self.y + 8, picture)
        self.y += picture.height + 8

    def close(self, top: float) -> None:
        """The frame around all layers ends."""
        self.y += 8
        self._frame(EDGE / 2, top, self.width - EDGE)

    def _frame(self, x: float, top: float, width: float) -> None:
        self.canvas.put(
            f'<rect class="loop" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" height="{self.y - top:.1f}" rx="7"/>'
        )

    def frame(self, frame: _Frame, lettered: bool) -> None:
        """One kind of layer."""
        top = self.y
        kind = frame.kind
        if lettered:
            self.y += 4
            self._kind_heading(kind)
        elif wiring(kind.layer):
            self.canvas.text(2 * EDGE, self.y + 12, wiring(kind.layer)[2:-1], "s")
            self.y += 16
        x, y = self.spine - frame.spine, self.y + 4
        inner = Canvas()
        draw_stream(inner, frame.flow, frame.layout, frame.sizes)
        for key, step in frame.flow.steps.items():
            self._step(inner, frame, key, step, y)
        self.canvas.group(x, y, inner.done(0, 0))
        self.y = y + frame.layout.height + 8
        self.canvas.wire(f"M{self.spine:.1f} {self.y - 8:.1f}v8")
        if lettered:
            self._frame(EDGE, top + 2, self.width - 2 * EDGE)
            self.y += 6

    def variant(self, frame: _Frame, like: _Frame, lines: Sequence[Line]) -> None:
        """A kind of layer that differs from a drawn one in a few lines."""
        kind = frame.kind
        amount = sum(frame.amounts.values(), Amount())
        layers = f"{kind.count:,} layer{'s' if kind.count > 1 else ''}"
        said = [Line(f"{kind.letter}: {layers}, as {like.kind.letter}, but", bold=True), *lines]
        shown = folded([*said, Line(amount_text(self.plan, amount, kind.count), dim=True)], BOX - 2 * PAD)
        height = RISE * len(shown) + PAD
        order = [each.letter for each in self.stack.kinds]
        self.y += 6
        self.canvas.box(
            self.spine - BOX / 2, self.y, BOX, height, shown, "end", *hover(f"layers {kind.letter}", amount)
        )
        self.canvas.put(
            f'<rect class="k{order.index(kind.letter) % 6}" x="{self.spine - BOX / 2 - 14:.1f}" y="{self.y + 5:.1f}" '
            'width="11" height="11" rx="2"/>'
        )
        self.y += height + 4

    def _kind_heading(self, kind: LayerKind) -> None:
        order = [each.letter for each in self.stack.kinds]
        x = 2 * EDGE
        self.canvas.put(
            f'<rect class="k{order.index(kind.letter) % 6}" x="{x:g}" y="{self.y + 5:.1f}" width="11" height="11" '
            'rx="2"/>'
        )
        words = f"{kind.letter}: {kind.count:,} layer{'s' if kind.count > 1 else ''}{wiring(kind.layer)}"
        for line in folded([Line(words, bold=True)], self.width - 4 * EDGE - 18):
            self.canvas.text(x + 18, self.y + 15, line.text, "b")
            self.y += RISE
        self.y += 5

    def _step(self, inner: Canvas, frame: _Frame, key: str, step: Step, top: float) -> None:
        x, y = frame.layout.centres[key], frame.layout.tops[key]
        width, height = frame.sizes[key]
        remark, data = hover(step.name, frame.amounts[key])
        if step.kind in ("plus", "times"):
            inner.sum(x, y + height / 2, step.kind, step.name.replace("_", " "))
            if frame.amounts[key].params:
                inner.put(f"<g{data}/>")
        elif step.kind == "input":
            inner.put(f'<circle class="dot" cx="{x:.1f}" cy="{y + 3:.1f}" r="3"/>')
        else:
            part = part_of(step)
            style = STYLES.get(part, step.kind)
            inner.box(x - width / 2, y, width, height, frame.texts[key], style, remark, data)
            if part == "cross_attention":
                self.links.append(top + y + height / 2)

    def rest(self, kinds: Sequence[LayerKind]) -> None:
        """One box for the kinds beyond the most that are drawn."""
        if not kinds:
            return
        amount = self.plan.tally.of(*(op for kind in kinds for op in _ops_of(kind)))
        words = f"{sum(kind.count for kind in kinds):,} more layers of {len(kinds):,} other kinds"
        shown = folded([Line(words, bold=True), Line(amount_text(self.plan, amount), dim=True)], BOX - 2 * PAD)
        height = RISE * len(shown) + PAD
        self.y += 6
        self.canvas.box(self.spine - BOX / 2, self.y, BOX, height, shown, "end", *hover(words, amount))
        self.y += height + 4


def hover(name: str, amount: Amount) -> tuple[str, str]:
    """What a pointer over a box shows, and its parameters as an attribute."""
    if not amount.params:
        return "", ""
    return f"{name.replace('_', ' ')}: {amount.params:,} parameters", f' data-params="{amount.params}"'


def _ops_of(kind: LayerKind) -> list[list[Op]]:
    return [[op for op, _ in ops(block)] for block in kind.blocks]
