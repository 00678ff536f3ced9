"""`archsim explain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from archsim.base.json_types import JsonObject
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.options import devices

TOPIC = "MODEL with params, active, weights, kv_cache, flops or decode; an error code (E103); or a term (tpot)."


def explain(
    topic: Annotated[list[str], typer.Argument(metavar="TOPIC...", help=TOPIC)],
    hw: Annotated[
        str | None,
        typer.Option(
            "--hw", "--gpu", metavar="HW", autocompletion=devices, help="With decode: the time on this device."
        ),
    ] = None,
    context_len: Annotated[
        int,
        typer.Option(
            "--context-len", "--ctx", parser=o.tokens, metavar="N", help="Tokens of context for flops and decode."
        ),
    ] = 2048,
    weights: o.Weights = None,
    set_: o.Changes = None,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    no_color: o.NoColor = False,
) -> None:
    """A figure's formula with its numbers and source, an error code, or a term."""
    from archsim.render.pages.explain import look_up

    layout = "json" if json else format.value
    found = look_up(" ".join(topic))
    if found is None:
        options: JsonObject = {"context": context_len, "weights": weights, "changes": tuple(set_ or ()), "hw": hw}
        pages = _formulas(topic, options, layout)
    else:
        pages = [found.page() if layout in ("table", "md") else found.to_dict()]
    for page in pages:
        if layout == "json":
            output.emit_json(page)
        elif layout == "csv":
            from archsim.render.flat import flatten, to_csv

            output.emit(to_csv([flatten(page)]))
        else:
            output.emit_page(page, layout, no_color)


def _formulas(topic: list[str], options: JsonObject, layout: str) -> list[Any]:
    from archsim.render.pages.explain import decode_terms, formula, formula_page

    answer, on = formula(topic, **options)
    if layout in ("json", "csv"):
        return [answer.to_dict() | ({"time": decode_terms(on)} if on and on.decode else {})]
    return [formula_page(answer, on)]
