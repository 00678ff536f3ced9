"""`archsim fit --hw HW` without a model: what a device holds of the catalog."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.cli import options as o
from archsim.cli import output

if TYPE_CHECKING:
    from archsim.predict.fits import Fits

OF_THE_CATALOG = frozenset({"devices", "max_model_len", "engine", "weights", "kv_cache_dtype"}) | frozenset({
    "model", "hw", "check", "set_", "with_", "json", "format", "verbose", "quiet", "no_color",
})  # fmt: skip
"""Parameters that a question about all models may have."""


def print_catalog(names: Sequence[str], params: JsonObject) -> None:
    """What a device, or several, holds of the catalog."""
    from archsim import api
    from archsim.cli.progress import Counted
    from archsim.render.pages import fits as fits_page

    defaults = {"batch": 1, "input_len": 2048, "output_len": 256, "n_cpu_moe": 0, "max_loras": 0, "max_lora_rank": 16}
    more = [name for name, value in params.items()
            if name not in OF_THE_CATALOG and value not in (None, False, "", (), [], defaults.get(name))]  # fmt: skip
    if more or params["set_"] or params["with_"]:
        what = f"`--{more[0].replace('_', '-')}`" if more else "a changed spec"
        count = ["--devices", str(params["devices"])] if params["devices"] else []
        asked = shlex.join(["archsim", "fit", "llama3.1-70b", "--hw", ",".join(names), *count])
        alone = shlex.join(["archsim", "fit", "--hw", names[0], *count, "--context", "8k"])
        hint = f"for example `{asked}`; without a model: `{alone}`"
        raise UsageError(f"{what} needs a MODEL", hints=(hint,))
    shown: list[Counted] = []
    found: list[Fits] = []

    def progress(done: int, total: int) -> None:
        shown.extend([] if shown else [Counted(total * len(names), "models")])
        shown[0](done + total * len(found))

    for name in names:
        found.append(
            api.fits(
                name, devices=params["devices"] or 1, context=params["max_model_len"], engine=params["engine"],
                weights=params["weights"], kv_cache_dtype=params["kv_cache_dtype"], progress=progress,
            )
        )  # fmt: skip
    for line in shown:
        line.end()
    output.emit_answer(
        o.Layout.json if params["json"] else params["format"], params["no_color"], lambda: _document(found),
        lambda: fits_page.page(found[0], hw=names[0], verbose=params["verbose"])
        if len(found) == 1
        else fits_page.side_by_side(found),
        rows=lambda: [{**row, "hw": answer.hardware.id} for answer in found for row in answer.to_dict()["rows"]],
    )  # fmt: skip


def _document(found: Sequence[Fits]) -> JsonObject:
    """The contract's object of one device; those of several together."""
    if len(found) == 1:
        return found[0].to_dict()
    return {"schema": "archsim.fits_devices/1", "answers": [answer.to_dict() for answer in found]}
