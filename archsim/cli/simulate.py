"""`archsim simulate`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from archsim.base.errors import UsageError
from archsim.base.output_file import check_output, write_text
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import cost as c
from archsim.cli.option_sets import simulate as s
from archsim.cli.option_sets import sweep as several
from archsim.cli.option_sets.charts import Plotly, PlotlyJs
from archsim.cli.studies.simulations import ASKED, is_study, model_and_device, print_study

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject
    from archsim.predict.simulation import Simulation
    from archsim.render.page import Page


def simulate(
    context: typer.Context,
    model: s.Model = None,
    hw: s.Devices = None,
    *,
    arrivals: s.Arrivals,
    devices: o.Devices = "auto",
    tp: o.Tp = None,
    pp: o.Pp = None,
    ep: o.Ep = None,
    dp: o.Dp = None,
    weights: several.Weights = None,
    kv_cache_dtype: several.KvDtypes = None,
    engine: several.Engines = o.DEFAULT_ENGINE,
    server: s.Server,
    cluster: s.Cluster,
    slo: s.Slo = None,
    goodput: s.Goodput = None,
    find: s.Find = None,
    check: s.Check = False,
    rent: c.Rent,
    break_even: c.AgainstTokens = None,
    seed: s.Seed = 0,
    replications: s.Replications = 5,
    exact: s.Exact = False,
    expected_only: s.ExpectedOnly = False,
    rates: s.Rates = None,
    concurrencies: s.Concurrencies = None,
    scenarios: s.Scenarios = None,
    out: s.Out = None,
    resume: s.Resume = False,
    jobs: s.Jobs = None,
    ray: s.Ray = None,
    requests_out: s.RequestsOut = None,
    timeline: s.Timeline = None,
    html: s.Html = None,
    plotlyjs: Plotly = PlotlyJs.inline,
    force: o.Force = False,
    set_: o.Changes = None,
    view: o.View,
) -> None:
    """Serving under load: TTFT, TPOT and their percentiles, throughput and queues, simulated request by request.

    The load is open (--rate), closed (--concurrency) or recorded (--trace). Which requests share a step follows the
    engine's own scheduler; how long steps take is what `estimate` says of them.
    """
    from archsim import api
    from archsim.render import table_file
    from archsim.render.pages.simulate import bare

    options = {name: value for name, value in context.params.items() if name not in VIEW}
    first_wave = None if arrivals.first_wave is None else arrivals.first_wave.value
    if is_study(hw, context.params):
        if any(context.params[name] is not None for name in COSTS):
            raise UsageError("`--price` and what goes with it are for one load at a time")
        if find or set_ or requests_out or timeline or html:
            text = "`--find`, `--set`, `--requests-out`, `--timeline` and `--html` are for one load at a time"
            raise UsageError(text)
        options = {name: value for name, value in options.items() if name not in COSTS}
        options |= {"first_wave": first_wave, "find": None}
        print_study(model, hw, options, _stated(context), context.params)
        return
    model, hw = model_and_device(model, hw)
    for file in (requests_out, timeline, html):
        if file is not None:
            check_output(file, force=force)
    if html is not None:
        from archsim.render.figures.plotlyjs import check_page

        check_page(html, plotlyjs.source, force=force)
    if requests_out is not None:
        table_file.check_name(requests_out)
    answer = api.simulate(model, hw, set=tuple(set_ or ()), **{**options, "first_wave": first_wave})
    _write_data(answer, requests_out, timeline, force)
    if html is not None:
        _write_html(answer, _page(answer, (model, hw), context.params), html, plotlyjs, force)
    output.emit_answer(
        view.layout, view.no_color, answer.to_dict, lambda: _page(answer, (model, hw), context.params),
        bare=(lambda: bare(answer)) if view.quiet else None, rows=lambda: answer.to_rows(),
    )  # fmt: skip
    if view.quiet:
        output.note_text_part(model)
    output.warn(answer.warnings)
    if check and answer.found is None and answer.observed.met is False:
        raise typer.Exit(1)


def _stated(context: typer.Context) -> list[str]:
    """Parameters that the command line has."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]


def _write_data(answer: Simulation, requests_out: Path | None, timeline: Path | None, force: bool) -> None:
    """Requests as a table, and as a timeline, where they were asked for."""
    from archsim.predict import request_timeline as t
    from archsim.render.table_file import write_rows

    if requests_out:
        write_rows(requests_out, t.COLUMNS, t.request_rows(answer.record), force=force)
        sys.stderr.write(f"{len(answer.record):,} requests in {requests_out}\n")
    if timeline:
        about = {"model": answer.model.name, "hardware": answer.hardware.id, "workload": answer.workload}
        drawn = t.timeline(answer.record, about)
        write_text(timeline, output.json_text(drawn), force=force)
        sys.stderr.write(f"{len(drawn['traceEvents']):,} events in {timeline}: open it at ui.perfetto.dev\n")


def _write_html(answer: Simulation, page: Page, path: Path, plotlyjs: PlotlyJs, force: bool) -> None:
    """The page with its charts."""
    from archsim.render.figures.plotlyjs import write_page
    from archsim.render.html.simulate import document

    write_page(path, document(answer, page, plotlyjs.source), plotlyjs.source, force=force)
    sys.stderr.write(f"wrote {path}\n")


COSTS = ("price", "utilization", "capex", "years", "host_share", "break_even")
"""Parameters about dollars, which a study has none of."""

VIEW = frozenset(ASKED) | frozenset(
    {
        "model",
        "hw",
        "check",
        "requests_out",
        "timeline",
        "html",
        "plotlyjs",
        "force",
        "set_",
        "json",
        "format",
        "verbose",
        "quiet",
        "no_color",
    }
)
"""Parameters that say how the answer is wanted, or are translated."""


def _page(answer: Simulation, asked: tuple[str, str], params: JsonObject) -> Page:
    from archsim.render.pages.simulate import page
    from archsim.render.provenance import inputs

    engine = answer.server.engine.name
    files = inputs(models=asked[0], hw=asked[1], **({"engines": engine} if engine != o.DEFAULT_ENGINE else {}))
    own = {name: value for name, value in params.items() if name not in VIEW}
    usual = {"seed": 0, "replications": 5}
    options = {name: value for name, value in own.items() if str(value) != str(usual.get(name))}
    return page(
        answer, inputs=files, asked=asked, options={**options, "set": tuple(params["set_"] or ())},
        verbose=params["verbose"],
    )  # fmt: skip
