"""Memory of one step beyond weights and caches: what is alive at once, and what engines keep on top of it."""

from __future__ import annotations

from collections.abc import Iterator

from archsim.base.number import Num, ceil_div, everywhere, maximum, nearest, product, some, where
from archsim.counts.step_graphs import StepGraphs
from archsim.counts.workload import PREFILL_TOKENS, WorkloadSteps
from archsim.graph.graph import Block, Op, blocks, kept_with_graph
from archsim.graph.kernels import kernels_with_edges
from archsim.graph.tensor import Axes, Use, nbytes, numel
from archsim.spec.engine import Activations
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan


# ---------------------------------------------------------------------- by liveness
@kept_with_graph
def peak_activation_bytes(graph: Block) -> Num:
    """The largest sum of live activations over the kernels of one step.

    A tensor lives from the kernel that writes it to the last one that reads it; a loop is walked once, what it
    reads from outside living to its end. Not for polynomials: it compares sizes.
    """
    sequence = [kernel for kernel, _ in kernels_with_edges(graph)]
    crossing = [uses for _, uses in kernels_with_edges(graph)]
    last: dict[str, int] = {}
    loops: dict[str, int] = {k.loop: i for i, k in enumerate(sequence)}
    for i, uses in enumerate(crossing):
        for use in uses:
            end = loops[sequence[i].loop] if _enters(use.tensor.name, sequence[i].loop) else i
            last[use.tensor.name] = max(last.get(use.tensor.name, 0), end)
    return _scan(crossing, last)


def _enters(name: str, loop: str) -> bool:
    """Whether a tensor comes from outside the loop that reads it."""
    return bool(loop) and not name.startswith(loop + ".")


def _scan(crossing: list[list[Use]], last: dict[str, int]) -> Num:
    live: dict[str, Num] = {}
    peak: Num = 0
    for i, uses in enumerate(crossing):
        for use in uses:
            if use.tensor.kind == "act":
                live[use.tensor.name] = nbytes(use)
        peak = maximum(peak, sum(live.values()))
        for name in [n for n in live if last[n] <= i]:
            del live[name]
    return peak


class PrefillActivations:
    """Live bytes of a workload's prefill, or of what of it is computed at once, on any plan; numbers or arrays."""

    def __init__(self, graphs: StepGraphs, steps: WorkloadSteps) -> None:
        self.graphs, self.steps = graphs, steps
        self._peaks: dict[tuple[int, int, int], Num] = {}

    def on(self, plan: Plan) -> Num:
        """Bytes on the rank that has most to do."""
        degrees = plan.tp, plan.ep, plan.dp
        if degrees not in self._peaks:
            self._peaks[degrees] = self._peak(plan)
        return self._peaks[degrees]

    def _peak(self, plan: Plan) -> Num:
        load = self.steps.load
        short = ceil_div(load.batch, plan.dp) * load.input_len <= PREFILL_TOKENS  # on one replica
        whole = peak_activation_bytes(self.graphs.rank(self.steps.prefill, plan)) if some(short) else 0
        if everywhere(short):
            return nearest(whole)
        piece = self.steps.prefill_at_once(plan.dp)
        graphs = self.graphs.common() if piece.plain else self.graphs
        return nearest(where(short, whole, peak_activation_bytes(graphs.rank(piece, plan))))


# ---------------------------------------------------------------------- by an engine's rule
def step_bytes(rules: Activations, model: Model, weights: str, graph: Block, tokens: Num, seqs: int) -> Num:
    """Bytes that an engine keeps free for its largest step: `graph` on one rank, of so many tokens and sequences."""
    rows = {"seqs": seqs, "tokens": tokens, "last": 1}[rules.logits_rows]
    sampled = logits_bytes(model, rows, rules.logits_copies)
    if rules.hidden_kept:
        sampled = sampled + nearest(tokens * model.d_model * rules.element)
    peak = maximum(forward_bytes(graph, rules.element), sampled)
    return peak + split_k_bytes(rules, weights, graph, tokens)


