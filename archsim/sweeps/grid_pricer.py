"""One structure (model, device, formats, engine) priced at many workloads at once.

The same graphs, time models and rules as `archsim estimate`, with arrays for the numeric axes: batch, prompt and
answer each lie along a dimension of their own, so that what depends on one of them is computed once for all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from archsim.base.number import Num, ceil_div, maximum, where
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.engines.overhead import driven
from archsim.graph import kernels as k
from archsim.graph.graph import Block
from archsim.graph.passes.shard import Mesh, shard
from archsim.graph.step import Step
from archsim.memory.budget import PREFILL_TOKENS, Memory, memory
from archsim.memory.liveness import peak_activation_bytes
from archsim.predict.estimate import Estimator, Workload, mesh_of, pieces_of
from archsim.spec.lower import lower
from archsim.spec.parallelism import Plan
from archsim.sweeps.columns import Needs
from archsim.timing.kernel_calls import lower_to_calls
from archsim.timing.step_time import WEAKEST, WEIGHTY, Cost, OpTime, Phase, Tally

NOTHING = Block(name="", body=())

BOUNDS = ("compute", "memory", "communication")
"""What a phase can be limited by; a column holds the position of the name."""


def axis(values: Sequence[int], dimension: int) -> Num:
    """One axis of a grid of (batch, prompt, answer): a plain number where there is only one value."""
    if len(values) == 1:
        return int(values[0])
    shape = [1, 1, 1]
    shape[dimension] = len(values)
    return np.asarray(values, dtype=np.float64).reshape(shape)


SPARE = 32_000_000
"""Bytes below the largest that glibc takes from its own heap (32 MiB)."""


def keep_memory() -> None:
    """Let the C library keep what arrays give back: glibc learns from one large array that is freed to take smaller
    ones from its heap. Else every temporary is fresh pages of the system, which takes longer than the arithmetic.
    """
    np.empty(SPARE, dtype=np.uint8)


def forget() -> None:
    """Drop what is remembered of graphs, which hold the arrays of a grid."""
    c._declared.cache_clear()
    k.kernels_with_edges.cache_clear()


@dataclass(slots=True)
class GridEstimator(Estimator):
    """An estimator whose workload holds arrays. Prompts are all longer than one token, or all of one token."""

    priced: dict[tuple[str, Plan, Needs], Phase] = field(default_factory=dict)
    roofline: dict[tuple[str, Plan], list[Cost]] = field(default_factory=dict)
    peaks: dict[Plan, Num] = field(default_factory=dict)
    brief: GridEstimator | None = None

    def graph(self, name: str, plan: Plan) -> Block:
        """The graph of a named step on the rank that has most to do; pipeline stages share it."""
        ranks = replace(plan, pp=1)
        if (name, ranks) not in self.ranks:
            if name not in self.graphs:
                self.graphs[name] = self.formats.apply(lower(self.model, self._step(name)))
            self.ranks[name, ranks] = shard(self.graphs[name], self._mesh(name, ranks))
        return self.ranks[name, ranks]

    def _mesh(self, name: str, plan: Plan) -> Mesh:
        """The ranks of a plan, whole sequences dealt out."""
        batch = {"one": 1, "chunk": self._together}.get(name, self.load.batch)
        if plan.dp == 1 or isinstance(batch, int):
            return mesh_of(plan.tp, plan.dp, plan.ep, batch if plan.dp > 1 else None)
        dealt = (ceil_div(batch, plan.dp), batch)
        return replace(mesh_of(plan.tp, plan.dp, plan.ep), fullest=dealt, memo={})

    def _step(self, name: str) -> Step:
        if name == "chunk" and self.model.cached and self.model.encoder is None:
            return step_for(self.model, 1, PREFILL_TOKENS)  # what longer prefills are cut into, all alike
        return Estimator._step(self, name)

    def memory(self, plan: Plan) -> Memory:
        """What the fullest device holds."""
        seq2seq = self.model.encoder is not None
        whole = self.graph("prefill" if seq2seq else "decode", plan)
        budget = memory(self.hardware.working_set_bytes, self.usable, whole, NOTHING, plan.pp)
        if seq2seq:
            budget = replace(budget, kv_cache=_whole(c.state_bytes(self.graph("decode", plan))) // plan.pp)
        return replace(budget, activations=self.peak(plan), capacity=self.hardware.memory_bytes)

    def peak(self, plan: Plan) -> Num:
        """Activation bytes of a prefill, or of one piece of it."""
        ranks = replace(plan, pp=1)
        if ranks not in self.peaks:
            short = np.asarray(self.load.batch * self.load.input_len <= PREFILL_TOKENS)
            if short.all():
                self.peaks[ranks] = _whole(peak_activation_bytes(self.graph("prefill", ranks)))
            else:
                piece = _whole(peak_activation_bytes(self.graph("chunk", ranks)))
                self.peaks[ranks] = self._brief_peak(short, ranks, piece) if short.any() else piece
        return self.peaks[ranks]

    def _brief_peak(self, short: Any, ranks: Plan, piece: Num) -> Num:
        """The peak where some prompts are cut and others are not."""
        if self.brief is None:
            self.brief = self.at(short)
        found = np.array(np.broadcast_to(np.asarray(piece, dtype=np.float64), short.shape))
        found[short] = self.brief.peak(ranks)
        return found

    def at(self, mask: Any) -> GridEstimator:
        """An estimator of the prefills at the points of a mask over batch and prompts, one after another."""
        batch, prompts = (
            np.broadcast_to(value, mask.shape)[mask] if isinstance(value, np.ndarray) else value
            for value in (self.load.batch, self.load.input_len)
        )
        load = workload(batch, prompts, self.load.output_len)
        return GridEstimator(
            self.model, self.hardware, self.formats, load, profile=self.profile, store=self.store
        )

    def ideal(self, name: str, plan: Plan) -> Num:
        """The speed of light of a phase, without its expected time."""
        return self._staged(name, plan, self._total(name, plan, "ideal"), False).ideal_s

    def phase(self, name: str, plan: Plan, limits: bool = True) -> Phase:
        """Prefill or decode, priced: all kernels as few ops, and the shares of its time. limits: tell the kernels
        apart by what limits them.
        """
        priced = self._staged(name, plan, self._total(name, plan, "bound" if limits else "expected"), True)
        return driven(priced, self.profile)

    def _staged(self, name: str, plan: Plan, phase: Phase, timed: bool) -> Phase:
        """The phase on the stages of a pipeline."""
        tokens = self.load.batch * (self.load.input_len if name == "prefill" else 1)
        cut = pieces_of(tokens) if name == "prefill" else 0
        phase = replace(phase, stages=plan.pp, pieces=cut)
        if plan.pp == 1:
            return phase
        if timed:
            return self._handed_on(phase, plan, tokens, self.timer())
        return replace(phase, ops=(*phase.ops, self._transfer(plan, tokens)[0]))

    def _total(self, name: str, plan: Plan, needs: Needs) -> Phase:
        """The phase of one rank's graph, once for all numbers of stages."""
        key = name, replace(plan, pp=1), needs
        if key not in self.priced:
            self.priced[key] = self._priced(name, plan, needs)
        return self.priced[key]

    def costs(self, name: str, plan: Plan) -> list[Cost]:
        """The roofline of every kernel, once for all numbers of stages."""
        key = name, replace(plan, pp=1)
        if key not in self.roofline:
            cache, machine = self.hardware.l2_bytes or 0, self.rates.machine()
            found = k.kernels_with_edges(self.graph(name, plan))
            self.roofline[key] = [Cost.of(kernel, k.traffic(uses, cache), machine) for kernel, uses in found]
        return self.roofline[key]

    def _priced(self, name: str, plan: Plan, needs: Needs) -> Phase:
        costs, tally = self.costs(name, plan), Tally()
        if needs != "ideal":
            timer, step = self.timer(), self._step(name)
            kernels = [cost.kernel for cost in costs]
            for launch in lower_to_calls(kernels, step, timer.machine, self.profile.merged):
                tally.add(launch, [costs[i] for i in launch.members], timer)
        expected = sum(share.seconds for share in tally.shares)
        ops = _by_bound(costs) if needs == "bound" else []
        ideal = 0.0 if ops else sum(cost.ideal * cost.count for cost in costs)
        whole = _op("kernels", ideal, expected)
        return Phase(name=name, ops=(whole, *ops), shares=tally.shares, launches=tally.launches)


