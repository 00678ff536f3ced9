"""One run of `archsim measure`: points timed in order until the budget ends, every result on disk at once."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from archsim.base.errors import SpecError
from archsim.base.input_file import read_text
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.output_file import make_folder, write_text
from archsim.measure import runs as run_list
from archsim.measure import table
from archsim.measure.cpu_shapes import CPU_SUITES
from archsim.measure.plan import Plan
from archsim.measure.point import Key, Point, Result, Skip
from archsim.measure.table import TEMPORARY, Lines

if TYPE_CHECKING:
    from archsim.measure.bench import Bench

KERNELS, RUNS, SKIPS, DEVICE = "kernels.csv", "runs.yaml", "skipped.csv", "device.json"
RUNNING = ".running"
"""Which point is being timed and how often that was begun: one that ends the process twice is left out."""
MOST_TRIES = 2
Progress = Callable[[str], None]


@dataclass(slots=True)
class Outcome:
    """What a session did. stopped: why it ended before the plan did, or ""."""

    out: Path
    device: str
    engine: str
    planned: int
    resumed: int
    measured: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    left: int = 0
    seconds: float = 0.0
    stopped: str = ""
    rows: list[JsonObject] = field(default_factory=list)
    runs: list[JsonObject] = field(default_factory=list)


class OutputFiles:
    """The result files of one folder, healed and open for more."""

    def __init__(self, out: Path) -> None:
        make_folder(out)
        with ExitStack() as opened:
            self.kernels = opened.enter_context(closing(Lines(out / KERNELS, table.line(table.COLUMNS))))
            self.skips = opened.enter_context(closing(Lines(out / SKIPS, table.line(table.SKIPPED))))
            self.runs = opened.enter_context(closing(Lines(out / RUNS, run_list.HEADER)))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """Close all files."""
        self._opened.close()


def done_before(out: Path) -> set[Key]:
    """Points of a folder that need not be timed again: measured, or skipped for a lasting reason."""
    found = {table.key_of(row) for row in table.read(out / KERNELS)}
    found |= run_list.keys(run_list.read(out / RUNS))
    for row in table.read(out / SKIPS):
        if not row.get("reason", "").startswith(TEMPORARY):
            found.add(table.key_of(row))
    return found


class Session:
    """Runs a plan on one device."""

    def __init__(self, plan: Plan, out: Path, device: str, name: str, engine: str, progress: Progress) -> None:
        self.plan, self.out, self.device, self.name, self.engine = plan, out, device, name, engine
        self.progress = progress
        self.outcome = Outcome(out, name, engine, len(plan.points), plan.done)

    def run(
        self, budget: float, quick: bool, threads: int | None, started: float | None = None, watts: bool = False
    ) -> Outcome:
        """Time points until `budget` seconds after `started` (a monotonic time; default: now). watts: as of `Bench`."""
        from archsim.measure.bench import Bench, pinned
        from archsim.measure.machine import Clock, DeviceFile

        began = time.monotonic() if started is None else started
        facts = DeviceFile(make_folder(self.out) / DEVICE, self.device, self.name, threads)
        store = OutputFiles(self.out)
        facts.start()
        gc.freeze()  # captures and clean-up collect garbage: what is loaded by now need not be looked at again
        try:
            with pinned(threads if self.device == "cpu" else None):
                bench, clock = Bench(self.device, quick, watts), Clock(self.device)
                self._points(bench, clock, store, began + budget)
        except KeyboardInterrupt:
            self.outcome.stopped = "interrupted"
            (self.out / RUNNING).unlink(missing_ok=True)
        finally:
            gc.unfreeze()
            self.outcome.seconds = time.monotonic() - began
            facts.finish(seconds=round(self.outcome.seconds, 1), stopped=self.outcome.stopped)
            store.close()
        return self.outcome

    def _points(self, bench: Bench, clock: Callable[[], int | None], store: OutputFiles, deadline: float) -> None:
        pace, within = Pace(), None
        for number, point in enumerate(self.plan.points):
            left = deadline - time.monotonic()
            if pace.expected(point) > left:
                if left <= 0:
                    self.outcome.left = len(self.plan.points) - number
                    self.outcome.stopped = "the budget is used up"
                    return
                self.outcome.left += 1  # too long for what is left; a shorter one may fit
                continue
            fresh = point.within is None or point.within is not within
            within = point.within
            if fresh and self._fatal(store, point):
                continue
            began = time.monotonic()
            self.progress(f"[{number + 1}/{len(self.plan.points)}] {left:.0f} s left · {point.text()}")
            alive = self._one(bench, clock, store, point)
            if fresh:
                (self.out / RUNNING).unlink(missing_ok=True)
            pace.learn(point, time.monotonic() - began)
            if not alive:
                self.outcome.left += len(self.plan.points) - number - 1
                self.outcome.stopped = "the device stopped answering; the same command resumes from here"
                return

    def _one(self, bench: Bench, clock: Callable[[], int | None], store: OutputFiles, point: Point) -> bool:
        """Time one point and write it, or write why not; whether the device still answers."""
        from archsim.measure.suites import run

        try:
            result = run(bench, point)
            if bench.disturbed and point.suite in CPU_SUITES:
                raise Skip(f"{TEMPORARY}other processes used the processors in every round")
        except Skip as reason:
            self._skip(store, point, str(reason))
        except Exception as error:  # one point's failure must not cost the others
            self._skip(store, point, reason_of(error))
            del error
            bench.release()
            return bool(bench.alive())
        else:
            noted = replace(result, note=" ".join(filter(None, (result.note, bench.remark()))))
            self._keep(store, point, noted, clock())
        if bench.cuda:
            bench.release()
        return True

    def _fatal(self, store: OutputFiles, point: Point) -> bool:
        """Note that a point begins; True, and the point skipped, where it has ended the process before."""
        mark, text = self.out / RUNNING, "|".join(point.key(self.name))
        tries = 1
        try:
            before = read_text(mark, table.BLOCK).rsplit("\n", 1)
            tries += int(before[1]) if before[0] == text else 0
        except (SpecError, ValueError, IndexError):
            pass  # none, or none of ours
        if tries > MOST_TRIES:
            self._skip(store, point, f"the process ended {MOST_TRIES} times while this ran")
            mark.unlink(missing_ok=True)
            return True
        write_text(mark, f"{text}\n{tries}", force=True)
        return False

    def _keep(self, store: OutputFiles, point: Point, result: Result, clock: int | None) -> None:
        count = self.outcome.measured
        count[point.suite] = count.get(point.suite, 0) + 1
        if point.whole:
            found = run_list.rows(point, result, self.name, self.engine, clock)
            store.runs.write("\n".join(run_list.line(run) for run in found))
            self.outcome.runs += found
            return
        row = table.measured_row(point, result, self.name, self.engine, clock)
        store.kernels.write(table.line(row[c] for c in table.COLUMNS))
        self.outcome.rows.append(row | {"suite": point.suite})

    def _skip(self, store: OutputFiles, point: Point, reason: str) -> None:
        count = self.outcome.skipped
        count[point.suite] = count.get(point.suite, 0) + 1
        row = table.skipped_row(point, self.name, reason)
        store.skips.write(table.line(row[c] for c in table.SKIPPED))
        self.progress(f"  skipped: {reason}")


def reason_of(error: Exception) -> str:
    """An exception in one line."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    if "OutOfMemory" in name:
        return f"out of memory: {text[:160]}"
    return f"{name}: {text[:240]}" if text else name


