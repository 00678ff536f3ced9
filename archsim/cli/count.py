"""`archsim count`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from archsim.cli import options as o
from archsim.cli import output

if TYPE_CHECKING:
    from archsim.render.page import Page


def count(
    model: o.Model,
    batch: o.Batch = 1,
    input_len: o.InputLen = 2048,
    weights: o.Weights = None,
    kv_cache_dtype: o.KvDtype = None,
    logits: Annotated[o.Logits, typer.Option(help="Positions that the output head is computed at.")] = o.Logits.last,
    with_: Annotated[
        str, typer.Option("--with", metavar="PART,...", help="Optional parts: vision, audio, mtp, mlm-head.")
    ] = "",
    imatrix: Annotated[
        bool | None,
        typer.Option("--imatrix/--no-imatrix", help="Importance matrix: changes tensor types of some GGUF formats."),
    ] = None,
    image: o.Image = None,
    source_len: o.SourceLen = None,
    via: o.Via = None,
    set_: o.Changes = None,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    verbose: o.Verbose = False,
    quiet: o.Quiet = False,
    no_color: o.NoColor = False,
) -> None:
    """Parameters, bytes and FLOPs, exactly: counted from the spec, nothing is assumed."""
    from archsim import api
    from archsim.counts.count import checked_parts

    model = o.via_library(model, via)
    answer = api.count(
        model, batch=batch, input_len=input_len, weights=weights, kv_cache_dtype=kv_cache_dtype,
        logits=logits.value, parts=checked_parts(with_), set=tuple(set_ or ()), imatrix=imatrix, image=image,
        source_len=source_len,
    )  # fmt: skip

    def page() -> Page:
        from archsim.render.pages.count import page
        from archsim.render.provenance import inputs

        asked = {"batch": batch, "input_len": input_len, "weights": weights, "kv_cache_dtype": kv_cache_dtype,
                 "image": image, "source_len": source_len, "set": tuple(set_ or ())}  # fmt: skip
        return page(answer, inputs=inputs(models=model), asked=model, options=asked, verbose=verbose)

    bare = (lambda: f"{answer.total}\n") if quiet else None
    output.emit_answer("json" if json else format, no_color, answer.to_dict, page, bare=bare)
    if quiet:
        output.note_text_part(model)
