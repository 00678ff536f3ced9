"""The weights of a model as checkpoints store them: each matrix with its class and the layers that have one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from archsim.base.last_argument import kept_for_last_argument
from archsim.base.number import product
from archsim.graph.graph import Block, blocks, ops
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor
from archsim.spec.lower import PARTS, lower
from archsim.spec.model import Model

MATRICES = frozenset({"linear", "expert", "head", "embedding", "embedding_per_layer"})
"""Roles of tensors that file types convert; all others are small and stay as they are."""

ATTENTION = {"w_q": "attn_q", "w_k": "attn_k", "w_v": "attn_v", "w_o": "attn_output"}
FFN = {"w_up": "ffn_up", "w_gate": "ffn_gate", "w_down": "ffn_down"}
KEPT = ("altup", "laurel", "per_layer.w_context")
"""Matrices that llama.cpp never converts (`tensor_allows_quantization` in llama-quant.cpp)."""

FUSED = ("bloom", "dbrx", "falcon", "gpt2", "gpt-2", "gptneox", "gpt-neox", "mpt", "phi-2", "phi3", "phi-3", "phi4",
         "phi-4", "pythia", "starcoder")  # fmt: skip
"""Families (beginnings of names) whose queries, keys and values are one matrix in a gguf file."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A weight tensor. layers: index of the layer of every copy, -1 outside layers. cls: class as in
    `spec.format`, "" for what is never converted, "kept" for a matrix that is not. inner: elements of one row.
    """

    tensor: Tensor
    cls: str
    layers: tuple[int, ...]
    inner: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What file types ask of a model. gqa: query heads per key/value head. layers: without prediction modules."""

    layers: int
    gqa: int
    experts: int
    tied: bool
    falcon: bool


@kept_for_last_argument
def stored_weights(model: Model) -> tuple[Shape, list[Stored]]:
    """All weights of a model, optional modules included, in the order of execution."""
    step = Step.of(1, 1, 0)
    graph = lower(model, replace(step, source=step.seqs) if model.encoder is not None else step, PARTS)
    homes, shared = _layers(graph)
    fused = model.name.lower().startswith(FUSED)
    found = [Stored(t, _class(t, fused), _copies(t.name, homes, shared), _row(t)) for t in _weights(graph).values()]
    own = [i for name, at in homes.items() if not name.startswith("mtp") for i in at]
    return _shape(model, found, len(own)), found


def _weights(graph: Block) -> dict[str, Tensor]:
    uses = (use for op, _ in ops(graph) for use in (*op.reads, *op.writes))
    return {use.tensor.name: use.tensor for use in uses if use.tensor.kind == "weight"}


def _shape(model: Model, weights: list[Stored], layers: int) -> Shape:
    gqa, experts = 1, 0
    tensors = {w.tensor.name: w.tensor for w in weights}
    for w in weights:
        axes = w.tensor.axes
        if w.tensor.name.endswith("attention.w_q") and gqa == 1:
            keys = tensors.get(w.tensor.name.removesuffix("w_q") + "w_k")
            gqa = 1 if keys is None else _outputs(w.tensor) // _outputs(keys)
        experts = max(experts, int(axes["E"]) if w.tensor.role == "expert" else 0)
    tied = not any(w.cls == "output" for w in weights)
    return Shape(layers, gqa, experts, tied, model.name.lower().startswith("falcon"))


def _layers(graph: Block) -> tuple[dict[str, list[int]], set[str]]:
    """Name of every layer block -> places of its repetitions in the whole stack; and those that share weights."""
    homes: dict[str, list[int]] = {}
    for place, block in enumerate(_unroll_layers(graph)):
        homes.setdefault(block.name, []).append(place)
    return homes, {block.name for block in blocks(graph) if block.shared}


def _unroll_layers(block: Block) -> Iterator[Block]:
    """Layers in order, repetitions written out: loops that hold no other loop."""
    inner = [child for child in block.body if isinstance(child, Block) and _loops(child)]
    for _ in range(block.times if block.carry else 1):
        if block.carry and not inner:
            yield block
        for child in inner:
            yield from _unroll_layers(child)


def _loops(block: Block) -> bool:
    return any(b.carry for b in blocks(block))


def _copies(name: str, homes: dict[str, list[int]], shared: set[str]) -> tuple[int, ...]:
    """The layers that have a copy of a tensor: all repetitions of the layer it belongs to, one where shared."""
    parts = name.split(".")
    for end in range(len(parts) - 1, 0, -1):
        path = ".".join(parts[:end])
        if path in homes:
            once = any(".".join(parts[:i]) in shared for i in range(1, end + 1))
            return tuple(homes[path][:1] if once else homes[path])
    return (-1,)


def _class(tensor: Tensor, fused: bool) -> str:
    """The class of a weight, from its role and the block that declares it."""
    parent, _, last = tensor.name.rpartition(".")
    if tensor.role not in MATRICES or ("One" in tensor.axes and len(tensor.axes) == 2):
        return ""
    if any(word in tensor.name for word in KEPT):
        return "kept"
    if tensor.role in ("embedding", "embedding_per_layer"):
        return "token_embd"
    if tensor.role == "head":
        return "output"
    if parent.endswith("attention") and last in ATTENTION:
        return "attn_qkv" if fused and last != "w_o" else ATTENTION[last]
    if parent.endswith(("ffn", "moe", "shared", "dense")) and last in FFN:
        return FFN[last]
    return "other"


def _outputs(weight: Tensor) -> int:
    """Numbers that a matrix gives for each token."""
    return int(product(n for axis, n in weight.axes.items() if axis not in weight.inner))


def _row(tensor: Tensor) -> int:
    """Elements along a row of the stored matrix, which blocks may not cross."""
    if tensor.name.endswith("w_uk"):  # llama.cpp stores the keys' up-projection transposed, ready to be absorbed
        return int(tensor.axes["Hn"])
    rows = set(tensor.axes) - set(tensor.inner) if tensor.inner else {next(iter(tensor.axes))}
    return int(product(n for axis, n in tensor.axes.items() if axis not in rows))
