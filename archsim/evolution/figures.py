"""What an architecture costs, in the figures that an evolution is told in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from archsim.base.errors import UsageError
from archsim.base.number import Num
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.counts.formats import choose_formats
from archsim.counts.workload import Workload, WorkloadSteps
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan
from archsim.timing.step_pricer import StepPricer, engine_overheads


class ArchitectureFigures(NamedTuple):
    """Figures of one sequence of the context's length.

    params, active_params: as `count` states them. weight_bytes: as stored. flops_per_token: contractions of one decode
    step with a full context (an encoder: of the input over its tokens, cut to a whole number), masked pairs left out.
    kv_bytes: caches that grow with the length, windows applied; state_bytes: those that do not. decode_s: one step with
    a full context; prefill_s: a prompt of that length, both expected times on one device; None where there is no
    device, or no decode step at either end. train_...: of a training step of one sequence (see `TrainingNeeds`), None
    unless asked for, and of encoders without a head to take a loss of.
    """

    params: Num
    active_params: Num
    weight_bytes: Num
    flops_per_token: Num
    kv_bytes: Num
    state_bytes: Num
    decode_s: Num | None
    prefill_s: Num | None
    train_flops_per_token: Num | None = None
    train_bytes: Num | None = None
    train_step_s: Num | None = None

    def minus(self, other: ArchitectureFigures) -> dict[str, Num | None]:
        """Each figure less that of another; those of training where either has them."""
        pairs = zip(self._fields, self, other, strict=True)
        return {
            name: None if a is None or b is None else a - b
            for name, a, b in pairs
            if name not in TRAINING or not (a is None and b is None)
        }

    def to_dict(self) -> dict[str, Num | None]:
        """Raw numbers; those of training where they were asked for."""
        return {name: value for name, value in self._asdict().items() if name not in TRAINING or value is not None}


TRAINING = ("train_flops_per_token", "train_bytes", "train_step_s")
"""Figures of training, which are found where they are asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchitectureCost:
    """Prices models at one context length, on one device or without times. decodes: whether a decode step is timed.
    trains: whether training is looked at too.
    """

    context_len: int
    hardware: Hardware | None = None
    decodes: bool = True
    trains: bool = False

    def __call__(self, model: Model) -> ArchitectureFigures:
        """The costs of a model. Raises a ValueError for a spec that cannot be built."""
        formats = choose_formats(model, None, None)
        n, decodes = self.context_len, model.architecture != "encoder"
        if self.hardware is None:
            prefill = formats.apply(lower(model, step_for(model, 1, n)))
            step = step_for(model, 1, 1, n - 1, n, absorbed=True)
            decode = formats.apply(lower(model, step)) if decodes else None
            times: tuple[Num | None, Num | None] = None, None
        else:
            steps = WorkloadSteps(model, Workload(batch=1, input_len=n, output_len=1))
            pricer = StepPricer.of(model, self.hardware, formats, engine_overheads(), Plan())
            prefill = pricer.graphs.rank(steps.prefill, pricer.plan)
            decode = pricer.graphs.rank(steps.decode, pricer.plan) if decodes else None
            step_s = pricer.price(steps.decode).expected_s if decodes and self.decodes else None
            times = step_s, pricer.price(steps.prefill).expected_s
        state = c.state_bytes(prefill, role="recurrent")
        one = decode  # a decode step of one sequence has one token as well
        if one is None or model.encoder is not None:
            one = formats.apply(lower(model, step_for(model, 1, 1)))
        work = c.flops(prefill) // n if decode is None else c.flops(decode)
        return ArchitectureFigures(
            params=c.params(prefill), active_params=c.active_params(one), weight_bytes=c.weight_bytes(prefill),
            flops_per_token=work, kv_bytes=c.state_bytes(prefill) - state, state_bytes=state,
            decode_s=times[0], prefill_s=times[1], **self._training(model),
        )  # fmt: skip

    def _training(self, model: Model) -> dict[str, Num | None]:
        """The figures of training, where they are asked for and the model has a loss."""
        if not self.trains or (model.architecture == "encoder" and model.mlm_head is None):
            return {}
        from archsim.training.one_device import training_needs  # loaded where training is asked for

        return dict(zip(TRAINING, training_needs(model, self.context_len, self.hardware), strict=True))


def stored_in(model: Model, weights: str) -> Model:
    """The model with its weights in a format, as its own. Raises UsageError for a mixture by tensor names."""
    formats = choose_formats(model, weights, None)
    if formats.tensors:
        raise UsageError(
            f"{weights} mixes formats tensor by tensor, which has no meaning between two architectures",
            hints=("a format such as fp8 or int4 has",),
        )
    return model.model_copy(update={"weights": {role: fmt.name for role, fmt in formats.weights.items()}})
