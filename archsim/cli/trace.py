"""`archsim trace`."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, write_text
from archsim.cli import options as o
from archsim.cli import output


class PhaseName(StrEnum):
    """Which step is drawn."""

    prefill = "prefill"
    decode = "decode"
    train = "train"


def trace(
    model: o.Model,
    hw: o.Device,
    phase: Annotated[PhaseName, typer.Option("--phase", help="The step to draw.")] = PhaseName.decode,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE.json", help="Where to write it; else to stdout.")
    ] = None,
    force: o.Force = False,
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
    set_: o.Changes = None,
    no_color: o.NoColor = False,
) -> None:
    """The predicted step as a Chrome/Perfetto trace: layers, kernels, collectives and the engine's work.

    Load the file in https://ui.perfetto.dev or chrome://tracing. Times are the expected ones of `archsim estimate`;
    with `--phase train` of `archsim train`, whose other options take `--timeline FILE.json`.
    """
    from archsim import api

    check_output(out, force=force)
    if phase is PhaseName.train:
        _refuse_inference(weights, kv_cache_dtype, engine)
        trained = api.train(
            model, hw, devices=_number(devices), tp=tp, pp=pp, ep=ep, dp=dp, micro_batch=batch, seq_len=input_len,
            set=tuple(set_ or ()),
        )  # fmt: skip
        _write(trained.timeline(), out, force, f"{trained.priced.step.expected_s:.4g} s")
        return
    answer = api.trace(
        model, hw, phase=phase.value, devices=devices, tp=tp, pp=pp, ep=ep, dp=dp, batch=batch,
        input_len=input_len, output_len=output_len, weights=weights, kv_cache_dtype=kv_cache_dtype,
        engine=engine, set=tuple(set_ or ()),
    )  # fmt: skip
    output.warn((*answer.estimate.warnings, *answer.notes))
    if not answer.estimate.memory.fits:
        output.warn(("it does not fit on this many devices; the times assume that it did",))
    text = f"{len(answer.slices):,} events, {answer.phase.expected_s * 1e3:.4g} ms"
    _write(answer.to_dict(), out, force, text)


def _write(trace: JsonObject, out: Path | None, force: bool, said: str) -> None:
    text = output.json_text(trace)
    if out is None:
        output.emit(text)
        return
    write_text(out, text, force=force)
    sys.stderr.write(f"{said}, in {out}\n")


def _number(devices: str) -> int | None:
    if devices == "auto":
        return None
    if not devices.isdecimal():
        raise UsageError(f"--devices is a number or `auto`, not {devices!r}")
    return int(devices)


def _refuse_inference(weights: str | None, kv_cache_dtype: str | None, engine: str) -> None:
    """Formats and engines are of inference. Raises UsageError."""
    given = {"--weights": weights, "--kv-cache-dtype": kv_cache_dtype}
    named = [name for name, value in given.items() if value is not None]
    named += ["--engine"] if engine != o.DEFAULT_ENGINE else []
    if named:
        raise UsageError(
            f"{named[0]} does not go with --phase train", hints=("`archsim train --recipe` and `--stack`",)
        )
