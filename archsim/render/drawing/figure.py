"""A whole drawing: the model from the tokens to the output, what is inside its blocks, and models side by side."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from archsim.blocks.layer import PARTS
from archsim.counts.count import step_for
from archsim.counts.graph_counts import params
from archsim.counts.towers import tower_size
from archsim.render.drawing.canvas import PAD, RISE, Canvas, Line, Picture, clean, folded
from archsim.render.drawing.column import BOX, Column, column
from archsim.render.drawing.palette import Theme, style
from archsim.render.drawing.panel import Panel, panels
from archsim.render.drawing.plan import Plan
from archsim.render.drawing.towers import tower_columns
from archsim.render.drawing.traits import marks_of, output_title, part_box
from archsim.render.drawing.words import Marks
from archsim.spec.lower import lower
from archsim.spec.model import Model

GAP = 26.0
HEAD = 24.0
MARGIN = 14.0
"""Between parts, above pictures of blocks, and around everything."""


def main_picture(plan: Plan, marked: Marks = ()) -> Picture:
    """The stack, or both of an encoder-decoder, under the name and the size of the model."""
    canvas, encoder = Canvas(), plan.encoder
    stacks = [column(plan, plan.main, marked, "Decoder" if encoder else "")]
    if encoder is not None:
        stacks.insert(0, column(plan, encoder, marked, "Encoder"))
    towers = tower_columns(plan.model, marked)
    stacks = [*towers, *stacks]
    width = sum(stack.picture.width for stack in stacks) + GAP * (len(stacks) - 1)
    top = _heading(canvas, plan, width)
    x = 0.0
    for stack in stacks:
        canvas.group(x, top, stack.picture)
        x += stack.picture.width + GAP
    height = top + max(stack.picture.height for stack in stacks)
    places = _places(stacks)
    if encoder is not None:
        first = len(towers)
        height = _link(canvas, stacks[first], stacks[first + 1], places[first : first + 2], top, height)
    for i, tower in enumerate(towers):
        height = _enter(canvas, tower, stacks[len(towers)], (places[i], places[len(towers)]), top, height)
    height = _beside(canvas, plan, width, height)
    return canvas.done(width, height)


def _heading(canvas: Canvas, plan: Plan, width: float) -> float:
    """Name, parameters and shape; returns where the drawing below begins."""
    model, total = plan.model, plan.whole.params
    held = f"{total:,} parameters" + (f", {plan.active:,} active per token" if plan.active != total else "")
    shape = f"d_model {model.d_model:,}"
    if model.max_context:
        shape += f", context {model.max_context:,} tokens"
    y = 0.0
    lines = [Line(clean(model.title or model.name, 80), bold=True), Line(held), Line(shape, dim=True)]
    for line in folded(lines, width - 8, most=2):
        canvas.text(width / 2, y + 15, line.text, f"{'h' if line.bold else 's' if line.dim else ''} m".strip())
        y += 17 if line.bold else RISE
    return y + 10


def _places(stacks: Sequence[Column]) -> list[float]:
    """The left of each column."""
    found = [0.0]
    for stack in stacks[:-1]:
        found.append(found[-1] + stack.picture.width + GAP)
    return found


def _enter(
    canvas: Canvas, tower: Column, stack: Column, lefts: tuple[float, float], top: float, height: float
) -> float:
    """The line from the end of a vision or audio encoder to where its vectors join those of the text."""
    left, right = lefts
    start, lane = top + tower.picture.height, right - GAP / 2
    x, y = right + stack.spine, top + stack.entry
    canvas.wire(f"M{left + tower.spine:.1f} {start - 4:.1f}V{start + 12:.1f}H{lane:.1f}V{y:.1f}H{x - 7:.1f}", "k")
    canvas.put(f'<path class="tip" d="M{x - 1:.1f} {y:.1f}l-6-3.5v7z"/>')
    canvas.text(left + tower.spine, start + 27, "vectors among those of the text", "s m")
    return max(height, start + 34)


def _link(canvas: Canvas, encoder: Column, decoder: Column, lefts: Sequence[float], top: float, height: float) -> float:
    """The line from the encoder's end into every cross-attention."""
    left, offset = lefts
    start = top + encoder.picture.height
    lane = offset - GAP / 2
    edge = offset + decoder.spine - BOX / 2
    spine = left + encoder.spine
    canvas.wire(f"M{spine:.1f} {start - 4:.1f}V{start + 12:.1f}H{lane:.1f}V{top + min(decoder.links):.1f}", "k")
    for link in decoder.links:
        y = top + link
        canvas.wire(f"M{lane:.1f} {y:.1f}H{edge - 6:.1f}", "k")
        canvas.put(f'<path class="tip" d="M{edge:.1f} {y:.1f}l-6-3.5v7z"/>')
    canvas.text(spine, start + 27, "keys and values of the cross-attention", "s m")
    return max(height, start + 34)


def _beside(canvas: Canvas, plan: Plan, width: float, height: float) -> float:
    """What the checkpoint holds outside the total: vision and audio encoders, multi-token-prediction modules."""
    for lines, own in parts_outside_total(plan.model):
        shown = folded(lines, BOX - 2 * PAD)
        tall = RISE * len(shown) + PAD
        data = f' data-beside="{own}"' if own else ""
        canvas.box((width - BOX) / 2, height + 12, BOX, tall, shown, "unknown", data=data)
        height += tall + 12
    return height


