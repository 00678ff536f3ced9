"""A predicted step as a timeline: every kernel where it runs, layer after layer.

The format is the Trace Event Format of chrome://tracing, which Perfetto and other viewers load too (Duffy,
"Trace Event Format", Google, 2016): complete events with times in microseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple, Unpack

from archsim.base.displayed import Displayed
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.options import EstimateArguments
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import WorkloadSteps
from archsim.graph.collectives import COLLECTIVES
from archsim.graph.graph import Block, Node, Op
from archsim.graph.kernels import kernels_with_edges
from archsim.predict.estimate import Estimate, estimate
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.timing.step_time import KernelTime, StepTime

TRACKS = {"layers": 1, "kernels": 2, "collectives": 3, "engine": 4}
"""Track -> its number and place in a device's group. Engine: the host's own work."""

MOST = 400_000
"""Events of one trace: viewers grow slow beyond; pieces of a pipeline are then drawn whole."""


class Slice(NamedTuple):
    """Something on a track, seconds from the beginning of the step. stage: of the pipeline."""

    name: str
    track: str
    start: float
    duration: float
    stage: int = 0
    args: JsonMapping = MappingProxyType({})


class Visit(NamedTuple):
    """One execution of a kernel, or the beginning or end of one repetition of a block."""

    op: KernelTime | None
    name: str
    opens: bool = False


@dataclass(frozen=True, slots=True)
class Trace(Displayed):
    """The timeline of one phase of an estimate."""

    __repr__ = Displayed.__repr__

    estimate: Estimate
    phase: StepTime
    slices: tuple[Slice, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> JsonObject:
        """The trace as viewers load it; `otherData` says what was predicted."""
        e, plan = self.estimate, self.estimate.plan
        about = {
            "schema": "archsim.trace/1", "model": e.model.name, "hardware": e.hardware.id, "phase": self.phase.name,
            "plan": {"tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "engine": plan.engine},
            "weights": e.formats.name, "batch": e.workload.batch, "input_len": e.workload.input_len,
            "output_len": e.workload.output_len, "expected_s": self.phase.expected_s,
            "ideal_s": self.phase.ideal_s, "evidence": self.phase.evidence, "notes": list(self.notes),
        }  # fmt: skip
        events = [*self._tracks(), *events_of(self.slices)]
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": about}

    def _tracks(self) -> Iterator[JsonObject]:
        """Names of all tracks."""
        plan, device = self.estimate.plan, self.estimate.hardware.name
        used = {(s.stage, s.track) for s in self.slices}
        for stage in sorted({stage for stage, _ in used}):
            ranks = plan.tp * plan.dp
            of = f"stage {stage + 1} of {plan.pp}, " if plan.pp > 1 else ""
            one = f"one of {ranks} ranks" if ranks > 1 else "one rank"
            yield _meta("process_name", _pid(stage), 0, name=f"{device}: {of}{one}")
            yield _meta("process_sort_index", _pid(stage), 0, sort_index=stage)
            for track, number in TRACKS.items():
                if (stage, track) in used:
                    thread = _pid(stage), _tid(stage, track)
                    yield _meta("thread_name", *thread, name=track)
                    yield _meta("thread_sort_index", *thread, sort_index=number)


def _meta(kind: str, pid: int, tid: int, **args: object) -> JsonObject:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args}


TICKS = 1024
"""Times are whole fractions of a microsecond of this size, about a nanosecond. Binary ones: what one event's beginning
and duration add up to is then exactly where the next begins, however a viewer adds; decimals overlap by rounding,
and viewers nest or drop what overlaps.
"""


def events_of(slices: Iterable[Slice]) -> Iterator[JsonObject]:
    """Complete events. What takes less than a tick gets one, at the cost of what follows it on its track: viewers
    end an event of no length before they begin it.
    """
    free: dict[int, int] = {}
    for s in slices:
        start, end = (round(seconds * 1e6 * TICKS) for seconds in (s.start, s.start + s.duration))
        thread = _tid(s.stage, s.track)
        if s.track != "layers":  # which nest
            start = max(start, free.get(thread, 0))
            end = free[thread] = max(end, start + 1)
        yield {
            "ph": "X", "name": s.name, "cat": s.track, "pid": _pid(s.stage), "tid": thread,
            "ts": start / TICKS, "dur": (end - start) / TICKS, "args": dict(s.args),
        }  # fmt: skip


def _pid(stage: int) -> int:
    """A stage's process, from 1: viewers take process 0 for the idle one."""
    return stage + 1


def _tid(stage: int, track: str) -> int:
    """A track's thread, different in every process and never its process's own number, which marks a main thread."""
    return 100 * _pid(stage) + TRACKS[track]


def trace(model: Model, hardware: Hardware, *, phase: str = "decode", **options: Unpack[EstimateArguments]) -> Trace:
    """The timeline of a prefill, or of one decode step at the mean context. Options are those of `estimate`.

    Raises UsageError for another phase, and for the decode step of an encoder.
    """
    if phase not in ("prefill", "decode"):
        raise UsageError(f"`--phase` is `prefill` or `decode`, not {phase!r}")
    answer = estimate(model, hardware, **options)
    priced = answer.prefill if phase == "prefill" else answer.decode
    if priced is None:
        raise UsageError(f"{model.name} is an encoder: it has no decode step", hints=("`--phase prefill`",))
    steps = WorkloadSteps(model, answer.workload)
    step = steps.prefill if phase == "prefill" else steps.decode
    visits = list(walk(StepGraphs(model, answer.formats).rank(step, answer.plan), priced))
    slices, notes = Layout(priced, visits).slices()
    return Trace(answer, priced, tuple(slices), notes)


