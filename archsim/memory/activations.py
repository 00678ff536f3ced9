"""Memory of one step beyond weights and caches, as eager kernels of an engine allocate it."""

from __future__ import annotations

from archsim.base.number import Num, product
from archsim.graph.graph import Block, Op
from archsim.graph.tensor import Axes, numel
from archsim.spec.engine import Activations
from archsim.spec.model import Model


def forward_bytes(graph: Block, element: int = 2) -> int:
    """The largest working set of a sub-layer: what its products write, alive until its end, beside its input and
    the residual stream.

    Of a gated feed-forward layer 3 F + 3 D numbers a token, which is what engines log: 2.07 GiB for 20,000 tokens
    and 2.99 GiB for 29,000 with D 4,096 and F 14,336 (https://github.com/vllm-project/vllm/issues/10517).
    """
    stream = _extents(graph)
    return int(max(_inside(graph), default=0) + 2 * stream) * element


def _extents(graph: Block) -> Num:
    """Numbers in the residual stream: tokens x width."""
    sizes = [numel(w) for b in _all(graph) for op in _ops(b) for w in op.writes if set(w.axes) == {"T", "D"}]
    return max(sizes, default=0)


def _inside(graph: Block) -> list[Num]:
    return [sum(numel(w) for op in _own(b) for w in op.writes if _kept(op)) for b in _all(graph)]


def _all(graph: Block) -> list[Block]:
    from archsim.graph.graph import blocks

    return list(blocks(graph))


def _ops(block: Block) -> list[Op]:
    return [node for node in block.body if isinstance(node, Op)]


def _own(block: Block) -> list[Op]:
    """Ops of a sub-layer, with those of the kernels in it."""
    inner = [op for node in block.body if isinstance(node, Block) and node.fused for op in _ops(node)]
    return _ops(block) + inner


def _kept(op: Op) -> bool:
    """Whether what an op writes is a tensor of its own: products, and feed-forward activations. Scores stay in
    their kernel, logits are counted apart; norms and rotations work in place."""
    out = op.writes[0]
    if out.tensor.kind != "act" or "P" in out.axes or "V" in out.axes:
        return False
    return op.kind == "contract" or (op.kind in ("map", "scan") and bool({"F", "I"} & set(out.axes)))


def logits_bytes(model: Model, rows: int, copies: float) -> int:
    """float32 logits of so many rows, times the copies that sampling makes of them."""
    return round(rows * (model.embedding.rows or model.vocab_size) * 4 * copies)


def split_k_bytes(rules: Activations, weights: str, graph: Block, tokens: int) -> int:
    """16-bit partial outputs of the widest product, where an engine's kernel for the format keeps them."""
    partial = rules.split_k.get(weights, 0)
    if not partial:
        return 0
    widths = [
        numel(r.tensor) // _product(r.tensor.axes, r.tensor.inner)
        for b in _all(graph) for op in _ops(b) if op.kind == "contract"
        for r in op.reads if r.tensor.kind == "weight" and r.tensor.role in ("linear", "expert")
    ]  # fmt: skip
    return partial * tokens * int(max(widths, default=0)) * 2


def _product(axes: Axes, inner: tuple[str, ...]) -> int:
    """Extent of the axes that a weight is summed over, times its experts."""
    return int(product(n for axis, n in axes.items() if axis in inner or axis == "E"))
