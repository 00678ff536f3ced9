"""Layers or experts in host memory: what the device still holds, and the decode speed of both bandwidths."""

from __future__ import annotations

from dataclasses import dataclass

from archsim.base.number import Num
from archsim.cost.count import inventory
from archsim.graph.graph import Block
from archsim.graph.tensor import Tensor, numel
from archsim.sim.budget import Held, layer_tensors
from archsim.sim.fit_caches import Paging, Stage
from archsim.spec.engine import Engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

HOST = "generic-ddr5-desktop"
"""Device document whose memory stands for the host's where none is given."""

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


def offloaded(graph: Block, on_gpu: int | None, cpu_moe: bool, rules: Engine, model: Model) -> Split | None:
    """The split; None where all lies on the device. The last layers go to the device first, the output matrix
    with one more than all of them, as in llama.cpp."""
    if on_gpu is None and not cpu_moe and rules.embedding == "device":
        return None
    *layers, outside = layer_tensors(graph, "weight")
    *caches, rest = layer_tensors(graph, "state")
    count = len(layers) if on_gpu is None else min(max(on_gpu, 0), len(layers))
    first = len(layers) - count
    host = [held for layer in layers[:first] for held in layer]
    device = [held for layer in layers[first:] for held in layer]
    experts = [held for held in device if cpu_moe and held.tensor.role == "expert"]
    device = [held for held in device if held not in experts]
    tied = model.head is None or model.head.tied
    whole = on_gpu is None or on_gpu > len(layers)
    for held in outside:
        table = held.tensor.role == "embedding" and rules.embedding == "host"
        (device if whole and (not table or tied) else host).append(held)
    stage = Stage(
        weights=sum(round(held.bytes) for held in device),
        caches=(*(held for layer in caches[first:] for held in layer), *rest),
    )
    lower = tuple(held for layer in caches[:first] for held in layer)
    return Split(device=stage, on_device=tuple(device), on_host=(*host, *experts), host_caches=lower)
