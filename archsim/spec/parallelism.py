"""How a model is spread over devices: valid degrees, and the plan that a device count implies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import gcd
from typing import Literal

from archsim.base.data_class import dataclass
from archsim.base.errors import InvalidPlan
from archsim.blocks.layer import count_layers, walk_layers
from archsim.spec.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Parallel degrees. tp: tensor. pp: pipeline. ep: expert. dp: attention data parallelism. devices = tp·pp·dp.

    splits: how the engine shares a model over several devices: tensors are cut, or whole layers dealt out.
    """

    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    engine: str = "generic"
    splits: Literal["tensors", "layers"] = "tensors"

    @property
    def devices(self) -> int:
        """Devices in all."""
        return self.tp * self.pp * self.dp


MOST_DEVICES = 2**24
"""Devices of one plan at most."""


def tp_degrees(model: Model, limit: int = 1024) -> tuple[int, ...]:
    """Every tensor-parallel degree that divides the heads and feed-forward widths of all layers, and that key/value
    heads divide over, or are replicated on, evenly: engines start with no other.
    """
    unit = tp_unit(model)
    degrees = (n for n in range(1, min(unit, limit) + 1) if unit % n == 0)
    return tuple(n for n in degrees if uneven_heads(model, n) is None)


def tp_unit(model: Model) -> int:
    """The greatest common divisor of heads and feed-forward widths, which tensor parallelism must divide."""
    return gcd(*model.cut_widths)


def uneven_heads(model: Model, tp: int) -> int | None:
    """The number of key/value heads that some ranks would hold more of than others, None where all hold as many."""
    return next((n for n in model.replicated_heads if n % tp and tp % n), None)


def expert_counts(model: Model) -> tuple[int, ...]:
    """Numbers of routed experts that occur in the model."""
    ffns = [layer.ffn for layer in walk_layers(model.layers)]
    return tuple(sorted({ffn.experts.total for ffn in ffns if ffn is not None and ffn.experts}))


def check(model: Model, plan: Plan) -> Plan:
    """The plan, or InvalidPlan (E120) that names the valid degrees."""
    check_degrees(model, plan)
    group = plan.tp * plan.dp
    if group % plan.ep:
        valid = ", ".join(str(n) for n in range(1, group + 1) if group % n == 0)
        raise InvalidPlan(f"ep {plan.ep} must divide tp x dp = {group}", hints=(f"valid degrees here: {valid}",))
    return plan


def check_degrees(model: Model, plan: Plan) -> None:
    """Refuses degrees that no number of devices makes valid for the model."""
    if plan.devices > MOST_DEVICES:
        shown = f"{plan.devices:.3g}" if plan.devices < 1e300 else "over 1e300"
        raise InvalidPlan(f"{shown} devices are more than archsim plans for: {MOST_DEVICES:,}")
    if not model.shardable and max(plan.tp, plan.pp, plan.ep) > 1:
        reason = f"{model.name} is traced from a module, which does not say how to cut it"
        raise InvalidPlan(reason, hints=("copies of it run side by side: `--dp`",))
    uneven = uneven_heads(model, plan.tp)
    if tp_unit(model) % plan.tp or uneven is not None:
        shown = ", ".join(map(str, tp_degrees(model)[:12]))
        reason = f"does not divide the heads and feed-forward widths of {model.name}"
        if tp_unit(model) % plan.tp == 0:
            reason = f"gives some ranks more of the {uneven} key/value heads of {model.name} than others"
        raise InvalidPlan(
            f"tp {plan.tp} {reason}", hints=(f"valid degrees: {shown}", "pipeline stages split layers instead: `--pp`")
        )
    layers = count_layers(model.layers)
    if plan.pp > layers:
        raise InvalidPlan(
            f"pp {plan.pp} is more than the {layers} layers of {model.name}",
            hints=(f"at most {layers} pipeline stages; fewer devices, or more tensor parallelism, leave fewer",),
        )
    _check_experts(model, plan.ep)


def _check_experts(model: Model, ep: int) -> None:
    counts = expert_counts(model)
    if ep > 1 and not counts:
        raise InvalidPlan(f"ep {ep}: {model.name} has no experts", hints=("leave `--ep` out",))
    least = min(counts, default=1)
    if ep > least:
        raise InvalidPlan(
            f"ep {ep} is more than the {least} experts of {model.name}", hints=(f"at most {least} ranks share them",)
        )


def fullest_share(model: Model, ep: int) -> Fraction:
    """Experts of the rank that holds most, over the mean of all `ep` ranks: 1 where they divide evenly."""
    if ep == 1:
        return Fraction(1)
    return max((Fraction(-(-n // ep) * ep, n) for n in expert_counts(model)), default=Fraction(1))


def plan_for(model: Model, devices: int, max_domain: int, given: Plan, fixed: frozenset[str]) -> Plan:
    """The plan on `devices`: degrees in `fixed` as given, the rest chosen.

    Tensor parallelism takes the largest valid degree inside one link domain, pipeline stages what remains. Where the
    engine splits layers, not tensors, the plan is a pipeline. Raises InvalidPlan when the numbers cannot agree.
    """
    known = given.dp * (given.tp if "tp" in fixed else 1) * (given.pp if "pp" in fixed else 1)
    if devices % known:
        raise InvalidPlan(
            f"--devices {devices} is not a multiple of the tp x pp x dp = {known} requested",
            hints=("devices = tp x pp x dp: leave one of them out",),
        )
    free = devices // known
    tp, pp = given.tp, given.pp
    if "tp" not in fixed and "pp" not in fixed:
        tp = 1 if given.splits == "layers" else _largest_tp(model, free, max_domain)
        pp = free // tp
    elif "tp" not in fixed:
        tp = free
    elif "pp" not in fixed:
        pp = free
    elif free != 1:
        raise InvalidPlan(f"--devices {devices} is not tp x pp x dp = {known}")
    return check(model, replace(given, tp=tp, pp=pp))


def _largest_tp(model: Model, devices: int, max_domain: int) -> int:
    if devices == 1:
        return 1
    return max((n for n in tp_degrees(model, max_domain) if devices % n == 0), default=1)


MOST_TP = 8
"""Tensor parallelism within an attention replica goes no further in the plans that are tried."""


def replica_plans(model: Model, devices: int, given: Plan, fixed: frozenset[str]) -> Iterator[Plan]:
    """Plans in which all devices share the experts, and groups of `tp` of them the attention of one replica each
    (attention data parallelism with expert parallelism). fixed: degrees that stay as given.
    """
    if not expert_counts(model) or given.splits == "layers":
        return
    for tp in tp_degrees(model, min(MOST_TP, devices // 2)):
        plan = replace(given, tp=tp, pp=1, dp=devices // tp, ep=given.ep if "ep" in fixed else devices)
        if devices % tp or any(getattr(plan, name) != getattr(given, name) for name in fixed):
            continue
        try:
            yield check(model, plan)
        except InvalidPlan:
            continue


def device_counts(model: Model, max_domain: int, given: Plan, fixed: frozenset[str]) -> Iterator[int]:
    """Growing numbers of devices for `--devices auto`: 1, 2, 4, ... and every valid tp degree, then whole domains."""
    step = given.dp * (given.tp if "tp" in fixed else 1) * (given.pp if "pp" in fixed else 1)
    sizes = {*tp_degrees(model, max_domain), *(2**i for i in range(11)), *(max_domain * k for k in range(1, 17))}
    return (n * step for n in sorted(sizes))
