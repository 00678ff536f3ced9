"""Each architecture as a drawing from the token to the logits, with the parts that differ marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from textwrap import wrap

from archsim.render.html.markup import Cell, details, name_of, safe, table
from archsim.render.html.traits import Box, boxes, differing, facets, news
from archsim.render.page import plural
from archsim.spec.model import Model

WIDTH, MARGIN, STEP, LINE, HEAD = 300, 12, 12, 15, 20
MOST_LINES = 3
"""Lines of a box that one property may take."""

LETTERS = 35
"""Characters of a line that fit a box."""


@dataclass(slots=True)
class Pen:
    """Collects the elements of a drawing from top to bottom."""

    y: float = 4.0
    parts: list[str] = field(default_factory=list)

    def arrow(self, x: float = WIDTH / 2) -> None:
        """A step down along the stream."""
        self.parts.append(f'<path class="wire" d="M{x} {self.y}v{STEP}"/>')
        self.y += STEP

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """One line of text."""
        style = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{style}>{safe(words, LETTERS + 20)}</text>')


def diagrams(models: Sequence[Model]) -> str:
    """A drawing for each model, side by side, and the same as a table."""
    distinct = list({m.name: m for m in models}.values())
    whole = differing(distinct)
    drawings = []
    for i, model in enumerate(distinct):
        # of two both sides are marked; of more, what the drawing before does not have
        marked = whole if len(distinct) < 3 else news(distinct[i - 1], model) if i else set()
        told = safe(_caption(i, distinct, marked))
        drawings.append(f"<figure>{diagram(model, marked)}<figcaption>{told}</figcaption></figure>")
    return f'<div class="plans">{"".join(drawings)}</div>' + details(
        "The architectures as a table", _twin(distinct, whole)
    )


def _caption(i: int, models: Sequence[Model], marked: Collection[tuple[str, str]]) -> str:
    model = models[i]
    size = f"{name_of(model.name)}: {model.n_layers:,} layers"
    if not marked:
        return f"{size}."
    own = len({key for box in boxes(model) for key in box.keys if key in marked})
    other = models[i - 1 if i or len(models) > 2 else 1]
    return f"{size}; marked with ≠: {plural(own, 'line')} that {name_of(other.name)} does not have."


def diagram(model: Model, marked: Collection[tuple[str, str]] = ()) -> str:
    """The drawing. marked: (role, line) pairs that differ between the models compared."""
    pen = Pen()
    pen.text(MARGIN, pen.y + 14, name_of(model.title or model.name, LETTERS), "name big")
    pen.y += 24
    depth = 0
    for box in boxes(model):
        while box.depth < depth:
            depth -= 1
            _close(pen)
        if box.opens:
            depth += 1
            _open(pen, box, marked)
            continue
        pen.arrow()
        _box(pen, box, marked)
    while depth:
        depth -= 1
        _close(pen)
    pen.arrow()
    return _finish(pen, model)


def _finish(pen: Pen, model: Model) -> str:
    """The drawing around its parts; frames of repetitions are drawn below them."""
    height, stack, frames = pen.y + 4, [], []
    parts = []
    for part in pen.parts:
        if part.startswith("open "):
            stack.append(float(part[5:]))
        elif part.startswith("close "):
            top, inset = stack.pop(), 4 * len(stack)
            frames.append(
                f'<rect class="loop" x="{2 + inset}" y="{top:g}" width="{WIDTH - 4 - 2 * inset}" '
                f'height="{float(part[6:]) - top:g}" rx="6"/>'
            )
        else:
            parts.append(part)
    title = f"Structure of {name_of(model.name)}: {model.n_layers:,} layers, from the tokens to the output"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{safe(title)}" class="plan">'
        f"{''.join(frames)}{''.join(parts)}</svg>"
    )


def _open(pen: Pen, box: Box, marked: Collection[tuple[str, str]]) -> None:
    """A frame of what is repeated begins, with the count on top."""
    pen.arrow()
    pen.parts.append(f"open {pen.y:g}")
    differs = any(key in marked for key in box.keys)
    pen.text(MARGIN + 4, pen.y + 15, ("≠ " if differs else "") + box.title, "name diff" if differs else "name")
    pen.y += HEAD


def _close(pen: Pen) -> None:
    pen.y += 6
    pen.parts.append(f"close {pen.y:g}")


def _box(pen: Pen, box: Box, marked: Collection[tuple[str, str]]) -> None:
    """One part: its name and lines; a circle where a branch joins the stream."""
    if box.kind == "join":
        pen.parts.append(f'<circle class="join" cx="{WIDTH / 2}" cy="{pen.y + 8}" r="8"/>')
        pen.parts.append(f'<path class="wire plain" d="M{WIDTH / 2 - 5} {pen.y + 8}h10m-5-5v10"/>')
        pen.text(WIDTH / 2 + 14, pen.y + 12, box.title)
        pen.y += 16
        return
    inset = MARGIN + 6 * box.depth
    lines = [(key, part, i) for key, words in zip(box.keys[1:], box.lines, strict=True)
             for i, part in enumerate(_fold_lines(words))]  # fmt: skip
    tall = HEAD + LINE * len(lines) + (4 if lines else 0)
    differs = any(key in marked for key in box.keys)
    kind = f"box {box.kind}" + (" differs" if differs else "")
    pen.parts.append(
        f'<rect class="{kind}" x="{inset}" y="{pen.y:g}" width="{WIDTH - 2 * inset}" height="{tall}" rx="4"/>'
    )
    pen.text(inset + 8, pen.y + 14, _mark_difference(box.title, box.keys[:1], marked), "name")
    for i, (key, words, part) in enumerate(lines):
        shown = words if part else _mark_difference(words, (key,), marked)
        across = inset + (20 if part else 8)
        pen.text(across, pen.y + HEAD + LINE * i + 11, shown, "diff" if key in marked else "")
    pen.y += tall


def _fold_lines(words: str) -> list[str]:
    """A line that is too long for a box as several, cut between words."""
    return wrap(words, LETTERS - 3, max_lines=MOST_LINES, placeholder=" …") or [words]


def _mark_difference(words: str, keys: Sequence[tuple[str, str]], marked: Collection[tuple[str, str]]) -> str:
    """The line, with a sign in front where it differs: colour is never alone."""
    sign = "≠ " if any(key in marked for key in keys) else ""
    return sign + name_of(words, LETTERS - len(sign))


def _twin(models: Sequence[Model], marked: Collection[tuple[str, str]]) -> str:
    found = {model.name: facets(model) for model in models}
    roles = list(dict.fromkeys(role for lines in found.values() for role in lines))
    rows: list[list[str | Cell]] = []
    for role in roles:
        texts = ["; ".join(found[m.name].get(role, ())) or "–" for m in models]
        differs = any((role, line) in marked for m in models for line in found[m.name].get(role, ()))
        rows.append([role, *(Cell(text, differs) for text in texts)])
    return table(
        "Architectures part by part; marked: not the same in all", ["", *(name_of(m.name) for m in models)], rows
    )
