"""How a training run is spread over devices: its parallel degrees, and which of them a model allows."""

from __future__ import annotations

from typing import Literal

from archsim.base.data_class import dataclass
from archsim.base.errors import InvalidPlan
from archsim.blocks.layer import count_layers
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, check_degrees, expert_counts
from archsim.training.schedules import SCHEDULES, stages_per_rank

Zero = Literal[0, 1, 2, 3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Parallel degrees and batches of a training run on tp·cp·pp·dp devices.

    tp: tensor. sp: sequence parallelism over the tensor-parallel ranks. cp: context. pp: pipeline stages; vpp: stages a
    rank. dp: data. ep: expert; etp: tensor parallelism of experts. zero: what data ranks share out: 1 optimizer states,
    2 gradients too, 3 weights too. hsdp: ranks of one sharding group, 0 for all data ranks. micro_batch: sequences of
    one pass; global_batch: of one step; seq_len: tokens of each.
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1
    dp: int = 1
    sp: bool = False
    zero: int = 0
    hsdp: int = 0
    schedule: str = "1f1b"
    micro_batch: int = 1
    global_batch: int = 1
    seq_len: int = 4096

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.tp * self.cp * self.pp * self.dp

    @property
    def micro_batches(self) -> int:
        """Micro-batches of a step on one data rank."""
        return self.global_batch // (self.micro_batch * self.dp)

    @property
    def data_ranks(self) -> int:
        """Ranks that hold the same part of dense weights: context-parallel ones too."""
        return self.dp * self.cp

    @property
    def expert_data_ranks(self) -> int:
        """Ranks that hold the same experts."""
        return self.tp * self.cp * self.dp // (self.ep * self.etp)

    @property
    def shards(self) -> int:
        """Ranks that share out what `zero` says of dense weights."""
        return self.hsdp or self.data_ranks

    @property
    def expert_shards(self) -> int:
        """The same of experts."""
        return min(self.hsdp or self.expert_data_ranks, self.expert_data_ranks)

    @property
    def tokens(self) -> int:
        """Tokens of a step, of all devices."""
        return self.global_batch * self.seq_len

    @property
    def stages(self) -> int:
        """Stages along the path of a micro-batch."""
        return self.pp * stages_per_rank(self.schedule, self.vpp)


def check_layout(model: Model, layout: Layout) -> Layout:
    """The layout, or InvalidPlan (E120) that says which number is wrong and what is allowed."""
    check_degrees(model, Plan(tp=layout.tp, pp=layout.pp, ep=layout.ep))
    _check_batches(layout)
    _check_experts(model, layout)
    _check_pipeline(model, layout)
    _check_sequence(layout)
    if layout.hsdp and (layout.data_ranks % layout.hsdp or layout.zero != 3):
        raise InvalidPlan(
            f"hsdp {layout.hsdp} must divide the dp x cp = {layout.data_ranks} data ranks, and needs --zero 3",
            hints=("hsdp is the number of devices that one copy of the weights is spread over",),
        )
    return layout


def _check_batches(layout: Layout) -> None:
    each = layout.micro_batch * layout.dp
    if layout.global_batch % each:
        raise InvalidPlan(
            f"a global batch of {layout.global_batch} sequences is not a multiple of micro-batch x dp = "
            f"{layout.micro_batch} x {layout.dp}",
            hints=(f"the next that is: --global-batch {-(-layout.global_batch // each) * each}",),
        )


def _check_experts(model: Model, layout: Layout) -> None:
    if layout.ep == layout.etp == 1 or not expert_counts(model):
        if layout.etp > 1 and not expert_counts(model):
            raise InvalidPlan(f"etp {layout.etp}: {model.name} has no experts", hints=("leave `--etp` out",))
        return
    for count in expert_counts(model):
        if count % layout.ep:
            valid = ", ".join(str(n) for n in range(1, count + 1) if count % n == 0)
            raise InvalidPlan(f"ep {layout.ep} does not divide {count} experts", hints=(f"valid degrees: {valid}",))
    if layout.etp not in (1, layout.tp):
        raise InvalidPlan(
            f"etp {layout.etp} must be 1 or tp = {layout.tp}", hints=("experts are cut as attention is, or not",)
        )
    if layout.etp == 1 < layout.tp and layout.ep > 1 and layout.ep % layout.tp:
        raise InvalidPlan(
            f"etp 1 spreads experts over tensor-parallel ranks first: ep {layout.ep} must be a multiple of tp "
            f"{layout.tp}", hints=(f"--etp {layout.tp} cuts experts as attention is, or change --ep",),
        )  # fmt: skip
    group = layout.tp * layout.cp * layout.dp
    if group % (layout.ep * layout.etp):
        raise InvalidPlan(
            f"ep x etp = {layout.ep} x {layout.etp} must divide the tp x cp x dp = {group} devices of a stage",
            hints=("change --ep, --etp or --dp",),
        )


def _check_pipeline(model: Model, layout: Layout) -> None:
    if layout.schedule not in SCHEDULES:
        raise InvalidPlan(f"no schedule named {layout.schedule[:60]!r}", hints=(f"schedules: {', '.join(SCHEDULES)}",))
    if layout.vpp > 1 and layout.schedule not in ("interleaved", "zbv"):
        raise InvalidPlan(
            f"vpp {layout.vpp}: the {layout.schedule} schedule has one stage a rank", hints=("--schedule interleaved",)
        )
    layers = count_layers(model.layers)
    if layout.stages > layers:
        raise InvalidPlan(
            f"{layout.stages} stages are more than the {layers} layers of {model.name}", hints=("lower --pp or --vpp",)
        )
    if layout.pp > 1:
        SCHEDULES[layout.schedule](layout.pp, layout.micro_batches, layout.vpp)


def _check_sequence(layout: Layout) -> None:
    if layout.seq_len % layout.cp:
        raise InvalidPlan(
            f"cp {layout.cp} does not divide sequences of {layout.seq_len} tokens", hints=("change --cp or --seq-len",)
        )
    if layout.sp and layout.micro_batch * layout.seq_len // layout.cp % layout.tp:
        raise InvalidPlan(
            f"sequence parallelism needs tokens in multiples of tp = {layout.tp}", hints=("--no-sp leaves it out",)
        )
