"""`archsim advise`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output


class RankedFor(StrEnum):
    """What changes are ranked by."""

    tpot = "tpot"
    ttft = "ttft"
    memory = "memory"
    cost = "cost"
    context = "context"
    train = "train"


Context = Annotated[
    int, typer.Option("--context", "--max-model-len", parser=o.tokens, metavar="N", help="Prompt and answer together.")
]
Devices = Annotated[int, typer.Option("--devices", min=1, metavar="N", help="Devices that share the model.")]
For = Annotated[RankedFor, typer.Option("--objective", help="What changes are ranked by.")]
Price = Annotated[str | None, typer.Option("--price", metavar="USD|NAME", help="Price of a device and hour.")]
Pairs = Annotated[bool, typer.Option("--pairs", help="Also the pairs of the best eight changes.")]


def advise(
    model: o.Model,
    hw: o.Device,
    context: Context = 8192,
    output_len: o.OutputLen = 256,
    batch: o.Batch = 1,
    devices: Devices = 1,
    weights: o.Weights = None,
    kv_cache_dtype: o.KvDtype = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    objective: For = RankedFor.tpot,
    price: Price = None,
    pairs: Pairs = False,
    set_: o.Changes = None,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    verbose: o.Verbose = False,
    no_color: o.NoColor = False,
) -> None:
    """Which single change helps a model most on a device: key/value heads, windows, depth, experts, formats, devices.

    Each change is applied to the spec and estimated like any model, with published findings on what it does to
    quality. Changes whose kernels were not measured on the device are ranked by their bound, and marked so.
    """
    from archsim import api
    from archsim.render.pages import advise as advise_page

    answer = api.advise(
        model, hw, context=context, output_len=output_len, batch=batch, devices=devices, weights=weights,
        kv_cache_dtype=kv_cache_dtype, engine=engine, objective_of=objective.value, price=price, pairs=pairs,
        set=tuple(set_ or ()),
    )  # fmt: skip
    output.warn(answer.warnings)
    output.emit_answer(
        o.Layout.json if json else format, no_color, answer.to_dict,
        lambda: advise_page.page(answer, model=model, hw=hw, verbose=verbose), rows=lambda: advise_page.rows(answer),
    )  # fmt: skip
