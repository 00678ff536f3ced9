"""`archsim diff`."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import pair as p
from archsim.cli.option_sets.training import Phase, TrainContext

ExitCode = Annotated[bool, typer.Option("--exit-code", help="Exit with 1 where the architectures differ.")]


def diff(
    a: p.First,
    b: p.Second,
    context_len: p.ContextLen = 8192,
    phase: TrainContext = Phase.inference,
    weights: p.FormatsOfBoth = None,
    set_: p.ChangesOfSecond = None,
    set_from: p.ChangesOfFirst = None,
    exit_code: ExitCode = False,
    svg: p.Svg = None,
    theme: o.Themed = o.Theme.auto,
    force: o.Force = False,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    no_color: o.NoColor = False,
) -> None:
    """How two architectures differ, grouped by what is affected: parameters, FLOPs, cache, wiring.

    Architectures are compared, not files: names, sources and ways of writing the same thing do not count.
    """
    from archsim import api

    if svg is not None:
        output.check_drawing(svg, force=force)
    changes = (*(set_from or ()), *(set_ or ()))
    answer = api.diff(
        a, b, context_len=context_len, phase=phase.value, weights=weights, set=tuple(set_ or ()),
        set_from=tuple(set_from or ()),
    )  # fmt: skip
    from archsim.render.pages import diff as pages

    if svg is not None:
        from archsim.render.drawing.figure import models_svg

        output.write_drawing(svg, lambda: models_svg([answer.a, answer.b], theme.value), force=force)
    else:
        shown = partial(pages.page, answer, changes=changes)

        def html() -> str:
            from archsim.render.html.difference import document

            return document(answer, shown())

        layout = p.PageLayout.json if json else format
        output.emit_answer(layout, no_color, answer.to_dict, shown, rows=lambda: pages.rows(answer), html=html)
    if exit_code and not answer.same:
        raise typer.Exit(1)
