"""The time of one training step: a pipeline of micro-batches, what data ranks exchange, and the update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from archsim.spec.recipe import Recipe, format_bytes_of
from archsim.spec.stack import StackFactors
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.cpu import OPTIMIZER
from archsim.timing.kernel_timer import Timer
from archsim.training.costs import Comm, MicroBatch, PieceTime
from archsim.training.data_exchange import DataExchange, Payload, hidden
from archsim.training.layout import Layout
from archsim.training.memory import piece_weights
from archsim.training.offload import Offload
from archsim.training.optimizers import NEWTON_SCHULZ_STEPS, Optimizer
from archsim.training.pass_times import CommKind
from archsim.training.pipeline import Run, play
from archsim.training.rank import LAST, RankGraphs
from archsim.training.schedules import directions, stage_homes
from archsim.training.stage_times import PICOSECONDS, StageTimes
from archsim.training.stages import StageLayers
from archsim.training.states import Weight, rank_states

KINDS: tuple[CommKind, ...] = ("tp", "cp", "ep", "pp", "fsdp", "dp", "host")
"""Kinds of communication, as they are printed."""


class StepParts(NamedTuple):
    """Seconds of the busiest rank, which add up with the exposed communication to those of the step."""

    forward_s: float = 0.0
    backward_s: float = 0.0
    recompute_s: float = 0.0
    head_and_loss_s: float = 0.0
    optimizer_s: float = 0.0
    bubble_s: float = 0.0


class TrainingStep(NamedTuple):
    """Seconds of one step. ideal_s: every kernel at the device's peaks, everything else free. run: the
    pipeline. update_flops: of the optimizer's products on one device.
    """

    parts: StepParts
    comm: Mapping[CommKind, Comm]
    ideal_s: float
    run: Run
    update_flops: float = 0.0

    @property
    def expected_s(self) -> float:
        """Everything that nothing hides."""
        return sum(self.parts) + sum(comm.exposed_s for comm in self.comm.values())


class Host(NamedTuple):
    """What lies on the host, and bytes per second and direction between it and a device."""

    offload: Offload
    rate: float

    def trip(self, size: float, work_s: float) -> Comm:
        """So many bytes one way beside so much work, which hides them."""
        return hidden(Comm(size / self.rate, 0.0, size), 0.0, work_s)


class StepRules(NamedTuple):
    """What the time of a step follows from beside its micro-batches."""

    layout: Layout
    recipe: Recipe
    optimizer: Optimizer
    timer: Timer
    factors: StackFactors
    width: int  # numbers of a token that cross a stage boundary
    host: Host | None = None


class StageCost(NamedTuple):
    """One stage for one micro-batch: its pieces, the gathers and scatters of ZeRO 3, and the ways of saved tensors to
    the host and back.
    """

    stage: StageLayers
    pieces: Mapping[str, PieceTime]
    sharded: Comm = Comm()
    out: Comm = Comm()
    back: Comm = Comm()

    @property
    def forward_s(self) -> float:
        """Seconds of its forward kernels."""
        return self.stage.total(lambda name: self.pieces[name].forward_s)

    @property
    def backward_s(self) -> float:
        """Seconds of its backward kernels."""
        return self.stage.total(lambda name: self.pieces[name].backward_s)

    def times(self) -> StageTimes:
        """As the pipeline plays them; communication of ZeRO 3 goes with the backward."""
        weights = self.stage.total(lambda name: self.pieces[name].weights_s)
        forward = self.stage.total(lambda name: self.pieces[name].forward_total_s) + self.out.exposed_s
        backward = self.stage.total(lambda name: self.pieces[name].backward_total_s)
        backward += self.sharded.exposed_s + self.back.exposed_s
        return StageTimes.of(forward, backward, weights)


def training_step_time(
    rank: RankGraphs, micro: MicroBatch, stages: Sequence[StageLayers], rules: StepRules
) -> TrainingStep:
    """The step of a layout."""
    layout, exchange = rules.layout, DataExchange(rules.timer, rules.layout, rules.recipe)
    costs = stage_costs(rank, micro, stages, exchange, rules)
    send = send_comm(rules)
    run = play(
        layout.schedule, layout.pp, layout.micro_batches, [cost.times() for cost in costs],
        round(send.exposed_s * PICOSECONDS), layout.vpp,
    )  # fmt: skip
    home, busiest = stage_homes(layout.schedule, layout.pp, layout.vpp), run.busiest
    own = [costs[s % len(costs)] for s, rank_of in enumerate(home) if rank_of == busiest]
    share = layout.micro_batches / directions(layout.schedule)
    parts, comm = _parts(own, share)
    if layout.pp > 1:
        crossings = 2 * share * len(own)
        comm["pp"] = Comm(send.total_s * crossings, 0.0, send.sent * crossings)
    weights = [w for cost in own for w in _weights(rank, cost.stage)]
    payload, update = Payload.of(weights), optimizer_seconds(weights, rules)
    comm["host"] = comm.get("host", Comm()).plus(states_comm(weights, update, rules))
    comm["dp"] = data_comm(payload, own, exchange, rules)
    parts = parts._replace(optimizer_s=update, bubble_s=run.bubble_s(busiest))
    ideal = sum(cost.stage.total(lambda name: micro.pieces[name].ideal_s) for cost in own) * share
    return TrainingStep(parts, {kind: comm[kind] for kind in KINDS if kind in comm and comm[kind].total_s}, ideal, run,
                        sum(rules.optimizer.flops(w.matrix) for w in weights if w.trainable))  # fmt: skip


def stage_costs(
    rank: RankGraphs, micro: MicroBatch, stages: Sequence[StageLayers], exchange: DataExchange, rules: StepRules
) -> list[StageCost]:
    """The stages with their communication under ZeRO 3 and with the host."""
    return [
        StageCost(
            stage,
            micro.pieces,
            sharded_comm(rank, stage, micro, exchange, rules),
            *saved_comm(rank, stage, micro, rules),
        )
        for stage in stages
    ]


def saved_comm(rank: RankGraphs, stage: StageLayers, micro: MicroBatch, rules: StepRules) -> tuple[Comm, Comm]:
    """Saved tensors of the layers of a stage: to the host behind its forward, back before its backward needs them."""
    host = rules.host
    if host is None or "activations" not in host.offload:
        return Comm(), Comm()
    out, back = Comm(), Comm()
    for name, times in stage.layers.items():
        size, piece = rank.kept.layers[name], micro.pieces[name]
        out = out.plus(host.trip(size, piece.forward_s), times)
        back = back.plus(host.trip(size, piece.backward_s + piece.recompute_s), times)
    return out, back


def states_comm(weights: Sequence[Weight], update_s: float, rules: StepRules) -> Comm:
    """Optimizer states through the device and back, both ways at once, once a step."""
    host = rules.host
    if host is None or "optimizer" not in host.offload:
        return Comm()
    trained = [weight for weight in weights if weight.trainable]
    size = rank_states(trained, rules.recipe, rules.optimizer, rules.layout).optimizer
    return host.trip(size, update_s)


def _weights(rank: RankGraphs, stage: StageLayers) -> list[Weight]:
    return [w for name, times in stage.pieces.items() for w in piece_weights(rank, name) * times]


def _parts(own: Sequence[StageCost], share: float) -> tuple[StepParts, dict[CommKind, Comm]]:
    """Parts of the busiest rank over all its micro-batches."""
    parts, comm = StepParts(), dict[CommKind, Comm]()
    for cost in own:
        for name, times in cost.stage.pieces.items():
            piece, n = cost.pieces[name], times * share
            for found in (piece.forward_comm, piece.backward_comm):
                for kind, each in found.items():
                    comm[kind] = comm.get(kind, Comm()).plus(each, n)
            if name == LAST:
                work = piece.forward_s + piece.backward_s + piece.recompute_s
                parts = parts._replace(head_and_loss_s=parts.head_and_loss_s + work * n)
                continue
            parts = parts._replace(
                forward_s=parts.forward_s + piece.forward_s * n, backward_s=parts.backward_s + piece.backward_s * n,
                recompute_s=parts.recompute_s + piece.recompute_s * n,
            )  # fmt: skip
        if cost.sharded.total_s:
            comm["fsdp"] = comm.get("fsdp", Comm()).plus(cost.sharded, share)
        if cost.out.total_s:
            comm["host"] = comm.get("host", Comm()).plus(cost.out, share).plus(cost.back, share)
    return parts, comm


def sharded_comm(
    rank: RankGraphs, stage: StageLayers, micro: MicroBatch, exchange: DataExchange, rules: StepRules
) -> Comm:
    """ZeRO 3 for one micro-batch of a stage: each piece is gathered for the forward and once more for the backward, its
    gradients are scattered after it; behind the work of the piece beside it. A pipeline gathers once for all its
    micro-batches.
    """
    layout = rules.layout
    if layout.zero < 3 or layout.shards == 1:
        return Comm()
    total, share = Comm(), rules.factors.exposed["fsdp"]
    once = 1 / layout.micro_batches if layout.pp > 1 else 1.0
    for name, times in stage.pieces.items():
        payload, piece = Payload.of(piece_weights(rank, name)), micro.pieces[name]
        gather = _slower(exchange.gathers(payload), rules.factors.flat_network)
        scatter = exchange.scatters(payload)
        total = total.plus(hidden(gather, share, piece.forward_s), times * once)
        if layout.pp == 1:
            both = Comm(gather.total_s + scatter.total_s, 0.0, gather.sent + scatter.sent)
            total = total.plus(hidden(both, share, piece.backward_s + piece.recompute_s), times)
        else:
            total = total.plus(hidden(scatter, share, piece.backward_s), times * once)
    return total


def _slower(comm: Comm, factor: float) -> Comm:
    return comm._replace(total_s=comm.total_s * factor)


def data_comm(payload: Payload, own: Sequence[StageCost], exchange: DataExchange, rules: StepRules) -> Comm:
    """Once a step: gradients behind the last backward, updated weights behind the next step's first forward."""
    layout, share = rules.layout, rules.factors.exposed["dp"]
    if layout.data_ranks == layout.expert_data_ranks == 1:
        return Comm()
    backward = sum(cost.backward_s for cost in own)
    forward = sum(cost.forward_s for cost in own)
    reduced = hidden(exchange.reduces(payload), share, backward)
    return reduced.plus(hidden(exchange.returns(payload), share, forward))


