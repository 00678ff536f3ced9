"""The same candidates at other batches, contexts and formats: the numbers that the page's controls choose from.

Devices stay as they are at the report's own workload, so that a larger one may not fit. Times are in milliseconds,
memory in gigabytes of one device, both with four digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonObject
from archsim.base.progress import counted
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import checked_workload
from archsim.memory.engine_memory import EngineMemoryModel
from archsim.predict.estimate import Estimate
from archsim.predict.model_parts import seconds_by_part
from archsim.render.html.candidates import ReportRequest, Study, at, estimate_or_reason, label, narrower
from archsim.render.html.markup import name_of
from archsim.timing.step_time import KernelTime, StepTime

BATCHES = tuple(2**i for i in range(9))
CONTEXTS = tuple(1024 * 2**i for i in range(8))

PLAIN = 40
"""Kernels of a plain model's two phases."""

POINTS = 1100
"""Estimates of a whole grid at most, those of a plain model: with more the steps grow, then the other formats go."""

COARSER = ((1, 1), (2, 1), (2, 2), (3, 2), (4, 3))
"""Steps of batch and context that are tried in this order."""

LARGEST = 1 << 20
"""Sequences beyond which a frontier is not followed."""

STRAIGHT = 4
"""Guesses along a straight line before the search for a frontier halves."""

PHASES = ("prefill", "decode")
LETTERS = {"compute": "c", "memory": "m", "communication": "l"}
"""What limits a phase, as the grid says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRun:
    """One candidate in one format over the grid. number: its colour. compared: whether the report is about it.

    answers: estimates by (batch, context). most: the largest batch that fits, by context; 0 for none.
    """

    number: int
    compared: bool
    label: str
    asked: str | None
    base: Estimate
    answers: dict[tuple[int, int], Estimate]
    most: dict[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Batches, contexts and runs; at: the report's own workload."""

    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    at: tuple[int, int]
    output_len: int
    runs: tuple[GridRun, ...]
    parts: tuple[str, ...] = ()
    formats: tuple[str, ...] = field(default=())

    @property
    def compared(self) -> tuple[GridRun, ...]:
        """The runs of the report's candidates, in their order."""
        return tuple(run for run in self.runs if run.compared)


def grid(study: Study, light: bool = False) -> Grid:
    """The numbers behind the charts. light: only those that a page without controls shows."""
    cases = list(_cases(study, others=not light))
    batches, contexts = _steps(study, _work(cases))
    if _work(cases) * len(batches) * len(contexts) > POINTS:
        cases = list(_cases(study, others=False))
        batches, contexts = _steps(study, _work(cases))
    asked = study.asked
    pairs = [(b, c) for b in batches for c in contexts if not light or b == asked.batch or c == asked.input_len]
    runs = tuple(
        GridRun(number=number, compared=compared, label=label, asked=weights, base=base,
            answers=(points := {(b, c): at(base, asked, weights, batch=b, input_len=c) for b, c in pairs}),
            most={c: _most(asked, base, c, points) for c in contexts})
        for number, compared, label, weights, base in counted(cases, "curves")
    )  # fmt: skip
    formats = tuple(dict.fromkeys(run.base.formats.name for run in runs))
    return Grid(
        batches=batches, contexts=contexts, at=(asked.batch, asked.input_len), output_len=asked.output_len,
        runs=runs, parts=_parts(runs), formats=formats,
    )  # fmt: skip


Case = tuple[int, bool, str, str | None, Estimate]


def _cases(study: Study, others: bool) -> Iterator[Case]:
    """The candidates; then each model and device in the formats that are not compared."""
    seen = set()
    for c in study.candidates:
        seen.add((*c.pair, c.answer.formats.name))
        yield c.number, True, c.label, c.asked, c.answer
    for c in study.candidates if others else ():
        for weights in narrower(c.answer):
            try:
                base, _ = estimate_or_reason(c.answer.model, c.answer.hardware, study.asked, weights)
            except ArchsimError:
                continue
            key = (*c.pair, base.formats.name)
            if key not in seen:
                seen.add(key)
                yield c.number, False, label(base, (*study.several[:2], True)), weights, base


