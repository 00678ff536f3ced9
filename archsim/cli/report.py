"""`archsim report`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.errors import AnswerNo
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import cost, load
from archsim.cli.option_sets import sweep as s
from archsim.cli.option_sets import training as t
from archsim.cli.option_sets.charts import Plotly, PlotlyJs
from archsim.cli.options import devices as known_devices
from archsim.cli.options import models as known_models
from archsim.cli.progress import progress

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject
    from archsim.base.options import ReportOptions

Models = Annotated[
    list[str],
    typer.Argument(
        metavar="MODEL...", autocompletion=known_models,
        help="Catalog names, aliases, Hugging Face ids, or paths to specs; the first is what others are compared with.",
    ),
]  # fmt: skip
Hw = Annotated[
    str,
    typer.Option(
        "--hw", "--gpu", metavar="A,B", autocompletion=known_devices, help="Devices: names, aliases or paths."
    ),
]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The HTML file to write.")]
Weights = Annotated[
    str | None,
    typer.Option(
        "--weights", "--quantization", metavar="A,B", help="Weight formats to compare. Default: the checkpoint's own."
    ),
]
Light = Annotated[bool, typer.Option("--light", help="Tables instead of charts: no script, at most 300 kB.")]
Stamp = Annotated[
    str, typer.Option("--stamp", metavar="TEXT", help="A date or remark to show; without it no date is in the file.")
]  # fmt: skip


def report(
    model: Models,
    hw: Hw,
    out: Out,
    *,
    weights: Weights = None,
    devices: o.Devices = "auto",
    batch: o.Batch = 1,
    input_len: o.InputLen = 2048,
    output_len: o.OutputLen = 256,
    kv_cache_dtype: o.KvDtype = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    rent: cost.Rent,
    degrees: s.Degrees,
    load_options: load.Loads,
    training: t.Training,
    set_: o.Changes = None,
    light: Light = False,
    plotlyjs: Plotly = PlotlyJs.inline,
    stamp: Stamp = "",
    force: o.Force = False,
    json: o.AsJson = False,
    quiet: o.Quiet = False,
) -> None:
    """One HTML file that compares models on devices: the answer, a table to decide on, and charts.

    By default the file needs no network and no server. Every model is taken on every device in every format. With
    --price or --capex the table has dollars per million output tokens. Two runs write the same bytes. With --rate,
    --concurrency or --slo servers are simulated under load, and the page shows which holds more; with --phase train it
    compares training runs: as `archsim compare` does with these options.
    """
    from archsim import api
    from archsim.cli.studies.loads import asks_for_loads, refuse_unless_loads, report_loads
    from archsim.cli.studies.training_runs import known_counts, refuse_mixed, write_report
    from archsim.render.figures.plotlyjs import check_page

    loads = load_options.options()
    if training.phase is t.Phase.inference and asks_for_loads(loads):
        refuse_mixed(training, {})
        servers: JsonObject = {
            "devices": devices, **degrees.options(), "batch": batch, "input_len": input_len, "output_len": output_len,
            "weights": weights, "kv_cache_dtype": kv_cache_dtype, "engine": engine, "set": tuple(set_ or ()),
            "price": rent.price, "capex": rent.capex, "utilization": rent.utilization, "light": light, "stamp": stamp,
        }  # fmt: skip
        view = {"plotlyjs": plotlyjs, "force": force, "json": json, "quiet": quiet}
        report_loads(list(model), hw, servers | loads, out, view)
        return
    refuse_unless_loads(loads)
    refuse_mixed(training, {
        **loads,
        "batch": batch if batch != 1 else None, "input_len": input_len if input_len != 2048 else None,
        "output_len": output_len if output_len != 256 else None, "weights": weights,
        "kv_cache_dtype": kv_cache_dtype, "engine": engine if engine != o.DEFAULT_ENGINE else None,
        "utilization": rent.utilization, "capex": rent.capex, "light": light or None, "stamp": stamp or None,
    }, degrees.options())  # fmt: skip
    if training.phase is t.Phase.train:
        runs = {
            **training.options(), **degrees.options(), "devices": known_counts(devices), "price": rent.price,
            "set": tuple(set_ or ()) or None,
        }  # fmt: skip
        write_report(list(model), hw, runs, out, {"plotlyjs": plotlyjs, "force": force, "json": json, "quiet": quiet})
        return
    check_page(out, plotlyjs.source, force=force)
    asked: ReportOptions = {
        "weights": weights, "devices": devices, "batch": batch, "input_len": input_len, "output_len": output_len,
        "kv_cache_dtype": kv_cache_dtype, "engine": engine, "set": tuple(set_ or ()), "price": rent.price,
        "utilization": rent.utilization, "capex": rent.capex, "years": rent.years, "host_share": rent.host_share,
        "light": light, "stamp": stamp,
    }  # fmt: skip
    if plotlyjs is not PlotlyJs.inline:
        asked["plotlyjs"] = plotlyjs.source
    asked["command"] = _command(model, hw, asked)
    with progress("comparing"):
        answer = api.report(list(model), hw, **asked)
    answer.write(out, force=force)
    if json:
        output.emit_json(answer.to_dict())
    elif not quiet:
        from archsim.render.html.headline import verdict

        lines = [verdict(answer.study), f"{out}: {len(answer.html.encode()):,} bytes"]
        output.emit("\n".join(lines) + "\n")
    output.warn(tuple(dict.fromkeys(w for c in answer.study.candidates for w in c.answer.warnings)))
    if not any(c.fits for c in answer.study.candidates):
        _refuse(out)


def _refuse(out: Path) -> None:
    """Say on stderr that the answer is no for all; exit code 1."""
    hints = (f"{out} shows by how much", "`archsim fit` says what would fit")
    output.say(AnswerNo("none of the candidates fits", hints=hints))
    raise typer.Exit(1)


def _command(models: list[str], hw: str, asked: Mapping[str, object]) -> str:
    """The command line that makes the page again."""
    from archsim.render.command_line import command_line

    return command_line("report", *models, **{"hw": hw, **asked, "out": "FILE.html"})
