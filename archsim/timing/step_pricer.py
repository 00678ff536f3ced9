"""Seconds of any step of a model on a plan: the graph lowered, cut to one rank, and every kernel call timed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from archsim.base.data_class import dataclass
from archsim.base.number import Num, absent, exp, maximum, minimum, some, total, where
from archsim.counts.formats import Formats
from archsim.counts.lowered_steps import REMEMBERED_GRAPHS, StepMemo
from archsim.counts.step_graphs import StepGraphs
from archsim.engines.names import DEFAULT_ENGINE, engine_and_version
from archsim.engines.overhead import EngineOverheads, HostWork, overheads_of
from archsim.engines.prompt_cut import prompt_cut
from archsim.graph.graph import Block
from archsim.graph.kernels import Kernel, kernels_with_edges, traffics
from archsim.graph.step import Seqs, Step
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.calibration import Store, default_store
from archsim.timing.classes.call import KernelCall
from archsim.timing.cpu_calls import cpu_calls
from archsim.timing.device import DeviceRates
from archsim.timing.duration import DEFAULT_INTERVAL, Duration, Evidence
from archsim.timing.kernel_calls import CallRules, FusedCall, lower_to_calls
from archsim.timing.kernel_timer import Timer
from archsim.timing.kernel_timer import timer as timer_of
from archsim.timing.prompt_steps import prompt_steps
from archsim.timing.roofline import DATASHEET, seconds
from archsim.timing.step_time import (
    LEAST,
    PIECE,
    ClassTime,
    FusedTime,
    KernelCost,
    KernelTime,
    RankTime,
    StepTime,
    in_a_row,
    pieces_of,
)

if TYPE_CHECKING:
    from archsim.timing.layer_columns import StepRows

REMEMBERED_STEPS = 1024
"""Steps whose times one pricer keeps."""


class StepTimer(Protocol):
    """Whatever knows how long a step takes: a `StepPricer`, a table made of one, or a formula in a test."""

    def price(self, step: Step) -> StepTime:
        """The time of one forward pass."""
        ...


@dataclass(frozen=True, slots=True)
class StepPricer:
    """Times any step of one model, in its formats, by one engine on one plan; numbers and arrays alike.

    Pricers of several plans (`on`) share what does not depend on the plan. Times are remembered by step, graphs by step
    and degrees; both are bounded and belong to the pricer. prompt_cut: tokens of prompts in one step at most; 0: all.
    prompt_graphs: tokens of the largest captured graph of a step with prompts; 0: none is captured, None: not known.

    A step that is not remembered costs milliseconds, since its graph is lowered anew. Whoever asks many distinct steps
    (a simulator, a search) asks once with arrays, such as `Step.decode(batch[:, None], context[None, :])`, at about
    half a microsecond a point, and looks the answers up.
    """

    graphs: StepGraphs
    timer: Timer
    overheads: EngineOverheads
    plan: Plan
    prompt_cut: int = 0
    prompt_graphs: int | None = None
    times: StepMemo[StepTime] = field(default_factory=lambda: StepMemo(REMEMBERED_STEPS), repr=False)
    ranks: StepMemo[RankTime] = field(default_factory=lambda: StepMemo(REMEMBERED_STEPS), repr=False)
    rooflines: StepMemo[RankTime] = field(default_factory=lambda: StepMemo(REMEMBERED_GRAPHS), repr=False)
    rows: StepMemo[StepRows | None] = field(default_factory=lambda: StepMemo(REMEMBERED_GRAPHS), repr=False)

    @classmethod
    def of(
        cls,
        model: Model,
        hardware: Hardware,
        formats: Formats,
        overheads: EngineOverheads,
        plan: Plan,
        *,
        graphs: StepGraphs | None = None,
        rates: DeviceRates | None = None,
        store: Store | None = None,
    ) -> StepPricer:
        """A pricer for a model on a device. graphs, rates: reused if given, else built. store: the calibrations.

        Raises UsageError for a device without any peak that the model's formats could run on.
        """
        machine = (rates or DeviceRates(hardware)).accumulating(overheads.accumulate)
        timer = timer_of(
            hardware, overheads.kernels, machine, overheads.version, store, overheads.name, overheads.ported,
            overheads.experts_also, overheads.int8_alone, overheads.all_reduce,
        )  # fmt: skip
        causal = model.architecture == "decoder"
        most = prompt_cut(overheads.scheduler, hardware, model.max_context or 0) if causal else 0
        captured, runs = overheads.prompt_graphs(model.name), timer.architecture
        if runs is not None and runs.prompt_launch_s[0]:
            overheads, captured = overheads.waiting_for_launches(runs.prompt_launch_s), captured or 0
        return cls(graphs or StepGraphs(model, formats), timer, overheads, plan, most, captured)

    def on(self, plan: Plan) -> StepPricer:
        """The pricer of another plan."""
        return replace(self, plan=plan)

    def price(self, step: Step) -> StepTime:
        """The time of one forward pass through all stages of the pipeline, the engine's host included.

        Raises InvalidPlan where no link joins the plan's groups, UsageError where the device cannot compute a format.
        """
        plan = self.plan
        return self.times.get(step, (plan.tp, plan.pp, plan.ep, plan.dp), lambda: self._price(step))

    def prefill(self, step: Step) -> StepTime:
        """The time of a prefill, in as many steps as the engine cuts it into. Through a pipeline it goes in pieces, so
        that all stages work at once.
        """
        parts, tokens = self.steps_of(step), self.prompt_tokens(step)
        if len(parts) > 1:
            return replace(in_a_row([(count, self.price(part)) for count, part in parts]), name="prefill", pieces=1)
        whole_piece = self.plan.pp > 1 and some(tokens > PIECE)
        piece_s = self.price(one_piece(step, tokens)).in_turn_s if whole_piece else 0
        return self.price(step).called("prefill", tokens, piece_s)

    def steps_of(self, prefill: Step) -> list[tuple[Num, Step]]:
        """The steps that the engine computes prompts in, and how many there are of each. A pipeline's pieces are those
        of `prefill`.
        """
        if self.plan.pp > 1:
            return [(1, prefill)]
        return prompt_steps(prefill, self.prompt_cut, self.plan.dp)

    def prefill_ideal_s(self, step: Step) -> Num:
        """The speed of light of a prefill alone, much faster than all of `prefill`."""
        parts, tokens = self.steps_of(step), self.prompt_tokens(step)
        return sum(count * self.ideal_s(part, tokens) for count, part in parts)

    def ideal_s(self, step: Step, prompt_tokens: Num = 0) -> Num:
        """The speed of light alone, much faster than all of `price`. prompt_tokens: as of `StepTime.called`."""
        beside = (self._transfer(step)[0],) if self.plan.pp > 1 else ()
        pieces = pieces_of(prompt_tokens)
        return StepTime(rank=self._roofline(step), beside=beside, stages=self.plan.pp, pieces=pieces).ideal_s

    def prompt_tokens(self, prefill: Step) -> Num:
        """Prompt tokens of the fullest replica, which its pipeline works on in pieces."""
        return prefill.fullest(self.plan.dp).tokens

    def _price(self, step: Step) -> StepTime:
        plan = self.plan
        degrees = plan.tp, plan.ep, plan.dp
        return self.with_kernels(step, self.ranks.get(step, degrees, lambda: self._rank_time(step)))

    def with_kernels(self, step: Step, rank: RankTime) -> StepTime:
        """The time of a step whose rank takes so long, with all that is beside the kernels of its graph."""
        plan = self.plan
        time = StepTime(rank=rank, stages=plan.pp)
        if plan.pp > 1:
            row, call = self._transfer(step)
            time = time.plus(self.timer.time(call).scaled(plan.pp - 1), call.kernel_class, row)
        runs = self.timer.architecture
        if runs is not None and runs.gap_s:
            time = time.plus(runs.gaps(time.rank.launches), "launch gaps", GAPS)
        own = step.fullest(plan.dp)
        eager = self.prompt_graphs is not None and prompt_tokens(own) > self.prompt_graphs
        return add_host_overhead(time, self.overheads, sum([seqs.batch for seqs in own.seqs]), eager)

    def _roofline(self, step: Step) -> RankTime:
        """The kernels of the rank's graph at the device's peaks, without expected times."""
        plan, machine = self.plan, self.timer.machine

        def costs() -> RankTime:
            if (rows := self._layer_rows(step)) is not None:
                return RankTime(costs=rows.costs)
            graph = self.graphs.rank(step, plan)
            rates = machine.holding(step_bytes(graph)) if machine.has_cache_rates else machine
            found = zip(kernels_with_edges(graph), traffics(graph, rates.cache_bytes), strict=True)
            return RankTime(costs=tuple(KernelCost.of(kernel, moved, rates) for (kernel, _), moved in found))

        return self.rooflines.get(step, (plan.tp, plan.ep, plan.dp), costs)

    def _rank_time(self, step: Step) -> RankTime:
        """The kernels of the rank's graph."""
        costs = self._roofline(step).costs
        sums, form = TimeByKernelClass(), self.overheads.cpu if self.timer.machine.is_processor else ""
        fused = []
        if (rows := self._layer_rows(step)) is not None:
            calls = rows.calls
        else:
            graph = self.graphs.rank(step, self.plan)
            kernels: list[Kernel] = [kernel for kernel, _ in kernels_with_edges(graph)]
            if form:
                calls = cpu_calls(kernels, self.call_rules(step), form, step_bytes(graph))
            else:
                calls = lower_to_calls(kernels, [cost.traffic for cost in costs], self.call_rules(step))
        times = iter(self.timer.each([each for call in calls for each in call.calls]))
        for call in calls:
            launch = launch_time(call, [costs[i] for i in call.members], times)
            sums.add(launch)
            fused.append(launch.fused)
        return RankTime(costs=costs, fused=tuple(fused), by_class=sums.by_class, launches=sums.launches)

    def _layer_rows(self, step: Step) -> StepRows | None:
        """The kernels and calls of a step by columns, where many layers differ in width alone."""
        plan, machine = self.plan, self.timer.machine
        if self.graphs.run is None or machine.is_processor or machine.has_cache_rates:
            return None
        from archsim.timing.layer_columns import step_rows  # few models have such layers: cold start

        return self.rows.get(
            step, (plan.tp, plan.ep, plan.dp), lambda: step_rows(self.graphs, step, plan, self.call_rules(step))
        )

    def call_rules(self, step: Step) -> CallRules:
        """What the calls of a step follow from beside its graph."""
        engine, own = self.overheads, step.fullest(self.plan.dp)
        return CallRules(
            own, self.timer.machine, engine.fused_qkv, engine.quantised_before, engine.exchange, engine.scans
        )

    def _transfer(self, step: Step) -> tuple[KernelTime, KernelCall]:
        """All transfers of activations between pipeline stages, and one of them as a call."""
        plan, stride = self.plan, self.plan.tp * self.plan.dp
        tokens, width = step.fullest(plan.dp).tokens, self.graphs.model.d_model * self.graphs.formats.activations.bytes
        size = tokens * width / plan.tp
        rate, hops = self.timer.machine.hops(plan.pp, stride)[0].rate, plan.pp - 1
        call = KernelCall("nccl_send_recv", dims={"n_gpus": 2, "bytes": size, "stride": stride})
        row = KernelTime(
            "pipeline.send", "send", hops, comm_bytes=size * hops, ideal_s=size / rate * hops,
            comm_s=size / rate * hops,
        )  # fmt: skip
        return row, call