def walk(graph: Block, phase: StepTime) -> Iterator[Visit]:
    """Every execution of a kernel in order, repetitions written out, between the ends of what repeats."""
    timed = _timed(graph, phase)

    def visit(node: Node) -> Iterator[Visit]:
        if isinstance(node, Op):
            if id(node) in timed:
                yield Visit(timed[id(node)], timed[id(node)].path)
            return
        repeated = not (isinstance(node.times, int) and node.times == 1)
        for i in range(node.times):
            name = f"{node.name}[{i}]"
            if repeated:
                yield Visit(None, name, opens=True)
            for child in node.body:
                yield from visit(child)
            if repeated:
                yield Visit(None, name)

    yield from visit(graph)


def _timed(graph: Block, phase: StepTime) -> dict[int, KernelTime]:
    """First op of every kernel -> the kernel's times; kernels that take no time are not among a phase's ops."""
    left = list(reversed(phase.ops))
    found: dict[int, KernelTime] = {}
    for kernel, _ in kernels_with_edges(graph):
        if left and left[-1].path == kernel.name:
            found[id(kernel.ops[0])] = left.pop()
    return found


@dataclass(slots=True)
class Layout:
    """Places visits in time. Beside them a phase has what is not in its graph: sends between stages, the engine."""

    phase: StepTime
    visits: list[Visit]
    placed: list[Slice] = field(default_factory=list)

    @property
    def beside(self) -> dict[str, KernelTime]:
        """Ops that are not in the graph, by kind."""
        return {op.kind: op for op in self.phase.ops if op.kind in ("send", "host")}

    def slices(self) -> tuple[list[Slice], tuple[str, ...]]:
        """All slices, and what a reader must know."""
        if self.phase.stages == 1:
            self._run(self._host(0.0))
            return self.placed, ()
        if not self.phase.pieces:
            self._run(self._host(0.0))
            note = "stages run one after another; where one ends follows from the layers' times"
            return self.placed, (note,)
        return self._pipelined(), ("stages take equal times; what a stage does for one piece fills its slot",)

    def _host(self, start: float) -> float:
        """The engine's own work before the kernels; when it ends."""
        host = self.beside.get("host")
        if host is None:
            return start
        self.placed.append(Slice(host.path, "engine", start, host.expected_s))
        return start + float(host.expected_s)

    def _run(self, start: float) -> None:
        """All visits one after another, from stage to stage where there are several."""
        now, stage, stages, sums = start, 0, self.phase.stages, 0.0
        whole = sum(_each(v.op) for v in self.visits if v.op is not None) or 1.0
        opened: list[tuple[str, float, int]] = []
        for visit in self.visits:
            if visit.op is not None:
                took = _each(visit.op)
                self.placed.append(_kernel(visit.op, now, took, stage))
                now, sums = now + took, sums + took
            elif visit.opens:
                while not opened and stage < min(stages - 1, int(sums / whole * stages + 1e-9)):
                    now, stage = self._send(now, stage), stage + 1
                opened.append((visit.name, now, stage))
            else:
                name, began, at = opened.pop()
                self.placed.append(Slice(name, "layers", began, now - began, at))
        while stage < stages - 1:
            now, stage = self._send(now, stage), stage + 1

    def _send(self, now: float, stage: int) -> float:
        """Hand the activations to the next stage; when they are there."""
        send = self.beside.get("send")
        if send is None:
            return now
        self.placed.append(_kernel(send, now, _each(send), stage))
        return now + _each(send)

    def _pipelined(self) -> list[Slice]:
        """Pieces of a prefill that all stages work on at once: each (stage, piece) in a slot of equal length."""
        self._run(0.0)
        stages, pieces = self.phase.stages, max(1, round(self.phase.pieces))
        slot = float(self.phase.expected_s) / (stages + pieces - 1)
        found: list[Slice] = []
        for stage in range(stages):
            own = [s for s in self.placed if s.stage == stage]
            for piece in range(pieces):
                start = (stage + piece) * slot
                found.append(Slice(f"piece {piece + 1} of {pieces}", "layers", start, slot, stage))
                if len(self.placed) * pieces <= MOST:
                    found += _fitted(own, start, slot)
        return found


def _fitted(own: list[Slice], start: float, slot: float) -> Iterator[Slice]:
    """A stage's slices, squeezed into a slot."""
    if not own:
        return
    begin = min(s.start for s in own)
    scale = slot / (max(s.start + s.duration for s in own) - begin or 1.0)
    for s in own:
        yield s._replace(start=start + (s.start - begin) * scale, duration=s.duration * scale)


def _each(op: KernelTime) -> float:
    """Seconds of one execution."""
    return float(op.expected_s / op.count)


def _kernel(op: KernelTime, start: float, duration: float, stage: int) -> Slice:
    """A kernel's slice; its arguments are of one execution."""
    args = {
        "kind": op.kind, "bound": op.bound, "expected_us": _short(duration * 1e6),
        "ideal_us": _short(op.ideal_s / op.count * 1e6), "flops": _short(op.flops / op.count),
        "bytes": _short(op.bytes / op.count), "comm_bytes": _short(op.comm_bytes / op.count),
    }  # fmt: skip
    return Slice(op.path, "collectives" if op.kind in COLLECTIVES else "kernels", start, duration, stage, args)


def _short(value: float) -> float:
    """As a viewer's panel of details shows it: whole numbers whole, others to six digits."""
    return int(value) if value == int(value) else float(f"{value:.6g}")
