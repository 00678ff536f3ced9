"""Each architecture as a drawing from the tokens to the logits, with the parts that differ marked, for the report."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from archsim.render.drawing.canvas import Picture
from archsim.render.drawing.figure import detail_pictures, footer, main_picture
from archsim.render.drawing.palette import style
from archsim.render.drawing.plan import Plan
from archsim.render.drawing.traits import boxes, differing, facets, marks_of
from archsim.render.html.markup import Cell, details, name_of, paragraph, safe, table
from archsim.render.page import plural
from archsim.spec.model import Model

REMARKS = re.compile(r"<title>.*?</title>| data-(?:params|beside)=.\d+.")
"""What an SVG file says beside its text; a page has a table of the same."""

MOST_INSIDE = 4
"""Models of a report of which it shows what is inside their blocks."""


def diagrams(models: Sequence[Model]) -> str:
    """A drawing for each model, side by side; what is inside their blocks; and the same as a table."""
    distinct = list({m.name: m for m in models}.values())
    marks = marks_of(distinct)
    plans = [Plan(model) for model in distinct]
    drawings, inside = [], []
    for i, (plan, marked) in enumerate(zip(plans, marks, strict=True)):
        picture = main_picture(plan, marked)
        told = safe(_caption(i, distinct, marked))
        drawn = _inline(picture, _title(plan.model), "plan", style() if i == 0 else "")
        wide = f"flex:0 1 {picture.width:.0f}px;max-width:{picture.width:.0f}px"
        drawings.append(f'<figure style="{wide}">{drawn}<figcaption>{told}</figcaption></figure>')
        inside += [_inside(plan)] if len(plans) <= MOST_INSIDE else []
    remark = paragraph(footer(plans[0]), "dim") if plans else ""
    return f'<div class="plans">{"".join(drawings)}</div>{remark}{"".join(inside)}' + details(
        "The architectures as a table", _twin(distinct, differing(distinct))
    )


def diagram(model: Model, marked: Collection[tuple[str, str]] = ()) -> str:
    """The drawing of a model's stack. marked: (role, line) pairs that differ between the models compared."""
    return _inline(main_picture(Plan(model), marked), _title(model), "plan", style())


def _inside(plan: Plan) -> str:
    """The pictures of a model's blocks, folded away."""
    pictures = "".join(_inline(one, "", "inside", "") for one in detail_pictures(plan))
    if not pictures:
        return ""
    flow = "display:flex;flex-wrap:wrap;gap:1.4rem;align-items:flex-start"
    return details(f"Inside the blocks of {name_of(plan.model.title or plan.model.name)}",
                   f'<div class="plans" style="{flow}">{pictures}</div>', "long inside")  # fmt: skip


def _inline(picture: Picture, title: str, kind: str, rules: str) -> str:
    """A picture as an element of the page."""
    label = f'role="img" aria-label="{safe(title)}"' if title else 'aria-hidden="true"'
    width, height = picture.width + 4, picture.height + 4
    body = REMARKS.sub("", picture.body)
    sheet = f"<style>{rules}</style>" if rules else ""
    return (
        f'<svg viewBox="-2 -2 {width:.0f} {height:.0f}" style="width:{width:.0f}px;max-width:100%;height:auto" '
        f'{label} class="{kind}">{sheet}<g class="arch">{body}</g></svg>'
    )


def _title(model: Model) -> str:
    return f"Structure of {name_of(model.name)}: {model.n_layers:,} layers, from the tokens to the output"


def _caption(i: int, models: Sequence[Model], marked: Collection[tuple[str, str]]) -> str:
    model = models[i]
    size = f"{name_of(model.name)}: {model.n_layers:,} layers"
    if not marked:
        return f"{size}."
    own = len({key for box in boxes(model) for key in box.keys if key in marked})
    other = models[i - 1 if i or len(models) > 2 else 1]
    return f"{size}; marked with ≠: {plural(own, 'line')} that {name_of(other.name)} does not have."


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
