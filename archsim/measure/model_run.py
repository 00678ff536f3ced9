"""One model on one device, everything that can be read of it: counts, cache bytes, FLOP, times by op, peak memory.

Nothing here predicts: what it returns is put beside predictions by whoever asked.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.nn.attention import sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from archsim.backend import fused, oracle
from archsim.backend.compile.parts import Shape
from archsim.backend.compile.program import Program, Unsupported
from archsim.backend.module import build
from archsim.backend.oracle import META
from archsim.backend.packed import Packed
from archsim.backend.run import Cache
from archsim.base.errors import UsageError
from archsim.base.json_types import JsonObject
from archsim.measure import machine
from archsim.measure.bench import DTYPES, Bench, Stamps, pinned
from archsim.measure.point import Skip
from archsim.measure.suite_fused import triton_kernels
from archsim.measure.suite_model import ATTENTION, cache_bytes, states
from archsim.spec.model import Model
from archsim.spec.tiny import tiny

SIZES = ("small", "full")
"""Its kinds of layers at toy width, or the model itself."""
LARGEST_ON_CPU = 4e9
"""Bytes of weights above which a model is made small on a CPU."""
SHARE_OF_DEVICE = 0.85
"""Share of the free memory that weights and caches may take."""
ROUNDS = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTime:
    """A call's time in one step, all repetitions together. paths: the graph's ops that it runs."""

    paths: tuple[str, ...]
    count: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One forward pass. seconds: the median of the rounds. flops: what torch counts, every pair of keys.

    allocated, reserved: peak bytes while it ran, weights included; None where the device does not tell.
    """

    name: str
    batch: int
    new: int
    past: int
    seconds: float
    spread_pct: float
    calls: int
    mode: str
    flops: int
    ops: tuple[OpTime, ...]
    allocated: int | None
    reserved: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What one model on one device was seen to be. reduced: why not the model that was asked for, or ""."""

    asked: str
    model: Model
    reduced: str
    device: str
    hardware: str
    engine: str
    dtype: str
    kernels: str
    params: int
    weight_bytes: int
    kv_tokens: int
    kv_bytes: int
    state_bytes: int
    phases: tuple[PhaseTime, ...]
    environment: JsonObject

    def to_dict(self) -> JsonObject:
        """All of it as plain data, the model by name."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("model", "phases")}
        return data | {"model": self.model.name, "phases": [asdict(phase) for phase in self.phases]}


def measure_model(
    model: Model,
    device: str | None = None,
    *,
    size: str | None = None,
    batch: int = 1,
    input_len: int | None = None,
    dtype: str | None = None,
    threads: int = 1,
) -> Measured:
    """Instantiate `model` with random weights and read everything.

    device: `cpu` or `cuda`, default what there is. size: `small` for a model of the same kinds at toy width
    (default on a CPU). input_len: tokens of the prompt, then of the cache that the decode step reads. dtype: default
    bf16 on a GPU, fp32 on a CPU. Raises UsageError where torch, the device or room for the model is missing.
    """
    device = machine.choose_device(device)
    dtype = dtype or ("bf16" if device == "cuda" else "fp32")
    if dtype not in ("bf16", "fp16", "fp32"):
        raise UsageError(f"a model is timed in bf16, fp16 or fp32, not in {dtype}")
    if size not in (None, *SIZES):
        raise UsageError(f"a model is timed in its size {' or '.join(SIZES)}, not {size!r}")
    bench = Bench(device, quick=device == "cpu")
    fitting, reduced = _fitting(model, bench, size or ("small" if device == "cpu" else "full"), dtype)
    length = input_len or (min(32, fitting.max_context or 32) if bench.quick else 2048)
    with pinned(threads if device == "cpu" else None), torch.no_grad():
        return _Loop(model.name, fitting, reduced, bench, dtype).run(batch, length)


def _fitting(model: Model, bench: Bench, size: str, dtype: str) -> tuple[Model, str]:
    """The model that is run, and why it is not the one asked for."""
    if size == "small":
        return tiny(model), "made small: the same kinds of layers at toy width"
    need = oracle.param_count(model) * DTYPES[dtype].itemsize
    room = bench.free_bytes() * SHARE_OF_DEVICE if bench.cuda else LARGEST_ON_CPU
    if need > room:
        return tiny(model), f"made small: its weights take {need / 1e9:.1f} GB, {room / 1e9:.1f} GB are usable here"
    return model, ""


