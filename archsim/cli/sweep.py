"""`archsim sweep`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli import sweep_options as s
from archsim.cli.progress import Interrupt, Progress, interruptible

if TYPE_CHECKING:
    from archsim.sim.sweep import Sweep


def sweep(
    models: s.Models,
    hw: s.DevicesList,
    devices: s.Counts = "auto",
    tp: s.Tp = None,
    pp: s.Pp = None,
    ep: s.Ep = None,
    dp: s.Dp = None,
    batch: s.Batch = "1",
    input_len: s.InputLen = "2048",
    output_len: s.OutputLen = "256",
    weights: s.Weights = None,
    kv_cache_dtype: s.KvDtypes = None,
    engine: s.Engines = "generic",
    set_: o.Changes = None,
    where: s.Where = None,
    pareto: s.Pareto = None,
    columns: s.Columns = None,
    out: s.Out = None,
    force: s.Force = False,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    no_color: o.NoColor = False,
) -> None:
    """How it scales: models, devices and formats crossed, over ranges of workloads; Pareto sets.

    Every point equals `archsim estimate`. With --out all points go to a file, which is written as they are priced;
    without it a page of the best ones is printed. Ctrl-C keeps what is complete.
    """
    from archsim import api

    asked: dict[str, Any] = {
        "devices": devices, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "batch": batch, "input_len": input_len,
        "output_len": output_len, "weights": weights, "kv_cache_dtype": kv_cache_dtype, "engine": engine,
        "where": where, "pareto": pareto, "columns": columns, "set": tuple(set_ or ()),
    }  # fmt: skip
    layout = o.Layout.json if json else format
    swept = api.sweep(list(models), hw, **asked)
    output.warn(swept.notes)
    if out is not None:
        complete = _to_file(swept, out, force)
    elif layout in (o.Layout.json, o.Layout.csv):
        complete = _to_stdout(swept, layout)
    else:
        complete = _to_page(swept, layout, no_color)
    if not complete:
        raise KeyboardInterrupt


def _run(swept: Sweep, take: Callable[[Any], None]) -> tuple[bool, int]:
    """Hand every block of the answer on; whether the sweep came to its end, and how many points were priced."""
    progress = Progress(swept.points, "points")
    done = [0]
    with interruptible() as interrupt:
        try:
            for chunk in swept.chunks(lambda points: _watch(points, progress, interrupt, done)):
                take(chunk)
        finally:
            progress.end()
    return done[0] == swept.points, done[0]


def _watch(points: int, progress: Progress, interrupt: Interrupt, done: list[int]) -> bool:
    done[0] = points
    progress(points)
    return interrupt.pressed


def _to_file(swept: Sweep, path: Path, force: bool) -> bool:
    """All rows into a file, which holds what is complete if the sweep is interrupted."""
    from archsim.report.sweep_file import Output

    target = Output(path, swept.names, swept.notes, force)
    rows = [0]

    def take(chunk: Any) -> None:
        target.writer.write(chunk)
        rows[0] += chunk.points

    try:
        complete, points = _run(swept, take)
    except BaseException:
        target.drop()
        raise
    target.done()
    of = f"all {points:,}" if complete else f"the first {points:,} of {swept.points:,}"
    sys.stderr.write(f"{rows[0]:,} rows of {of} points in {path}\n")
    return complete


def _to_stdout(swept: Sweep, layout: o.Layout) -> bool:
    """All rows as JSON or CSV on stdout."""
    from archsim.report.sweep_file import CsvWriter, JsonWriter, Writer

    writer: Writer
    if layout is o.Layout.json:
        writer = JsonWriter(sys.stdout, swept.names, swept.notes)
    else:
        writer = CsvWriter(sys.stdout, swept.names)
    complete, _ = _run(swept, writer.write)
    writer.close()
    sys.stdout.flush()
    return complete


def _to_page(swept: Sweep, layout: o.Layout, no_color: bool) -> bool:
    """The best points as a page."""
    from archsim.report.sweep_page import Best, page

    best = Best()
    complete, points = _run(swept, best.add)
    output.emit_page(page(swept, best, points), layout, no_color)
    return complete