def step_bytes(graph: Block) -> Num:
    """Bytes of weights and caches that a step reads: what lies between two reads of the same one by two steps."""
    moved = zip(kernels_with_edges(graph), traffics(graph, 0), strict=True)
    return sum([kernel.times * (each.weight + each.state) for (kernel, _), each in moved])


def one_piece(prefill: Step, tokens: Num) -> Step:
    """The part of a prefill that a pipeline takes up at a time: the first tokens of prompts that are longer than a
    piece, some of several shorter ones. tokens: of the fullest replica.
    """
    share = minimum(1.0, PIECE / tokens)

    def part(seqs: Seqs) -> Seqs:
        new = minimum(seqs.new, PIECE)
        return Seqs(maximum(1.0, seqs.batch * share * (seqs.new / new)), new, seqs.past, seqs.absorbed)

    return replace(prefill, seqs=tuple(map(part, prefill.seqs)), source=tuple(map(part, prefill.source)))


def engine_overheads(engine: str = DEFAULT_ENGINE, store: Store | None = None) -> EngineOverheads:
    """The overheads of an engine as it is asked for (`vllm`, `vllm@0.11`): its document's, and those measured."""
    return overheads_of(*engine_and_version(engine), measured=(store or default_store()).engines)


class LaunchTime(NamedTuple):
    """All executions of a launch: as `StepTime`s keep it, how many kernels the host starts for it, and what each of its
    calls adds to the time of its class of kernels: (class and evidence, executions, the time of one).
    """

    fused: FusedTime
    launches: Num
    parts: tuple[tuple[tuple[str, Evidence], Num, Duration], ...]


