"""Suites of a processor: the very calls that a program of the backend makes, on data of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional

from archsim.backend import fused, moe
from archsim.backend.fused import Kernels
from archsim.backend.maps import MAPS
from archsim.backend.run import Cache as States
from archsim.backend.run import Routing, Run, Value
from archsim.backend.ssd import recurrence
from archsim.graph.graph import Op, ops
from archsim.graph.step import Step
from archsim.measure.bench import DTYPES, Bench, Call, pinned
from archsim.measure.cpu_shapes import ITEM
from archsim.measure.point import Point, Result, Skip
from archsim.measure.suite_ops import INT4_GROUP
from archsim.spec.load import open_model
from archsim.spec.lower import lower

EPS = 1e-5
HEAD = 64
EXAMPLES = {"layernorm": "gpt2-small", "gelu_tanh": "gpt2-small"}
"""Models whose graphs hold an op of each function that has no function of its own in `fused`."""


def product(bench: Bench, point: Point) -> Result:
    """A linear layer in fp32, bf16, with activations quantised on the way (int8), or with 4-bit weights."""
    m, n, k = point["m"], point["n"], point["k"]
    weight = WEIGHTS.get(point.dtype, _plain)
    size = int(n * k * ITEM[point.dtype])
    count = point["bytes"] // size
    x = bench.rand(m, k, dtype=torch.bfloat16 if point.dtype == "int4_wo" else DTYPES.get(point.dtype, torch.float32))
    calls = [weight(bench, x, n, k) for _ in range(count)]
    with pinned(point.dims.get("threads")):
        timing = bench.time(calls)
    return Result(timing=timing, moved=size)


def _plain(bench: Bench, x: Tensor, n: int, k: int) -> Call:
    return partial(functional.linear, x, _copy(bench, n, k, dtype=x.dtype))


def _copy(bench: Bench, *shape: int, dtype: torch.dtype) -> Tensor:
    """One more copy of the same random numbers: drawing them takes longer than the timing."""
    drawn = bench.held.get("drawn")
    if drawn is None or drawn[0] != (shape, dtype):
        drawn = bench.held["drawn"] = ((shape, dtype), bench.rand(*shape, dtype=dtype))
    copied: Tensor = drawn[1].clone()
    return copied


def _dynamic_int8(bench: Bench, x: Tensor, n: int, k: int) -> Call:
    """fbgemm or oneDNN with the activations' scale found in each call."""
    try:
        layer = torch.ao.nn.quantized.dynamic.Linear(k, n)  # type: ignore[no-untyped-call]
    except (RuntimeError, AttributeError) as error:
        raise Skip(f"no dynamic int8 linear layer in this torch: {error}") from None
    return partial(layer, x)


