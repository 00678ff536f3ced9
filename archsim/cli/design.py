"""`archsim design`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, failures_of, write_text
from archsim.cli import options as o
from archsim.cli import output

if TYPE_CHECKING:
    from archsim.candidates.answer import Candidate, Design

Like = Annotated[
    str | None,
    typer.Option("--like", metavar="MODEL", autocompletion=o.models,
                 help="Norms, positions, activations and tables of this model. Default: Llama's."),
]  # fmt: skip
Context = Annotated[
    int, typer.Option("--context", "--max-model-len", parser=o.tokens, metavar="N", help="Prompt and answer together.")
]
Weights = Annotated[
    str | None, typer.Option("--weights", metavar="FMT[,FMT]", help="Weight formats to try. Default: bf16.")
]
Params = Annotated[
    str | None, typer.Option("--params", metavar="N[-N]", help="Parameters: 6B-8B, or one number with 5 % either way.")
]
Active = Annotated[str | None, typer.Option("--active", metavar="N[-N]", help="The same for active parameters.")]
Memory = Annotated[str | None, typer.Option("--memory", metavar="SIZE", help="Largest memory, such as 20GB.")]
Tpot = Annotated[str | None, typer.Option("--tpot", metavar="TIME", help="Longest time per output token: 25ms.")]
Ttft = Annotated[str | None, typer.Option("--ttft", metavar="TIME", help="Longest time to first token: 2s.")]
Sure = Annotated[bool, typer.Option("--sure", help="Apply limits to the upper end of the 80 % interval.")]
Flops = Annotated[str | None, typer.Option("--train-flops", "--train-flop", metavar="FLOP", help="Training budget.")]
Tokens = Annotated[str | None, typer.Option("--tokens", metavar="D", help="Training tokens, at any cost.")]
Dollars = Annotated[str | None, typer.Option("--train-usd", metavar="USD", help="Dollars to rent devices to train on.")]
TrainHw = Annotated[str | None, typer.Option("--train-hw", metavar="HW", help="The device to rent with --train-usd.")]
LawName = Annotated[str | None, typer.Option("--law", metavar="NAME", help="Scaling law. Default: besiroglu2024.")]
Far = Annotated[bool, typer.Option("--extrapolate", help="Use the law even beyond ten times its runs.")]
Objectives = Annotated[
    str | None,
    typer.Option("--objective", metavar="NAME,...",
                 help="Objectives, the most important first: loss, params, tpot, ttft, memory, kv, cost."),
]  # fmt: skip
Vary = Annotated[
    list[str] | None,
    typer.Option("--vary", metavar="FIELD=RANGE", help="Values of a dimension: d_model=2048-8192+256; repeatable."),
]
Fix = Annotated[list[str] | None, typer.Option("--fix", metavar="FIELD=VALUE", help="One value; may be repeated.")]
Kinds = Annotated[
    str | None, typer.Option("--attention", metavar="KIND,...", help="full, window, window:1024:5/6, mla, mla:512.")
]
Layers = Annotated[str | None, typer.Option("--ffn", metavar="KIND,...", help="dense, moe.")]
Mqa = Annotated[bool, typer.Option("--allow-mqa", help="Any number of heads to a key/value head, not at most eight.")]
SpaceFile = Annotated[
    Path | None,
    typer.Option("--space", metavar="FILE", help="YAML with vary, fix, attention, ffn and other options of this page."),
]
Sample = Annotated[
    int | None,
    typer.Option("--sample", min=100, metavar="N", help="Start from a sample of N, not from all combinations."),
]
Price = Annotated[str | None, typer.Option("--price", metavar="USD|NAME", help="Price of a device and hour.")]
Out = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Write the best spec here, as YAML.")]
Emit = Annotated[
    Path | None, typer.Option("--emit", metavar="DIR", help="Write the specs of the front into this folder, as YAML.")
]


def design(
    hw: o.Device,
    like: Like = None,
    context: Context = 8192,
    output_len: o.OutputLen = 256,
    batch: o.Batch = 1,
    weights: Weights = None,
    kv_cache_dtype: o.KvDtype = None,
    engine: o.Engine = o.DEFAULT_ENGINE,
    params: Params = None,
    active: Active = None,
    memory: Memory = None,
    tpot: Tpot = None,
    ttft: Ttft = None,
    sure: Sure = False,
    train_flops: Flops = None,
    tokens: Tokens = None,
    train_usd: Dollars = None,
    train_hw: TrainHw = None,
    law: LawName = None,
    extrapolate: Far = False,
    objective: Objectives = None,
    vary: Vary = None,
    fix: Fix = None,
    attention: Kinds = None,
    ffn: Layers = None,
    allow_mqa: Mqa = False,
    space: SpaceFile = None,
    sample: Sample = None,
    price: Price = None,
    out: Out = None,
    emit: Emit = None,
    force: o.Force = False,
    json: o.AsJson = False,
    format: o.Format = o.Layout.table,
    verbose: o.Verbose = False,
    no_color: o.NoColor = False,
) -> None:
    """The best spec for a device, a context and a budget: the front, and the plateau of equally good specs.

    Every candidate is estimated as `estimate` does it; the best one is written as a spec that every other command
    takes. Quality is the loss of a scaling law; effects that no law covers are listed with it.
    """
    from archsim import api
    from archsim.render.pages import design as design_page

    given = {name: value for name, value in locals().items() if name in SEARCH}
    check_output(out, force=force)
    answer = api.design(hw, **_merged(given, space))
    if out is not None and answer.best is not None:
        _write(answer, answer.best, out, force)
    if emit is not None:
        _write_front(answer, emit, force)
    output.emit_answer(
        o.Layout.json if json else format, no_color, answer.to_dict,
        lambda: design_page.page(answer, hw=hw, written="" if out is None else str(out), verbose=verbose),
        rows=lambda: design_page.rows(answer),
    )  # fmt: skip
    if answer.best is None:
        raise typer.Exit(1)


SEARCH = frozenset({
    "like", "context", "output_len", "batch", "weights", "kv_cache_dtype", "engine", "params", "active", "memory",
    "tpot", "ttft", "sure", "train_flops", "tokens", "train_usd", "train_hw", "law", "extrapolate", "objective", "vary",
    "fix", "attention", "ffn", "allow_mqa", "sample", "price",
})  # fmt: skip
"""Parameters that the search is about."""


def _merged(given: JsonObject, file: Path | None) -> JsonObject:
    """Options, and under them what a file of the same names says. Raises UsageError for a name that is no option."""
    found = {name: value for name, value in given.items() if value not in (None, ())}
    if file is None:
        return found
    from archsim.spec.loader import read

    document = {str(name).replace("-", "_"): value for name, value in read(file).items()}
    for name in document:
        if name not in SEARCH:
            raise UsageError(f"{file}: `{name}` is not an option of a search",
                             hints=(f"known: {', '.join(sorted(SEARCH))}",))  # fmt: skip
    usual = {"context": 8192, "output_len": 256, "batch": 1, "engine": o.DEFAULT_ENGINE}
    typed = {name: value for name, value in found.items() if value is not False and usual.get(name) != value}
    return {**found, **document, **typed}


def _write(answer: Design, candidate: Candidate, out: Path, force: bool) -> None:
    """A spec as YAML, with the question that it answers."""
    import yaml

    from archsim.render.pages.design import title

    document = {**candidate.document, "name": out.stem}
    write_text(out, f"# {title(answer)}\n{yaml.safe_dump(document, sort_keys=False)}", force=force)


def _write_front(answer: Design, folder: Path, force: bool) -> None:
    """The specs of the front, the best first; none where one of the files may not be written."""
    with failures_of(folder):
        folder.mkdir(parents=True, exist_ok=True)
    files = {folder / f"design-{i:02}.yaml": candidate for i, candidate in enumerate(answer.front, 1)}
    for file in files:
        check_output(file, force=force)
    for file, candidate in files.items():
        _write(answer, candidate, file, force)
