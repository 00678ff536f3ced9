"""`archsim explain`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from archsim.base.json_types import JsonObject
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.options import devices

TOPIC = (
    "MODEL with params, active, weights, kv_cache, flops, decode (tpot), prefill (ttft) or train; a device; an error "
    "code (E103); or a term (tpot)."
)


def explain(
    topic: Annotated[list[str], typer.Argument(metavar="TOPIC...", help=TOPIC)],
    hw: Annotated[
        str | None,
        typer.Option(
            "--hw", "--gpu", metavar="HW", autocompletion=devices, help="With decode, prefill, train: the time there."
        ),
    ] = None,
    context_len: Annotated[
        int,
        typer.Option(
            "--context-len", "--ctx", parser=o.tokens, metavar="N", help="Tokens for flops, decode, prefill, train."
        ),
    ] = 2048,
    weights: o.Weights = None,
    set_: o.Changes = None,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    no_color: o.NoColor = False,
) -> None:
    """A figure's formula with its numbers and source, an error code, or a term."""
    from archsim.render.pages.explain import device_of, device_page, device_terms, look_up

    layout = "json" if json else format.value
    found = look_up(" ".join(topic))
    if found is not None:
        pages: list[Any] = [found.page() if layout in ("table", "md") else found.to_dict()]
    elif (device := device_of(topic)) is not None:
        pages = [device_page(device) if layout in ("table", "md") else device_terms(device)]
    else:
        options: JsonObject = {"context": context_len, "weights": weights, "changes": tuple(set_ or ()), "hw": hw}
        pages = _formulas(topic, options, layout)
    for page in pages:
        if layout == "json":
            output.emit_json(page)
        elif layout == "csv":
            from archsim.render.flat import flatten, to_csv

            output.emit(to_csv([flatten(page)]))
        else:
            output.emit_page(page, layout, no_color)


def _formulas(topic: list[str], options: JsonObject, layout: str) -> list[Any]:
    from archsim.render.pages.explain import formula, formula_page

    answer, on = formula(topic, **options)
    if layout in ("json", "csv"):
        return [answer.to_dict() | ({"time": on.terms(answer.quantity)} if on else {})]
    return [formula_page(answer, on)]
