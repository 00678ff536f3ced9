"""Where architectures come from: a strip of models with their years, as far as the catalog knows the family."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from archsim.base.errors import ArchsimError
from archsim.render.html.markup import details, name_of, safe
from archsim.spec.model import Model

LONGEST = 24
"""Ancestors that are looked up."""

STOPS = 7
"""Models of a strip: of longer families the latest."""

OURS = ' class="ours"'
OPEN = 3
"""Strips that are shown at once; more are folded away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """One model of a strip: when it came out and what was new. asked: whether the report is about it."""

    name: str
    year: str
    changes: tuple[str, ...] = ()
    asked: bool = False


def descent(models: Sequence[Model]) -> str:
    """A strip of the models that are compared where there are several, and one for each line of ancestors."""
    names = {m.name for m in models}
    lines = _distinct([line(m, names) for m in models])
    strips = [_strip(f"Lineage of {found[-1].name}", found[-STOPS:]) for found in lines]
    parts = []
    if len(models) > 2:
        dated = sorted(models, key=lambda m: m.released or "9999")
        ours = [Stop(name=m.name, year=_year(m), changes=_changes(m), asked=True) for m in dated]
        parts.append(_strip("The models compared, by year of release", ours))
    folded = "".join(strips)
    parts.append(details("Where each comes from", folded, "long") if len(strips) > OPEN else folded)
    return f"<h3>Lineage</h3>{''.join(parts)}" if any(parts) else ""


def line(model: Model, asked: Collection[str]) -> list[Stop]:
    """All ancestors of a model and itself, oldest first. Of sizes that came out together the nearest stands for all."""
    found: list[Stop] = []
    last: Model | None = None
    for one in _ancestors(model):
        together = last is not None and (one.org, one.released) == (last.org, last.released)
        if together and found[-1].name != model.name and one.name not in asked:
            nearest = found[-1]  # what is new came with the first of them
            found[-1] = Stop(name=nearest.name, year=nearest.year, changes=_changes(one), asked=nearest.asked)
        else:
            found.append(Stop(name=one.name, year=_year(one), changes=_changes(one), asked=one.name in asked))
        last = one
    return found[::-1]


def _ancestors(model: Model) -> Iterator[Model]:
    """The model, what it was built from, and so on."""
    seen: set[str] = set()
    current: Model | None = model
    while current is not None and current.name not in seen and len(seen) < LONGEST:
        seen.add(current.name)
        yield current
        current = _stops(current.lineage.parent if current.lineage else None)


def _stops(name: str | None) -> Model | None:
    from archsim.spec.load import load_model

    if not name or "/" in name or "\\" in name:
        return None  # a name of the catalog, never a file that a spec points to
    try:
        return load_model(name)
    except ArchsimError:
        return None


def _year(model: Model) -> str:
    return (model.released or "")[:4]


def _changes(model: Model) -> tuple[str, ...]:
    return model.lineage.changes if model.lineage else ()


def _distinct(lines: Sequence[list[Stop]]) -> list[list[Stop]]:
    """The lines that are no part of another, of more than one model."""
    sets = [{stop.name for stop in found} for found in lines]
    return [
        found for i, found in enumerate(lines)
        if len(found) > 1 and not any(sets[i] < other or (sets[i] == other and j < i) for j, other in enumerate(sets))
    ]  # fmt: skip


def _strip(title: str, stops: Sequence[Stop]) -> str:
    items = "".join(
        f"<li{OURS if stop.asked else ''}><span>{safe(stop.year or 'undated')}</span> "
        f"<strong>{safe(name_of(stop.name, 40))}</strong> {_news(stop.changes)}</li>"
        for stop in stops
    )
    return f'<ol class="strip" aria-label="{safe(name_of(title, 100))}">{items}</ol>\n'


def _news(changes: Sequence[str]) -> str:
    return f"<span>{safe('; '.join(changes), 120)}</span>" if changes else ""
