"""Memory of one device while a workload runs: the plain budget that a plan search asks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from archsim.base.number import Num, at_points, nearest
from archsim.counts import graph_counts as c
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import PREFILL_TOKENS, Workload, WorkloadSteps
from archsim.memory.budget import USABLE, Memory, memory
from archsim.memory.liveness import peak_activation_bytes
from archsim.spec.hardware import Hardware
from archsim.spec.parallelism import Plan

Degrees = tuple[int, int, int]


class WorkloadMemory:
    """What the fullest device of any plan holds; numbers and arrays alike."""

    def __init__(self, graphs: StepGraphs, hardware: Hardware, steps: WorkloadSteps) -> None:
        self.graphs, self.hardware, self.steps = graphs, hardware, steps
        self._peaks: dict[Degrees, Num] = {}
        self._brief: WorkloadMemory | None = None

    def on(self, plan: Plan) -> Memory:
        """The memory of a plan. An encoder's weights are in the prefill, the caches in the decode step."""
        seq2seq = self.graphs.model.encoder is not None
        decode = self.graphs.rank(self.steps.decode, plan)
        whole = self.graphs.rank(self.steps.prefill, plan) if seq2seq else decode
        budget = memory(self.hardware.working_set_bytes, USABLE, whole, self.peak(plan), plan.pp)
        if seq2seq:
            budget = replace(budget, kv_cache=nearest(c.state_bytes(decode)) // plan.pp)
        return replace(budget, capacity=self.hardware.memory_bytes)

    def peak(self, plan: Plan) -> Num:
        """Activation bytes of a prefill, or of what of it is computed at once."""
        degrees = plan.tp, plan.ep, plan.dp
        if degrees not in self._peaks:
            self._peaks[degrees] = self._peak(plan)
        return self._peaks[degrees]

    def _peak(self, plan: Plan) -> Num:
        short = self.steps.load.prompt_tokens <= PREFILL_TOKENS
        if short if isinstance(short, bool) else short.all():
            return nearest(peak_activation_bytes(self.graphs.rank(self.steps.prefill, plan)))
        piece = nearest(peak_activation_bytes(self.graphs.rank(self.steps.prefill_at_once, plan)))
        return piece if isinstance(short, bool) or not short.any() else self._either(short, plan, piece)

    def _either(self, short: Any, plan: Plan, piece: Num) -> Num:
        """The peak of arrays in which some prompts are computed at once and others are cut."""
        if self._brief is None:
            steps = WorkloadSteps(self.graphs.model, points_of(self.steps.load, short))
            self._brief = WorkloadMemory(self.graphs, self.hardware, steps)
        found = short * 0.0 + piece
        found[short] = self._brief.peak(plan)
        return found


def points_of(load: Workload, mask: Any) -> Workload:
    """The batches and prompts at the points of a mask over them, one after another; the answers stay as they are."""
    batch, prompts = (at_points(value, mask) for value in (load.batch, load.input_len))
    return Workload(batch=batch, input_len=prompts, output_len=load.output_len)