def launch_time(launch: FusedCall, members: Sequence[KernelCost], times: Iterable[Duration]) -> LaunchTime:
    """The time of all executions of a launch, never below its kernels' speed of light. times: of its calls."""
    count, ideal = members[0].count, sum([cost.ideal_s for cost in members])
    found = [(call.kernel_class, time) for call, time in zip(launch.calls, times, strict=False)]
    found = found or [("other", usual_time(members[0]))]
    launches = count * len(found)
    each = sum([time.expected for _, time in found])
    if some(each < ideal) and not absent(each):
        count = count * maximum(1.0, ideal / maximum(each, LEAST))
    parts = []
    for kernel_class, time in found:
        alike, time = (count, time) if isinstance(count, int) else (1, time.scaled(count))
        parts.append(((kernel_class, time.evidence), alike, time))
    return LaunchTime(FusedTime(launch.members, each, count), launches, tuple(parts))


class TimeByKernelClass:
    """Sums the times of launches by class of kernels and evidence."""

    def __init__(self) -> None:
        self.sums: dict[tuple[str, Evidence], dict[int, list[Num]]] = {}  # by executions, which multiply at the end
        self.launches: Num = 0

    def add(self, launch: LaunchTime) -> None:
        """One more launch, with all its executions."""
        self.launches += launch.launches
        for kind, alike, time in launch.parts:
            sums = self.sums.setdefault(kind, {}).setdefault(alike, [0, 0, 0])
            for i, value in enumerate(time[:3]):
                sums[i] = sums[i] + value

    @property
    def by_class(self) -> tuple[ClassTime, ...]:
        """What was added up."""
        found = []
        for (kernel_class, evidence), sums in self.sums.items():
            expected, low, high = (total(n * each[i] for n, each in sums.items()) for i in range(3))
            found.append(ClassTime(kernel_class, Duration(expected, low, high, evidence=evidence)))
        return tuple(found)


