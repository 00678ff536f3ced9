"""Simulated loads of the servers that `sweep` and `compare` cross: scenarios from their options."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.errors import UsageError
from archsim.cli import output
from archsim.cli.option_sets.charts import PlotlyJs
from archsim.cli.option_sets.pair import PageLayout, emit, html_of
from archsim.cli.studies.simulations import numbers, run_rows

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject
    from archsim.comparison.loaded import LoadComparison
    from archsim.sweeps.scenarios import Scenario

LOAD = ("rate", "concurrency", "slo")
"""Options of which one asks for simulated loads."""

AXES = ("devices", "tp", "pp", "ep", "dp", "weights", "kv_cache_dtype", "engine", "input_len", "output_len")
"""Options that may have several values."""


GIVEN = ("slo", "length_spread", "requests", "replications")
"""Options of `simulate` that are taken as they are."""


def asks_for_loads(asked: Mapping[str, object]) -> bool:
    """Whether a command's options ask for simulated loads."""
    return any(asked.get(name) is not None for name in LOAD)


def refuse_unless_loads(asked: Mapping[str, object]) -> None:
    """Raises UsageError for options of loads without a load."""
    for name in ("find", "length_spread", "requests", "replications", "jobs"):
        if asked.get(name) is not None:
            raise UsageError(
                f"`--{name.replace('_', '-')}` goes with simulated loads",
                hints=("give --rate, --concurrency or --slo",),
            )


def load_scenarios(models: Sequence[str], hw: str, asked: Mapping[str, object]) -> list[Scenario]:
    """Every server at every load. Without a rate or a concurrency the largest number of requests in flight that meets
    the service level is asked for. Raises UsageError.
    """
    from archsim.serving.slo import parse_slo
    from archsim.sweeps.scenarios import crossed

    if asked.get("slo") is not None:
        parse_slo(str(asked["slo"]))
    if str(asked.get("batch") or "1") != "1":
        raise UsageError("`--batch` does not go with simulated loads: give `--concurrency`, the requests in flight")
    if asked.get("price") is not None:
        raise UsageError("`--price` does not go with simulated loads: `archsim simulate --price` prices one load")
    if asked.get("rate") is not None and asked.get("concurrency") is not None:
        raise UsageError("give `--rate` or `--concurrency`, not both")
    axes: dict[str, Sequence[object]] = {}
    for name in AXES:
        given = str(asked.get(name) or "")
        axes[name] = (
            _ranged(given, name) if name in ("tp", "pp", "ep", "dp") or (name == "devices" and given != "auto")
            else [value.strip() for value in given.split(",") if value.strip()]
        ) or [None]  # fmt: skip
    for name in ("rate", "concurrency"):
        if asked.get(name) is not None:
            axes[name] = numbers(str(asked[name]), name)
    options: JsonObject = {name: asked[name] for name in GIVEN if asked.get(name)}
    if not axes.keys() & {"rate", "concurrency"}:
        options["find"] = asked.get("find") or "concurrency"
    elif asked.get("find") is not None:
        raise UsageError("`--find` answers with the load: leave out `--rate` and `--concurrency`")
    devices = [name.strip() for name in hw.split(",") if name.strip()]
    return crossed(list(models), devices, axes, options)


def _ranged(text: str, name: str) -> Sequence[object]:
    """The values of a range; none without a text."""
    from archsim.base.ranges import parse_range

    return list(parse_range(text, name)) if text else []