def parts_outside_total(model: Model) -> list[tuple[list[Line], int | None]]:
    """Boxes of what is not in the total, with their parameters where they are known."""
    found: list[tuple[list[Line], int | None]] = []
    for tower in model.towers:
        if tower.stages:
            continue  # a column of its own
        size = tower_size(tower)
        said = f"{size:,} parameters" if size else "of unknown size"
        found.append(([Line(f"{tower.name.capitalize()} encoder", bold=True), Line(f"{said}, not in the total")], size))
    if model.mtp is not None:
        size = _extra(model, "mtp")
        words = f"{model.mtp.n} module{'s' if model.mtp.n > 1 else ''}: {size:,} parameters, not in the total"
        found.append(([Line("Multi-token prediction", bold=True), Line(words)], size))
    if model.mlm_head is not None:
        size = _extra(model, "mlm-head")
        found.append(([Line("Masked-language head", bold=True), Line(f"{size:,} parameters, not in the total")], size))
    return found


def _extra(model: Model, part: str) -> int:
    """Parameters that a part adds."""
    step = step_for(model, 1, 1)
    return int(params(lower(model, step, (part,)))) - int(params(lower(model, step)))


def detail_pictures(plan: Plan) -> list[Picture]:
    """What is inside the blocks, each with its title."""
    stacks = [stack for stack in (plan.encoder, plan.main) if stack is not None]
    return [_titled(one, len(stack.kinds) > 1) for stack in stacks for one in panels(plan, stack)]


def _titled(panel: Panel, lettered: bool) -> Picture:
    canvas = Canvas()
    where = f"{', '.join(panel.letters)}: " if lettered else ""
    lines = folded([Line(where + panel.title, bold=True)], max(panel.picture.width, 180))
    for i, line in enumerate(lines):
        canvas.text(0, 14 + RISE * i, line.text, "b")
    top = 10 + RISE * len(lines)
    canvas.group(0, top, panel.picture)
    return canvas.done(max(panel.picture.width, 180), top + panel.picture.height)


def full_picture(plan: Plan, marked: Marks = (), details: bool = True) -> Picture:
    """The stack on the left, what is inside its blocks on the right."""
    main = main_picture(plan, marked)
    canvas = Canvas()
    canvas.group(0, 0, main)
    width, height = main.width, main.height
    inside = detail_pictures(plan) if details else []
    x, y, across = main.width + GAP * 1.5, HEAD, 0.0
    limit = max([main.height, *(picture.height + HEAD for picture in inside)])
    for picture in inside:
        if y > HEAD and y + picture.height > limit:
            x, y, across = x + across + GAP, HEAD, 0.0
        canvas.group(x, y, picture)
        across = max(across, picture.width)
        y += picture.height + GAP
        width, height = max(width, x + across), max(height, y - GAP)
    canvas.text(0, height + 20, footer(plan), "s")
    return canvas.done(width, height + 28)


def footer(plan: Plan) -> str:
    """What the numbers are."""
    return (
        f"Blue: the residual stream. Numbers are parameters, of one layer × layers. FLOP: a forward pass over "
        f"{plan.tokens:,} tokens, logits of the last one."
    )


def side_by_side(plans: Sequence[Plan], marks: Sequence[Marks]) -> Picture:
    """Models beside each other, without what is inside their blocks."""
    canvas, x, height = Canvas(), 0.0, 0.0
    for plan, marked in zip(plans, marks, strict=True):
        picture = main_picture(plan, marked)
        canvas.group(x, 0, picture)
        x += picture.width + GAP
        height = max(height, picture.height)
    canvas.text(0, height + 20, footer(plans[0]) + " ≠: another model does not have it.", "s")
    return canvas.done(x - GAP, height + 28)


def model_svg(model: Model, theme: Theme = "auto") -> str:
    """The drawing of a model as an SVG file: its layers, and what is inside their blocks."""
    plan = Plan(model)
    name = clean(model.title or model.name, 100)
    return document(full_picture(plan), f"Architecture of {name}", about(plan), theme)


def models_svg(models: Sequence[Model], theme: Theme = "auto") -> str:
    """Drawings of models side by side as an SVG file, with a ≠ where another does not have a line."""
    distinct = [model for i, model in enumerate(models) if model not in models[:i]]
    plans = [Plan(model) for model in distinct]
    names = ", ".join(clean(model.title or model.name, 60) for model in distinct)
    words = " ".join(about(plan) for plan in plans)
    return document(side_by_side(plans, marks_of(distinct)), f"Architectures of {names}", words, theme)


def about(plan: Plan) -> str:
    """What a drawing shows, for those who cannot see it."""
    model = plan.model
    parts = []
    for stack in (plan.encoder, plan.main):
        for kind in stack.kinds if stack is not None else ():
            blocks = [part_box(name, block, 0).title for name in PARTS if (block := getattr(kind.layer, name))]
            parts.append(f"{kind.count:,} {stack.side if stack else ''}layers of {' and '.join(blocks).lower()}")
    name = clean(model.title or model.name, 100)
    return f"{name}: {plan.whole.params:,} parameters; {'; '.join(parts)}; {output_title(model).lower()}."


def document(picture: Picture, title: str, about: str, theme: Theme = "auto") -> str:
    """A picture as an SVG file: with a title and a description, its style, and a margin."""
    width, height = picture.width + 2 * MARGIN, picture.height + 2 * MARGIN
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'height="{height:.0f}" role="img" aria-labelledby="title about">\n'
        f'<title id="title">{escape(clean(title, 300))}</title>\n<desc id="about">{escape(clean(about, 2000))}</desc>\n'
        f"<style>{style(theme)}</style>\n"
        f'<g class="arch"><rect class="page" width="{width:.0f}" height="{height:.0f}"/>'
        f'<g transform="translate({MARGIN:g} {MARGIN:g})">{picture.body}</g></g>\n</svg>\n'
    )
