"""`archsim sweep`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import cost as c
from archsim.cli.option_sets import load
from archsim.cli.option_sets import pair as p
from archsim.cli.option_sets import sweep as s
from archsim.cli.option_sets import training as t
from archsim.cli.option_sets.charts import Plotly, PlotlyJs
from archsim.cli.progress import Counted

if TYPE_CHECKING:
    from archsim.base.options import SweepOptions
    from archsim.render.figures.plotlyjs import Source
    from archsim.render.html.sweep_charts import Curves
    from archsim.render.pages.sweep import Asked, Best
    from archsim.sweeps.sweep import Sweep
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


def sweep(
    models: s.Models,
    hw: s.DevicesList,
    *,
    devices: s.Counts = "auto",
    degrees: s.Degrees,
    batch: s.Batch = "1",
    input_len: s.InputLen = "2048",
    output_len: s.OutputLen = "256",
    weights: s.Weights = None,
    kv_cache_dtype: s.KvDtypes = None,
    engine: s.Engines = o.DEFAULT_ENGINE,
    set_: o.Changes = None,
    load_options: load.Loads,
    training: t.Training,
    where: s.Where = None,
    pareto: s.Pareto = None,
    columns: s.Columns = None,
    price: c.Price = None,
    utilization: c.Utilization = None,
    out: s.Out = None,
    plot: s.Plot = None,
    plotlyjs: Plotly = PlotlyJs.inline,
    force: o.Force = False,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    no_color: o.NoColor = False,
) -> None:
    """How it scales: models, devices and formats crossed, over ranges of workloads; Pareto sets.

    Each row equals `archsim estimate` at that point. With --out all points go to a file, written as they are computed;
    without it a page of the best ones is printed. Ctrl-C keeps what is complete. With --rate, --concurrency or --slo
    each point is simulated under load, as by `archsim simulate`; with --phase train each is a training run, as by
    `archsim train`.
    """
    from archsim import api
    from archsim.cli.studies.loads import asks_for_loads, print_loads, refuse_unless_loads
    from archsim.cli.studies.training_runs import known_counts, print_sweep, refuse_mixed

    asked: SweepOptions = {
        "devices": devices, "tp": degrees.tp, "pp": degrees.pp, "ep": degrees.ep, "dp": degrees.dp, "batch": batch,
        "input_len": input_len, "output_len": output_len, "weights": weights, "kv_cache_dtype": kv_cache_dtype,
        "engine": engine, "where": where, "pareto": pareto, "columns": columns, "price": price,
        "utilization": utilization, "set": tuple(set_ or ()),
    }  # fmt: skip
    loads, layout = load_options.options(), p.PageLayout.json if json else format
    refuse_mixed(training, {
        **loads, "batch": batch if batch != "1" else None,
        "input_len": input_len if input_len != "2048" else None,
        "output_len": output_len if output_len != "256" else None, "weights": weights,
        "kv_cache_dtype": kv_cache_dtype, "engine": engine if engine != o.DEFAULT_ENGINE else None,
        "utilization": utilization,
    })  # fmt: skip
    if training.phase is t.Phase.train:
        runs = {
            **training.options(), **degrees.options(), "devices": known_counts(devices), "price": price,
            "columns": columns, "where": where, "pareto": pareto, "set": tuple(set_ or ()) or None,
        }  # fmt: skip
        view = {"out": out, "force": force, "json": json, "format": format, "no_color": no_color, "plot": plot}
        print_sweep(list(models), hw, runs, view)
        return
    if asks_for_loads(loads):
        view = {"out": out, "force": force, "json": json, "format": format, "no_color": no_color}
        print_loads(list(models), hw, {**asked, **loads, "plot": plot}, view)
        return
    refuse_unless_loads(loads)
    swept = api.sweep(list(models), hw, **asked)
    output.warn(swept.notes)
    output.note(swept.prices)
    picture = _Picture(swept, plot, force, (models, {"hw": hw, **asked}), plotlyjs.source)
    if out is not None:
        complete = _to_file(swept, out, force, picture)
    elif layout in (p.PageLayout.json, p.PageLayout.csv):
        complete = _to_stdout(swept, layout, picture)
    else:
        complete = _to_page(swept, layout, no_color, picture)
    if not complete:
        raise KeyboardInterrupt


def _run(swept: Sweep, take: Callable[[Any], None], picture: _Picture) -> tuple[bool, int]:
    """Hand every block of the answer on; whether the sweep came to its end, and how many points were priced."""
    progress = Counted(swept.points, "points")
    done = [0]
    with interruptible() as interrupt:
        try:
            for chunk in swept.chunks(lambda points: _watch(points, progress, interrupt, done)):
                take(chunk)
                picture.add(chunk)
        finally:
            progress.end()
    picture.write(done[0])
    return done[0] == swept.points, done[0]


def _watch(points: int, progress: Counted, interrupt: Interrupt, done: list[int]) -> bool:
    done[0] = points
    progress(points)
    return interrupt.pressed


def _to_file(swept: Sweep, path: Path, force: bool, picture: _Picture) -> bool:
    """All rows into a file, which holds what is complete if the sweep is interrupted."""
    from archsim.render.sweep_file import SweepFile

    target = SweepFile(path, swept.names, swept.everything_said, force)
    rows = [0]

    def take(chunk: Any) -> None:
        target.write(chunk)
        rows[0] += chunk.points

    try:
        complete, points = _run(swept, take, picture)
    except BaseException:
        target.drop()
        raise
    target.done()
    of = f"all {points:,}" if complete else f"the first {points:,} of {swept.points:,}"
    sys.stderr.write(f"{rows[0]:,} rows of {of} points in {path}\n")
    return complete


def _to_stdout(swept: Sweep, layout: p.PageLayout, picture: _Picture) -> bool:
    """All rows as JSON or CSV on stdout."""
    from archsim.render.sweep_file import CsvWriter, JsonWriter, Writer

    writer: Writer
    if layout is p.PageLayout.json:
        writer = JsonWriter(sys.stdout, swept.names, swept.everything_said)
    else:
        writer = CsvWriter(sys.stdout, swept.names)
    complete, _ = _run(swept, writer.write, picture)
    writer.close()
    sys.stdout.flush()
    return complete


def _to_page(swept: Sweep, layout: p.PageLayout, no_color: bool, picture: _Picture) -> bool:
    """The best points as a page; as HTML with a picture."""
    from archsim.render.pages.sweep import page

    picture.best()
    if layout is p.PageLayout.html:
        picture.curves()
    complete, points = _run(swept, lambda chunk: None, picture)
    if layout is p.PageLayout.html:
        output.emit(picture.html(points))
    else:
        output.emit_page(page(swept, picture.best(), points, picture.asked), layout, no_color)
    return complete


class _Picture:
    """What a page or a picture needs of the points, collected beside whatever else is done with them."""

    def __init__(self, swept: Sweep, path: Path | None, force: bool, asked: Asked, source: Source) -> None:
        if path is not None:
            from archsim.render.figures.plotlyjs import check_page

            check_page(path, source, force=force)
        self.swept, self.path, self.force, self.asked, self.source = swept, path, force, asked, source
        self._best: Best | None = None
        self._curves: Curves | None = None
        if path is not None:
            self.curves()

    def best(self) -> Best:
        """The best points so far; asked for before the first block if it is to be known."""
        from archsim.render.pages.sweep import Best

        self._best = self._best or Best()
        return self._best

    def curves(self) -> Curves:
        """The points of the chart so far; asked for before the first block, as `best`."""
        from archsim.render.html.sweep_charts import Curves

        self.best()
        self._curves = self._curves or Curves()
        return self._curves

    def add(self, chunk: Any) -> None:
        """Take in a block."""
        for taker in (self._best, self._curves):
            if taker is not None:
                taker.add(chunk)

    def html(self, points: int) -> str:
        """The page with its chart."""
        from archsim.render.html.page import document
        from archsim.render.html.sweep_charts import sweep_charts, sweep_title
        from archsim.render.pages.sweep import page

        shown = page(self.swept, self.best(), points, self.asked)
        titled = shown._replace(head=(sweep_title(self.swept), *shown.head))
        return document(titled, sweep_charts(self.curves()), self.source)

    def write(self, points: int) -> None:
        """The file of `--plot`, where one is wanted."""
        if self.path is not None:
            from archsim.render.figures.plotlyjs import write_page

            write_page(self.path, self.html(points), self.source, force=self.force)


class Interrupt:
    """Whether Ctrl-C was pressed."""

    pressed = False


@contextmanager
def interruptible() -> Iterator[Interrupt]:
    """Within, the first Ctrl-C is only noted; the second ends the program as always."""
    state = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield state
        return

    def note(number: int, frame: object) -> None:
        state.pressed = True
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield state
    finally:
        signal.signal(signal.SIGINT, before)
