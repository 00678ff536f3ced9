"""Draws every model of the catalog: `python reports/gallery.py FOLDER` writes an SVG file each, and `index.html`.

The pictures are made anew for the site and are not kept in the repository.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from html import escape
from pathlib import Path

from archsim import load_model
from archsim.base.output_file import make_folder, write_text
from archsim.render.drawing.figure import model_svg
from archsim.spec.catalog import names
from archsim.spec.model import Model

STYLE = (
    ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:1.5rem auto;max-width:90rem;"
    "padding:0 1rem}ul{list-style:none;padding:0;display:grid;gap:1.2rem;"
    "grid-template-columns:repeat(auto-fill,minmax(min(100%,19rem),1fr))}li{border:1px solid #8886;border-radius:6px;"
    "overflow:hidden}a{color:inherit;text-decoration:none;display:block}img{width:100%;height:19rem;object-fit:cover;"
    "object-position:left top}span{display:block;padding:.3rem .7rem .5rem}"
)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("models", nargs="*", help="names; all models of the catalog by default")
    asked = parser.parse_args()
    folder = make_folder(asked.folder)
    models = [load_model(name) for name in asked.models or catalog()]
    for model in models:
        write_text(folder / f"{model.name}.svg", model_svg(model), force=True)
    write_text(folder / "index.html", page(models), force=True)


def catalog() -> list[str]:
    """Names of all models that have a spec."""
    return sorted(entry.name for entry in names("models") if entry.status is None)


def page(models: Sequence[Model]) -> str:
    """The gallery: a picture for each model, newest first, that leads to its file."""
    newest = sorted(models, key=lambda model: model.released or "", reverse=True)
    items = "".join(
        f'<li><a href="{escape(model.name)}.svg"><img loading="lazy" src="{escape(model.name)}.svg" alt="">'
        f"<span>{escape(model.title or model.name)}, {(model.released or 'undated')[:4]}</span></a></li>\n"
        for model in newest
    )
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>Architectures</title>'
        f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>\n'
        f"<h1>{len(models):,} architectures</h1>\n<ul>\n{items}</ul>\n</html>\n"
    )


if __name__ == "__main__":
    main()