def _work(cases: Sequence[Case]) -> float:
    """How many estimates of a plain model these are worth: more kinds of layers take longer."""
    return sum(max(1.0, sum(len(p.ops) for p in (e.prefill, e.decode) if p) / PLAIN) for *_, e in cases)


def _steps(study: Study, cases: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Batches and contexts, the report's own among them, with steps that keep the number of estimates bounded."""
    asked = study.asked
    short = [m.max_context for m in study.models if m.max_context]
    top = max([asked.input_len, *short]) if not study.decodes and short else CONTEXTS[-1]
    contexts = [c for c in ((128, 256, 512) if top < 1024 else CONTEXTS) if c <= top]
    for b, c in COARSER:
        both = sorted({*BATCHES[::b], asked.batch}), sorted({*contexts[::c], asked.input_len})
        if cases * len(both[0]) * len(both[1]) <= POINTS:
            break
    return tuple(both[0]), tuple(both[1])


def _most(asked: ReportRequest, base: Estimate, context: int, points: dict[tuple[int, int], Estimate]) -> int:
    """The largest batch that fits at a context; 0 for none."""
    known = {b: float(e.memory.free) for (b, c), e in points.items() if c == context}
    graphs = StepGraphs(base.model, base.formats)

    def free(batch: int) -> float:
        if batch not in known:
            load = checked_workload(batch, context, asked.output_len)
            known[batch] = float(EngineMemoryModel(base.tensors, load, graphs).on(base.plan).free)
        return known[batch]

    low = max((b for b, left in known.items() if left >= 0), default=0)
    if not points[min(known), context].memory.kv_cache:
        return low  # nothing grows with the batch that a frontier could show
    if not low and free(1) < 0:
        return 0
    low = low or 1
    above = [b for b, left in known.items() if left < 0 and b > low]
    low, high = (low, min(above)) if above else _beyond(low, free)
    return _between(low, high, free)


def _beyond(low: int, free: Callable[[int], float]) -> tuple[int, int]:
    """A batch that fits and one that does not, or the largest followed: memory grows nearly evenly with the batch."""
    while low < LARGEST:
        other = min(2 * low, LARGEST)
        lost = (free(low) - free(other)) / (other - low)
        end = LARGEST if lost <= 0 else min(LARGEST, int(1.02 * (other + max(free(other), 0) / lost)) + 1)
        if free(other) < 0 or free(end) < 0:
            return (low, other) if free(other) < 0 else (other, end)
        low = end
    return LARGEST, LARGEST


def _between(low: int, high: int, free: Callable[[int], float]) -> int:
    """The largest that fits, to three digits: low fits, high does not. Guesses along a straight line, then halves."""
    tries = 0
    while high - low > max(1, low // 500):
        share = free(low) / (free(low) - free(high)) if tries < STRAIGHT else 0.5
        guess = min(max(low + int((high - low) * share), low + 1), high - 1)
        near = max(1, guess // 500)
        ends = (guess, guess + near) if free(guess) >= 0 else (guess - near, guess)
        for batch in ends:
            low, high = (max(low, batch), high) if batch <= low or free(batch) >= 0 else (low, min(high, batch))
        tries += 1
    return low


def _parts(runs: Sequence[GridRun]) -> tuple[str, ...]:
    """Names of the parts of all models, those that take most of the time first."""
    sums: dict[str, float] = {}
    for run in runs:
        for phase in filter(None, (run.base.prefill, run.base.decode)):
            for name, seconds in seconds_by_part(phase).items():
                sums[name] = sums.get(name, 0.0) + seconds / float(phase.expected_s)
    return tuple(sorted(sums, key=lambda name: (-sums[name], name)))


def arithmetic(phase: StepTime) -> list[KernelTime]:
    """The kernels that a roofline can show: those that multiply and move bytes."""
    return [op for op in phase.ops if op.flops and op.bytes and op.expected_s]


def compute_bound_share(phase: StepTime) -> float:
    """The share of the time that goes into kernels limited by arithmetic."""
    total = float(phase.total("expected_s")) or 1.0
    return sum(float(op.expected_s) for op in phase.ops if op.bound == "compute") / total


def short_number(value: float, digits: int = 4) -> float | int:
    """A number as short as its digits allow."""
    short = float(f"{float(value):.{digits}g}")
    return int(short) if short == int(short) and abs(short) < 1e15 else short


def to_dict(found: Grid) -> JsonObject:
    """The grid for the page's script: lists over batch, then context."""
    return {
        "batches": found.batches, "contexts": found.contexts, "at": found.at, "output_len": found.output_len,
        "parts": found.parts, "formats": found.formats, "runs": [_run(run, found) for run in found.runs],
    }  # fmt: skip


def _run(run: GridRun, found: Grid) -> JsonObject:
    points = [run.answers[b, c] for b in found.batches for c in found.contexts]
    memory = run.base.memory
    data: JsonObject = {
        "n": run.number, "c": int(run.compared), "label": run.label,
        "model": name_of(run.base.model.name), "hw": run.base.hardware.id,
        "fmt": run.base.formats.name, "devices": run.base.plan.devices, "limit": run.base.model.max_context,
        "cap": short_number(memory.capacity / 1e9, 6), "usable": short_number(memory.usable / 1e9, 6),
        "w": short_number(memory.weights / 1e9, 6), "rt": short_number(memory.runtime / 1e9, 6),
        "kv": [short_number(e.memory.kv_cache / 1e9, 6) for e in points],
        "act": [short_number(e.memory.activations / 1e9, 6) for e in points],
        "fits": "".join("01"[e.memory.fits] for e in points), "most": [run.most[c] for c in found.contexts],
    }  # fmt: skip
    for name in PHASES:
        phases = [getattr(e, name) for e in points]
        data[name] = None if phases[0] is None else _phase(phases, found.parts)
    return data


def _phase(phases: Sequence[StepTime], parts: Sequence[str]) -> JsonObject:
    """One phase at every point: the times, their parts, and every kernel on the roofline."""
    shares = [seconds_by_part(phase) for phase in phases]
    used = [i for i, part in enumerate(parts) if any(part in share for share in shares)]
    names = list(dict.fromkeys(op.path for phase in phases for op in arithmetic(phase)))
    return {
        **{key: [short_number(1e3 * float(getattr(p, f"{field}_s")), 6 if key == "exp" else 4) for p in phases]
           for key, field in (("exp", "expected"), ("low", "low"), ("high", "high"), ("ideal", "ideal"))},
        "parts": {str(i): [short_number(1e3 * share.get(parts[i], 0.0)) for share in shares] for i in used},
        "bound": "".join(LETTERS[phase.bound] for phase in phases),
        "limited": [short_number(compute_bound_share(phase), 3) for phase in phases],
        "ops": names, "roof": [_roof(phase, names) for phase in phases],
    }  # fmt: skip


def _roof(phase: StepTime, names: Sequence[str]) -> list[float | int]:
    """Of every kernel: FLOP per byte, TFLOP/s expected and at the speed of light, and the share of the time."""
    found: list[float | int] = []
    ops = {op.path: op for op in arithmetic(phase)}
    total = float(phase.total("expected_s"))
    for name in names:
        op = ops.get(name)
        values = (0, 0, 0, 0) if op is None else roof_of(op, total)
        found += [short_number(value, 3) for value in values]
    return found


def roof_of(op: KernelTime, total: float) -> tuple[float, float, float, float]:
    """Where a kernel stands on the roofline: intensity, TFLOP/s expected and ideal, share of the phase's time."""
    flops = float(op.flops)
    return (
        flops / float(op.bytes), flops / float(op.expected_s) / 1e12, flops / float(op.ideal_s) / 1e12,
        float(op.expected_s) / total,
    )  # fmt: skip
