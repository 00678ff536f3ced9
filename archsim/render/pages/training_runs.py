"""Training runs as a table: of a sweep the best of them, of a comparison each with its ratio to the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from archsim.base.json_types import JsonObject
from archsim.comparison.training import TrainingComparison
from archsim.render.page import Cell, Page, Row, Section, percent, plural, row
from archsim.render.pages.train import gib, seconds
from archsim.render.signed import above
from archsim.sweeps.training_runs import MEMORY_PARTS, STEP_PARTS, TrainingSweep

if TYPE_CHECKING:
    from archsim.render.figures.chart import Chart

AXES = ("devices", "tp", "pp", "vpp", "cp", "ep", "dp", "zero", "schedule", "micro_batch", "global_batch", "seq_len",
        "recompute", "recipe", "optimizer", "offload", "stack", "method")  # fmt: skip
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "dp")
"""Degrees of a layout."""

SHOWN = 40
"""Rows of a page; `--out` has all."""

STEP_HEADS = {"forward": "forward", "backward": "backward", "recompute": "again", "head_and_loss": "head",
              "communication": "comm", "optimizer": "update", "bubble": "bubble"}  # fmt: skip
MEMORY_HEADS = {"gradients": "grads", "optimizer": "optim", "working": "work"}


def sweep_page(swept: TrainingSweep, rows: Sequence[JsonObject], count: int) -> Page:
    """Runs of a sweep: those that fit first, then by a device's time for a token. count: of all that were priced."""
    answered = [one for one in rows if one["error"] is None]
    best = answered if swept.pareto else sorted(answered, key=_rank)
    shown = best[:SHOWN]
    fit = sum(1 for one in answered if one["fits"])
    found = "none keeps the condition" if not answered else f"{fit:,} of {len(answered):,} fit"
    what = f", Pareto set of {', '.join(each.column.name for each in swept.pareto)}" if swept.pareto else ""
    left = f"{len(best) - len(shown):,} more: `--out FILE.csv` has all" if len(best) > len(shown) else ""
    failed = dict.fromkeys(f"{labels([one])[0]}: {one['error']}" for one in rows if one["error"])
    below = (*((left,) if left else ()), *list(failed)[:3])
    sections = (_runs(shown, labels(shown), [""] * len(shown), below),) if shown or below else ()
    names, devices = (", ".join(dict.fromkeys(one[key] for one in answered)) for key in ("model", "hw"))
    where = (f"{names} on {devices}",) if answered else ()
    return Page(head=(f"Training, {plural(count, 'run')}{what}", *where, found), sections=sections)


def _rank(one: JsonObject) -> tuple[bool, float]:
    return not one["fits"], one["device_s_per_m_tokens"]


def compare_page(answer: TrainingComparison) -> Page:
    """The verdict, a line for each run, then where memory and time go."""
    names = labels(answer.rows)
    known = [(i, answer.rows[i]) for i in range(len(answer.rows)) if answer.rows[i]["error"] is None]
    against = [_against(answer, i) for i, _ in known]
    failed = tuple(f"{names[i]}: {one['error']}" for i, one in enumerate(answer.rows) if one["error"])
    sections = [_runs([one for _, one in known], [names[i] for i, _ in known], against, failed)]
    if known:
        sections += [
            _split("Memory per device", known, names, [f"memory_{part}_bytes" for part in MEMORY_PARTS], MEMORY_HEADS),
            _split("Step", known, names, [f"step_{part}_s" for part in STEP_PARTS], STEP_HEADS),
        ]
    return Page(head=(verdict(answer), f"baseline: {names[0]}"), sections=tuple(sections))


def _against(answer: TrainingComparison, index: int) -> str:
    ratio = answer.ratio(index)
    if ratio is None or index == 0:
        return ""
    return f"{ratio.value:.2f} × ({ratio.low:.2f} to {ratio.high:.2f})"


