"""The page's controls: batch and context in the grid's steps, format and device. Hidden where no script runs."""

from __future__ import annotations

from archsim.render.html.grid import Grid
from archsim.render.html.markup import safe


def controls(grid: Grid) -> str:
    """Two sliders, two choices, a button back, and a line that says what is shown."""
    batch, context = grid.at
    devices = list(dict.fromkeys(run.base.hardware.id for run in grid.runs))
    fields = [
        _slider("batch", "Batch", grid.batches.index(batch), grid.batches, "sequences"),
        _slider("context", "Prompt", grid.contexts.index(context), grid.contexts, "tokens"),
        _choice("format", "Weights", "as compared", grid.formats),
        _choice("device", "Device", "all", devices),
    ]
    return (
        f'<form id="controls" hidden aria-label="Change the workload">{"".join(fields)}'
        '<button type="reset">Back to the report</button>'
        '<p id="shown" role="status" aria-live="polite"></p></form>\n'
    )


def _slider(key: str, name: str, at: int, values: tuple[int, ...], unit: str) -> str:
    if len(values) == 1:
        return f'<input type="hidden" id="{key}" value="0">'
    return (
        f'<div><label for="{key}">{safe(name)}</label><input type="range" id="{key}" min="0" max="{len(values) - 1}" '
        f'step="1" value="{at}" aria-valuetext="{values[at]:,} {unit}"><output id="{key}-value" for="{key}">'
        f"{values[at]:,} {unit}</output></div>"
    )


def _choice(key: str, name: str, first: str, values: list[str] | tuple[str, ...]) -> str:
    options = "".join(f'<option value="{safe(v)}">{safe(v)}</option>' for v in values)
    return (
        f'<div><label for="{key}">{safe(name)}</label><select id="{key}"><option value="" selected>{safe(first)}'
        f"</option>{options}</select></div>"
    )