def forward_bytes(graph: Block, element: int = 2) -> Num:
    """The largest working set of a sub-layer, in elements of so many bytes."""
    return forward_numbers(graph) * element


@kept_with_graph
def forward_numbers(graph: Block) -> Num:
    """The largest working set of a sub-layer: what its products write, alive until its end, beside its input and
    the residual stream.

    Of a gated feed-forward layer 3 F + 3 D numbers a token, which is what engines log: 2.07 GiB for 20,000 tokens
    and 2.99 GiB for 29,000 with D 4,096 and F 14,336 (https://github.com/vllm-project/vllm/issues/10517).
    """
    stream = inside = 0
    for block in blocks(graph):
        for op in _ops(block):
            for use in op.writes:
                if set(use.axes) == {"T", "D"}:
                    stream = maximum(stream, numel(use))
        inside = maximum(inside, _inside(block))
    return nearest(inside + 2 * stream)


def _inside(block: Block) -> Num:
    """Numbers that the ops of a sub-layer write, without those of blocks inside it. What tokens add to a recurrent
    state has the state's size for each of them: a chunked kernel sums it inside and keeps one state a chunk (`h` of
    https://github.com/fla-org/flash-linear-attention/blob/main/fla/ops/common/chunk_delta_h.py, `states` of
    https://github.com/state-spaces/mamba/blob/main/mamba_ssm/ops/triton/ssd_chunk_state.py).
    """
    into_states = {
        use.tensor.name
        for op in _ops(block) if any(out.tensor.kind == "state" for out in op.writes)
        for use in op.reads if use.tensor.kind == "act"
    }  # fmt: skip
    chunk = block.attrs.get("chunk")
    tokens = chunk if isinstance(chunk, int) else 1
    written = [(numel(use), use.tensor.name) for op in _ops(block) for use in op.writes if _kept(op)]
    return sum(size / tokens if name in into_states else size for size, name in written)


def _ops(block: Block) -> Iterator[Op]:
    return (node for node in block.body if isinstance(node, Op))


def _kept(op: Op) -> bool:
    """Whether what an op writes is a tensor of its own: products, and feed-forward activations. Scores stay in
    their kernel, logits are counted apart; norms and rotations work in place."""
    out = op.writes[0]
    if out.tensor.kind != "act" or "P" in out.axes or "V" in out.axes:
        return False
    return op.kind == "contract" or (op.kind in ("map", "scan") and bool({"F", "I"} & set(out.axes)))


def logits_bytes(model: Model, rows: Num, copies: float) -> Num:
    """float32 logits of so many rows, times the copies that sampling makes of them."""
    return nearest(rows * (model.embedding.rows or model.vocab_size) * 4 * copies)


def split_k_bytes(rules: Activations, weights: str, graph: Block, tokens: Num) -> Num:
    """16-bit partial outputs of products that stay reserved, where an engine's kernel for the format has them.

    The allocator makes a new segment for a buffer that none of those before holds: each product of a layer that is
    wider than all before it has one of its own. The widest has two: a small tensor lands in the first when it is given
    back, and the next such buffer no longer fits.
    """
    partial = rules.split_k.get(weights, 0)
    if not partial:
        return 0
    widths = [
        numel(r.tensor) // _product(r.tensor.axes, r.tensor.inner)
        for b in blocks(graph) for op in _ops(b) if op.kind == "contract"
        for r in op.reads if r.tensor.kind == "weight" and r.tensor.role in ("linear", "expert")
    ]  # fmt: skip
    reserved = sum(width for i, width in enumerate(widths) if width > max(widths[:i], default=0))
    return partial * tokens * int(reserved + max(widths, default=0)) * 2


def _product(axes: Axes, inner: tuple[str, ...]) -> int:
    """Extent of the axes that a weight is summed over, times its experts."""
    return int(product(n for axis, n in axes.items() if axis in inner or axis == "E"))
