"""The plan of a run whose row leaves a degree out: attention data parallelism where nothing else can run, or a reason.

Rows state tensor, pipeline and expert parallelism, and seldom how many replicas of the attention share the experts.
Whole copies of the model side by side are assumed only where each holds its weights.
"""

from __future__ import annotations

from dataclasses import replace

from archsim.accuracy.capacity import hardware_of, memory_of
from archsim.accuracy.question import Run, model_of
from archsim.base.errors import AnswerNo, InvalidPlan
from archsim.base.units import format_bytes
from archsim.spec.parallelism import expert_counts


def placed_run(run: Run) -> Run:
    """The run with the attention replicas that its degrees imply. Raises InvalidPlan where no replicas make them a
    plan.
    """
    if run.decode is not None:
        return replace(placed_run(replace(run, decode=None)), decode=placed_run(run.decode))
    ranks = run.tp * run.dp
    if ranks % run.ep == 0 and (run.dp > 1 or run.replicas == 1 or weights_fit(run)):
        return run
    if expert_counts(model_of(run.model)[0]) and run.dp == 1 and run.replicas > 1:
        dp = run.replicas
        ep = run.ep if run.ep > 1 else run.tp * dp
        if run.tp * dp % ep == 0:
            why = f"dp is not stated: on {run.devices} devices tp {run.tp} and ep {ep} mean dp {dp}"
            return replace(run, dp=dp, ep=ep, notes=(*run.notes, why))
    if ranks % run.ep:
        raise InvalidPlan(f"ep {run.ep} does not divide tp x dp = {ranks}, and no dp is stated that makes it a plan")
    return run


def require_weights(run: Run) -> None:
    """Raises AnswerNo where a device's part of the weights is larger than its memory: such a plan cannot have run."""
    if run.decode is not None:
        require_weights(run.decode)
    memory = memory_of(_any_load(run))
    weights, capacity = memory.stage.weights, hardware_of(run).memory_bytes
    if weights > capacity:
        plan = f"tp {run.tp}, pp {run.pp}, ep {run.ep}, dp {run.dp}"
        raise AnswerNo(
            f"{run.model} in {memory.model.tensors.formats.name} with {plan} puts {format_bytes(weights)} of weights "
            f"on each device, which has {format_bytes(capacity)}"
        )


def weights_fit(run: Run) -> bool:
    """Whether the devices of the plan hold their parts of the weights."""
    try:
        require_weights(run)
    except AnswerNo:
        return False
    return True


def _any_load(run: Run) -> Run:
    """The run without what weights do not depend on, so that rows of one plan share the answer."""
    return replace(
        run, metric="", definition="", isl=None, osl=None, batch=None, longest=None, notes=(), workers=1, decode=None
    )
