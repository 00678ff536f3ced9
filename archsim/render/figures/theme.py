"""The colours of charts in light and in dark, under names: a chart says `@ink`, the theme which colour that is.

The eight series are Okabe and Ito's colours, darkened or lightened to stand out from the page; no colour stands alone,
every series has a mark or a name of its own as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject

Theme = Literal["light", "dark"]

SERIES = 8
"""Colours before they repeat."""

LIGHT: Mapping[str, str] = {
    "ink": "#1b1f24", "dim": "#57606a", "paper": "#ffffff", "soft": "#f5f7f9", "line": "#d0d7de", "accent": "#0550ae",
    "s0": "#0072b2", "s1": "#c2500a", "s2": "#00795a", "s3": "#a3457f", "s4": "#8a6d00", "s5": "#4aa3dd",
    "s6": "#1b1f24", "s7": "#6e7781",
}  # fmt: skip
DARK: Mapping[str, str] = {
    "ink": "#e6edf3", "dim": "#9ea7b1", "paper": "#0f1318", "soft": "#171c23", "line": "#343b44", "accent": "#79b8ff",
    "s0": "#56b4e9", "s1": "#ff9a5c", "s2": "#2fd3a6", "s3": "#e79cc8", "s4": "#f0e442", "s5": "#2f7fd0",
    "s6": "#f2f2f2", "s7": "#8b949e",
}  # fmt: skip
THEMES: Mapping[Theme, Mapping[str, str]] = {"light": LIGHT, "dark": DARK}

TOKEN = re.compile(r"@([a-z]+\d?)(?:/(0?\.\d+))?")
"""A colour's name, and how much of it covers what lies behind."""


def check_theme(name: str) -> Theme:
    """A theme by its name. Raises UsageError."""
    for theme in THEMES:
        if name == theme:
            return theme
    raise UsageError(f"no theme is called {name[:40]!r}", hints=(f"there are {', '.join(THEMES)}",))


def series(number: int, cover: float | None = None) -> str:
    """The colour of one of several lines or parts."""
    return f"@s{number % SERIES}" + (f"/{cover:g}" if cover is not None else "")


def colour(name: str, theme: Theme) -> str:
    """The colour behind a name such as `@s0` or `@s0/0.2`; anything else is a colour already."""
    found = TOKEN.fullmatch(name)
    if found is None or found[1] not in THEMES[theme]:
        return name
    text = THEMES[theme][found[1]]
    if found[2] is None:
        return text
    red, green, blue = (int(text[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{found[2]})"


def coloured(spec: JsonObject, theme: Theme) -> JsonObject:
    """A figure's data and layout with colours for their names; texts stay as they are."""
    return {key: _coloured(key, value, theme) for key, value in spec.items()}


def _coloured(key: str, value: object, theme: Theme) -> object:
    if isinstance(value, str):
        return colour(value, theme) if key.endswith("color") else value
    if isinstance(value, Mapping):
        return {name: _coloured(name, one, theme) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_coloured(key, one, theme) for one in value]
    return value
