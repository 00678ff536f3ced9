"""The gradient of each op: what its backward computes. What an op keeps for it is said by the dialects."""

from __future__ import annotations

from dataclasses import replace

from archsim.base.number import Num, divide, opaque
from archsim.graph.builder import ELEMENTWISE_RATE
from archsim.graph.graph import NOTHING, Op
from archsim.graph.passes.grad_rule import OpGradient, gradient_rule
from archsim.graph.tensor import Use, numel

SPECIAL = frozenset({"add", "scale", "dispatch", "combine", "concat", "solve", "sinusoid"})
"""Functions of maps with a rule of their own."""


@gradient_rule("contract", "contract:causal_conv")
def contract(work: OpGradient) -> list[Op]:
    """For every operand that needs one, a contraction over the same axes, so of the same FLOP: dgrad and wgrad."""
    found = []
    for i, use in enumerate(work.op.reads[:2]):
        if not work.needs[i]:
            continue
        other = work.op.reads[1 - i]
        weight = use.tensor.kind == "weight"
        label = "wgrad" if weight else "dgrad" if other.tensor.kind == "weight" else f"d{i}"
        dy = Use(work.dy.tensor, work.op.writes[0].axes) if work.op.cls == "conv" else work.dy
        op = work.emit((other, dy) if weight else (dy, other), i, label=label)
        op = op if weight else _over_extent(op, work.op.writes[0])
        found += _without(op, _edge_tokens(work.op, use))
    return found


def _edge_tokens(op: Op, use: Use) -> Num:
    """Tokens of chunks whose states pass on no gradient, in the gradient of an operand."""
    if use.tensor.role == "recurrent":
        return op.attrs["reads_state_of"].first if "reads_state_of" in op.attrs else 0
    return op.attrs["adds_to_state_of"].last if "adds_to_state_of" in op.attrs else 0


def _without(op: Op, tokens: Num) -> list[Op]:
    """A product of fewer tokens, none where none are left."""
    if isinstance(tokens, int) and tokens == 0:
        return [op]

    def fewer(use: Use) -> Use:
        return Use(use.tensor, {a: n - tokens if a == "T" else n for a, n in use.axes.items()}, use.copy)

    reads, writes = tuple(map(fewer, op.reads)), tuple(map(fewer, op.writes))
    left = next(use.axes["T"] for use in (*reads, *writes) if "T" in use.axes)
    return [] if isinstance(left, int) and left <= 0 else [replace(op, reads=reads, writes=writes)]


def _over_extent(op: Op, result: Use) -> Op:
    """A gradient over as many positions as the product itself works on: convolutions and chunks are filled up."""

    def filled(use: Use) -> Use:
        kept = {a: result.axes.get(a, n) if a == "T" or op.cls == "conv" else n for a, n in use.axes.items()}
        return use if kept == use.axes else Use(use.tensor, kept, use.copy)

    reads = op.reads if op.cls == "conv" else tuple(map(filled, op.reads))
    return replace(op, reads=reads, writes=tuple(map(filled, op.writes)))


def elementwise(work: OpGradient) -> list[Op]:
    """One pass that reads the gradient and the operands and writes the gradient of every operand that needs one."""
    needing = [i for i, needs in enumerate(work.needs) if needs]
    op = work.emit((work.dy, *work.op.reads), *needing, kind="map", fn=work.op.fn + "_grad", cls="vector")
    return [_with_rate(op, 2 * work.op.rate * numel(work.op.writes[0]))]


@opaque
def per_element(flop: Num, size: Num) -> Num:
    """FLOP of one element; of sizes in letters left as it stands."""
    return divide(flop, size)


def _with_rate(op: Op, flop: Num) -> Op:
    size = numel(op.writes[0])
    return Op(
        kind=op.kind, name=op.name, reads=op.reads, writes=op.writes, cls=op.cls, fn=op.fn,
        rate=per_element(flop, size), attrs=op.attrs, part=op.part,
    )  # fmt: skip


for function in sorted(set(ELEMENTWISE_RATE) - SPECIAL):
    gradient_rule(f"map:{function}")(elementwise)


@gradient_rule("map:solve")
def solve(work: OpGradient) -> list[Op]:
    """Of A x = b: the gradient of b by a system with A's transpose, and that of A by its product with x."""
    op = work.op
    found = [_with_rate(work.emit((work.dy, op.reads[0]), 1), op.rate * numel(op.writes[0]))] if work.needs[1] else []
    if work.needs[0]:
        pairs = (work.dy, op.writes[0])
        found.append(work.emit(pairs, 0, label="d0", kind="contract", fn="", cls="attention", attrs=NOTHING))
    return found


gradient_rule("map:cross_entropy")(elementwise)
for function in ("selective_scan", "rg_lru", "gated_delta", "decay", "compress", "shift", "rwkv7"):
    gradient_rule(f"scan:{function}")(elementwise)


@gradient_rule("map:add", "map:scale", "map:concat")
def linear(work: OpGradient) -> list[Op]:
    """The gradient itself, scaled where the op scales, summed where an operand was broadcast."""
    op, found = work.op, []
    if len(op.reads) > 2:
        return elementwise(work)
    for i, needs in enumerate(work.needs):
        if not needs:
            continue
        same = set(op.reads[i].axes) == set(op.writes[0].axes)
        if same and not op.attrs and op.fn == "add":
            work.made[i] = work.dy
        else:
            fn = op.fn if same else "sum"
            made = work.emit((work.dy,), i, label=f"grad{i}", kind="map", fn=fn, cls="vector", attrs=NOTHING)
            found.append(_with_rate(made, numel(op.writes[0])))
    return found


@gradient_rule("map:dispatch")
def dispatch(work: OpGradient) -> list[Op]:
    """The rows of every token, added up: the exchange of `combine`."""
    return _exchange(work, "combine")


@gradient_rule("map:combine")
def combine(work: OpGradient) -> list[Op]:
    """Every expert's row of a token's gradient: the exchange of `dispatch`."""
    return _exchange(work, "dispatch")


def _exchange(work: OpGradient, fn: str) -> list[Op]:
    op, found = work.op, []
    weights = op.reads[1]
    if work.needs[0]:
        found.append(work.emit((work.dy, weights), 0, fn=fn, rate=ELEMENTWISE_RATE[fn]))
    if work.needs[1] and op.attrs.get("scaled"):
        rows = op.reads[0]
        made = work.emit((work.dy, rows), 1, label="grad_weights", fn="row_dot", attrs=NOTHING)
        found.append(_with_rate(made, 2 * numel(rows)))
    return found


@gradient_rule("view", "select", "append")
def renamed(work: OpGradient) -> list[Op]:
    """The same numbers under the names that they had."""
    return [
        work.emit((work.dy,), i, label=f"grad{i}", kind="view", attrs=NOTHING)
        for i, needs in enumerate(work.needs)
        if needs
    ]


@gradient_rule("gather")
def gather(work: OpGradient) -> list[Op]:
    """Rows added to those of the table that they were read from."""
    found = []
    for i, needs in enumerate(work.needs):
        if needs:
            made = work.emit((work.dy,), i, label=f"grad{i}", kind="map", fn="scatter_add", attrs=NOTHING)
            found.append(_with_rate(made, numel(work.dy)))
    return found
