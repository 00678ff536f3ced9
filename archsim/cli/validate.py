"""`archsim validate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeGuard

import typer

from archsim.base.errors import AnswerNo
from archsim.base.output_file import check_output, write_text
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import fit as f
from archsim.cli.option_sets import simulate as s
from archsim.cli.option_sets.charts import Plotly, PlotlyJs
from archsim.cli.progress import progress

if TYPE_CHECKING:
    from archsim.accuracy.validation import Several, Validation
    from archsim.base.options import TimingArguments
    from archsim.measure.cpu_check import CpuCheck
    from archsim.measure.model_check import ModelCheck

    Answer = Validation | Several | ModelCheck | CpuCheck

What = Annotated[
    str | None,
    typer.Argument(
        metavar="[FILE|DIR|MODEL]",
        help="Kernel table, run list, serving points, log of requests, what `vllm bench serve`, SGLang's "
        "`bench_serving` or `llama-bench` wrote, or a folder of them; default: archsim's own run list. A model is "
        "instantiated and timed on --device.",
    ),
]
On = Annotated[
    str | None, typer.Option("--device", metavar="cpu|cuda", help="Time the model on this machine's device.")
]
Size = Annotated[
    str | None,
    typer.Option("--size", metavar="small|full", help="Of a model: layers at toy width, or the whole model."),
]
Out = Annotated[
    Path | None,
    typer.Option(
        "--out", metavar="DIR", help="Of a model on a measured processor: folder of the blind plan and the results."
    ),
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="TIME", help="Of such a model: when to stop timing; default: 2m.")
]
Served = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help="The model, where the file does not say it.")
]
Where = Annotated[str | None, typer.Option("--hw", metavar="HW", help="The device, where the file does not say it.")]
Html = Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page with a scatter plot.")]
Report = Annotated[
    Path | None, typer.Option("--write-report", metavar="FILE", help="Write the accuracy page, as Markdown.")
]
Limit = Annotated[int | None, typer.Option(min=1, metavar="N", help="At most N rows, drawn with a fixed seed.")]
Wanted = Annotated[
    str | None, typer.Option("--by", metavar="A,B", help="Columns to group tables by, such as op,device.")
]
Most = Annotated[
    str | None, typer.Option("--max-median-ape", metavar="X", help="Exit 1 if the median error exceeds X: 0.12 or 12%.")
]


def validate(
    context: typer.Context,
    what: What = None,
    device: On = None,
    size: Size = None,
    out: Out = None,
    budget: Budget = None,
    model: Served = None,
    hw: Where = None,
    devices: o.Devices = "auto",
    tp: o.Tp = None,
    weights: o.Weights = None,
    kv_cache_dtype: o.KvDtype = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    max_num_seqs: f.Seqs = None,
    max_num_batched_tokens: f.StepTokens = None,
    gpu_memory_utilization: f.Utilization = None,
    kv_tokens: s.KvTokens = None,
    chunked_prefill: s.Chunked = None,
    html: Html = None,
    plotlyjs: Plotly = PlotlyJs.inline,
    write_report: Report = None,
    force: o.Force = False,
    max_median_ape: Most = None,
    by: Wanted = None,
    limit: Limit = None,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Compare predictions with measurements that the predictor does not see.

    The columns of FILE decide how it is read. --model, --hw and the engine's options stand for what it does not say;
    a log of requests (t_s, input, output, ttft_ms, e2e_ms) is replayed on the server that they describe. Every row is
    predicted or refused with a reason; the errors of a plain roofline are shown for comparison. Without FILE, the
    public runs that come with archsim are used. A MODEL is instantiated and timed on this machine.
    """
    from archsim import api

    if html is not None:
        from archsim.render.figures.plotlyjs import check_page

        check_page(html, plotlyjs.source, force=force)
    check_output(write_report, force=force)
    most = _share(max_median_ape)
    with progress("predicting"):
        server = {name: context.params[name] for name in SERVER if context.params[name] is not None}
        timing = _timing(device, size, out, budget, weights if device is not None else None)
        answer = api.validate(what, limit=limit, **timing, **server)
    layout = o.Layout.json if json else format
    view = _ValidateView(_names(by, answer), verbose, quiet, no_color)
    _write(answer, html, plotlyjs, write_report, force)
    _print(answer, layout, view)
    _judge(answer, most, no_color)


SERVER = (
    *("model", "hw", "devices", "tp", "weights", "kv_cache_dtype", "engine", "max_num_seqs"),
    *("max_num_batched_tokens", "gpu_memory_utilization", "kv_tokens", "chunked_prefill"),
)
"""Parameters that describe the server that was measured."""


def _timing(
    device: str | None, size: str | None, out: Path | None, budget: str | None, weights: str | None
) -> TimingArguments:
    """How a model is timed here. Raises UsageError for a budget that is none."""
    found: TimingArguments = {"device": device, "size": size}
    if out is not None:
        found["out"] = str(out)
    if weights is not None:
        found["dtype"] = weights
    if budget is not None:
        from archsim.measure.plan import parse_budget

        found["budget"] = parse_budget(budget)
    return found


