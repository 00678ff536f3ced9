"""Training runs that `sweep`, `compare` and `report` cross (`--phase train`)."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from archsim.base.errors import AnswerNo, UsageError
from archsim.cli import output
from archsim.cli.option_sets.charts import PlotlyJs
from archsim.cli.option_sets.pair import PageLayout, emit, html_of
from archsim.cli.option_sets.training import Phase, Training

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject
    from archsim.comparison.training import TrainingComparison

SAME = {"batch": "--micro-batch", "input_len": "--seq-len", "weights": "--recipe", "engine": "--stack"}
"""What an option of inference is called in training."""


def refuse_mixed(
    training: Training, inference: Mapping[str, object], degrees: Mapping[str, object] | None = None
) -> None:
    """Raises UsageError for options of training without `--phase train`, and for others with it. inference, degrees:
    None where an option is not given; degrees: of a command that takes them for training alone.
    """
    if training.phase is not Phase.train:
        for name, value in {**training.options(), **(degrees or {})}.items():
            if value is not None:
                flag = "--" + name.replace("_", "-")
                raise UsageError(f"`{flag}` goes with training runs", hints=("add `--phase train`",))
        return
    for name, value in inference.items():
        if value is not None:
            hints = (f"training has `{SAME[name]}`",) if name in SAME else ("`archsim train --help` lists its options",)
            raise UsageError(f"`--{name.replace('_', '-')}` does not go with `--phase train`", hints=hints)


def known_counts(devices: str) -> str | None:
    """A number of devices or a range; None where it is left open, which is one device."""
    return None if devices == "auto" else devices


def print_sweep(models: Sequence[str], hw: str, asked: Mapping[str, object], view: JsonObject) -> None:
    """The rows of a sweep over training runs, in a file or on stdout. view: how they are wanted. Raises UsageError."""
    from archsim import api
    from archsim.cli.progress import Counted
    from archsim.render.pages.training_runs import sweep_page

    if view["plot"] is not None:
        raise UsageError("`--plot` does not go with `--phase train`", hints=("`archsim compare --phase train` draws",))
    swept = api.sweep_training(list(models), hw, **asked)  # type: ignore[arg-type]
    if view["out"] is not None:
        from archsim.render.table_file import check_name

        check_name(Path(view["out"]))
    shown, rows = Counted(len(swept.runs), "runs") if len(swept.runs) > 1 else None, []
    try:
        for one in swept.priced():
            rows.append(one)
            if shown is not None:
                shown(len(rows))
    finally:
        if shown is not None:
            shown.end()
    kept = swept.kept(rows)
    if view["out"] is not None:
        from archsim.render.table_file import write_rows

        write_rows(Path(view["out"]), swept.names, swept.only(kept), force=view["force"])
        sys.stderr.write(f"{len(kept):,} rows of {len(swept.runs):,} runs in {view['out']}\n")
        return
    layout = PageLayout.json if view["json"] else view["format"]
    data: JsonObject = {
        "schema": "archsim.sweep/1",
        "columns": list(swept.names),
        "rows": swept.only(kept),
        "notes": [],
    }
    output.emit_answer(
        layout, view["no_color"], lambda: data, lambda: sweep_page(swept, kept, len(swept.runs)),
        rows=lambda: swept.only(kept), html=lambda: html_of(sweep_page(swept, kept, len(swept.runs))),
    )  # fmt: skip


def print_comparison(
    models: Sequence[str], hw: str, asked: Mapping[str, object], layout: PageLayout, no_color: bool, plotlyjs: PlotlyJs
) -> None:
    """Training runs beside each other; exit code 1 where none fits. Raises UsageError."""
    from archsim import api
    from archsim.render.pages import training_runs as pages

    answer = api.compare_training(list(models), hw, **asked)  # type: ignore[arg-type]
    emit(
        answer, layout, no_color, lambda: pages.compare_page(answer), lambda: list(answer.rows),
        lambda: pages.charts(answer.rows), plotlyjs,
    )  # fmt: skip
    refuse_all(answer, no_color)


def write_report(models: Sequence[str], hw: str, asked: Mapping[str, object], out: Path, view: JsonObject) -> None:
    """The comparison as one HTML file with its charts. Raises UsageError."""
    from archsim import api
    from archsim.render.figures.plotlyjs import check_page

    check_page(out, view["plotlyjs"].source, force=view["force"])
    answer = api.report_training(list(models), hw, plotlyjs=view["plotlyjs"].source, **asked)  # type: ignore[arg-type]
    answer.write(out, force=view["force"])
    if view["json"]:
        output.emit_json(answer.to_dict())
    elif not view["quiet"]:
        output.emit(f"{answer.verdict}\n{out}: {len(answer.html.encode()):,} bytes\n")
    refuse_all(answer.comparison, False)


def refuse_all(answer: TrainingComparison, no_color: bool) -> None:
    """Say on stderr that the answer is no for all; exit code 1."""
    if answer.fits:
        return
    why = "none of the runs fits" if answer.order else "none of the runs is possible"
    hints = ("`archsim train` says by how much, and what would help",)
    output.say(AnswerNo(why, hints=hints), no_color)
    raise typer.Exit(1)
