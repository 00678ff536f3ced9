"""Times of the kernels of a training graph, by the models that time inference: forward, backward and collectives.

Forward kernels become the calls that they are in inference. Gradients of inputs are products with the same weights;
those of weights are products of two activations; the backward of attention, and products of experts that give gradients
of weights, are timed by what their forward takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple

from archsim.base.number import Num
from archsim.graph.graph import Block, Op
from archsim.graph.kernels import Kernel, kernels_with_edges, product_of, traffics, weight_of
from archsim.graph.step import Step
from archsim.graph.tensor import Format, nbytes, numel
from archsim.spec.stack import Communication, StackFactors
from archsim.timing.classes.call import KernelCall
from archsim.timing.duration import Duration, Evidence, weakest
from archsim.timing.kernel_calls import CallRules, FusedCall, lower_to_calls, table_dtype
from archsim.timing.kernel_timer import Timer
from archsim.timing.step_pricer import launch_time
from archsim.timing.step_time import KernelCost

CommKind = Communication
"""What communication belongs to."""


class PassKernel(NamedTuple):
    """Kernels of a pass that run as one, all their executions together. comm: kind of communication, if any. weights:
    whether it gives gradients of weights. ideal_s: at the device's peaks. sent: bytes that one rank sends.
    """

    name: str
    seconds: float
    ideal_s: float
    evidence: Evidence
    kernel_class: str
    comm: CommKind | None = None
    sent: float = 0.0
    flops: float = 0.0
    weights: bool = False


class PassRules(NamedTuple):
    """What times of a pass follow from beside its graph. formats: of weights by name, as products read them; packed: as
    they lie where they are dequantised at every use. form: how a processor runs a pass (`eager`, `compiled`); empty on
    other devices.
    """

    timer: Timer
    factors: StackFactors
    step: Step
    formats: Mapping[str, Format]
    packed: Mapping[str, Format] = {}
    form: str = ""


class ForwardTimes(NamedTuple):
    """Seconds of one execution in the forward: of each block that runs as one kernel, and of each product of
    experts.
    """

    blocks: Mapping[str, Duration]
    experts: Mapping[str, Duration]


NOTHING = ForwardTimes({}, {})


def pass_kernels(graph: Block, rules: PassRules, forward: ForwardTimes = NOTHING) -> list[PassKernel]:
    """All kernels of a pass. forward: times of the forward that belongs to it."""
    return [kernel for kernel, _ in _priced(graph, rules, forward)]


def forward_pass(graph: Block, rules: PassRules) -> tuple[list[PassKernel], ForwardTimes]:
    """All kernels of a forward, and the times that its backward is timed by."""
    blocks: dict[str, Duration] = {}
    experts: dict[str, Duration] = {}
    found = []
    for made, members in _priced(graph, rules, NOTHING):
        found.append(made)
        products = [op for kernel in members for op in kernel.ops if op.kind == "contract"]
        once = made.seconds / float(members[0].times)
        if members[0].kind:
            blocks[block_of(members[0])] = Duration(once, once, once, evidence=made.evidence)
        owned = [op for op in products if (w := weight_of(op)) is not None and w.tensor.role == "expert"]
        for op in owned:
            each = once / len(owned)
            experts[op.name] = Duration(each, each, each, evidence=made.evidence)
    return found, ForwardTimes(blocks, experts)


def block_of(kernel: Kernel) -> str:
    """The block that a kernel is the whole of."""
    return kernel.ops[0].name.rsplit(".", 2 if kernel.ops[0].name.endswith(".again") else 1)[0]


def _priced(graph: Block, rules: PassRules, forward: ForwardTimes) -> list[tuple[PassKernel, list[Kernel]]]:
    machine = rules.timer.machine
    kernels = [kernel for kernel, _ in kernels_with_edges(graph)]
    moved = traffics(graph, machine.cache_bytes)
    costs = [KernelCost.of(kernel, m, machine) for kernel, m in zip(kernels, moved, strict=True)]
    found = []
    for call in lower_to_calls(kernels, moved, CallRules(rules.step, machine)):
        members = [kernels[i] for i in call.members]
        made = _pass_kernel(call, members, [costs[i] for i in call.members], rules, forward)
        found.append((made, members))
    return found


def _pass_kernel(
    call: FusedCall, members: list[Kernel], costs: list[KernelCost], rules: PassRules, forward: ForwardTimes
) -> PassKernel:
    """One launch, however it is timed, never below its kernels' speed of light."""
    first, times = members[0], float(members[0].times)
    ideal = sum(float(cost.ideal_s) for cost in costs) * times
    seconds, evidence, kernel_class = _time(call, members, costs, rules, forward)
    seconds += sum(dequantise_seconds(op, rules) for kernel in members for op in kernel.ops)
    comm = comm_kind(first.ops[0])
    return PassKernel(
        first.name, max(seconds * times, ideal), ideal, evidence, kernel_class, comm,
        sum(float(cost.comm_bytes) for cost in costs) * times, sum(float(cost.flops) for cost in costs) * times,
        any(is_weight_gradient(op) for kernel in members for op in kernel.ops),
    )  # fmt: skip


