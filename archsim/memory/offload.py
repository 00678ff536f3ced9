"""Layers or experts in host memory: what the device still holds, and the decode speed of both bandwidths."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.errors import InvalidPlan, UsageError
from archsim.base.number import Num
from archsim.counts.graph_counts import inventory
from archsim.graph.graph import Block
from archsim.graph.tensor import Tensor, numel
from archsim.importers.gguf.stored import file_name
from archsim.memory.kv_cache import Paging
from archsim.memory.tensors import Layers, PipelineStage, TensorCopies, layer_counts, layer_tensors, layers_of
from archsim.spec.engine import Engine
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan

HOST = "generic-ddr5-desktop"
"""Device document whose memory stands for the host's where none is given."""

EXPERTS = ("expert",)
"""Roles of the weights that `--cpu-moe` leaves in host memory."""

EFFICIENCY = 0.85
"""Share of a memory bandwidth that decode reaches, as in `estimate`'s default rates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """What lies in host memory (bytes), and decode at batch 1: seconds of one token that both memories need. experts:
    formats of the routed experts there.
    """

    host_weights: int
    host_caches: int
    host_bandwidth: float
    assumed: bool
    ideal_s: float
    experts: tuple[str, ...] = ()

    @property
    def expected_s(self) -> float:
        """Seconds per token at the usual share of both bandwidths."""
        return self.ideal_s / EFFICIENCY


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadRequest:
    """What is asked to lie in host memory. layers_here: the last layers, which stay on the device (None: all).
    experts: routed experts of so many first layers. device_experts: routed experts of each layer that stay (None: all).
    weight_bytes: weights of each device's first layers up to so many. tensors: patterns of names that they have in GGUF
    files.
    """

    layers_here: int | None = None
    experts: int = 0
    device_experts: int | None = None
    weight_bytes: int = 0
    tensors: tuple[str, ...] = ()

    @property
    def anything(self) -> bool:
        """Whether anything is asked for."""
        some = self.layers_here is not None or self.device_experts is not None
        return some or self.experts > 0 or self.weight_bytes > 0 or bool(self.tensors)

    def away(self, tensor: Tensor, layer: int) -> float:
        """Share of a weight of a layer that is asked to be in host memory. layer: -1 outside of layers."""
        if layer >= 0 and tensor.role in EXPERTS:
            if layer < self.experts:
                return 1.0
            if self.device_experts is not None and (total := float(tensor.axes.get("E", 0))):
                return max(0.0, 1 - self.device_experts / total)
        name = file_name(tensor.name, layer) if self.tensors else None
        return float(name is not None and any(re.search(pattern, name) for pattern in self.tensors))


def host_patterns(overrides: Sequence[str]) -> tuple[str, ...]:
    """The patterns of llama.cpp's `--override-tensor PATTERN=BUFFER,...` whose tensors go to host memory. Raises
    UsageError for other buffers, and for what is not a regular expression.
    """
    found: list[str] = []
    for text in (part for each in overrides for part in each.split(",")):
        pattern, _, buffer = text.rpartition("=")
        if not pattern or buffer.strip().upper() != "CPU":
            raise UsageError(f"`--override-tensor` is PATTERN=CPU, not {quote(text)}")
        try:
            re.compile(pattern)
        except re.error:
            raise UsageError(f"`--override-tensor`: {quote(pattern)} is not a regular expression") from None
        found.append(pattern)
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSplit:
    """Weights and caches by where they lie: on devices (here), and in host memory. concurrent: whether experts of
    both run at the same time.
    """

    here: Layers
    host: tuple[TensorCopies, ...]
    host_caches: tuple[TensorCopies, ...]
    concurrent: bool = False

    def offload(
        self, stage: PipelineStage, one: Block, hardware: Hardware, rate: float | None, context: int, paging: Paging
    ) -> Offload:  # fmt: skip
        """Sizes, and the time of one token: each memory's bytes over its bandwidth, one after the other; experts
        of both at the same time where the engine runs them so.

        stage: of one device that holds all that is on devices. one: the graph of a single token, which touches the
        experts that its router picks. rate: the host's bandwidth in B/s, None for that of a usual desktop.
        """
        share = {i.tensor.name: _touched(i.touched, i.tensor) for i in inventory(one)}
        host = PipelineStage(weights=sum(round(t.bytes) for t in self.host), caches=self.host_caches)
        bandwidth = rate if rate is not None else _host_bandwidth()
        kept = [t for layer in self.here.everything for t in layer]
        both = (kept, self.host, *([t for t in some if t.tensor.role in EXPERTS] for some in (kept, self.host)))
        here, there, experts_here, experts_there = (
            sum(float(t.bytes) * share.get(t.tensor.name, 1.0) for t in tensors) for tensors in both
        )
        hidden = min(experts_here / hardware.bandwidth, experts_there / bandwidth) if self.concurrent else 0.0
        here += stage.request_bytes(context, paging.alone)
        there += host.request_bytes(context, paging.alone)
        return Offload(
            host_weights=host.weights, host_caches=int(host.request_bytes(context, paging)), host_bandwidth=bandwidth,
            assumed=rate is None, ideal_s=here / hardware.bandwidth + there / bandwidth - hidden,
            experts=tuple(sorted({t.tensor.format.name for t in self.host if t.tensor.role in EXPERTS})),
        )  # fmt: skip


def _without_first(layers: Layers, most: int, stages: int, rules: Engine) -> HostSplit:
    """Weights of each stage's first layers in host memory, one after another until `most` bytes are reached; what is
    outside of layers stays (vLLM's UVA offloading wraps the layers alone)."""
    kept: list[list[TensorCopies]] = []
    host: list[TensorCopies] = []
    for count in layer_counts(len(layers.weights), stages, rules.parallelism.pipeline):
        out: Num = 0
        for layer in layers.weights[len(kept) : len(kept) + count]:
            here: list[TensorCopies] = []
            for tensor in layer:
                away = out < most
                (host if away else here).append(tensor)
                out += tensor.bytes if away else 0
            kept.append(here)
    return HostSplit(here=replace(layers, weights=kept), host=tuple(host), host_caches=())


def _touched(touched: Num, tensor: Tensor) -> float:
    """Share of a weight that one token reads: chosen experts; of an input table a row."""
    if tensor.role == "embedding":
        return 0.0
    return float(touched) / float(numel(tensor)) if "E" in tensor.axes else 1.0


def _host_bandwidth() -> float:
    from archsim.spec.load import load_hardware

    return load_hardware(HOST).bandwidth


def check_experts(graph: Block, rules: Engine, model: Model, plan: Plan) -> None:
    """Whether some experts of each layer can be in host memory. Raises UsageError for a model without experts and for
    formats that the engine's kernels of the host do not read, InvalidPlan for experts that are spread over ranks.
    """
    forms = {item.tensor.format.name for item in inventory(graph) if item.tensor.role in EXPERTS}
    known = rules.memory.host_experts.kernels
    if not forms:
        raise UsageError(f"{model.name} has no routed experts to keep in host memory")
    if plan.ep > 1:
        raise InvalidPlan("routed experts in host memory are not modelled together with expert parallelism")
    if unknown := sorted(forms - known.keys()):
        hint = f"experts that devices and host share can be in {', '.join(known)}"
        raise UsageError(f"{rules.title}: experts in {unknown[0]} are not modelled in host memory", hints=(hint,))


def host_split(graph: Block, request: OffloadRequest, rules: Engine, model: Model, stages: int = 1) -> HostSplit | None:
    """What lies where; None where all is on devices. The last layers go to devices first, the output matrix with
    one more than all of them, as in llama.cpp. stages: of a pipeline, each of which has its own weights in host memory.
    """
    if not request.anything and rules.memory.embedding == "device":
        return None
    if request.weight_bytes:
        return _without_first(layers_of(graph, stages, rules, model), request.weight_bytes, stages, rules)
    *layers, outside = layer_tensors(graph, "weight")
    *caches, rest = layer_tensors(graph, "state")
    here = request.layers_here
    first = 0 if here is None else len(layers) - min(max(here, 0), len(layers))
    host = [tensor for layer in layers[:first] for tensor in layer]
    kept = []
    for place, layer in enumerate(layers[first:], start=first):
        away = [(t, request.away(t.tensor, place)) for t in layer]
        host += [_part(t, share) for t, share in away if share > 0]
        kept.append([_part(t, 1 - share) for t, share in away if share < 1])
    tied = model.head is None or model.head.tied
    whole = here is None or here > len(layers)
    ends: list[TensorCopies] = []
    for tensor in outside:
        table = tensor.tensor.role == "embedding" and rules.memory.embedding == "host"
        here_too = whole and (not table or tied) and not request.away(tensor.tensor, -1)
        (ends if here_too else host).append(tensor)
    below = tuple(cache for layer in caches[:first] for cache in layer)
    return HostSplit(
        here=Layers(weights=kept, caches=caches[first:], last=ends, last_caches=rest),
        host=tuple(host), host_caches=below, concurrent=rules.memory.host_experts.concurrent,
    )  # fmt: skip


def _part(tensor: TensorCopies, share: float) -> TensorCopies:
    """A share of the experts of a weight."""
    return tensor if share == 1 else replace(tensor, copies=tensor.copies * share)