class Pace:
    """How long points really take, as a factor on what was expected, by suite."""

    def __init__(self) -> None:
        self._factors: dict[str, float] = {}

    def expected(self, point: Point) -> float:
        """Seconds that a point will take."""
        return point.seconds * self._factors.get(point.suite, 0.5)

    def learn(self, point: Point, seconds: float) -> None:
        """Move the suite's factor towards what was just seen."""
        seen = min(max(seconds / point.seconds, 0.02), 20.0)
        before = self._factors.get(point.suite, seen)
        self._factors[point.suite] = 0.7 * before + 0.3 * seen


def headlines(outcome: Outcome) -> list[JsonMapping]:
    """One line for each kind of result: how many, and the best figure."""
    found: list[JsonMapping] = []
    for op in dict.fromkeys(row["op"] for row in outcome.rows):
        rows = [row for row in outcome.rows if row["op"] == op]
        found.append(_headline(op, rows))
    return found


def _headline(op: str, rows: list[JsonObject]) -> JsonMapping:
    spreads = sorted(float(row["spread_pct"]) for row in rows)
    facts: JsonObject = {"op": op, "points": len(rows), "spread_pct": spreads[len(spreads) // 2]}
    moved = [row["moved_bytes"] / float(row["time_us"]) * 1e6 for row in rows if row["moved_bytes"] != ""]
    work = [flops(row) / float(row["time_us"]) * 1e6 for row in rows if flops(row)]
    facts["bytes_per_s"] = max(moved) if moved else None
    facts["flops_per_s"] = max(work) if work else None
    return facts


def flops(row: JsonMapping) -> float:
    """FLOP of a row's product or attention (pairs that the mask allows); 0 for other kernels."""
    if row["op"].startswith("gemm"):
        return float(2 * row["m"] * row["n"] * row["k"])
    if row["op"] in ("attn_prefill", "attn_decode"):
        new, keys = row["seq_q"], row["seq_kv"]
        pairs = new * (keys - (new - 1) / 2)
        if row["window"]:
            pairs = min(pairs, new * row["window"])
        return float(4 * row["batch"] * row["heads"] * row["head_dim"] * pairs)
    if row["op"] == "moe":
        return float(6 * row["m"] * row["topk"] * row["hidden"] * row["inter"])
    return 0.0