def usual_time(cost: KernelCost) -> Duration:
    """One execution of a kernel without a time model of its own: its roofline with the usual efficiencies."""
    if absent(cost.ideal_s):
        return Duration(0.0, 0.0, 0.0)
    expected = seconds(cost.compute_s, cost.memory_s, cost.comm_s, DATASHEET)
    if cost.kind == "elementwise":
        expected = expected - DATASHEET.launch_s  # residuals ride with the norm or the product beside them
    expected = where(cost.ideal_s > 0, expected, 0.0)
    low, high = DEFAULT_INTERVAL
    return Duration(expected, expected * low, expected * high, cost.ideal_s)


def prompt_tokens(step: Step) -> Num:
    """New tokens of a replica's step that has prompts; 0 of one that has none. Verified drafts run as decodes do."""
    return step.tokens if any(not seqs.absorbed and some(seqs.new > 1) for seqs in step.seqs) else 0


def add_host_overhead(
    time: StepTime, overheads: EngineOverheads, sequences: Num = 1, eager: bool | Num = False
) -> StepTime:
    """The step of so many sequences on a replica, with (a) the launches that the device waits for where steps are not
    captured as a graph, (b) the host's own time, and (c) what a composed step may be off beyond its kernels: other
    fusions and schedules. eager: whether the step has prompts that no graph holds.
    """
    host = overheads.host
    waiting: tuple[Num, Num, Num] = (0.0, 0.0, 0.0)
    if overheads.launch_s:
        found = maximum(0.0, overheads.launch_s * time.rank.launches - time.in_turn_s)
        waiting = found, found * 0.7, found * 1.4
    elif host.launch_s[0] and some(eager):
        waiting = waits_for_launches(host, time, eager)
    value = host.time(sequences) + waiting[0]
    if not absent(value):
        low, high = host.time(sequences, 1) + waiting[1], host.time(sequences, 2) + waiting[2]
        time = time.plus(Duration(value, low, high, evidence="calibrated"), "host", HOST)
    below, above = overheads.composition
    if not (below or above):
        return time
    total = time.in_turn_s
    error = Duration(0.0, total * (exp(below) - 1), total * (exp(above) - 1), evidence="calibrated")
    return time.plus(error, "composition")


def waits_for_launches(host: HostWork, time: StepTime, eager: object) -> tuple[Num, Num, Num]:
    """Seconds that the device waits for launches in steps that are eager: the value, and its ends."""
    value, low, high = (where(eager, host.waiting_s(time.rank.launches, time.in_turn_s, end), 0.0) for end in range(3))
    return value, low, high


GAPS = KernelTime("launches", "gaps", part="gaps between launches")
"""The row of the time between kernels of a captured step, where it is known apart."""

HOST = KernelTime("engine", "host", part="engine host time")
"""The row of an engine's own time."""
