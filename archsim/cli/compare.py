"""`archsim compare`."""

from __future__ import annotations

from typing import Any

from archsim.cli import options as o
from archsim.cli import output
from archsim.cli import pair_options as p


def compare(
    models: p.Several,
    hw: p.DeviceList,
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
    engine: o.Engine = "generic",
    set_: p.ChangesOfOthers = None,
    json: o.AsJson = False,
    format: p.Format = p.Layout.table,
    no_color: o.NoColor = False,
) -> None:
    """Which is better, by how much, where the difference comes from, and how sure that is.

    Models are crossed with devices; the first of each is what the others are set against.
    """
    from archsim import api

    asked: dict[str, Any] = {
        "devices": devices, "tp": tp, "pp": pp, "ep": ep, "dp": dp, "batch": batch, "input_len": input_len,
        "output_len": output_len, "weights": weights, "kv_cache_dtype": kv_cache_dtype, "engine": engine,
    }  # fmt: skip
    changes = tuple(set_ or ())
    answer = api.compare(models, hw, **asked, set=changes)
    from archsim.report import compare_page as pages

    p.emit(
        answer,
        p.Layout.json if json else format,
        no_color,
        lambda: pages.page(answer, changes=changes),
        lambda: pages.rows(answer),
    )
    found = [warning for c in answer.candidates if c.answer for warning in c.answer.warnings]
    output.warn(tuple(dict.fromkeys(found)))
