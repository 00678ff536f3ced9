"""Public measurements against the speed of light: none may be quicker than what physics allows.

    python benchmarks/accuracy/bounds.py [TABLE ...]

Without a TABLE, the run lists that come with archsim. Of each figure, how many are beaten beyond 2 % by what was
measured. A row that leaves the format of the cache open is asked once more with the narrowest that the engine knows by
a word (fp8), and TPOT of a batch whose requests may have started together without the others' prompts, as a decode step
alone: only what is quicker than that too is beaten. Exit 1 if any is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from archsim.accuracy.checked import own_runs, validate_table  # noqa: E402
from archsim.accuracy.files import Table, read_table  # noqa: E402
from archsim.accuracy.placement import placed_run  # noqa: E402
from archsim.accuracy.runs import METRICS  # noqa: E402
from archsim.accuracy.serving import point_of  # noqa: E402
from archsim.accuracy.times import RunTimes  # noqa: E402
from archsim.accuracy.validation import Validation  # noqa: E402

ROOM = 0.02
NARROW = "fp8"
RATES = ("tok_s", "req_s")
TIMES = ("_ms", "_s")


class Beaten(NamedTuple):
    """A figure that is better than its bound. share: the measured time over the bound's."""

    id: str
    metric: str
    title: str
    share: float


def beaten(answer: Validation) -> Iterator[Beaten]:
    """Figures that are quicker than the bound by more than `ROOM`."""
    rows = answer.rows
    for i in np.flatnonzero(rows.scored & np.isfinite(rows.naive) & (rows.naive > 0)):
        metric, rate = rows.metrics[i], rows.measured[i] / rows.naive[i]
        if metric.endswith(RATES):
            share = 1 / rate
        elif metric.endswith(TIMES):
            share = rate
        else:  # bytes and tokens of memory
            continue
        if share < 1 - ROOM:
            yield Beaten(rows.ids[i], metric, rows.titles[i], float(share))


def with_narrow_caches(table: Table, ids: set[str]) -> Table:
    """Some rows, with a narrow cache where they do not state its format."""
    part = table.take([i for i, name in enumerate(table.ids) if name in ids])
    stated = part.questions.get("kv_dtype") or [None] * len(part)
    return replace(part, questions={**part.questions, "kv_dtype": [each or NARROW for each in stated]})


def alone(table: Table, each: Beaten, times: RunTimes) -> float:
    """The measured TPOT of a serving point over a decode step alone; else as it was found."""
    if table.kind != "serving" or not each.metric.startswith("tpot"):
        return each.share
    row = table.ids.index(each.id)
    run = placed_run(point_of(table.question(row)))
    assert run.batch is not None and run.isl is not None and run.osl is not None
    step = times.decode(run, run.batch, run.isl, run.osl).scaled(METRICS[each.metric].unit)
    measured = table.measured[each.metric][row]
    return each.share if measured is None else measured / step.naive


def check(table: Table, times: RunTimes) -> tuple[int, list[Beaten], list[Beaten]]:
    """Figures with a bound, those beaten as the row is stated, and those beaten whatever it leaves open."""
    answer = validate_table(table, times)
    first = list(beaten(answer))
    narrow = with_narrow_caches(table, {each.id for each in first})
    again = [each._replace(share=alone(narrow, each, times)) for each in beaten(validate_table(narrow, times))]
    left = {(each.id, each.metric): each for each in again if each.share < 1 - ROOM}
    known = int((answer.rows.scored & np.isfinite(answer.rows.naive) & (answer.rows.naive > 0)).sum())
    return known, first, [left[each.id, each.metric] for each in first if (each.id, each.metric) in left]


def main() -> int:
    """Prints a line for each table, and each figure that beats its bound."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", type=Path)
    asked = [read_table(path) for path in parser.parse_args().tables] or own_runs()
    times, worst = RunTimes(None), 0
    for table in asked:
        known, first, left = check(table, times)
        worst += len(left)
        print(f"{table.name}: {known:,} figures, {len(left)} beaten, {len(first) - len(left)} more as stated")
        for each in left:
            print(f"  {each.id} {each.metric} takes {100 * each.share:.1f} % of its bound: {each.title}")
    return 1 if worst else 0


if __name__ == "__main__":
    sys.exit(main())
