"""How graph kernels map to what PyTorch runs on a processor: an operator, or a short sequence of them, for each op.

Products of one activation are one linear layer with its biases, attention is one scaled_dot_product_attention; every
other op of the graph is a function of its own, and a residual sum in front of an RMS norm part of it (`eager`). With
row-wise functions compiled, norms, gates and rotations are one kernel each, and the rest stays as it is (`compiled`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from math import prod
from typing import NamedTuple

from archsim.base.number import Num, some
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel, operand_of, product_of, weight_of
from archsim.graph.tensor import Tensor, Use, nbytes, numel
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.cpu import GRADIENT, CpuKernel
from archsim.timing.kernel_calls import AttentionSpec, CallRules, FusedCall, fused_members, table_dtype

VIEWS = frozenset({"view", "select"})
"""Kinds of op that only rename numbers."""

COMPILED = frozenset({"rmsnorm", "swiglu", "geglu", "geglu_tanh", "rope"})
"""Functions that `archsim.backend.fused` compiles."""

NORMS = frozenset({"rmsnorm"})
"""Norms that take the residual sum before them along."""

INT8 = {"w8a8_sq": "int8", "int8_block": "int8"}
"""What tables of processors call products whose activations are quantised on the way."""

TWO = 2


class CpuCall(NamedTuple):
    """A call, the ops that it runs, and how often it is made in a step."""

    call: KernelCall
    ops: tuple[str, ...]
    times: Num


def cpu_calls(kernels: Sequence[Kernel], rules: CallRules, form: str, held: Num) -> list[FusedCall]:
    """The calls of the kernels of a step. form: `eager` or `compiled`. held: bytes of weights and caches that the step
    reads, which lie between two reads of each.
    """
    found = calls_by_members(kernels, rules, form, held)
    return [FusedCall(members, [one.call for one in calls], []) for members, calls in found]


def calls_by_op(kernels: Sequence[Kernel], rules: CallRules, form: str, held: Num) -> list[CpuCall]:
    """The same calls with the ops that each runs."""
    return [one for _, calls in calls_by_members(kernels, rules, form, held) for one in calls]


def calls_by_members(
    kernels: Sequence[Kernel], rules: CallRules, form: str, held: Num
) -> list[tuple[list[int], list[CpuCall]]]:
    """Kernels that run together, by position, and their calls, each with the bytes that are touched since the same code
    ran last.
    """
    lowering = _Lowering(kernels, rules, form, held)
    found: list[tuple[list[int], list[CpuCall]]] = []
    runs: dict[str, _Distances] = {}
    for members in fused_members(kernels, rules.fused_qkv):
        together = [kernels[i] for i in members]
        run = runs.setdefault(together[0].loop, _Distances())
        calls = [
            CpuCall(call, tuple(op.name for op in ops), together[0].times) for call, ops in lowering.calls(together)
        ]
        for one in calls:
            run.add(one.call)
        found.append((members, calls))
    whole = sum(one.times * _touched_bytes(one.call) for _, calls in found for one in calls)
    repeated = {name for loop, run in runs.items() if loop for name in run.names}
    for loop, run in runs.items():
        run.close(whole if not loop else None, repeated)
    return [
        (members, [_after(one, runs[kernels[members[0]].loop].next()) for one in calls]) for members, calls in found
    ]


def gradients_of(calls: Sequence[CpuCall], ops: Mapping[str, Op]) -> list[CpuCall]:
    """The backwards of calls, each as one kernel: a linear layer's gives the gradients of its input and of its weight.
    Of a look-up the whole table's gradient is written, by rows of tokens or, of positions, as one slice; keys and
    values that are stored hand theirs on. ops: by name.
    """
    return [one._replace(call=_gradient_of(one, ops[one.ops[0]])) for one in calls if ops[one.ops[0]].kind != "append"]


def _gradient_of(one: CpuCall, first: Op) -> KernelCall:
    looks_up = first.kind == "gather" and len(one.ops) == 1
    tables = [use for use in first.reads if use.tensor.kind == "weight"] if looks_up else []
    dims = dict(one.call.dims)
    for use in tables:
        size = prod(use.tensor.axes.values())
        dims |= {"m": size / dims["n"], "bytes": dims["bytes"] + size * use.tensor.format.bytes}
    rows = first.attrs.get("index", "token") if looks_up else "token"
    kernel = one.call.kernel if rows == "token" else f"{rows} {one.call.kernel}"
    return one.call._replace(kernel=kernel + GRADIENT, dims=dims)


FAMILIES = {
    "sdpa masked": "sdpa", "add_rmsnorm": "rmsnorm", "geglu": "gelu", "geglu_tanh": "gelu_tanh", "swiglu": "silu",
}  # fmt: skip
"""Functions whose code is that of another one, or the most of it."""


class _Distances:
    """Bytes between a call and the last one of the same code, of the calls of one loop in order; the first of a kind
    looks back into the repetition before.
    """

    def __init__(self) -> None:
        self.sizes, self.names = list[Num](), list[str]()
        self.found: Iterator[Num] = iter(())

    def add(self, call: KernelCall) -> None:
        """The next call of the loop."""
        self.sizes.append(_touched_bytes(call))
        self.names.append(_code_of(call))

    def close(self, whole: Num | None, repeated: Set[str]) -> None:
        """All calls are known. whole: bytes of the step, which lie between two runs of code that no loop has."""
        count, found = len(self.names), []
        for i, name in enumerate(self.names):
            before = next(j for j in range(1, count + 1) if self.names[i - j] == name)
            once = whole is not None and before == count and name not in repeated
            found.append(whole if once else sum(self.sizes[i - j] for j in range(1, before)))
        self.found = iter(found)

    def next(self) -> Num:
        """Of the next call, in the order in which they were added."""
        return next(self.found)


def _code_of(call: KernelCall) -> str:
    name = call.kernel.removeprefix("compiled ")
    prefix = call.kernel[: len(call.kernel) - len(name)]
    return f"{call.kernel_class} {prefix}{FAMILIES.get(name, name)}"


def _model(call: KernelCall) -> CpuKernel:
    model = MODELS[call.kernel_class]
    assert isinstance(model, CpuKernel)
    return model


def _touched_bytes(call: KernelCall) -> Num:
    """Bytes of a call's weights or caches, or of what a function reads and writes."""
    return call.dims["bytes"] if call.kernel_class == "cpu_elementwise" else _model(call).streamed_bytes(call)


