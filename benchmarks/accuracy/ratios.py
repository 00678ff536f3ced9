"""How well intervals of ratios hold on measured figures, and which share of the errors is common.

    python benchmarks/accuracy/ratios.py [TABLE ...]

Without tables on the public runs that archsim comes with; a table is a run list or a serving table. Pairs are figures
of one metric on one device with one engine that are a step, or the prompt of one request. `COMMON` in
`archsim.comparison.uncertainty` is the share that is taken; docs/compare.md states the others.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations
from math import log
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from archsim.accuracy import files, runs, serving  # noqa: E402
from archsim.accuracy.question import Run, run_of  # noqa: E402
from archsim.accuracy.runs import RowPrediction  # noqa: E402
from archsim.accuracy.times import RunTimes  # noqa: E402
from archsim.base.errors import ArchsimError  # noqa: E402
from archsim.comparison import uncertainty as ranking  # noqa: E402
from archsim.timing.step_time import StepTime  # noqa: E402

STEPS = ("decode_rate_per_seq", "decode_rate_sum", "tpot_mean")
PROMPTS = ("prefill_rate", "ttft_mean")
FEWEST = 8
"""Figures of a group from which the share of its common error is taken."""
PAIRS = 1500
"""Pairs of one group that are tried, drawn with a seed."""

Group = tuple[str, str, str]


class Figure(NamedTuple):
    """One measured figure. error: measured over expected time, in log."""

    timing: ranking.Timing
    error: float
    inside: bool


def figures(path: Path, times: RunTimes) -> Iterator[tuple[Group, Figure]]:
    """The figures of a table that are one step, or the prompt of one request."""
    table = files.read_table(path)
    for row in range(len(table)):
        try:
            run, asked, phase = answered(table, row, times)
        except ArchsimError:
            continue
        measured = runs._measured_value(table, asked)
        if phase is None or not measured or not asked.counted:
            continue
        ratio = log(measured / asked.span.expected)
        rate = asked.labels["metric"].endswith("tok_s")
        group = (asked.labels["metric"], run.device, run.engine)
        yield group, Figure(ranking.timing(phase), -ratio if rate else ratio,
                            asked.span.low <= measured <= asked.span.high)  # fmt: skip


def answered(table: files.Table, row: int, times: RunTimes) -> tuple[Run, RowPrediction, StepTime | None]:
    """A row's question, its prediction, and the phase behind it; a serving point's is its TPOT."""
    question = table.question(row)
    if table.kind == "serving":
        run, asked = serving.point_of(question), next(serving.predict_rows(row, question, times))
        if isinstance(asked, str):
            raise ArchsimError(asked)
        return run, asked, times.estimate(run, run.batch or 1, run.isl or 1, run.osl or 1).decode
    run, asked = run_of(question), runs.predict_row(row, question, times)
    batch, isl, osl = runs._load(run)
    definition = asked.labels["definition"]
    if definition in STEPS:
        return run, asked, times.estimate(run, batch, isl, osl).decode
    return (run, asked, times.estimate(run, batch, isl, 1).prefill if definition in PROMPTS and batch == 1 else None)


def holds(pair: tuple[Figure, Figure], common: float) -> bool:
    """Whether the measured ratio lies in the interval of the expected one."""
    a, b = pair
    expected = ranking.ratio(a.timing, b.timing, same_device=True, common=common)
    return log(expected.low / expected.value) <= a.error - b.error <= log(expected.high / expected.value)


def share(groups: Sequence[Sequence[Figure]]) -> float:
    """Of the mean square of errors, the part that is the square of their mean."""
    whole = sum(f.error**2 for group in groups for f in group)
    return sum(sum(f.error for f in group) ** 2 / len(group) for group in groups) / whole


def drawn(group: Sequence[Figure]) -> list[tuple[Figure, Figure]]:
    """Some pairs of a group."""
    pairs = list(combinations(group, 2))
    return random.Random(0).sample(pairs, min(PAIRS, len(pairs)))


def main(paths: Sequence[Path]) -> None:
    """Prints the common share and how many intervals hold."""
    groups: dict[Group, list[Figure]] = defaultdict(list)
    times = RunTimes()
    for path in paths or sorted((ROOT / "reports" / "runs").glob("*.yaml")):
        for group, figure in figures(path, times):
            groups[group].append(figure)
    large = [group for group in groups.values() if len(group) >= FEWEST]
    every = [figure for group in groups.values() for figure in group]
    pairs = [pair for group in groups.values() for pair in drawn(group)]
    if large:
        count = sum(map(len, large))
        print(f"common share {share(large):.2f} ({len(large)} groups of at least {FEWEST}, {count} figures)")
    print(f"{sum(f.inside for f in every) / len(every):.0%} of {len(every)} figures inside their intervals")
    for common in (ranking.COMMON, 1.0, 0.0):
        inside = sum(holds(pair, common) for pair in pairs)
        print(f"common {common:.2f}: {inside / len(pairs):.0%} of {len(pairs):,} ratios inside")


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:]])
