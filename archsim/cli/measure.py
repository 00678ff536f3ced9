"""`archsim measure`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from archsim.base.errors import SpecError, UsageError
from archsim.base.output_file import check_output, make_folder
from archsim.cli import options as o
from archsim.cli import output
from archsim.spec.catalog import resolve

if TYPE_CHECKING:
    from archsim.measure.here import MachineFacts
    from archsim.measure.plan import Plan
    from archsim.measure.session import Outcome


BUDGET, HERE_BUDGET = "480s", "5m"
LAST_CACHE = 32 << 20
"""Bytes that a last cache is taken to have where the system does not tell."""


class Where(StrEnum):
    """What runs the points."""

    cpu = "cpu"
    cuda = "cuda"


class Size(StrEnum):
    """How large the points are."""

    small = "small"
    full = "full"


def measure(
    here: Annotated[
        bool, typer.Option("--here", help="Write this machine's device file, time a processor's kernels, and fit them.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder of the results; default: measured. With --here the device file."),
    ] = None,
    suite: Annotated[str, typer.Option(metavar="A,B|all", help="What to time; --list shows it.")] = "all",
    device: Annotated[Where | None, typer.Option(help="Default: cuda where there is one.")] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="480s, 8m: when to stop; default: 8m, with --here 5m.")
    ] = None,
    size: Annotated[Size | None, typer.Option(help="small: toy sizes. Default: full on cuda, small on cpu.")] = None,
    model: Annotated[str | None, typer.Option(metavar="NAME,...", help="Models of the suite `model`.")] = None,
    hw: Annotated[str | None, typer.Option("--hw", metavar="HW", help="The device's name in the results.")] = None,
    plan: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the points as a kernel table; time nothing.")
    ] = None,
    resume: Annotated[bool, typer.Option(help="Leave out points that DIR has already.")] = True,
    threads: Annotated[int, typer.Option(min=1, help="Processors that a CPU run is pinned to.")] = 1,
    watts: Annotated[
        bool, typer.Option("--watts", help="Also record power, where the device reports it: 2 s more a point.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the FILE of --plan if it exists.")] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show suites and their points.")] = False,
    json: o.AsJson = False,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Time kernels and whole models on this machine.

    Results stream into DIR as they come: kernels.csv (a kernel table), runs.yaml (whole models), skipped.csv (why a
    point was left out), device.json (clocks, versions). Run it again to resume where an earlier run
    stopped.
    """
    from archsim.measure.plan import parse_budget

    started, seconds = time.monotonic(), parse_budget(budget or (HERE_BUDGET if here else BUDGET))
    if here:
        _here(out, force, suite, (started, seconds), _MeasureView(json, quiet, no_color))
        return
    out = out or Path("measured")
    asked = _Asked(suite, device.value if device else None, size.value if size else None, model, hw)
    if list_:
        _list(asked, json, no_color)
    elif plan is not None:
        _plan(asked, plan, seconds, json, force)
    else:
        _measure(asked, out, (started, seconds), resume, threads, _MeasureView(json, quiet, no_color), watts)


class _Asked:
    """What was asked for, with defaults that depend on one another."""

    def __init__(self, suite: str, device: str | None, size: str | None, model: str | None, hw: str | None) -> None:
        from archsim.measure.plan import parse_suites

        self.suites, self.device, self.hw = parse_suites(suite), device, hw
        self._size, self._models = size, tuple(model.split(",")) if model else ()

    @property
    def size(self) -> Any:
        """`small` or `full`."""
        return self._size or ("small" if self.device == "cpu" else "full")

    @property
    def models(self) -> tuple[str, ...]:
        """What the suite `model` times: as given, else one model at toy size and two at full size."""
        from archsim.measure.shapes import DEFAULT

        return self._models or (DEFAULT[:1] if self.size == "small" else DEFAULT)

    def points(self) -> Any:
        """All points by suite; an error where a model does not exist."""
        from archsim.importers.opening import open_model
        from archsim.measure.plan import points_of

        for name in self.models if "model" in self.suites else ():
            open_model(name, ())
        return points_of(self.suites, self.size, self.models)

    def name(self) -> str:
        """The device's name in results: as given, else the catalog's for what the driver reports."""
        from archsim.measure.machine import catalog_name, driver_name

        if self.hw is not None:
            return resolve("hw", self.hw).name
        return catalog_name(driver_name(self.device or "cpu"))


class _MeasureView:
    """How the answer is wanted."""

    def __init__(self, json: bool, quiet: bool, no_color: bool) -> None:
        self.json, self.quiet, self.no_color = json, quiet, no_color


def _here(out: Path | None, force: bool, suite: str, clock: tuple[float, float], view: _MeasureView) -> None:
    """Write the device file of this machine, time kernels until the budget ends, and fit them. A device file that is
    there is kept, unless it is to be replaced, so that a run that was cut off goes on.
    """
    from archsim.measure.cpu_shapes import CPU_SUITES
    from archsim.measure.machine import need_torch
    from archsim.measure.plan import parse_suites

    suites = parse_suites(suite, ("probe", *CPU_SUITES))
    timed = [name for name in suites if name in CPU_SUITES]
    need_torch()
    from archsim.calibration.writing import write_yaml
    from archsim.measure.device_document import default_path, device_document
    from archsim.measure.here import machine_facts
    from archsim.measure.probe import probe_machine
    from archsim.render.pages.here import here_data, here_page
    from archsim.spec.load import load_hardware

    facts = machine_facts()
    path = out or default_path(facts.id)
    if timed and path.is_file() and not force:
        load_hardware(str(path))
        _note(f"{path} is kept; --force probes again", view)
    else:
        make_folder(path.parent)
        check_output(path, force=force)
        _note(f"{facts.name}: probing bandwidth and products", view)
        rates, noise = probe_machine(facts)
        write_yaml(path, device_document(facts, rates, noise), force=force)
        if view.json and not timed:
            output.emit_json(here_data(facts, rates, noise, path))
        elif not view.json:
            output.emit_page(here_page(facts, rates, noise, path), "table", view.no_color)
    if timed:
        _kernels_here(facts, path, timed, clock, view)


