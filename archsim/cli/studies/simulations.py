"""`archsim simulate` with several values: one row a scenario, on several processes or a Ray cluster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.errors import UsageError
from archsim.base.input_file import read_input
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.progress import Counted

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject
    from archsim.sweeps.scenarios import Scenario

ASKED = ("rates", "concurrencies", "scenarios", "out", "jobs", "ray", "resume")
"""Parameters of which one makes a study."""

PARTS = ("engine", "weights", "kv_cache_dtype", "router", "disaggregate", "replicas")
"""Server options that may have several values, with commas between."""


def is_study(hw: str | None, params: Mapping[str, object]) -> bool:
    """Whether more than one scenario, or where rows go, is asked for."""
    several = any("," in str(params.get(name) or "") for name in PARTS) or "," in (hw or "")
    several = several or ("-" in str(params.get("replicas") or "") and params.get("find") is None)
    return several or any(params.get(name) for name in ASKED)


def print_study(
    model: str | None, hw: str | None, options: Mapping[str, object], stated: Collection[str], params: JsonObject
) -> None:
    """The rows, in a file or on stdout. options: of one simulation; stated: those on the command line. Raises
    UsageError.
    """
    from archsim.render.pages import study as page
    from archsim.render.study_file import open_study
    from archsim.sweeps.scenarios import COLUMNS, by_server

    if params["scenarios"]:
        usual = {"model": model, "hw": hw, **{name: value for name, value in options.items() if name in stated}}
        scenarios = _in_file(Path(params["scenarios"]), {name: v for name, v in usual.items() if v is not None})
    else:
        scenarios = _crossed(*model_and_device(model, hw), options, params)
    file = None
    if params["out"]:
        file = open_study(Path(params["out"]), COLUMNS, resume=params["resume"], force=params["force"])
    left = [one for one in by_server(scenarios) if file is None or one.key not in file.keys]
    rows: list[JsonObject] = []
    for some in run_rows(left, params["jobs"] or 1, params["ray"]):
        if file is None:
            rows += some
        else:
            file.add(some)
    if file is not None:
        before = len(scenarios) - len(left)
        there = f", {before:,} were there" if before else ""
        sys.stderr.write(f"{len(left):,} scenarios in {params['out']}{there}\n")
        return
    by_key = {row["key"]: row for row in rows}
    rows = [by_key[scenario.key] for scenario in scenarios]
    layout = o.Layout.json if params["json"] else params["format"]
    output.emit_answer(
        layout, params["no_color"], lambda: {"schema": "archsim.study/1", "rows": rows}, lambda: page.page(rows),
        rows=lambda: rows,
    )  # fmt: skip


def run_rows(scenarios: Sequence[Scenario], jobs: int = 1, ray: str | None = None) -> Iterator[list[JsonObject]]:
    """The rows of scenarios as they come, with a line of progress."""
    from archsim.sweeps.study import study

    shown, done = Counted(len(scenarios), "scenarios") if len(scenarios) > 1 else None, 0
    try:
        for some in study(scenarios, jobs=jobs, ray=ray):
            done += len(some)
            yield list(some)
            if shown is not None:
                shown(done)
    finally:
        if shown is not None:
            shown.end()


def model_and_device(model: str | None, hw: str | None) -> tuple[str, str]:
    """Both are given. Raises UsageError."""
    if model is None or hw is None:
        what = "`--hw` (devices: names, aliases, paths)" if model else "a MODEL"
        line = shlex.join(["archsim", "simulate", model or "llama3.1-8b", "--hw", hw or "h100", "--rate", "10"])
        raise UsageError(
            f"`archsim simulate` needs {what}",
            hints=(f"for example `{line}`", "`archsim list hw` shows the devices, `archsim list models` the models"),
        )
    return model, hw


def _in_file(path: Path, usual: Mapping[str, object]) -> list[Scenario]:
    from archsim.sweeps.scenarios import parse_scenarios

    text = read_input(path, LARGEST).decode("utf-8", errors="replace")
    return list(parse_scenarios(text.splitlines(), path.name, usual))


def _crossed(model: str, hw: str, options: Mapping[str, object], params: JsonObject) -> list[Scenario]:
    from archsim.base.ranges import parse_range
    from archsim.sweeps.scenarios import crossed

    axes: dict[str, Sequence[object]] = {}
    for name in PARTS:
        given = str(options.get(name) or "")
        values: Sequence[object] = [value.strip() for value in given.split(",") if value.strip()]
        if name == "replicas" and given:
            values = parse_range(given, name)
        if len(values) > 1:
            axes[name] = values
    for name, single in (("rates", "rate"), ("concurrencies", "concurrency")):
        if params[name]:
            if options.get(single) is not None:
                raise UsageError(f"`--{name}` is several values of `--{single}`: give one of the two")
            axes[single] = numbers(params[name], name)
    devices = [name.strip() for name in hw.split(",") if name.strip()]
    return crossed([model], devices, axes, options)


def numbers(text: str, name: str) -> Sequence[float]:
    """Whole numbers as ranges, or decimals with commas between."""
    from archsim.base.ranges import parse_range

    if "." not in text:
        return parse_range(text, name)
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found or not all(0 < value < 1e9 for value in found):
        raise UsageError(f"`--{name}` takes numbers above 0 such as 0.5,1,2 or a range such as 1-20+1, not {text!r}")
    return found


LARGEST = 2**28
"""Bytes of a file of scenarios at most."""
