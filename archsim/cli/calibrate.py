"""`archsim calibrate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.progress import progress


def calibrate(
    from_: Annotated[
        list[Path],
        typer.Option(
            "--from", metavar="PATH", help="Kernel table, run list, serving table, or a folder of them; repeatable."
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Calibration folder.")] = Path("hardware/calibration"),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Fit and show, write nothing.")] = False,
    borrowing: Annotated[
        bool, typer.Option("--borrowing", help="Also measure the error of a fit for another engine, format or device.")
    ] = False,
    hw: Annotated[
        str | None, typer.Option("--hw", metavar="HW", help="Device of rows whose own name is not in the catalog.")
    ] = None,
    title: Annotated[str, typer.Option(help="Description of the measurements, for the file.")] = "",
    source: Annotated[str, typer.Option(metavar="URL", help="Source of the measurements, for the file.")] = "",
    force: o.Force = False,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    no_color: o.NoColor = False,
) -> None:
    """Fits the time model to measured kernels, and says how wrong it is on shapes that the fit has not seen.

    Whole shape families are held out for the errors; the constants that are written use all rows.
    """
    from archsim.calibration.run import calibrate_tables
    from archsim.render.flat import flatten
    from archsim.render.pages.calibrate import page

    with progress("fitting"):
        answer = calibrate_tables(
            from_, out=out, dry_run=dry_run, borrowing=borrowing, title=title, source=source, hw=hw, force=force
        )
    stacks = answer.to_dict()["stacks"]
    output.emit_answer(
        "json" if json else format, no_color, answer.to_dict, lambda: page(answer),
        rows=lambda: [flatten({**stack, **fit}) for stack in stacks for fit in stack.pop("fits")],
    )  # fmt: skip
