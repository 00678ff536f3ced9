"""`archsim compare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from archsim.base.errors import AnswerNo, UsageError
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import cost, load
from archsim.cli.option_sets import pair as p
from archsim.cli.option_sets import sweep as s
from archsim.cli.option_sets import training as t
from archsim.cli.option_sets.charts import Plotly, PlotlyJs

if TYPE_CHECKING:
    from archsim.base.options import CompareOptions
    from archsim.comparison.compare import Comparison


def compare(
    models: p.Several,
    hw: p.DeviceList = None,
    *,
    devices: s.Counts = "auto",
    degrees: s.Degrees,
    batch: s.Batch = "1",
    input_len: s.InputLen = "2048",
    output_len: s.OutputLen = "256",
    weights: p.Formats = None,
    kv_cache_dtype: o.KvDtype = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    rent: cost.Rent,
    energy: cost.Energy = False,
    power_limit: cost.PowerLimit = None,
    load_options: load.Loads,
    training: t.Training,
    set_: p.ChangesOfOthers = None,
    svg: p.Svg = None,
    theme: o.Themed = o.Theme.auto,
    force: o.Force = False,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    plotlyjs: Plotly = PlotlyJs.inline,
    no_color: o.NoColor = False,
) -> None:
    """Which is better, by how much, where the difference comes from, and with what confidence.

    Models are crossed with devices; the first of each is the baseline. Every number may be a range:
    each workload is compared for itself, degrees such as --tp 1,2 are candidates of their own. With --rate,
    --concurrency or --slo the servers are simulated under load; with --slo alone, which of them holds more requests in
    flight. With --phase train training runs are compared, as `archsim train` answers them.
    """
    from archsim import api
    from archsim.cli.studies.loads import asks_for_loads, compare_loads, refuse_unless_loads
    from archsim.cli.studies.training_runs import known_counts, print_comparison, refuse_mixed

    if hw is None:
        raise UsageError(
            "no device to compare on",
            hints=("`--hw h100` or several, `--hw h100,h200`", "`archsim diff A B` needs no device"),
        )
    if svg is not None:
        output.check_drawing(svg, force=force)
    changes, layout, loads = tuple(set_ or ()), p.PageLayout.json if json else format, load_options.options()
    asked: CompareOptions = {
        "devices": devices, "tp": degrees.tp, "pp": degrees.pp, "ep": degrees.ep, "dp": degrees.dp, "batch": batch,
        "input_len": input_len, "output_len": output_len, "weights": weights, "kv_cache_dtype": kv_cache_dtype,
        "engine": engine, "set": changes, "price": rent.price, "utilization": rent.utilization, "capex": rent.capex,
        "years": rent.years, "host_share": rent.host_share, "energy": energy, "power_limit": power_limit,
    }  # fmt: skip
    refuse_mixed(training, {
        **loads, "batch": batch if batch != "1" else None,
        "input_len": input_len if input_len != "2048" else None,
        "output_len": output_len if output_len != "256" else None, "weights": weights,
        "kv_cache_dtype": kv_cache_dtype, "engine": engine if engine != o.DEFAULT_ENGINE else None,
        "utilization": rent.utilization, "capex": rent.capex, "svg": svg,
        "energy": energy or None, "power_limit": power_limit,
    })  # fmt: skip
    if training.phase is t.Phase.train:
        runs = {
            **training.options(), **degrees.options(), "devices": known_counts(devices), "price": rent.price,
            "set": changes or None,
        }  # fmt: skip
        print_comparison(list(models), hw, runs, layout, no_color, plotlyjs)
        return
    if asks_for_loads(loads):
        compare_loads(list(models), hw, {**asked, **loads}, layout, no_color, plotlyjs)
        return
    refuse_unless_loads(loads)
    answer = api.compare(models, hw, **asked)
    if svg is not None:
        from archsim.render.drawing.figure import models_svg

        output.write_drawing(svg, lambda: models_svg([c.model for c in answer.candidates], theme.value), force=force)
        return
    _print(answer, layout, changes, no_color, plotlyjs)


def _print(
    answer: Comparison, layout: p.PageLayout, changes: tuple[str, ...], no_color: bool, plotlyjs: PlotlyJs
) -> None:
    """The answer, and what is to be said of it; exit code 1 where no candidate fits."""
    from archsim.render.pages import compare as pages

    p.emit(
        answer, layout, no_color, lambda: pages.page(answer, changes=changes), lambda: pages.rows(answer),
        lambda: pages.charts(answer), plotlyjs,
    )  # fmt: skip
    found = [warning for c in answer.candidates if c.answer for warning in c.answer.warnings]
    output.warn(tuple(dict.fromkeys(found)))
    if not any(c.fits for c in answer.candidates):
        _refuse(answer, no_color)


def _refuse(answer: Comparison, no_color: bool) -> None:
    """Say on stderr that the answer is no for all; exit code 1."""
    no = "can be" if any(c.answer is None for c in answer.candidates) else "fits"
    devices = ",".join(dict.fromkeys(c.hardware.id for c in answer.candidates))
    hint = f"`archsim fit MODEL --hw {devices}` says what would fit; `--devices auto` takes as many as it needs"
    output.say(AnswerNo(f"none of the candidates {no}", hints=[hint]), no_color)
    raise typer.Exit(1)