def send_comm(rules: StepRules) -> Comm:
    """One activation, or its gradient, to the next stage."""
    layout = rules.layout
    if layout.pp == 1:
        return Comm()
    tokens = layout.micro_batch * layout.seq_len / layout.cp / (layout.tp if layout.sp else 1)
    size = tokens * rules.width * format_bytes_of(rules.recipe.activations)
    stride = layout.tp * layout.cp * layout.dp
    call = KernelCall("nccl_send_recv", dims={"n_gpus": 2, "bytes": size, "stride": stride})
    seconds = float(rules.timer.once(call).expected)
    return Comm(seconds, seconds * rules.factors.exposed["pp"], size)


def optimizer_seconds(weights: Sequence[Weight], rules: StepRules) -> float:
    """One update: gradients are read (twice: for their norm too), states read and written, weights written; Muon's
    products beside it.
    """
    if not weights:
        return 0.0
    trained = [w for w in weights if w.trainable]
    shards = rules.layout.shards if rules.layout.zero else 1
    products = sum(_orthogonalise_seconds(w, rules) for w in trained if rules.optimizer.flops(w.matrix)) / shards
    return float(rules.timer.once(update_call(weights, rules)).expected) + products


def update_call(weights: Sequence[Weight], rules: StepRules) -> KernelCall:
    """The pass over all trained weights of a rank, their gradients and states."""
    trained = [w for w in weights if w.trainable]
    recipe, layout = rules.recipe, rules.layout
    states = rank_states(trained, recipe, rules.optimizer, layout)
    mine = sum(w.matrix.elements for w in trained) / (layout.shards if layout.zero else 1)
    read = 2 * mine * format_bytes_of(recipe.gradients) + states.optimizer
    written = mine * format_bytes_of(recipe.weights) + states.optimizer
    if not rules.timer.machine.is_processor:
        return KernelCall("elementwise", dims={"read_bytes": read, "write_bytes": written})
    dtype = "fp32" if format_bytes_of(recipe.weights) > 2 else "bf16"
    return KernelCall("cpu_elementwise", dtype, kernel=OPTIMIZER, dims={"m": 1, "n": mine, "bytes": read + written})


def _orthogonalise_seconds(weight: Weight, rules: StepRules) -> float:
    """Newton-Schulz iterations of one weight: two products with its longer side, one square."""
    m, n = sorted((weight.matrix.rows, weight.matrix.columns))
    long = rules.timer.once(KernelCall("gemm", dims={"m": m, "n": m, "k": n})).expected
    back = rules.timer.once(KernelCall("gemm", dims={"m": m, "n": n, "k": m})).expected
    square = rules.timer.once(KernelCall("gemm", dims={"m": m, "n": m, "k": m})).expected
    return NEWTON_SCHULZ_STEPS * float(long + back + square) * weight.matrix.copies