def _whole(value: Num) -> Num:
    return round(value) if isinstance(value, (int, float)) else np.rint(value)


def _op(path: str, ideal: Num, expected: Num = 0.0) -> OpTime:
    return OpTime(
        path=path, kind="sum", count=1, flops=0, weight_bytes=0, state_bytes=0, act_bytes=0, comm_bytes=0,
        ideal_s=ideal, expected_s=expected, compute_s=0.0, memory_s=0.0, comm_s=0.0,
    )  # fmt: skip


def _by_bound(costs: list[Cost]) -> list[OpTime]:
    """The speed of light of all kernels, by what limits each of them."""
    sums: list[Num] = [0.0, 0.0, 0.0]
    for cost in costs:
        ideal, comm = cost.ideal * cost.count, isinstance(cost.comm, (int, float)) and not cost.comm
        sent = False if comm else (cost.comm > 0) & (cost.comm >= cost.compute) & (cost.comm >= cost.memory)
        computed = cost.compute >= cost.memory if comm else (cost.compute >= cost.memory) & _not(sent)
        by_memory = cost.memory > cost.compute if comm else _not(sent) & (cost.memory > cost.compute)
        for i, limited in enumerate((computed, by_memory, sent)):
            if limited is not False:
                sums[i] = sums[i] + ideal * limited
    return [_op(name, total) for name, total in zip(BOUNDS, sums, strict=True)]


def _not(condition: Any) -> Any:
    return not condition if isinstance(condition, bool) else ~condition


def bound_of(phase: Phase) -> Num:
    """Position in `BOUNDS` of what most of the time is limited by."""
    sums: list[Num] = [op.ideal_s for op in phase.ops if op.path in BOUNDS]
    sums[2] = sums[2] + sum(op.ideal_s for op in phase.ops if op.kind == "send")
    best: Num = 0
    most = sums[0]
    for i in (1, 2):
        best, most = where(sums[i] > most, i, best), maximum(sums[i], most)
    return best


def evidence_of(phase: Phase) -> Num:
    """Position in `WEAKEST` of the weakest evidence that, with all weaker, stands behind a good part of the time."""
    total = sum(share.seconds for share in phase.shares)
    seen: list[Num] = []
    for name in WEAKEST:
        seen.append(sum(share.seconds for share in phase.shares if share.evidence == name) + sum(seen[-1:]))
    found: Num = 0
    for i in reversed(range(len(WEAKEST))):
        found = where(seen[i] > WEIGHTY * total, i, found)
    return found


def workload(batch: Num, input_len: Num, output_len: Num) -> Workload:
    """A workload of arrays."""
    return Workload(batch=batch, input_len=input_len, output_len=output_len)
