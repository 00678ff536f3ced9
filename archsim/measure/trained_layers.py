"""Training steps of stacks of layers, in which the backward of every operator of a processor is timed in its place."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from archsim.counts.count import count
from archsim.graph.kernels import kernels
from archsim.measure.cpu_layers import BUILT_S, DEEPEST, LAYERS, RATE, Layer, model_of
from archsim.measure.point import DIMS, Key, Point
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.timing.classes.call import KernelCall
from archsim.timing.cpu_calls import calls_by_op, gradients_of
from archsim.timing.kernel_calls import CallRules
from archsim.timing.step_pricer import step_bytes
from archsim.training.layout import Layout
from archsim.training.memory import piece_weights
from archsim.training.one_device import usual_setup
from archsim.training.pricer import Choice, TrainingPricer
from archsim.training.rank import FIRST, LAST, RankGraphs
from archsim.training.step import StepRules, update_call

SUITE = "cpu_training"
STACK = "torch-eager"
LENGTHS = (128, 512)
DEEP_BYTES = 6e7
"""Weights of a stack, which has gradients and two moments beside them."""
WARM, ROUNDS = 2, 3
"""Steps before those whose operators are timed (memory is taken, and libraries set up), and those."""
UNTRAINED = ("scan", "bidirectional", "crossing")
"""Kinds of layers that are left out: through a recurrence autograd runs a thousand operators, an encoder has no loss,
and where encoder and decoder share a table the sum of its gradients belongs to neither.
"""


class TrainedPass(NamedTuple):
    """A step of one sequence through a stack."""

    layer: Layer
    depth: int
    length: int

    @property
    def id(self) -> str:
        """The step in one word."""
        return "/".join((self.layer.name, str(self.depth), str(self.length), "training"))

    @property
    def model(self) -> Model:
        """The stack as a model in fp32."""
        return model_of(self.layer, self.depth, "fp32")


class TrainedCall(NamedTuple):
    """A backward as a call, and the operators of the forward that it belongs to; none of the optimizer."""

    call: KernelCall
    ops: tuple[str, ...]


@cache
def depth_of(layer: Layer) -> int:
    """How many layers make a stack that does not fit into a cache."""
    one, two = (count(model_of(layer, depth, "fp32"), input_len=1).total for depth in (1, 2))
    return int(min(max(DEEP_BYTES / (4 * (two - one)), 2), DEEPEST))


def trained_calls(model: Model, length: int, hardware: Hardware) -> list[TrainedCall]:
    """The calls of a step's backward and of its update."""
    setup, layout = usual_setup(STACK), Layout(seq_len=length)
    pricer = TrainingPricer.of(model, hardware, setup)
    rank, _ = pricer.rank(Choice(layout))
    found = kernels(rank.forward)
    ops = {op.name: op for kernel in found for op in kernel.ops}
    step = pricer.graph(layout, "none").step
    calls = calls_by_op(found, CallRules(step, pricer.timer.machine), "eager", step_bytes(rank.forward))
    update = StepRules(layout, setup.recipe, setup.optimizer, pricer.timer, pricer.factors, model.d_model)
    backward = [TrainedCall(one.call, one.ops) for one in gradients_of(calls, ops)]
    return [*backward, TrainedCall(_update(rank, update), ())]


def _update(rank: RankGraphs, rules: StepRules) -> KernelCall:
    names = (*rank.order, FIRST, LAST)
    return update_call([w for name in names for w in piece_weights(rank, name)], rules)


def training_points(hardware: Hardware) -> Iterator[Point]:
    """Every kind of backward of every step, the shorter ones first; of alike ones of a step the first."""
    for length in LENGTHS:
        for layer in LAYERS:
            if layer.kind in UNTRAINED:
                continue
            one = TrainedPass(layer, depth_of(layer), length)
            yield from _points(one, trained_calls(one.model, length, hardware))


def _points(one: TrainedPass, calls: list[TrainedCall]) -> Iterator[Point]:
    seen = set[Key]()
    for call, ops in calls:
        dims = {name: round(float(value)) for name, value in call.dims.items() if name in DIMS}
        point = Point(
            suite=SUITE, op=call.kernel_class, kernel=call.kernel, dims=dims, dtype=call.dtype, kv_dtype=call.kv_dtype,
            rank=2, held=one.layer.held, seconds=0.002 if seen else _expected_s(one),
            within=one, ops=frozenset(ops),
        )  # fmt: skip
        if point.key("") not in seen:
            seen.add(point.key(""))
            yield point


def _expected_s(one: TrainedPass) -> float:
    """Seconds of the stack's weights and its steps."""
    weights = count(one.model, input_len=1).total
    return BUILT_S + (WARM + ROUNDS) * (6 * weights * one.length / RATE + 28 * weights / 4e9)