def _after(one: CpuCall, between: Num) -> CpuCall:
    call = one.call
    return one._replace(call=call._replace(dims={**call.dims, "between": between}))


class _Lowering:
    """What the calls of one step follow from."""

    def __init__(self, kernels: Sequence[Kernel], rules: CallRules, form: str, held: Num) -> None:
        self.machine, self.compiled, self.held = rules.machine, form == "compiled", held
        self.sequences = rules.step.n_seqs
        every = [op for kernel in kernels for op in kernel.ops]
        self.loops = {op.name: kernel.loop for kernel in kernels for op in kernel.ops}
        self.writers = {use.tensor.name: op for op in every for use in op.writes}
        self.readers: dict[str, list[Op]] = {}
        for op in every:
            for use in op.reads:
                self.readers.setdefault(use.tensor.name, []).append(op)

    def calls(self, together: Sequence[Kernel]) -> Iterator[tuple[KernelCall, Sequence[Op]]]:
        """The calls of kernels that run together, and of the functions in and behind each, with the ops of each."""
        for kernel in together:
            if kernel.kind == "attention":
                yield self._attention(kernel), kernel.ops
        inside: list[Op] = []
        for kernel in together:
            scan = next((op for op in kernel.ops if op.kind == "scan"), None) if kernel.kind else None
            if scan is not None:
                block = scan.name.rpartition(".")[0] + "."
                inside = [op for op in kernel.ops if op.name.startswith(block)]
                yield self._scan(scan), inside
        products = [op for k in together if not k.kind and (op := product_of(k)) is not None and _multiplies(op)]
        linear = [op for op in products if not _is_experts(op)]
        if linear:
            yield self._linear(linear), linear
        yield from ((self._experts(op), [op]) for op in products if _is_experts(op))
        for kernel in together:
            for op in kernel.ops:
                if kernel.kind != "attention" and op not in inside:
                    yield from ((call, [op]) for call in self._function(op))

    def _linear(self, products: Sequence[Op]) -> KernelCall:
        """Weights of one activation side by side."""
        weights = [weight for op in products if (weight := weight_of(op)) is not None]
        read, made = operand_of(products[0]), products[0].writes[0]
        inner = prod([n for axis, n in weights[0].axes.items() if axis not in made.axes])
        rows = prod([n for axis, n in read.axes.items() if axis not in weights[0].axes])
        dims = {"m": rows, "n": sum(map(numel, weights)) / inner, "k": inner}
        return self._call("cpu_gemm", weights[0].tensor, dims, "linear")

    def _experts(self, op: Op) -> KernelCall:
        """Rows with their own experts' matrices."""
        weight, made = weight_of(op), op.writes[0]
        assert weight is not None
        inner = prod([n for axis, n in weight.axes.items() if axis not in made.axes and axis != "E"])
        rows = made.axes["M"]
        experts, hits = weight.tensor.axes["E"], weight.axes["E"]
        dims = {"m": rows, "n": numel(made) / rows, "k": inner, "experts": experts, "hits": hits}
        return self._call("cpu_experts", weight.tensor, dims, "one by one")

    def _call(self, kernel_class: str, weight: Tensor, dims: dict[str, Num], kernel: str) -> KernelCall:
        stored = table_dtype(weight.format, self.machine)
        dtype = INT8.get(stored, stored)
        return KernelCall(kernel_class, dtype, kernel=kernel, dims={**dims, "bytes": self.held})

    def _attention(self, kernel: Kernel) -> KernelCall:
        """One call over all sequences, at their mean lengths."""
        spec = AttentionSpec.of(kernel)
        new, keys = spec.query.axes["T"] / self.sequences, spec.key.axes["C"] / self.sequences
        dims: dict[str, Num] = {
            "batch": self.sequences, "seq_q": new, "seq_kv": keys, "heads": spec.heads, "kv_heads": spec.kv_heads,
            "head_dim": spec.score_dim, "head_dim_v": spec.value_dim, "bytes": self.held,
        }  # fmt: skip
        mask = spec.mask
        biased = any(op.kind == "gather" for op in kernel.ops)
        masked = biased or (mask is not None and bool(mask.window) and some(mask.window < keys))
        if masked or mask is None or not mask.causal:
            dims["pairs"] = self.sequences * new * keys  # all pairs are computed; a mask is a tensor
        dtype = _dtype(spec.query)
        return KernelCall("cpu_attention", dtype, dtype, "sdpa masked" if masked else "sdpa", dims)

    def _function(self, op: Op) -> Iterator[KernelCall]:
        """A function of rows; nothing for views, biases of products, and sums that a compiled norm takes along."""
        if op.kind in VIEWS or not op.writes or self._is_bias(op) or (op.kind == "contract" and not op.fn):
            return
        if op.kind == "scan":
            yield self._scan(op)
            return
        name = op.fn or op.kind
        if name == "add" and self._joins_norm(op):
            return
        acts = [use for use in (*op.reads, *op.writes) if use.tensor.kind != "weight"]
        if op.kind == "append":  # of a cache only the new rows are touched
            acts = [op.reads[0], op.reads[0]]
        moved, made = sum(map(nbytes, acts)), op.writes[0] if op.kind != "append" else op.reads[0]
        summed = name in NORMS and self._follows_sum(op)
        moved = moved * (1 + summed)
        name = f"{'compiled ' * (self.compiled and name in COMPILED)}{'add_' * summed}{name}"
        width = list(made.axes.values())[-1]
        dims = {"m": numel(made) / width, "n": width, "bytes": moved}
        yield KernelCall("cpu_elementwise", _dtype(made), kernel=name, dims=dims)

    def _scan(self, op: Op) -> KernelCall:
        """A recurrence over the states of all tokens."""
        made = op.writes[0].axes
        tokens, states = made.get("T", 1), list(made.values())[-1]
        width = numel(op.writes[0]) / tokens / states
        dims = {"batch": self.sequences, "seq_q": tokens / self.sequences, "heads": width, "head_dim": states}
        return KernelCall("cpu_scan", "fp32", kernel=op.fn, dims=dims)

    def _is_bias(self, op: Op) -> bool:
        """Whether a sum adds a weight to a product's result, which the linear layer does."""
        if op.fn != "add" or len(op.reads) != TWO or op.reads[1].tensor.kind != "weight":
            return False
        writer = self.writers.get(op.reads[0].tensor.name)
        return writer is not None and writer.kind == "contract"

    def _is_sum(self, op: Op | None) -> bool:
        return op is not None and op.fn == "add" and len(op.reads) == TWO and not op.attrs

    def _joins_norm(self, op: Op) -> bool:
        """Whether a residual sum is read by one norm, in this layer or, carried on, in the next."""
        readers = self.readers.get(op.writes[0].tensor.name, [])
        norms = [reader for reader in readers if reader.fn in NORMS]
        return self._is_sum(op) and (len(norms) == 1 or not readers)

    def _follows_sum(self, op: Op) -> bool:
        """Whether what a norm reads is a residual sum, of this layer or of the one before: what a repeated layer reads
        from outside is the sum of the layer before from the second on.
        """
        source = op.reads[0].tensor.name
        writer, loop = self.writers.get(source), self.loops[op.name]
        carried = writer is not None and bool(loop) and self.loops[writer.name] != loop
        return writer is None or carried or self._is_sum(writer)


def _multiplies(op: Op) -> bool:
    """Whether a contraction is a product with a weight, and not a convolution along time."""
    return not op.fn and weight_of(op) is not None


def _is_experts(op: Op) -> bool:
    """Whether a product's rows each meet the matrix of their own expert."""
    weight = weight_of(op)
    return weight is not None and "E" in weight.axes and "M" in op.writes[0].axes


def _dtype(use: Use) -> str:
    """The tables' name of an activation's format."""
    return "fp32" if use.tensor.format.bits > 16 else "bf16"