class _Loop:
    """The steps of `measure_model`."""

    def __init__(self, asked: str, model: Model, reduced: str, bench: Bench, dtype: str) -> None:
        self.asked, self.model, self.reduced, self.bench, self.dtype = asked, model, reduced, bench, dtype
        self.net = build(model, bench.device, DTYPES[dtype]).requires_grad_(False)
        self.net.fused = self.net.fast = True
        self.params = sum(p.numel() for p in self.net.parameters())
        self.weight_bytes = sum(p.nbytes for p in self.net.parameters())
        self.packed = Packed(self.net, release=self._has_program())
        self.kernels = fused.EAGER
        if bench.cuda:
            try:
                self.kernels = triton_kernels(bench)
            except Skip:
                self.kernels = fused.compile_functions()

    def run(self, batch: int, length: int) -> Measured:
        shapes = [("prefill", Shape(batch, length, 0)), ("decode", Shape(batch, 1, length))]
        if self.model.architecture == "encoder":
            del shapes[1:]
        cached, kept = self._cached(shapes[0][1])
        phases = tuple(self._phase(name, shape) for name, shape in shapes)
        return Measured(
            asked=self.asked, model=self.model, reduced=self.reduced, device=self.bench.device,
            hardware=machine.catalog_name(machine.driver_name(self.bench.device)), engine=machine.engine(),
            dtype=self.dtype, kernels=self.kernels.name, params=self.params, weight_bytes=self.weight_bytes,
            kv_tokens=batch * length, kv_bytes=cached, state_bytes=kept, phases=phases,
            environment=machine.environment(self.bench.device),
        )  # fmt: skip

    def _has_program(self) -> bool:
        try:
            Program(build(self.model, META), Shape(1, 4, 0), device=META)
        except Unsupported:
            return False
        return True

    def _cached(self, shape: Shape) -> tuple[int, int]:
        """Bytes of the token caches after a prefill, and of other states, read from the tensors themselves."""
        if cache_bytes(self.net, shape) > self.bench.free_bytes():
            raise UsageError("the cache does not fit", hints=("a smaller batch or a shorter prompt",))
        program = self._program(shape)
        if program is not None:
            program()
            others = program.run.cache.states.values()
            return sum(x.nbytes for x in program.caches().values()), sum(x.nbytes for x in others)
        cache = Cache()
        self._call(shape, cache)()
        growing = {name for name, (tensor, _) in states(self.net, shape).items() if "C" in tensor.axes}
        sizes = [(slot[0] in growing, x.nbytes) for slot, x in cache.states.items()]
        return sum(n for grows, n in sizes if grows), sum(n for grows, n in sizes if not grows)

    def _program(self, shape: Shape) -> Program | None:
        self.net.absorbed = shape.past > 0
        try:
            return Program(self.net, shape, self.kernels, self.packed)
        except Unsupported:
            return None

    def _call(self, shape: Shape, cache: Cache | None = None) -> Callable[[], object]:
        """A forward pass of the module itself, for what has no program. Each call starts from the same cache."""
        ids = torch.randint(0, self.model.vocab_size, (shape.batch, shape.new), device=self.bench.device)
        before = Cache()
        if shape.past and self.model.architecture != "encoder":
            past = ids[:, :1].expand(-1, shape.past)
            self.net(past, cache=before, source=self.net.source_of(past), last=True)
        source = None if before.source else self.net.source_of(ids)

        def call() -> Any:
            used = cache if cache is not None else Cache(before.length, before.source, dict(before.states))
            return self.net(ids, cache=used, source=source, last=True)

        return call

    def _phase(self, name: str, shape: Shape) -> PhaseTime:
        program = self._program(shape)
        call = program or self._call(shape)
        with sdpa_kernel(ATTENTION):
            call()
            allocated, reserved = self._peak(call)
            timing = self.bench.time([call], graph=program is not None, middle=True)
            ops = self._ops(program, call)
        return PhaseTime(
            name=name, batch=shape.batch, new=shape.new, past=shape.past, seconds=timing.us / 1e6,
            spread_pct=timing.spread_pct, calls=timing.calls, mode=timing.mode, flops=self._flops(shape),
            ops=ops, allocated=allocated, reserved=reserved,
        )  # fmt: skip

    def _flops(self, shape: Shape) -> int:
        """What torch's FlopCounterMode counts of the same spec, without fused operators."""
        net = build(self.model, META)
        if not shape.past or self.model.architecture == "encoder":
            return oracle.count_flops(net, shape.batch, shape.new)
        cache = Cache()
        ids = torch.zeros(shape.batch, shape.past, dtype=torch.long, device=META)
        net(ids, cache=cache, source=net.source_of(ids), last=True)
        return oracle.count_flops(net, shape.batch, 1, cache)

    def _peak(self, call: Callable[[], object]) -> tuple[int | None, int | None]:
        if not self.bench.cuda:
            return self.weight_bytes + cpu_peak(call), None
        self.bench.release()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()

    # ------------------------------------------------------------------ by op
    def _ops(self, program: Program | None, call: Callable[[], object]) -> tuple[OpTime, ...]:
        """Every call of a step timed alone, in order of first appearance."""
        rounds = [self._one_round(program, call) for _ in range(ROUNDS)]
        paths = [path for path, _ in rounds[0]]
        found: dict[tuple[str, ...], list[float]] = {}
        for i, path in enumerate(paths):
            found.setdefault(path, []).append(statistics.median(one[i][1] for one in rounds))
        return tuple(OpTime(paths=p, count=len(each), seconds=sum(each)) for p, each in found.items())

    def _one_round(self, program: Program | None, call: Callable[[], object]) -> list[tuple[tuple[str, ...], float]]:
        stamps = Stamps(self.bench.cuda)
        if program is not None:
            program(watch=lambda part: stamps.add(part.paths))
        else:
            self.net.watch = stamps.around
            try:
                call()
            finally:
                self.net.watch = None
        return stamps.seconds()


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operators return, and takes off those that die. Scratch inside one is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note what is new."""
        before = {_key(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and _key(x) not in before:
                self._note(x.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()

        def gone(_: object) -> None:
            self.held -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, gone)
        self.held += size
        self.peak = max(self.peak, self.held)


def _key(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def cpu_peak(call: Callable[[], object]) -> int:
    """Most bytes that `call` held at once in tensors of its own."""
    with Alive() as alive:
        call()
    return int(alive.peak)
