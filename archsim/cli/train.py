"""`archsim train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from archsim.base.output_file import check_output, write_text
from archsim.cli import options as o
from archsim.cli import output
from archsim.cli.option_sets.cost import Grid, Price, Pue

Number = int | None
Devices = Annotated[Number, typer.Option(min=1, metavar="N", help="Devices in all: tp x pp x cp x dp.")]
Vpp = Annotated[Number, typer.Option("--vpp", min=1, metavar="N", help="Stages of each pipeline rank (interleaved).")]
Cp = Annotated[Number, typer.Option("--cp", min=1, metavar="N", help="Context parallel: parts of a sequence.")]
Ep = Annotated[Number, typer.Option(*o.EP, min=1, metavar="N", help="Expert parallel degree.")]
Etp = Annotated[Number, typer.Option("--etp", min=1, metavar="N", help="Tensor parallel of experts: 1 or tp.")]
Dp = Annotated[Number, typer.Option(*o.DP, min=1, metavar="N", help="Data parallel.")]
Sp = Annotated[bool | None, typer.Option("--sp/--no-sp", help="Sequence parallelism. Default: where tp is above 1.")]
Zero = Annotated[Number, typer.Option("--zero", min=0, max=3, metavar="0-3", help="What data ranks shard; 3 is FSDP.")]
Hsdp = Annotated[Number, typer.Option("--hsdp", min=1, metavar="N", help="Devices of a sharding group (zero 3).")]
Schedule = Annotated[
    str | None, typer.Option("--schedule", metavar="NAME", help="gpipe, 1f1b, interleaved, zb-h1, zbv or dualpipe.")
]
MicroBatch = Annotated[
    Number, typer.Option("--micro-batch", min=1, metavar="N", help="Sequences of one forward and backward pass.")
]
GlobalBatch = Annotated[Number, typer.Option("--global-batch", min=1, metavar="N", help="Sequences of one step.")]
SeqLen = Annotated[
    int | None, typer.Option("--seq-len", parser=o.tokens, metavar="N", help="Tokens of a sequence; 8k means x 1024.")
]
Recipe = Annotated[
    str | None, typer.Option("--recipe", metavar="NAME", help="Formats of weights, gradients and states: bf16, ...")
]
Optimizer = Annotated[
    str, typer.Option("--optimizer", metavar="NAME", help="adamw, adamw-8bit, adafactor, lion, muon or sgd.")
]
Recompute = Annotated[
    str | None,
    typer.Option("--recompute", metavar="WHAT", help="none, selective, full or every:N. Default: the least."),
]
Dialect = Annotated[str | None, typer.Option("--dialect", metavar="NAME", help="Kernels: fused or eager.")]
Loss = Annotated[str | None, typer.Option("--loss", metavar="NAME", help="eager, chunked, compiled or vocab_parallel.")]
Stack = Annotated[str, typer.Option("--stack", metavar="NAME", help="Framework: megatron-core, torchtitan, ...")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="D", help="Tokens of the whole run, such as 1.4T.")]
MfuPeak = Annotated[
    str, typer.Option("--mfu-peak", metavar="PEAK", help="Peak that MFU refers to: bf16, fp8, FLOP/s; auto.")
]
Goodput = Annotated[float, typer.Option("--goodput", metavar="SHARE", help="Share of the time spent in steps.")]
Method = Annotated[
    str | None, typer.Option("--method", metavar="NAME", help="full, or adapters: lora, or qlora on 4-bit weights.")
]
Rank = Annotated[Number, typer.Option("--rank", min=1, metavar="N", help="Rank of adapters. Default: 16.")]
Targets = Annotated[
    str | None, typer.Option("--targets", metavar="LIST", help="Linear layers with an adapter: all, or q,v and so on.")
]
By = Annotated[
    str | None, typer.Option("--by", metavar="WHAT", help="Time of each op, block or kind of kernel in a step.")
]
Timeline = Annotated[
    Path | None,
    typer.Option("--timeline", metavar="FILE.json", help="The passes of every pipeline rank, for Perfetto."),
]
Objective = Annotated[
    str,
    typer.Option(
        "--objective", metavar="WHAT",
        help="What to optimise the layout for: time, memory, or cost or energy per token (may use fewer devices).",
    ),
]  # fmt: skip
Offload = Annotated[
    str | None,
    typer.Option("--offload", metavar="WHAT", help="Kept on the host: optimizer, activations, or both: A,B."),
]
Search = Annotated[bool, typer.Option("--search", help="Choose the degrees that are not given, also where some are.")]


def train(
    model: o.Model,
    hw: o.Device,
    *,
    devices: Devices = None,
    tp: o.Tp = None,
    pp: o.Pp = None,
    vpp: Vpp = None,
    cp: Cp = None,
    ep: Ep = None,
    etp: Etp = None,
    dp: Dp = None,
    sp: Sp = None,
    zero: Zero = None,
    hsdp: Hsdp = None,
    schedule: Schedule = None,
    micro_batch: MicroBatch = None,
    global_batch: GlobalBatch = None,
    seq_len: SeqLen = None,
    method: Method = None,
    rank: Rank = None,
    targets: Targets = None,
    recipe: Recipe = None,
    optimizer: Optimizer = "adamw",
    recompute: Recompute = None,
    dialect: Dialect = None,
    loss: Loss = None,
    stack: Stack = "generic",
    tokens: Tokens = None,
    mfu_peak: MfuPeak = "auto",
    goodput: Goodput = 0.9,
    price: Price = None,
    grid: Grid = None,
    pue: Pue = None,
    search: Search = False,
    objective: Objective = "time",
    offload: Offload = None,
    by: By = None,
    timeline: Timeline = None,
    force: o.Force = False,
    set_: o.Changes = None,
    view: o.View,
) -> None:
    """What a training run needs and takes: memory by part, step time, MFU, days and device-hours.

    Degrees that are not given are chosen: the fastest layout that fits. A layout that does not fit is still answered in
    full, and the exit code is 1.
    """
    from archsim import api
    from archsim.render.pages import train as train_page

    check_output(timeline, force=force)
    answer = api.train(
        model, hw, devices=devices, tp=tp, pp=pp, vpp=vpp, cp=cp, ep=ep, etp=etp, dp=dp, sp=sp, zero=zero, hsdp=hsdp,
        schedule=schedule, micro_batch=micro_batch, global_batch=global_batch, seq_len=seq_len, method=method,
        rank=rank, targets=targets, recipe=recipe, optimizer=optimizer, recompute=recompute, dialect=dialect, loss=loss,
        stack=stack, tokens=tokens, mfu_peak=mfu_peak, goodput=goodput, price=price, grid=grid, pue=pue, search=search,
        objective=objective, offload=offload, by=by, set=tuple(set_ or ()),
    )  # fmt: skip
    output.emit_answer(
        view.layout, view.no_color, answer.to_dict, lambda: train_page.page(answer, view.verbose),
        bare=(lambda: train_page.bare(answer)) if view.quiet else None,
    )  # fmt: skip
    if view.quiet:
        output.note_text_part(model)
    if timeline is not None:
        write_text(timeline, output.json_text(answer.timeline()), force=force)
    if not answer.fits:
        raise typer.Exit(1)