def _time(
    call: FusedCall, members: list[Kernel], costs: list[KernelCost], rules: PassRules, forward: ForwardTimes
) -> tuple[float, Evidence, str]:
    """Seconds of one execution, what they rest on, and the class of kernel."""
    factors, first = rules.factors, members[0]
    if first.kind.endswith("_backward"):
        return _block_backward(first, costs, factors, forward)
    gradients = [op for op in (product_of(k) for k in members) if op is not None and weight_of(op) is None]
    if gradients and not first.kind and not call.main:
        return _weight_gradients(gradients, call, members, rules, forward)
    call = call._replace(main=[_in_training(each) for each in call.main])
    parts = launch_time(call, costs, rules.timer.each(call.calls)).parts
    total, kinds = 0.0, list[Evidence]()
    for (kernel_class, evidence), count, time in parts:
        total += float(time.expected) * float(count) / float(costs[0].count) * factor_of(kernel_class, factors)
        kinds.append(evidence)
    return total, weakest(kinds), parts[0][0][0]


def dequantise_seconds(op: Op, rules: PassRules) -> float:
    """Making the copy that a product reads of a weight that lies in fewer bits."""
    weight = weight_of(op) if op.kind == "contract" else None
    if weight is None or weight.tensor.name not in rules.packed:
        return 0.0
    wide, packed = weight.tensor, replace(weight.tensor, format=rules.packed[weight.tensor.name])
    call = KernelCall("elementwise", dims={"read_bytes": nbytes(packed), "write_bytes": nbytes(wide)})
    return float(rules.timer.once(call).expected) * rules.factors.elementwise


def _block_backward(
    kernel: Kernel, costs: Sequence[KernelCost], factors: StackFactors, forward: ForwardTimes
) -> tuple[float, Evidence, str]:
    """The backward of a block that runs as one kernel: so many times its forward."""
    own = forward.blocks.get(block_of(kernel))
    if own is None:
        return float(costs[0].ideal_s), "datasheet", kernel.kind
    return float(own.expected) * factors.attention_backward, own.evidence, kernel.kind


def _weight_gradients(
    products: Sequence[Op], call: FusedCall, members: list[Kernel], rules: PassRules, forward: ForwardTimes
) -> tuple[float, Evidence, str]:
    """Products of two activations: of experts as long as their forward, else by their own GEMM."""
    total, kinds = 0.0, list[Evidence]()
    for op in products:
        experts = forward.experts.get(op.name.rpartition(".wgrad")[0])
        time = experts if experts is not None else rules.timer.once(gemm_call(op, rules))
        total += float(time.expected) * (1.0 if experts is not None else rules.factors.products)
        kinds.append(time.evidence)
    for each in call.passes:
        time = rules.timer.once(each)
        total += float(time.expected) * rules.factors.elementwise
    return total, weakest(kinds), "gemm"


def gemm_call(op: Op, rules: PassRules) -> KernelCall:
    """A product of two activations: rows and columns are what only one operand shares with the result."""
    left, right = (use.axes for use in op.reads)
    result = op.writes[0].axes
    rows = prod([n for a, n in result.items() if a in left and a not in right])
    columns = prod([n for a, n in result.items() if a in right and a not in left])
    batch = prod([n for a, n in result.items() if a in right and a in left])
    summed = prod([n for a, n in left.items() if a in right and a not in result])
    dims: dict[str, Num] = {"m": rows * batch, "n": columns, "k": summed}
    dims["hbm_bytes"] = sum(numel(use) * use.tensor.format.bytes for use in (*op.reads, *op.writes))
    stored = rules.formats.get(op.writes[0].tensor.name.partition(".grad@")[0])
    return KernelCall("gemm", "bf16" if stored is None else table_dtype(stored, rules.timer.machine), dims=dims)


def _in_training(call: KernelCall) -> KernelCall:
    """Training frameworks reduce by NCCL."""
    return call._replace(kernel_class="nccl_all_reduce") if call.kernel_class == "engine_all_reduce" else call


FACTORS: Mapping[str, Callable[[StackFactors], float]] = {
    "elementwise": lambda f: f.elementwise,
    "attn_prefill": lambda f: f.attention,
    "attn_encoder": lambda f: f.attention,
    "mla_prefill": lambda f: f.attention,
    "moe": lambda f: f.grouped,
    "gemm": lambda f: f.products,
}
"""Factors of a stack by class of kernel."""


def factor_of(kernel_class: str, factors: StackFactors) -> float:
    """How much longer the stack's kernels of a class take than the calibrated ones."""
    return FACTORS[kernel_class](factors) if kernel_class in FACTORS else 1.0


def is_weight_gradient(op: Op) -> bool:
    """Whether an op writes the gradient of a weight."""
    return any(use.tensor.role == "gradient" for use in op.writes)


def comm_kind(op: Op) -> CommKind | None:
    """What a collective belongs to: an exchange of context, of experts' rows, or of tensor parallelism."""
    if op.kind != "collective":
        return None
    if "context" in op.attrs["dims"]:
        return "cp"
    return "ep" if op.fn == "all_to_all" else "tp"
