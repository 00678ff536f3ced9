"""`archsim estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.data_class import dataclass
from archsim.base.errors import AnswerNo
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import cost as c
from archsim.spec.catalog import resolve

if TYPE_CHECKING:
    from archsim.base.options import EstimateArguments, PaidArguments
    from archsim.predict.estimate import Estimate
    from archsim.render.page import Page


def estimate(
    model: o.Model,
    hw: o.Device,
    *,
    devices: o.Devices = "auto",
    tp: o.Tp = None,
    pp: o.Pp = None,
    ep: o.Ep = None,
    dp: o.Dp = None,
    batch: o.Batch = 1,
    input_len: o.InputLen = 2048,
    output_len: o.OutputLen = 256,
    weights: o.Weights = None,
    kv_cache_dtype: o.KvDtype = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    image: o.Image = None,
    audio: o.Audio = None,
    source_len: o.SourceLen = None,
    without: o.Without = "",
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="N", help="Also the steady state of N requests in flight (continuous batching)."),
    ] = None,
    cached_input: c.CachedInput = 0,
    objective: o.Objective = None,
    rent: c.Rent,
    power_price: c.PowerPrice = None,
    pue: c.Pue = None,
    break_even: c.AgainstTokens = None,
    energy: c.Energy = False,
    grid: c.Grid = None,
    power_limit: c.PowerLimit = None,
    via: o.Via = None,
    set_: o.Changes = None,
    by: o.ByWhat = None,
    view: o.View,
) -> None:
    """How big, how fast, does it fit, and what limits it.

    Without --devices the fewest devices that hold the model are used. With it, a model that does not fit is
    still answered in full, and the exit code is 1.
    """
    from archsim import api

    model = o.via_library(model, via)
    asked: EstimateArguments = {
        "devices": devices, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "batch": batch, "input_len": input_len,
        "output_len": output_len, "weights": weights, "kv_cache_dtype": kv_cache_dtype, "engine": engine,
        "concurrency": concurrency, "cached_input": cached_input, "image": image, "audio": audio,
        "source_len": source_len,
        "without": without,
        "objective": objective.value if objective else None,
    }  # fmt: skip
    costs = c.given(
        energy, price=rent.price, utilization=rent.utilization, capex=rent.capex, years=rent.years,
        host_share=rent.host_share, power_price=power_price, break_even=break_even, grid=grid,
        power_limit=power_limit, pue=pue,
    )  # fmt: skip
    question = _Question(model, hw, asked, tuple(set_ or ()), by.value if by else None, costs)
    answer = api.estimate(model, hw, **asked, **costs, set=question.changes)
    _print(answer, question, view)
    output.warn(answer.warnings)
    if not answer.memory.fits:
        _refuse(answer, {**asked, "weights": weights or _implied_format(model)}, view.no_color)


@dataclass(frozen=True, slots=True)
class _Question:
    """What was asked for."""

    model: str
    hw: str
    asked: EstimateArguments
    changes: tuple[str, ...]
    by: str | None
    costs: PaidArguments


def _print(answer: Estimate, question: _Question, view: o.View) -> None:
    if question.by is not None or view.layout in (o.Layout.json, o.Layout.csv):
        _print_data(answer, question.by, view)
    elif view.quiet:
        from archsim.render.pages.estimate import bare

        output.emit(bare(answer))
        output.note_text_part(question.model)
        output.note_other_format(answer.assumptions)
    else:
        output.emit_page(_page(answer, question, view.verbose), view.layout, view.no_color)


def _print_data(answer: Estimate, by: str | None, view: o.View) -> None:
    """As JSON or CSV, or the table that `--by` asks for."""
    from archsim.render.pages import breakdown

    if view.layout is o.Layout.json:
        output.emit_json(breakdown.with_breakdown(answer, by))
    elif view.layout is o.Layout.csv:
        from archsim.render.flat import to_csv

        output.emit(to_csv(breakdown.as_rows(answer, by)))
    elif by is not None:
        output.emit_page(breakdown.breakdown_page(answer, by), view.layout, view.no_color)


def _page(answer: Estimate, question: _Question, verbose: bool) -> Page:
    from archsim.predict.what_fits import facts
    from archsim.render.pages.estimate import page
    from archsim.render.provenance import inputs

    engine = answer.tensors.rules.name
    named = {"models": question.model, "hw": question.hw}
    files = {**named, **({"engines": engine} if engine != o.DEFAULT_ENGINE else {})}
    return page(
        answer, facts(answer), inputs=inputs(**files), asked=(question.model, question.hw),
        options={**question.asked, **question.costs}, changes=question.changes, verbose=verbose,
    )  # fmt: skip


def _implied_format(model: str) -> str | None:
    """The weight format that a model's spelling asks for (`-FP8`)."""
    return resolve("models", model).format_hint


def _refuse(answer: Estimate, asked: EstimateArguments, no_color: bool) -> None:
    """Say on stderr why it does not fit and what would; exit code 1."""
    from archsim.predict.what_fits import what_fits
    from archsim.render.pages.estimate import suggestions_text, too_small

    headline, table = too_small(answer)
    hint = suggestions_text(what_fits(answer.model, answer.hardware, asked))
    output.say(AnswerNo(headline, details=table, hints=[hint]), no_color)
    raise typer.Exit(1)
