"""Colours and fonts of the drawings: light, dark, and light on paper whatever the screen has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Theme = Literal["auto", "light", "dark"]

LIGHT = {
    "ink": "#1b1f24", "dim": "#505962", "paper": "#ffffff", "soft": "#f5f7f9", "line": "#6b747d", "mark": "#fff1c9",
    "edge": "#a15c00", "attention": "#dcebfa", "mixer": "#d5f0e8", "ffn": "#fde8d7", "cross": "#e9e2f8",
    "end": "#eceff2", "cache": "#e3f3d8", "norm": "#ffffff", "shade": "#0072b2", "second": "#c2500a",
    "third": "#00795a", "fourth": "#a3457f", "fifth": "#8a6d00", "sixth": "#6e7781", "none": "#e4e8ec",
}  # fmt: skip
DARK = {
    "ink": "#e6edf3", "dim": "#a8b1bb", "paper": "#0f1318", "soft": "#171c23", "line": "#8b949e", "mark": "#4a3a10",
    "edge": "#f0b429", "attention": "#15324d", "mixer": "#123d33", "ffn": "#4a2b15", "cross": "#34295a",
    "end": "#232a32", "cache": "#263f1a", "norm": "#0f1318", "shade": "#56b4e9", "second": "#ff9a5c",
    "third": "#2fd3a6", "fourth": "#e79cc8", "fifth": "#f0e442", "sixth": "#8b949e", "none": "#2b323a",
}  # fmt: skip
KINDS = ("shade", "second", "third", "fourth", "fifth", "sixth")
"""Colours of the kinds of layers, in order; letters stand beside them."""

FONT = '"Helvetica Neue",Arial,"Liberation Sans","DejaVu Sans",sans-serif'
RULES = (
    f".arch text{{font-family:{FONT};font-size:11.5px;fill:var(--a-ink);font-weight:400;stroke:none}}"
    ".arch .h{font-size:13px;font-weight:700}.arch .b{font-weight:700;font-size:12px}.arch .d{fill:var(--a-dim)}"
    ".arch .s{font-size:10.5px;fill:var(--a-dim)}.arch .diff{font-weight:700;fill:var(--a-ink)}"
    ".arch .in{font-size:8.5px;font-weight:700;fill:var(--a-paper)}"
    ".arch .m{text-anchor:middle}.arch .e{text-anchor:end}"
    ".arch rect{fill:var(--a-soft);stroke:var(--a-line);stroke-width:1}"
    ".arch .loop{fill:none;stroke:var(--a-dim);stroke-dasharray:6 3}.arch .page{fill:var(--a-paper);stroke:none}"
    ".arch .norm,.arch .act,.arch .rotate{fill:var(--a-norm)}.arch .norm{stroke-dasharray:3 2}"
    ".arch .unknown{fill:none;stroke-dasharray:2 3}"
    ".arch .differs{fill:var(--a-mark);stroke:var(--a-edge);stroke-width:2.4;stroke-dasharray:none}"
    ".arch .w{fill:none;stroke:var(--a-line);stroke-width:1.3}.arch .k{stroke-width:2;stroke:var(--a-shade)}"
    ".arch .tip{fill:var(--a-line);stroke:none}.arch circle{fill:var(--a-paper);stroke:var(--a-line);stroke-width:1.2}"
    ".arch .dot{fill:var(--a-line)}.arch .cell{stroke:var(--a-paper);stroke-width:.6;fill:var(--a-none)}"
    ""
    ".arch .grid{fill:none;stroke:var(--a-paper);stroke-width:.8}.arch .on{fill:var(--a-shade);stroke:none}"
    ".arch .small{fill:var(--a-paper)}.arch .chosen{fill:var(--a-second)}"
)
FILLS = ("attention", "mixer", "ffn", "cross", "end", "cache")


def style(theme: Theme = "auto") -> str:
    """The style sheet of a drawing. auto: as the reader's system is set; always light on paper."""
    light, dark = _variables(LIGHT), _variables(DARK)
    fills = "".join(f".arch .{name}{{fill:var(--a-{name})}}" for name in FILLS)
    kinds = "".join(f".arch .k{i}{{fill:var(--a-{name})}}" for i, name in enumerate(KINDS))
    rules = RULES.replace(".arch .differs", f"{fills}{kinds}.arch .differs")
    if theme == "dark":
        return f".arch{{{dark}}}@media print{{.arch{{{light}}}}}{rules}"
    chosen = f".arch{{{light}}}"
    if theme == "auto":
        chosen += f"@media screen and (prefers-color-scheme:dark){{.arch{{{dark}}}}}"
    return chosen + rules


def _variables(colours: Mapping[str, str]) -> str:
    return ";".join(f"--a-{name}:{colour}" for name, colour in colours.items())
