"""The answer of `archsim fit`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from archsim.base.json_types import JsonObject
from archsim.base.notes import Note, notes_to_dict
from archsim.counts.formats import Formats
from archsim.engines.names import Chosen
from archsim.memory.engine_budget import Budget
from archsim.memory.offload import Offload
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan

if TYPE_CHECKING:
    from archsim.memory.device_fill import Settings

Verdict = Literal["FITS", "TIGHT", "NO"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of one option, and what it leads to. change: as typed. longest: tokens of the longest request."""

    change: str
    verdict: Verdict
    devices: int
    kv_tokens: int | None
    longest: int | None

    def to_dict(self) -> JsonObject:
        """The contract's object."""
        return {
            "change": self.change, "kv_tokens": self.kv_tokens, "verdict": self.verdict, "devices": self.devices,
            "max_model_len": self.longest,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Inverse:
    """The question turned round, everything else as asked. devices: the fewest that fit. weights: the widest
    format that fits on the devices asked for. batch: requests of max_model_len at once. None: there is none.
    """

    devices: int | None
    weights: str | None
    batch: int | None

    def to_dict(self) -> JsonObject:
        """Plain numbers."""
        return {"fewest_devices": self.devices, "widest_weights": self.weights, "largest_batch": self.batch}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether it fits. All bytes are of one device, that of the stage that holds fewest tokens.

    length: max_model_len asked for. kv_tokens: what the cache holds, in whole pages; None where nothing grows.
    need: bytes of the requests that must fit. request_bytes: of one of them. growth: bytes of one more token
    while no window is full. load_peak: bytes while weights are loaded. uniform: all layers page alike. longest:
    tokens of the longest request that fits.
    """

    model: Model
    hardware: Hardware
    plan: Plan
    formats: Formats
    engine: Chosen
    settings: Settings
    fits: bool
    verdict: Verdict
    length: int
    kv_tokens: int | None
    longest: int | None
    need: int
    budget: Budget
    concurrency: float | None
    request_bytes: int
    growth: int
    uniform: bool
    batched_tokens: int
    seqs: int
    offload: Offload | None
    load_peak: int = 0
    assumptions: tuple[Note, ...] = ()
    warnings: tuple[Note, ...] = ()
    suggestions: tuple[Change, ...] = ()
    inverse: Inverse | None = None

    @property
    def cache_name(self) -> str:
        """The cache's format, or those of keys and of values."""
        s, usual = self.settings, self.formats.kv.name
        keys, values = s.cache_type_k or usual, s.cache_type_v or usual
        return keys if keys == values else f"{keys} keys, {values} values"

    @property
    def kv_bytes_per_token(self) -> float | int | None:
        """Bytes of a token on a device: of one more where all layers grow alike, else the mean over a request of
        `length`; None where nothing grows."""
        if self.kv_tokens is None:
            return None
        return self.growth if self.uniform else self.request_bytes / self.length

    @property
    def kv_cache_bytes(self) -> int:
        """Bytes of the cache: tokens x bytes per token; the shortfall as a negative number where there is none."""
        each = self.kv_bytes_per_token
        if self.budget.room < 0 or each is None or self.kv_tokens is None:
            return self.budget.room
        return round(self.kv_tokens * each)

    def to_dict(self) -> JsonObject:
        """The `archsim.fit/1` object."""
        plan, settings = self.plan, self.settings
        return {
            "schema": "archsim.fit/1", "fits": self.fits, "verdict": self.verdict, "devices": plan.devices,
            "kv_tokens": self.kv_tokens, "max_model_len": self.longest, "max_concurrency": self.concurrency,
            "per_device": self._device(),
            "suggestions": [change.to_dict() for change in self.suggestions],
            "inverse": self.inverse.to_dict() if self.inverse else None,
            "model": {"name": self.model.name}, "hardware": {"name": self.hardware.id},
            "plan": {
                "tp": plan.tp, "pp": plan.pp, "ep": plan.ep, "dp": plan.dp, "weights": self.formats.name,
                "kv_cache": self.formats.kv.name, "engine": self.engine.name,
                "engine_version": self.engine.version or None,
            },
            "settings": {
                "max_model_len": self.length, "max_num_seqs": self.seqs, "batch": settings.batch,
                "max_num_batched_tokens": self.batched_tokens, "memory_fraction": self.budget.share,
                "memory_fraction_of": self.budget.meaning,
                "block_size": settings.block_size or self.engine.rules.memory.block_size,
            },
            "offload": self._offload(), **notes_to_dict(self.assumptions, self.warnings),
        }  # fmt: skip

    def _device(self) -> JsonObject:
        b = self.budget
        return {
            "capacity_bytes": b.capacity, "visible_bytes": b.visible, "budget_bytes": b.limit,
            "weights_bytes": b.weights, "layout_bytes": b.layout, "extra_bytes": b.extra,
            "activation_bytes": b.activations, "cuda_graph_bytes": b.graphs,
            "cuda_graphs_in_budget": b.graphs_inside, "non_torch_bytes": b.non_torch,
            "kv_cache_bytes": self.kv_cache_bytes, "available_kv_bytes": b.room,
            "kv_bytes_per_token": self.kv_bytes_per_token, "kv_growth_bytes_per_token": self.growth,
            "request_bytes": self.request_bytes, "load_peak_bytes": self.load_peak,
        }  # fmt: skip

    def _offload(self) -> JsonObject | None:
        o = self.offload
        if o is None:
            return None
        return {
            "host_weights_bytes": o.host_weights, "host_cache_bytes": o.host_caches,
            "host_bandwidth_bytes_per_s": o.host_bandwidth, "decode_ideal_s": o.ideal_s,
            "decode_expected_s": o.expected_s,
        }  # fmt: skip
