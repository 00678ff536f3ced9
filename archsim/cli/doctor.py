"""`archsim doctor`."""

from __future__ import annotations

from archsim.cli import options as o
from archsim.cli import output


def doctor(json: o.AsJson = False, format: o.Format = o.Layout.table, no_color: o.NoColor = False) -> None:
    """Versions, data folders with counts, settings with their origin, and a check of every document."""
    from archsim.render.pages.diagnosis import diagnosis, page

    found = diagnosis()
    output.emit_answer("json" if json else format, no_color, lambda: found, lambda: page(found))