def verdict(answer: TrainingComparison) -> str:
    """Which takes the least time for a token, with its certainty."""
    order, names = answer.order, labels(answer.rows)
    if not order:
        return "none of the runs has an answer"
    best, fits = order[0], [i for i in order if answer.rows[i]["fits"]]
    if not fits:
        return "none of the runs fits"
    if len(order) == 1:
        return f"{names[best]} alone has an answer"
    if len(fits) == 1:
        return f"{names[best]} alone fits"
    other = fits[1]
    one, two = answer.rows[best], answer.rows[other]
    factor = two["s_per_token"] / one["s_per_token"]
    apart = one["step_high_s"] / one["step_expected_s"] * one["s_per_token"] < (
        two["step_low_s"] / two["step_expected_s"] * two["s_per_token"]
    )
    sure = "" if apart else "; their intervals overlap"
    return f"{names[best]} trains {above(factor, 'faster', 'fast')} {names[other]}{sure}"


def labels(rows: Sequence[JsonObject]) -> list[str]:
    """Each run in a few words: its model, and what else differs."""
    different = [name for name in ("hw", *AXES) if len({str(one[name]) for one in rows}) > 1]
    several = len({one["model"] for one in rows}) > 1 or not different
    return [
        " · ".join([str(one["model"])] * several + [word for name in different if (word := _word(one, name))])
        for one in rows
    ]


def _word(one: JsonObject, name: str) -> str:
    """A value that tells runs apart; nothing for a degree that is 1, and for what is not said."""
    value = one[name]
    if value is None or (value == 1 and name in DEGREES) or (name == "schedule" and one["pp"] == 1):
        return ""
    if name == "devices":
        return plural(value, "device")
    if name == "micro_batch":
        return f"micro {value}"
    if name == "global_batch":
        return f"batch {value:,}"
    if name == "seq_len":
        return f"{value:,} tokens"
    if name in ("hw", "schedule", "recipe", "optimizer", "stack", "method"):
        return str(value)
    return f"{name} {value}"


def _runs(rows: Sequence[JsonObject], names: Sequence[str], against: Sequence[str], below: Sequence[str]) -> Section:
    """One line a run."""
    dollars = any(one["usd"] is not None for one in rows)
    days = any(one["days"] is not None for one in rows)
    header = ["fits", "memory", "step", "tok/s/dev", "MFU"]
    header += [*(["days"] if days else []), *(["dollars"] if dollars else [])]
    header += ["vs first"] if any(against) else []
    lines: list[Row] = []
    for one, name, other in zip(rows, names, against, strict=True):
        cells: list[str | Cell] = [
            Cell("yes", "good") if one["fits"] else Cell("no", "bad"), gib(one["memory_bytes_per_device"]),
            seconds(one["step_expected_s"]), f"{one['tokens_per_s_per_device']:,.0f}", percent(one["mfu_causal"]),
            *([f"{one['days']:,.1f}"] if days else []), *([f"{one['usd']:,.0f}"] if dollars else []),
            *([other] if any(against) else []),
        ]  # fmt: skip
        lines.append(row(name, *cells))
    prices = dict.fromkeys(f"{one['hw']}: {one['price']}" for one in rows if one["price"])
    return Section(
        title="Run", rows=tuple(lines), align="ll" + "r" * (len(header) - 1), header=tuple(header),
        below=(*below, *prices),
    )  # fmt: skip


def _split(
    title: str, known: Sequence[tuple[int, JsonObject]], names: Sequence[str], columns: Sequence[str],
    heads: dict[str, str],
) -> Section:  # fmt: skip
    """What a whole consists of, one line a run; parts that none has are left out."""
    write = gib if columns[0].endswith("_bytes") else seconds
    kept = [name for name in columns if any(one[name] for _, one in known)]
    words = [_short(name) for name in kept]
    lines = [row(names[i], *(write(one[name]) if one[name] else "·" for name in kept)) for i, one in known]
    header = tuple(heads.get(word, word) for word in words)
    return Section(title=title, rows=tuple(lines), align="l" + "r" * len(kept), header=header)


def _short(column: str) -> str:
    return column.removeprefix("memory_").removeprefix("step_").removesuffix("_bytes").removesuffix("_s")


def charts(rows: Sequence[JsonObject]) -> list[Chart]:
    """Memory and the step of runs with an answer, by part."""
    from archsim.render.figures.training_bars import training_bars

    known = [one for one in rows if one["error"] is None]
    return training_bars(known, labels(known)) if known else []
