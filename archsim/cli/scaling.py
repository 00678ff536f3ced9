"""`archsim scaling`."""

from __future__ import annotations

from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets.cost import Price

Compute = Annotated[str | None, typer.Option("--compute", metavar="FLOP", help="Training FLOP, such as 5.76e23.")]
Params = Annotated[str | None, typer.Option("--params", metavar="N", help="Parameters, such as 70B.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="D", help="Training tokens, such as 1.4T.")]
Dollars = Annotated[str | None, typer.Option("--budget", metavar="USD", help="Dollars to rent devices with, for --hw.")]
Hw = Annotated[
    str | None,
    typer.Option("--hw", "--gpu", metavar="HW", autocompletion=o.devices, help="The device that --budget rents."),
]
Mfu = Annotated[
    float | None, typer.Option("--mfu", metavar="SHARE", help="Model FLOP over the dense bf16 peak. Default: 0.4.")
]
Served = Annotated[
    str | None,
    typer.Option("--inference-tokens", metavar="T", help="Tokens to serve: weighs training against serving."),
]
Unique = Annotated[
    str | None, typer.Option("--unique-tokens", metavar="U", help="Different tokens that there are; more are repeats.")
]
Laws = Annotated[list[str] | None, typer.Option("--law", metavar="NAME", help="Only this law; may be repeated.")]
Far = Annotated[bool, typer.Option("--extrapolate", help="Use laws even beyond ten times their runs.")]


def scaling(
    compute: Compute = None,
    params: Params = None,
    tokens: Tokens = None,
    budget: Dollars = None,
    hw: Hw = None,
    mfu: Mfu = None,
    price: Price = None,
    inference_tokens: Served = None,
    unique_tokens: Unique = None,
    law: Laws = None,
    extrapolate: Far = False,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """What scaling laws say: the model and tokens of a compute budget, the tokens of a model, the loss of a run.

    Give one of --compute, --params, --tokens and --budget, or two of the first three for a run. All laws that
    apply are shown side by side; the spread between them is the uncertainty.
    """
    from archsim import api
    from archsim.render.pages import scaling as scaling_page

    answer = api.scaling(
        compute=compute, params=params, tokens=tokens, budget=budget, hw=hw, mfu=mfu, price=price,
        inference_tokens=inference_tokens, unique_tokens=unique_tokens, law=tuple(law or ()), extrapolate=extrapolate,
    )  # fmt: skip
    layout = o.Layout.json if json else format
    output.emit_answer(
        layout, no_color, answer.to_dict, lambda: scaling_page.page(answer), rows=lambda: scaling_page.rows(answer),
        bare=(lambda: scaling_page.bare(answer)) if quiet else None,
    )  # fmt: skip
