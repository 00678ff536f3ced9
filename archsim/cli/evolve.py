"""`archsim evolve`."""

from __future__ import annotations

from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets import pair as p
from archsim.cli.option_sets.charts import Plotly, PlotlyJs
from archsim.cli.option_sets.training import Phase, TrainContext
from archsim.cli.options import devices
from archsim.cli.progress import progress

Device = Annotated[
    str,
    typer.Option("--hw", "--gpu", metavar="HW", autocompletion=devices, help="Device of the times; one of it is used."),
]
Order = Annotated[
    str,
    typer.Option(
        metavar="ORDER",
        help="Order of the steps: story (as in docs/compare.md), reverse, random:SEED, or decisions that come first, "
        "by the names in the JSON: experts,depth.",
    ),
]
Orders = Annotated[
    int,
    typer.Option(
        "--orders", "--average", min=0, metavar="N",
        help="What each decision changes on average over N orders (Shapley's value over all of them); 0: no average.",
    ),
]  # fmt: skip
Seed = Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the random orders.")]


def evolve(
    a: p.First,
    b: p.Second,
    hw: Device = "h100-sxm",
    context_len: p.ContextLen = 8192,
    phase: TrainContext = Phase.inference,
    order: Order = "story",
    orders: Orders = 8,
    seed: Seed = 0,
    set_: p.ChangesOfSecond = None,
    set_from: p.ChangesOfFirst = None,
    json: o.AsJson = False,
    format: p.Format = p.PageLayout.table,
    plotlyjs: Plotly = PlotlyJs.inline,
    no_color: o.NoColor = False,
) -> None:
    """From one architecture to another, one decision at a time, and what each of them costs.

    Every step is a model that can be built; the steps add up to the whole difference. Where a decision is possible
    only after another, it waits for it. With --phase train: what each decision did to the FLOPs, the memory and the
    time of training.
    """
    from archsim import api

    changes = (*(set_from or ()), *(set_ or ()))
    with progress("averaging"):
        answer = api.evolve(
            a, b, hw, context_len=context_len, phase=phase.value,
            order=order, orders=orders, seed=seed, set=tuple(set_ or ()),
            set_from=tuple(set_from or ()),
        )  # fmt: skip
    from archsim.render.pages import evolve as pages

    layout = p.PageLayout.json if json else format
    p.emit(
        answer,
        layout,
        no_color,
        lambda: pages.page(answer, changes=changes, drawn=layout is p.PageLayout.html),
        lambda: pages.rows(answer),
        lambda: pages.charts(answer),
        plotlyjs,
    )
    if layout in (p.PageLayout.json, p.PageLayout.csv):
        output.warn(answer.warnings)