def print_loads(models: Sequence[str], hw: str, asked: Mapping[str, object], view: JsonObject) -> None:
    """The rows of a sweep over loads, in a file or on stdout. view: how they are wanted. Raises UsageError."""
    from archsim.render.pages import study as page
    from archsim.render.study_file import open_study
    from archsim.sweeps.load_columns import holds, load_condition
    from archsim.sweeps.scenarios import COLUMNS

    for name in ("pareto", "columns", "plot"):
        if asked.get(name) is not None:
            raise UsageError(f"`--{name}` does not go with simulated loads")
    if asked.get("set"):
        raise UsageError("`--set` does not go with simulated loads: give a file of the changed model")
    condition = None if asked.get("where") is None else load_condition(str(asked["where"]))
    scenarios = load_scenarios(models, hw, asked)
    file = open_study(Path(view["out"]), COLUMNS, resume=False, force=view["force"]) if view["out"] else None
    rows: list[JsonObject] = []
    kept = 0
    for some in run_rows(scenarios, int(asked.get("jobs") or 1)):  # type: ignore[call-overload]
        found = [row for row in some if holds(condition, row)]
        kept += len(found)
        if file is None:
            rows += found
        else:
            file.add(found)
    if file is not None:
        sys.stderr.write(f"{kept:,} rows of {len(scenarios):,} loads in {view['out']}\n")
        return
    layout = PageLayout.json if view["json"] else view["format"]
    output.emit_answer(
        layout, view["no_color"], lambda: {"schema": "archsim.study/1", "rows": rows},
        lambda: page.page(rows, len(scenarios)), rows=lambda: rows,
        html=lambda: html_of(page.page(rows, len(scenarios))),
    )  # fmt: skip


def compare_loads(
    models: Sequence[str], hw: str, asked: Mapping[str, object], layout: PageLayout, no_color: bool, plotlyjs: PlotlyJs
) -> None:
    """Which server holds more, as a page or data; exit code 1 where none has an answer. Raises UsageError."""
    import typer

    from archsim.render.pages.loads import charts, page

    answer = loaded_comparison(models, hw, asked)
    emit(
        answer, layout, no_color, lambda: page(answer), lambda: list(answer.rows), lambda: charts(answer), plotlyjs,
    )  # fmt: skip
    if not answer.order:
        raise typer.Exit(1)


def report_loads(models: Sequence[str], hw: str, asked: Mapping[str, object], out: Path, view: JsonObject) -> None:
    """Which server holds more, as one HTML file; exit code 1 where none has an answer. Raises UsageError."""
    import typer

    from archsim.render.figures.plotlyjs import check_page, write_page
    from archsim.render.html.page import document
    from archsim.render.pages.loads import charts, page, verdict

    for name in ("capex", "utilization", "light", "stamp"):
        if asked.get(name):
            raise UsageError(f"`--{name}` does not go with simulated loads")
    source = view["plotlyjs"].source
    check_page(out, source, force=view["force"])
    answer = loaded_comparison(models, hw, asked)
    html = document(page(answer), charts(answer), source)
    write_page(out, html, source, force=view["force"])
    if view["json"]:
        output.emit_json(answer.to_dict())
    elif not view["quiet"]:
        output.emit(f"{verdict(answer)}\n{out}: {len(html.encode()):,} bytes\n")
    if not answer.order:
        raise typer.Exit(1)


def loaded_comparison(models: Sequence[str], hw: str, asked: Mapping[str, object]) -> LoadComparison:
    """Every server under the same load, or each at the largest that meets the service level. Raises UsageError."""
    from archsim.comparison.loaded import LoadComparison

    if asked.get("set"):
        raise UsageError("`--set` does not go with simulated loads: give a file of the changed model")
    for name in ("energy", "power_limit"):
        if asked.get(name):
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"`{flag}` does not go with simulated loads", hints=("leave out --rate and --slo",))
    scenarios = load_scenarios(models, hw, asked)
    for name in ("rate", "concurrency"):
        if len({str(scenario.asked.get(name)) for scenario in scenarios}) > 1:
            raise UsageError(f"servers are compared at one `--{name}`", hints=("`archsim sweep` takes several",))
    if len(scenarios) < 2:
        raise UsageError("there is nothing to compare with", hints=("name two models, or two devices: --hw h100,h200",))
    rows = [row for some in run_rows(scenarios, int(asked.get("jobs") or 1)) for row in some]  # type: ignore[call-overload]
    return LoadComparison(rows)
