"""Drawings of every model of the catalog, and the example reports, as pages of the site."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape, unescape
from pathlib import Path

from archsim import load_model
from archsim.render.drawing.figure import model_svg
from archsim.spec.catalog import names
from archsim.spec.model import Model


def drawings() -> dict[str, str]:
    """Place in the site -> the gallery's page and the drawings on it, newest models first."""
    models = [load_model(entry.name) for entry in names("models") if entry.status is None]
    models.sort(key=lambda model: (model.released or "", model.name), reverse=True)
    return {f"gallery/{model.name}.svg": model_svg(model) for model in models} | {"gallery.md": page(models)}


def page(models: list[Model]) -> str:
    """All drawings by year."""
    years: dict[str, list[Model]] = {}
    for model in models:
        years.setdefault((model.released or "Undated")[:4], []).append(model)
    parts = "".join(f"\n## {year}\n\n{items(each)}" for year, each in years.items())
    return (
        f"# {len(models):,} architectures\n\nEvery model of the catalog, drawn from its spec and op graph alone when "
        f"this site was built. [Drawings](drawings.md) says what is in one; `archsim show MODEL --svg FILE` draws "
        f"yours.\n{parts}"
    )


def items(models: Iterable[Model]) -> str:
    """A picture for each model that leads to its file."""
    cells = "".join(
        f'<li><a href="{escape(m.name)}.svg"><img loading="lazy" src="{escape(m.name)}.svg" '
        f'alt="Architecture of {escape(m.title or m.name)}"><span>{escape(m.title or m.name)}</span></a></li>\n'
        for m in models
    )
    return f'<ul class="gallery">\n{cells}</ul>\n'


def reports(folder: Path) -> dict[str, str]:
    """Place in the site -> the example reports, and the page that lists them."""
    found = {path.name: path.read_text("utf-8") for path in sorted(folder.glob("*.html"))}
    rows = "".join(f"- [{title(text)}](reports/{name})\n" for name, text in found.items())
    page = (
        "# Reports\n\nEach is one HTML file written by [`archsim report`](report.md) from "
        f"`reports/examples/make.py`; a test compares them with the present code.\n\n{rows}"
    )
    return {f"reports/{name}": text for name, text in found.items()} | {"reports.md": page}


def title(text: str) -> str:
    """A report's own title."""
    found = re.search(r"<title>(.*?)</title>", text, flags=re.S)
    return unescape(found[1]).strip() if found else "Report"