def _kernels_here(
    facts: MachineFacts, path: Path, suites: Sequence[str], clock: tuple[float, float], view: _MeasureView
) -> None:
    """Time a processor's kernels into `measured/NAME`, and fit them beside the device file."""
    from archsim.calibration.run import calibrate_tables
    from archsim.measure.cpu_shapes import cpu_points
    from archsim.measure.machine import engine
    from archsim.measure.plan import make
    from archsim.measure.session import KERNELS, Session, done_before
    from archsim.spec.load import load_hardware

    folder = Path("measured") / facts.id
    points = cpu_points(facts.last_cache or LAST_CACHE, load_hardware(str(path)))
    plan = make({name: points[name] for name in suites}, clock[1], done_before(folder), facts.id, "full")
    _announce(plan, facts.id, view)
    outcome = Session(plan, folder, "cpu", facts.id, engine(), _progress(view)).run(
        clock[1], False, facts.threads, clock[0]
    )
    _answer(outcome, view)
    hardware = path.parent.parent if path.parent.name == "devices" else Path("hardware")
    try:
        fits = calibrate_tables([folder / KERNELS], out=hardware / "calibration", hw=str(path), force=True)
    except SpecError as error:
        _note(f"too few kernels for a fit: {error}; run again to continue", view)
        return
    for written in fits.written:
        _note(f"fitted: {written}", view)


def _note(text: str, view: _MeasureView) -> None:
    if not view.quiet:
        sys.stderr.write(text + "\n")


def _list(asked: _Asked, json: bool, no_color: bool) -> None:
    found = asked.points()
    if json:
        suites = {
            name: {"points": len(points), "seconds": round(sum(p.seconds for p in points), 1)}
            for name, points in found.items()
        }
        output.emit_json({"schema": "archsim.measure.suites/1", "size": asked.size, "suites": suites})
        return
    from archsim.render.pages.measure import suites_page

    output.emit_page(suites_page(found, asked.size), "table", no_color)


def _plan(asked: _Asked, path: Path, seconds: float, json: bool, force: bool) -> None:
    """Write what would be timed, in order, as a kernel table without times."""
    from archsim.measure import table
    from archsim.measure.machine import engine
    from archsim.measure.plan import make

    if asked.hw is None and asked.device is None:
        raise UsageError("a plan needs the device's name", hints=("give `--hw`, or `--device` to read it here",))
    check_output(path, force=force)
    name = asked.name()
    plan = make(asked.points(), seconds, (), name, asked.size)
    chosen = plan.points[: plan.chosen]
    rows = table.write_plan(path, chosen, name, engine(), force=force)
    facts = {
        "schema": "archsim.measure.plan/1", "file": str(path), "device": name, "points": len(chosen),
        "kernels": rows, "runs": [p.text() for p in chosen if p.whole], "of": len(plan.points),
        "seconds": round(plan.seconds, 1),
    }  # fmt: skip
    if json:
        output.emit_json(facts)
    else:
        output.emit(f"{rows} kernels and {len(chosen) - rows} runs of whole models planned for {name}: {path}\n")


def _measure(
    asked: _Asked, out: Path, clock: tuple[float, float], resume: bool, threads: int, view: _MeasureView,
    watts: bool = False,
) -> None:  # fmt: skip
    from archsim.measure.machine import choose_device, engine
    from archsim.measure.plan import make
    from archsim.measure.session import Session, done_before

    asked.device = choose_device(asked.device)
    done = done_before(out)
    if done and not resume:
        raise UsageError(
            f"{out} holds results already", hints=("choose another folder with --out, or leave out --no-resume",)
        )
    name = asked.name()
    plan = make(asked.points(), clock[1], done, name, asked.size)
    _announce(plan, name, view)
    session = Session(plan, out, asked.device, name, engine(), _progress(view))
    outcome = session.run(clock[1], asked.size == "small", threads, clock[0], watts)
    _answer(outcome, view)


def _announce(plan: Plan, name: str, view: _MeasureView) -> None:
    if not view.quiet:
        before = f", {plan.done} done before" if plan.done else ""
        beyond = len(plan.points) - plan.chosen
        more = f", {beyond} more if time is left" if beyond else ""
        sys.stderr.write(f"{name}: {plan.chosen} points in about {plan.seconds:.0f} s{more}{before}\n")


def _progress(view: _MeasureView) -> Any:
    """One line a point on stderr: overwritten on a terminal, complete in a log."""
    if view.quiet:
        return lambda text: None
    terminal = sys.stderr.isatty()

    def show(text: str) -> None:
        sys.stderr.write(f"\r\x1b[K{text[:100]}" if terminal else text + "\n")
        sys.stderr.flush()

    return show


def _answer(outcome: Outcome, view: _MeasureView) -> None:
    from archsim.render.pages.measure import measured_page, to_dict

    if sys.stderr.isatty() and not view.quiet:
        sys.stderr.write("\r\x1b[K")
    if view.json:
        output.emit_json(to_dict(outcome))
    else:
        output.emit_page(measured_page(outcome), "table", view.no_color)
    if outcome.stopped == "interrupted":
        raise KeyboardInterrupt
