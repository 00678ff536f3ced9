"""Which format each tensor class is stored in, and what of that had to be assumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from archsim.base.errors import UsageError
from archsim.graph.graph import Block
from archsim.graph.passes.quantize import DEFAULT, quantize
from archsim.graph.tensor import BF16, Format
from archsim.spec.format import FormatSpec, load_format
from archsim.spec.model import Model

CONVERTIBLE = ("linear", "expert", "head", "embedding")
"""Weight classes that a format document can apply to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Formats:
    """The formats of one estimate. name: of the weights, as shown."""

    name: str
    weights: Mapping[str, Format]
    kv: Format
    activations: Format
    assumptions: tuple[str, ...] = ()

    def apply(self, graph: Block) -> Block:
        """The graph with these formats."""
        return quantize(graph, self.weights, self.kv, self.activations)

    def tower_bytes(self, params: int) -> int:
        """Bytes of an opaque tower, stored in the default format."""
        return params * self.weights[DEFAULT].bytes


def choose_formats(model: Model, weights: str | None = None, kv_cache_dtype: str | None = None) -> Formats:
    """The model's native formats, or those asked for.

    `weights` converts the classes that the format document names; others keep the model's default. Caches and
    activations are 16-bit unless told: bf16, or fp16 where the model is. Raises UsageError for a format that
    cannot hold a cache.
    """
    native = {role: load_format(name) for role, name in model.weights.items()}
    default = native[DEFAULT]
    chosen = dict(native)
    name = _native_name(native)
    if weights not in (None, "auto"):
        assert weights is not None
        spec = load_format(weights)
        chosen = {DEFAULT: spec} if spec.applies_to == "all" else {DEFAULT: default, **_converted(spec)}
        name = spec.name
    sixteen = load_format("fp16" if chosen[DEFAULT].name == "fp16" else "bf16")
    kv = _cache_format(kv_cache_dtype) if kv_cache_dtype not in (None, "auto") else sixteen.format()
    formats = {role: spec.format() for role, spec in chosen.items()}
    notes = (
        [] if kv_cache_dtype else [f"KV cache in {kv.name} (16 bits unless --kv-cache-dtype says otherwise)"]
    )
    return Formats(name=name, weights=formats, kv=kv, activations=sixteen.format(), assumptions=tuple(notes))


def _converted(spec: FormatSpec) -> dict[str, FormatSpec]:
    return {role: spec for role in CONVERTIBLE if role in spec.applies_to}


def _native_name(native: Mapping[str, FormatSpec]) -> str:
    """One name for the checkpoint's own mixture: that of its largest class."""
    for role in ("expert", "linear", DEFAULT):
        if role in native:
            return native[role].name
    return BF16.name


def _cache_format(name: str | None) -> Format:
    spec = load_format(str(name))
    if not spec.kv:
        raise UsageError(
            f"`{spec.name}` is no cache format", code="E121", hints=("try bf16, fp16, fp8, int8 or q8_0",)
        )
    return spec.format()