@dataclass(frozen=True, slots=True)
class _ValidateView:
    """How the answer is wanted. by: the dimensions of tables."""

    by: tuple[str, ...]
    verbose: bool
    quiet: bool
    no_color: bool


def _share(text: str | None) -> float | None:
    """`0.12` or `12%` as a share."""
    if text is None:
        return None
    number, sign, rest = text.partition("%")
    try:
        found = float(number) / (100 if sign else 1)
    except ValueError:
        found = -1.0
    if rest or not 0 <= found < float("inf"):
        raise typer.BadParameter(f"--max-median-ape {text[:40]!r} is not a share; write 0.12 or 12%.")
    return found


def _answers(answer: Answer) -> tuple[Validation, ...]:
    """The comparisons in an answer; none in that of a model on a device."""
    from archsim.accuracy.validation import Several, Validation

    if isinstance(answer, Several):
        return answer.answers
    return (answer,) if isinstance(answer, Validation) else ()


def _names(by: str | None, answer: Answer) -> tuple[str, ...]:
    """The dimensions of `--by`, or a usage error that names those there are."""
    names = tuple(name.strip() for name in (by or "").split(",") if name.strip())
    known = {name for one in _answers(answer) for name in one.labels}
    for name in names:
        if known and name not in known:
            raise typer.BadParameter(f"--by knows {', '.join(sorted(known))}, not {name[:40]!r}.")
    return names


def _write(answer: Answer, html: Path | None, plotlyjs: PlotlyJs, report: Path | None, force: bool) -> None:
    """The files that were asked for, each whole or not at all."""
    if html is None and report is None:
        return
    from archsim.measure.model_check import ModelCheck

    if html is not None:
        from archsim.render.figures.plotlyjs import write_page
        from archsim.render.html.validate import document, model_document

        if isinstance(answer, ModelCheck):
            write_text(html, model_document(answer), force=force)
        elif _is_cpu_check(answer):
            from archsim.render.html.cpu_check import cpu_document

            write_page(html, cpu_document(answer, plotlyjs.source), plotlyjs.source, force=force)
        else:
            write_page(html, document(_answers(answer), plotlyjs.source), plotlyjs.source, force=force)
    if report is not None:
        from archsim.render.pages.accuracy import accuracy

        write_text(report, accuracy(_answers(answer)), force=force)


def _print(answer: Answer, layout: o.Layout, view: _ValidateView) -> None:
    """As JSON, CSV, one line, or a page for each kind of file."""
    if layout is o.Layout.json:
        for piece in answer.json():
            output.emit(piece)
        return
    from archsim.measure.model_check import ModelCheck

    if isinstance(answer, ModelCheck):
        _print_model(answer, layout, view)
    if _is_cpu_check(answer):
        _print_cpu(answer, layout, view)
    for i, one in enumerate(_answers(answer)):
        if layout is o.Layout.csv:
            from archsim.render.flat import to_csv

            output.emit(to_csv(one.rows.dicts()))
            continue
        from archsim.render.pages import validate as validate_page

        if view.quiet:
            output.emit(validate_page.bare(one))
            continue
        output.emit("\n" * bool(i))
        output.emit_page(validate_page.page(one, view.by, view.verbose), layout, view.no_color)


def _is_cpu_check(answer: Answer) -> TypeGuard[CpuCheck]:
    """Whether models were timed on a measured processor."""
    return type(answer).__name__ == "CpuCheck"


def _print_cpu(answer: CpuCheck, layout: o.Layout, view: _ValidateView) -> None:
    """Models on this processor."""
    from archsim.render.pages.cpu_check import cpu_check_page

    output.emit_answer(
        layout, view.no_color, answer.to_dict, lambda: cpu_check_page(answer), rows=lambda: list(answer.rows)
    )


def _print_model(answer: ModelCheck, layout: o.Layout, view: _ValidateView) -> None:
    """The comparison of one model on this machine."""
    from archsim.render.pages.validate import model_bare, model_page

    output.emit_answer(
        layout, view.no_color, answer.to_dict, lambda: model_page(answer), rows=lambda: answer.to_dict()["lines"],
        bare=(lambda: model_bare(answer)) if view.quiet else None,
    )  # fmt: skip


def _judge(answer: Answer, most: float | None, no_color: bool) -> None:
    """Exit code 1 where the median error is above what was asked for, or a count of a model is not what was seen."""
    from archsim.measure.model_check import ModelCheck

    if isinstance(answer, ModelCheck) and not answer.exact:
        output.say(AnswerNo(f"not every count of {answer.asked} is what was seen"), no_color)
        raise typer.Exit(1)
    if most is None:
        return
    for one in _answers(answer):
        median = one.summary["median_ape"]
        if median is None or median > most:
            found = "there is none" if median is None else f"it is {median:.4g}"
            output.say(AnswerNo(f"the median error of {one.kind} is to be at most {most:.4g}; {found}"), no_color)
            raise typer.Exit(1)
