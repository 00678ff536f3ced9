"""Whole models, a spec instantiated with random weights: its prefill, its decode step and a training step."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from archsim.backend import fused
from archsim.backend.compile.parts import Shape
from archsim.backend.compile.program import Program, Unsupported
from archsim.backend.fused import Kernels
from archsim.backend.module import Net, build
from archsim.backend.packed import Packed
from archsim.graph.graph import ops
from archsim.graph.step import Seqs, Step
from archsim.graph.tensor import Tensor as Named
from archsim.graph.tensor import numel
from archsim.measure.bench import Bench
from archsim.measure.point import Point, Result, Skip
from archsim.measure.suite_fused import triton_kernels
from archsim.spec.model import Model

ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
SPARE_BYTES = 5 << 30
"""Device memory that stays free beside weights and caches."""


@dataclass(slots=True)
class Loaded:
    """A model in memory: its module, and its weights as programs read them."""

    model: Model
    net: Net
    packed: Packed
    bytes: int


def whole(bench: Bench, point: Point) -> Result:
    """One prefill or one decode step, all layers and the logits of the last position."""
    loaded = load(bench, point.model)
    loaded.net.absorbed = point.op == "decode_step"
    past = point["seq_kv"] if point.op == "decode_step" else 0
    shape = Shape(point["batch"], point["seq_q"], past)
    _check_room(bench, loaded, shape)
    kernels, graph = _form(bench, point.kernel)
    try:
        program = Program(loaded.net, shape, kernels, loaded.packed)
    except Unsupported as error:
        raise Skip(f"no program for this model: {error}") from error
    with sdpa_kernel(ATTENTION):
        allocated, reserved = _peak(bench, program)
        timing = bench.time([program], graph=graph)
    return Result(timing=timing, allocated=allocated, reserved=reserved, model=loaded.model.name)


def load(bench: Bench, name: str) -> Loaded:
    """The model on the device; the one that was there before makes room. Of toy size where the bench is quick."""
    found = bench.held.get("model")
    if isinstance(found, Loaded) and bench.held.get("model name") == name:
        return found
    unload(bench)
    model = _spec(name, small=bench.quick)
    if model.architecture != "decoder" or model.encoder is not None:
        raise Skip(f"{model.name} is not a decoder; only decoders are compiled")
    dtype = torch.bfloat16
    size = 2 * _elements(model)
    if size + SPARE_BYTES > bench.free_bytes():
        raise Skip(f"needs {size / 1e9:.1f} GB for weights, {bench.free_bytes() / 1e9:.1f} GB are free")
    net = build(model, bench.device, dtype)
    net.fused = net.fast = True
    loaded = Loaded(model, net.requires_grad_(False), Packed(net, release=True), size)
    bench.held |= {"model": loaded, "model name": name}
    return loaded


def unload(bench: Bench) -> None:
    """Give the model's memory back."""
    bench.held.pop("model", None)
    bench.held.pop("model name", None)
    bench.release()


def _spec(name: str, small: bool) -> Model:
    from archsim.importers.opening import open_model
    from archsim.spec.tiny import tiny

    model, _ = open_model(name, ())
    return tiny(model) if small else model


def _elements(model: Model) -> int:
    return sum(p.numel() for p in build(model, "meta").parameters())


def _form(bench: Bench, kernel: str) -> tuple[Kernels, bool]:
    """The row-wise functions and whether a graph is replayed, from a name such as `triton+graph`."""
    form, _, graph = kernel.partition("+")
    if not bench.cuda and (graph or form != "eager"):
        raise Skip(f"{kernel} is timed on a GPU only")
    if form == "triton":
        return triton_kernels(bench), bool(graph)
    return (fused.compile_functions() if form == "compile" else fused.EAGER), bool(graph)


def states(net: Net, shape: Shape) -> dict[str, tuple[Named, int]]:
    """The states that a step writes, and how many of each there are."""
    source = (Seqs(shape.batch, shape.new, 0),) if net.model.encoder is not None else ()
    graph = net.graph(Step.of(*shape, masked=False, absorbed=net.absorbed, source=source))
    found: dict[str, tuple[Named, int]] = {}
    for op, times in ops(graph):
        for use in op.writes:
            if use.tensor.kind == "state":
                found[use.tensor.name] = (use.tensor, int(times))
    return found


def cache_bytes(net: Net, shape: Shape) -> int:
    """Bytes of all states of a step in 16 bits."""
    return sum(int(numel(t)) * times * t.format.bytes for t, times in states(net, shape).values())


def _check_room(bench: Bench, loaded: Loaded, shape: Shape) -> None:
    need = cache_bytes(loaded.net, shape)
    need += 2 * shape.batch * shape.new * loaded.model.d_model * 40  # activations of a layer, generously
    free = bench.free_bytes() - (SPARE_BYTES if bench.cuda else 0)
    if need > free:
        raise Skip(f"needs {need / 1e9:.1f} GB besides the weights, {max(free, 0) / 1e9:.1f} GB are free")


def _peak(bench: Bench, program: Program) -> tuple[int | None, int | None]:
    """Largest memory of one run, allocated and reserved; None on a CPU."""
    if not bench.cuda:
        return None, None
    program()  # what is compiled or chosen at the first call is not part of the peak
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    program()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()


STATES = 4
"""Weights, gradients and two moments."""


def train_step(bench: Bench, point: Point) -> Result:
    """Time of one step on random tokens, logits and loss at every position."""
    unload(bench)
    model = _spec(point.model, small=bench.quick)
    need = 2 * STATES * _elements(model)
    if need > bench.free_bytes() * 0.7:
        raise Skip(f"needs {need / 1e9:.1f} GB for weights, gradients and moments")
    net = build(model, bench.device, torch.bfloat16, stacked=False)
    net.fused = net.fast = True
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=bench.cuda)
    tokens = torch.randint(0, model.vocab_size, (point["batch"], point["seq_q"]), device=bench.device)

    def step() -> None:
        with torch.enable_grad():
            logits = net(tokens)
            assert isinstance(logits, Tensor)
            loss = functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
            torch.autograd.backward(loss)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    step()
    if bench.cuda:
        torch.cuda.reset_peak_memory_stats()
    timing = bench.time([step], graph=False)
    peaks = (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if bench.cuda else (None, None)
    return Result(timing=timing, allocated=peaks[0], reserved=peaks[1], model=model.name)
