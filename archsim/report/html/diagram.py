"""Each architecture as a drawing from the token to the logits, with the parts that differ marked."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from archsim.report.html.markup import Cell, details, name_of, safe, table
from archsim.report.html.traits import Box, boxes, differing, facets
from archsim.spec.model import Model

WIDTH, MARGIN, STEP, LINE, HEAD = 300, 12, 12, 15, 20
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
    marked = differing(distinct)
    drawings = "".join(
        f"<figure>{diagram(model, marked)}<figcaption>{safe(_told(model, distinct, marked))}</figcaption></figure>"
        for model in distinct
    )
    return f'<div class="plans">{drawings}</div>' + details(
        "The architectures as a table", _twin(distinct, marked)
    )


def _told(model: Model, models: Sequence[Model], marked: Collection[tuple[str, str]]) -> str:
    own = sum(key in marked for box in boxes(model) for key in box.keys)
    if len(models) == 1:
        return f"{name_of(model.name)}: {model.n_layers:,} layers."
    return f"{name_of(model.name)}: {model.n_layers:,} layers; marked with ≠: {own} lines that not all have."


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
    return _finished(pen, model)


def _finished(pen: Pen, model: Model) -> str:
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
    pen.text(
        MARGIN + 4, pen.y + 15, ("≠ " if differs else "") + box.title, "name diff" if differs else "name"
    )
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
    tall = HEAD + LINE * len(box.lines) + (4 if box.lines else 0)
    differs = any(key in marked for key in box.keys)
    kind = f"box {box.kind}" + (" differs" if differs else "")
    pen.parts.append(
        f'<rect class="{kind}" x="{inset}" y="{pen.y:g}" width="{WIDTH - 2 * inset}" height="{tall}" rx="4"/>'
    )
    pen.text(inset + 8, pen.y + 14, _signed(box.title, box.keys[:1], marked), "name")
    for i, (key, words) in enumerate(zip(box.keys[1:], box.lines, strict=True)):
        changed = key in marked
        pen.text(
            inset + 8, pen.y + HEAD + LINE * i + 11, _signed(words, (key,), marked), "diff" if changed else ""
        )
    pen.y += tall


def _signed(words: str, keys: Sequence[tuple[str, str]], marked: Collection[tuple[str, str]]) -> str:
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
        "Architectures part by part; marked: not the same in all",
        ["", *(name_of(m.name) for m in models)],
        rows,
    )
