"""Layers or experts in host memory: what the device still holds, and the decode speed of both bandwidths."""

from __future__ import annotations

from dataclasses import dataclass

from archsim.base.number import Num
from archsim.counts.graph_counts import inventory
from archsim.graph.graph import Block
from archsim.graph.tensor import Tensor, numel
from archsim.memory.budget import Held, layer_tensors
from archsim.memory.kv_blocks import Paging, Stage
from archsim.memory.stages import layer_counts
from archsim.spec.engine import Engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

HOST = "generic-ddr5-desktop"
"""Device document whose memory stands for the host's where none is given."""

EXPERTS = ("expert",)
"""Roles of the weights that `--cpu-moe` leaves in host memory."""

EFFICIENCY = 0.85
"""Share of a memory bandwidth that decode reaches, as in `estimate`'s default rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """What lies in host memory (bytes), and decode at batch 1: seconds of one token that both memories need."""

    host_weights: int
    host_caches: int
    host_bandwidth: float
    assumed: bool
    ideal_s: float

    @property
    def expected_s(self) -> float:
        """Seconds per token at the usual share of both bandwidths."""
        return self.ideal_s / EFFICIENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Weights and caches by where they lie."""

    device: Stage
    on_device: tuple[Held, ...]
    on_host: tuple[Held, ...]
    host_caches: tuple[Held, ...]

    def offload(
        self, one: Block, hardware: Hardware, bandwidth: float | None, context: int, paging: Paging
    ) -> Offload:
        """Sizes, and the time of one token: each memory's bytes over its bandwidth, one after the other.

        one: the graph of a single token, which touches the experts that its router picks.
        """
        share = {i.tensor.name: _touched(i.touched, i.tensor) for i in inventory(one)}
        host = Stage(weights=sum(round(h.bytes) for h in self.on_host), caches=self.host_caches)
        rate = bandwidth if bandwidth is not None else _host_bandwidth()
        here, there = (
            sum(float(h.bytes) * share.get(h.tensor.name, 1.0) for h in held)
            for held in (self.on_device, self.on_host)
        )
        here += self.device.request_bytes(context, paging)
        there += host.request_bytes(context, paging)
        return Offload(
            host_weights=host.weights, host_caches=host.request_bytes(context, paging), host_bandwidth=rate,
            assumed=bandwidth is None, ideal_s=here / hardware.bandwidth + there / rate,
        )  # fmt: skip


def _touched(touched: Num, tensor: Tensor) -> float:
    """Share of a weight that one token reads: chosen experts; of an input table a row."""
    if tensor.role == "embedding":
        return 0.0
    return float(touched) / float(numel(tensor)) if "E" in tensor.axes else 1.0


def _host_bandwidth() -> float:
    from archsim.spec.load import load_hardware

    return load_hardware(HOST).bandwidth


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """What is asked to lie in host memory. layers_here: the last layers, which stay on the device (None: all).
    experts: routed experts of so many first layers.
    """

    layers_here: int | None = None
    experts: int = 0

    @property
    def anything(self) -> bool:
        """Whether anything is asked for."""
        return self.layers_here is not None or self.experts > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """Weights and caches of the layers that stay on devices, what is outside of layers there, and the host's."""

    layers: list[list[Held]]
    caches: list[list[Held]]
    outside: list[Held]
    rest: list[Held]
    host: list[Held]
    host_caches: list[Held]


def parted(graph: Block, moved: Moved, rules: Engine, model: Model) -> Parted | None:
    """What lies where; None where all is on devices. The last layers go to devices first, the output matrix with
    one more than all of them, as in llama.cpp."""
    if not moved.anything and rules.memory.embedding == "device":
        return None
    *layers, outside = layer_tensors(graph, "weight")
    *caches, rest = layer_tensors(graph, "state")
    on_gpu = moved.layers_here
    first = 0 if on_gpu is None else len(layers) - min(max(on_gpu, 0), len(layers))
    host = [held for layer in layers[:first] for held in layer]
    kept = []
    for place, layer in enumerate(layers[first:], start=first):
        away = [held for held in layer if place < moved.experts and held.tensor.role in EXPERTS]
        host += away
        kept.append([held for held in layer if held not in away])
    tied = model.head is None or model.head.tied
    whole = on_gpu is None or on_gpu > len(layers)
    ends: list[Held] = []
    for held in outside:
        table = held.tensor.role == "embedding" and rules.memory.embedding == "host"
        (ends if whole and (not table or tied) else host).append(held)
    lower = [held for layer in caches[:first] for held in layer]
    return Parted(layers=kept, caches=caches[first:], outside=ends, rest=rest, host=host, host_caches=lower)


def offloaded(graph: Block, moved: Moved, rules: Engine, model: Model) -> Split | None:
    """The split over one device and the host; None where all lies on the device."""
    parts = parted(graph, moved, rules, model)
    if parts is None:
        return None
    (stage,) = spread(parts, 1, rules)
    device = (*(held for layer in parts.layers for held in layer), *parts.outside)
    host, lower = tuple(parts.host), tuple(parts.host_caches)
    return Split(device=stage, on_device=device, on_host=host, host_caches=lower)


def spread(parts: Parted, count: int, rules: Engine) -> tuple[Stage, ...]:
    """The layers that stay on devices, over so many of them; what is outside of layers on the last."""
    result, at = [], 0
    for i, size in enumerate(layer_counts(len(parts.layers), count, rules.parallelism.pipeline)):
        own = [held for layer in parts.layers[at : at + size] for held in layer]
        kept = [held for layer in parts.caches[at : at + size] for held in layer]
        if i == count - 1:
            own, kept = [*own, *parts.outside], [*kept, *parts.rest]
        result.append(Stage(weights=sum(round(held.bytes) for held in own), caches=tuple(kept)))
        at += size
    return tuple(result)
