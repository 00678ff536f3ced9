"""Models on the present processor: each case of a plan timed, and the bytes that were alive at once."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Protocol

import torch

from archsim.backend import fused
from archsim.backend.compile.parts import Shape
from archsim.backend.compile.program import Program, Unsupported
from archsim.backend.module import Net, build
from archsim.backend.packed import Packed
from archsim.backend.run import Cache
from archsim.base.json_types import JsonObject
from archsim.graph.kernels import kernels, weight_of
from archsim.graph.passes.checkpoint import recompute_of
from archsim.measure.bench import DTYPES, Bench, Stamps, pinned
from archsim.measure.cpu_plan import RECOMPUTED, Case
from archsim.measure.model_run import cpu_peak
from archsim.measure.resident import baseline_bytes, freed_memory_kept, peak_resident_bytes
from archsim.measure.suite_layers import PACKED
from archsim.measure.trained_on_cpu import TrainedOnCpu
from archsim.spec.model import Model

ROUNDS = 5
OTHER = "cpu_elementwise"
ORDER = ("cpu_gemm", "cpu_experts", "cpu_attention", "cpu_scan", OTHER)
"""A call of several ops belongs to the first of these that one of them is of."""


def class_by_path(net: Net, case: Case) -> dict[str, str]:
    """The class of kernels of each op of a step that is no row-wise function, by its path."""
    step = net.step(case.batch, case.new, case.past)
    found: dict[str, str] = {}
    for kernel in kernels(net.graph(step)):
        for op in kernel.ops:
            weight = weight_of(op) if op.kind == "contract" else None
            if kernel.kind == "attention":
                found[op.name] = "cpu_attention"
            elif op.kind == "scan" or kernel.kind:
                found[op.name] = "cpu_scan"
            elif weight is not None:
                found[op.name] = "cpu_experts" if weight.tensor.role == "expert" else "cpu_gemm"
    return found


class TimedModel(Protocol):
    """A model whose cases are timed."""

    @property
    def bench(self) -> Bench:
        """What times them."""

    def measure(self, case: Case) -> JsonObject:
        """A case's row."""


class ModelInTraining:
    """One model with random weights, and the steps of training that are timed of it."""

    def __init__(self, model: Model, threads: int) -> None:
        self.model, self.threads, self.bench = model, threads, Bench("cpu")
        self.baseline, self.trained = baseline_bytes(), TrainedOnCpu(model)

    def measure(self, case: Case) -> JsonObject:
        """Seconds of a step (the median of the rounds), spread, and live bytes at the peak: weights, gradients, states
        and all that autograd keeps.
        """
        self.trained.net.recompute = recompute_of(RECOMPUTED[case.form])
        tokens = self.trained.tokens(case.batch, case.new)
        with pinned(self.threads), freed_memory_kept():
            timing = self.bench.time([lambda: self.trained.step(tokens)], middle=True)
            now, peak = (count(lambda: self.trained.step(tokens)) for count in (peak_resident_bytes, cpu_peak))
        return {
            "id": case.id, "measured_s": timing.us / 1e6, "spread_pct": round(timing.spread_pct, 2),
            "n_calls": timing.calls, "weight_bytes": self.trained.weight_bytes, "cache_bytes": self.trained.state_bytes,
            "own_peak_bytes": peak, "measured_by_class_s": {},
            "resident_bytes": None if now is None or self.baseline is None else now - self.baseline,
        }  # fmt: skip


class ModelOnCpu:
    """One model with random weights, and the passes that are timed of it."""

    def __init__(self, model: Model, dtype: str, threads: int) -> None:
        self.model, self.threads, self.bench = model, threads, Bench("cpu")
        self.baseline = baseline_bytes()
        self.net = build(model, "cpu", DTYPES.get(dtype, torch.float32)).requires_grad_(False)
        self.net.fused = self.net.fast = True
        self.module_bytes = sum(p.nbytes for p in self.net.parameters())
        self.packed = PACKED.get(dtype, Packed)(self.net, release=self._has_program())

    def _has_program(self) -> bool:
        try:
            Program(build(self.model, "meta"), Shape(1, 4, 0), device="meta")
        except Unsupported:
            return False
        return True

    def measure(self, case: Case) -> JsonObject:
        """Seconds (the median of the rounds), spread, live bytes at the peak, weights and caches included."""
        with pinned(self.threads), torch.no_grad():
            call, cached = self._call(case)
            with freed_memory_kept():
                timing = self.bench.time([call], middle=True)
                parts = self._by_class(call, case) if isinstance(call, Program) else {}
            now, peak = peak_resident_bytes(call), cpu_peak(call)
        return {
            "id": case.id, "measured_s": timing.us / 1e6, "spread_pct": round(timing.spread_pct, 2),
            "n_calls": timing.calls, "weight_bytes": self.module_bytes - self.packed.saved_bytes,
            "cache_bytes": cached, "own_peak_bytes": peak,
            "measured_by_class_s": parts,
            "resident_bytes": None if now is None or self.baseline is None else now - self.baseline,
        }  # fmt: skip

    def _by_class(self, program: Program, case: Case) -> dict[str, float]:
        """Seconds of a program's calls by the class of kernels that they are priced as, the median of some rounds."""
        classes = class_by_path(self.net, case)
        rounds = []
        for _ in range(ROUNDS):
            rounds.append(_one_round(program))
        found: dict[str, float] = {}
        for i, (paths, _) in enumerate(rounds[0]):
            name = min((classes.get(path, OTHER) for path in paths), key=ORDER.index, default=OTHER)
            found[name] = found.get(name, 0.0) + statistics.median(one[i][1] for one in rounds)
        return found

    def _call(self, case: Case) -> tuple[Callable[[], object], int]:
        """A pass, and the bytes of the caches that it keeps."""
        shape = Shape(case.batch, case.new, case.past)
        functions = fused.compile_functions() if case.form == "compiled" else fused.EAGER
        self.net.absorbed = case.past > 0
        try:
            program = Program(self.net, shape, functions, self.packed)
        except Unsupported:
            if case.form != "eager" or case.dtype in PACKED:
                raise
            return self._interpreted(shape), 0
        program()
        return program, sum(x.nbytes for x in program.caches().values())

    def _interpreted(self, shape: Shape) -> Callable[[], object]:
        """The module itself, for what has no program; each call starts from the same cache."""
        ids = torch.randint(0, self.model.vocab_size, (shape.batch, shape.new))
        before = Cache()
        if shape.past and self.model.architecture != "encoder":
            past = ids[:, :1].expand(-1, shape.past)
            self.net(past, cache=before, source=self.net.source_of(past), last=True)
        source = None if before.source else self.net.source_of(ids)

        def call() -> object:
            used = Cache(before.length, before.source, dict(before.states))
            return self.net(ids, cache=used, source=source, last=True)

        return call


def _one_round(program: Program) -> list[tuple[tuple[str, ...], float]]:
    """Paths and seconds of every call of a program, once."""
    stamps = Stamps(cuda=False)
    program(watch=lambda part: stamps.add(part.paths))
    return stamps.seconds()


def measured_row(model: TimedModel, case: Case) -> JsonObject:
    """A case's row; one that fails says why, and one that was disturbed in every round says so."""
    try:
        row = model.measure(case)
    except Exception as error:  # one case's failure must not cost the others
        return {"id": case.id, "skipped": f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"}
    return row | {"disturbed": True} if model.bench.disturbed else row