def _int4(bench: Bench, x: Tensor, n: int, k: int) -> Call:
    if k % INT4_GROUP or n % 32:
        raise Skip(f"4-bit products need k in multiples of {INT4_GROUP} and n in multiples of 32")
    values = torch.randint(0, 16, (n, k), dtype=torch.int32)
    packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(values, 1)
    scales = torch.rand(k // INT4_GROUP, n, 2).to(torch.bfloat16)
    return partial(torch.ops.aten._weight_int4pack_mm_for_cpu, x, packed, INT4_GROUP, scales)


WEIGHTS: dict[str, Callable[[Bench, Tensor, int, int], Call]] = {"int8": _dynamic_int8, "int4_wo": _int4}


def attention(bench: Bench, point: Point) -> Result:
    """scaled_dot_product_attention over caches laid out (batch, tokens, heads, width); causal in a prompt."""
    batch, new, keys, d = (point[name] for name in ("batch", "seq_q", "seq_kv", "head_dim"))
    dtype = DTYPES[point.dtype]
    size = 2 * batch * keys * point["kv_heads"] * d * dtype.itemsize
    count = point["bytes"] // size

    def tokens(count: int, heads: int) -> Tensor:
        return _copy(bench, batch, count, heads, d, dtype=dtype).transpose(1, 2)

    q = tokens(new, point["heads"])
    grouped, kv_heads = point["heads"] != point["kv_heads"], point["kv_heads"]
    attend = partial(functional.scaled_dot_product_attention, q, is_causal=new > 1, enable_gqa=grouped)
    calls = [partial(attend, key=tokens(keys, kv_heads), value=tokens(keys, kv_heads)) for _ in range(count)]
    return Result(timing=bench.time(calls), moved=size)


def function(bench: Bench, point: Point) -> Result:
    """A row-wise function; the bytes of its operands and results are what the graph says of it."""
    name = point.kernel.removeprefix("compiled ")
    kernels = fused.compile_functions() if point.kernel != name else fused.EAGER
    made = FUNCTIONS.get(name)
    call = (made or partial(_by_map, name))(bench, kernels, point["m"], point["n"], DTYPES[point.dtype])
    return Result(timing=bench.time([call]), moved=point["bytes"])


def _norm(bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    x, w = bench.rand(1, m, n, dtype=dtype), bench.rand(n, dtype=dtype)
    return partial(kernels.norm, x, w, EPS, False)


def _add_norm(bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    x, y, w = bench.rand(1, m, n, dtype=dtype), bench.rand(1, m, n, dtype=dtype), bench.rand(n, dtype=dtype)
    return partial(kernels.add_norm, x, y, w, EPS, False)


def _gate(name: str, bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    whole = bench.rand(1, m, 2 * n, dtype=dtype)  # both halves come from one product
    gate, up = whole.chunk(2, -1)
    return partial(kernels.gated, name, {}, gate, up)


def _rope(bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    x = bench.rand(1, m, max(n // HEAD, 1), HEAD, dtype=dtype)
    cos, sin = (torch.randn(m, 1, HEAD // 2) for _ in "cs")
    return partial(kernels.rope, x, cos, sin, False)


def _add(bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    x, y = bench.rand(1, m, n, dtype=dtype), bench.rand(1, m, n, dtype=dtype)
    return partial(torch.add, x, y)


def _append(bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    """New keys into their places in a cache."""
    new, cache = bench.rand(1, m, n, dtype=dtype), bench.rand(1, 2 * m, n, dtype=dtype)
    return lambda: cache.narrow(1, m // 2, m).copy_(new)


def _gather(bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    """Rows of an embedding."""
    table, ids = bench.rand(4096, n, dtype=dtype), torch.randint(0, 4096, (1, m))
    return lambda: functional.embedding(ids.where(ids < 4096, 0), table)


@cache
def _example(name: str) -> Op:
    """An op of the function, from the graph of a model that has it."""
    model, _ = open_model(EXAMPLES[name], ())
    return next(op for op, _ in ops(lower(model, Step.prefill(1, 2))) if op.fn == name)


def _by_map(name: str, bench: Bench, kernels: Kernels, m: int, n: int, dtype: torch.dtype) -> Call:
    """The interpreter's own function."""
    op = _example(name)
    last = op.attrs.get("over", ("D",))[-1]
    x = bench.rand(1, m, n, dtype=dtype)
    operands = [Value(x, ("S", "T", last))]
    operands += [Value(bench.rand(n, dtype=dtype), (last,)) for _ in op.reads[1:]]
    return partial(MAPS[name], _run(n), op, operands, ("S", "T", last))


FUNCTIONS: dict[str, Callable[[Bench, Kernels, int, int, torch.dtype], Call]] = {
    "rmsnorm": _norm, "add_rmsnorm": _add_norm, "swiglu": partial(_gate, "swiglu"),
    "geglu_tanh": partial(_gate, "geglu_tanh"), "rope": _rope, "add": _add, "append": _append, "gather": _gather,
}  # fmt: skip


def experts(bench: Bench, point: Point) -> Result:
    """The program's product with experts' matrices: rows sorted, one product for each expert, rows put back."""
    m, n, k, count = (point[name] for name in ("m", "n", "k", "experts"))
    size = count * n * k * 4
    copies = point["bytes"] // size
    x = bench.rand(m, k, dtype=torch.float32)
    run = _run(k)
    run.routing = Routing(torch.arange(m), torch.randint(0, count, (m,)))
    hits = len(set(run.routing.expert.tolist()))
    calls = [
        partial(moe.expert_product, run, x, _copy(bench, count, k, n, dtype=torch.float32)) for _ in range(copies)
    ]  # fmt: skip
    return Result(timing=bench.time(calls), moved=size * hits // count, note=f"{hits} hit")


def _run(width: int) -> Run:
    """A run that has neither weights nor states, for functions that ask for none."""
    tokens = torch.zeros(1, 1, dtype=torch.long)
    return Run(weights=_no_weights, cache=States(), tokens=tokens, width=width, fast=True)


def _no_weights(name: str, index: object) -> Tensor:
    raise KeyError(name)


def scan(bench: Bench, point: Point) -> Result:
    """Mamba's recurrence from its inputs, in fp32."""
    batch, tokens, heads, states = (point[name] for name in ("batch", "seq_q", "heads", "head_dim"))
    u, dt = (bench.rand(batch, tokens, heads, 1, dtype=torch.float32) for _ in "ud")
    drive, a_log = (
        bench.rand(batch, tokens, 1, states, dtype=torch.float32),
        bench.rand(heads, states, dtype=torch.float32),
    )
    state = bench.rand(batch, heads, states, dtype=torch.float32)

    def call() -> Tensor:
        return recurrence(torch.exp(-torch.exp(a_log) * dt), dt * drive * u, state)[0]

    return Result(timing=bench.time([call]), moved=4 * batch * tokens * heads * states)


CPU_RUNS: dict[str, Callable[[Bench, Point], Result]] = {
    "cpu_gemm": product, "cpu_attention": attention, "cpu_elementwise": function, "cpu_experts": experts,
    "cpu_scan": scan,
}  # fmt: skip
"""From a suite to the function that times its points."""
