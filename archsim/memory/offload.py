"""Layers or experts in host memory: what the device still holds, and the decode speed of both bandwidths."""

from __future__ import annotations

from archsim.base.data_class import dataclass
from archsim.base.number import Num
from archsim.counts.graph_counts import inventory
from archsim.graph.graph import Block
from archsim.graph.tensor import Tensor, numel
from archsim.memory.kv_cache import Paging
from archsim.memory.tensors import Layers, PipelineStage, TensorCopies, layer_tensors
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
class OffloadRequest:
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
class HostSplit:
    """Weights and caches by where they lie: on devices (here), and in host memory."""

    here: Layers
    host: tuple[TensorCopies, ...]
    host_caches: tuple[TensorCopies, ...]

    def offload(
        self, stage: PipelineStage, one: Block, hardware: Hardware, rate: float | None, context: int, paging: Paging
    ) -> Offload:  # fmt: skip
        """Sizes, and the time of one token: each memory's bytes over its bandwidth, one after the other.

        stage: of one device that holds all that is on devices. one: the graph of a single token, which touches the
        experts that its router picks. rate: the host's bandwidth in B/s, None for that of a usual desktop.
        """
        share = {i.tensor.name: _touched(i.touched, i.tensor) for i in inventory(one)}
        host = PipelineStage(weights=sum(round(t.bytes) for t in self.host), caches=self.host_caches)
        bandwidth = rate if rate is not None else _host_bandwidth()
        here, there = (
            sum(float(t.bytes) * share.get(t.tensor.name, 1.0) for t in tensors)
            for tensors in ((t for layer in (*self.here.weights, self.here.last) for t in layer), self.host)
        )
        here += stage.request_bytes(context, paging)
        there += host.request_bytes(context, paging)
        return Offload(
            host_weights=host.weights, host_caches=int(host.request_bytes(context, paging)), host_bandwidth=bandwidth,
            assumed=rate is None, ideal_s=here / hardware.bandwidth + there / bandwidth,
        )  # fmt: skip


def _touched(touched: Num, tensor: Tensor) -> float:
    """Share of a weight that one token reads: chosen experts; of an input table a row."""
    if tensor.role == "embedding":
        return 0.0
    return float(touched) / float(numel(tensor)) if "E" in tensor.axes else 1.0


def _host_bandwidth() -> float:
    from archsim.spec.load import load_hardware

    return load_hardware(HOST).bandwidth


def host_split(graph: Block, request: OffloadRequest, rules: Engine, model: Model) -> HostSplit | None:
    """What lies where; None where all is on devices. The last layers go to devices first, the output matrix with
    one more than all of them, as in llama.cpp."""
    if not request.anything and rules.memory.embedding == "device":
        return None
    *layers, outside = layer_tensors(graph, "weight")
    *caches, rest = layer_tensors(graph, "state")
    here = request.layers_here
    first = 0 if here is None else len(layers) - min(max(here, 0), len(layers))
    host = [tensor for layer in layers[:first] for tensor in layer]
    kept = []
    for place, layer in enumerate(layers[first:], start=first):
        away = [t for t in layer if place < request.experts and t.tensor.role in EXPERTS]
        host += away
        kept.append([t for t in layer if t not in away])
    tied = model.head is None or model.head.tied
    whole = here is None or here > len(layers)
    ends: list[TensorCopies] = []
    for tensor in outside:
        table = tensor.tensor.role == "embedding" and rules.memory.embedding == "host"
        (ends if whole and (not table or tied) else host).append(tensor)
    below = tuple(cache for layer in caches[:first] for cache in layer)
    return HostSplit(
        here=Layers(weights=kept, caches=caches[first:], last=ends, last_caches=rest),
        host=tuple(host), host_caches=below,
    )  # fmt: skip
