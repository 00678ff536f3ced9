"""What an engine does around its kernels: which kernels it has, how it launches them, and its own time per step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from archsim.base.json_types import JsonMapping
from archsim.base.version import version_of
from archsim.engines.names import DEFAULT_ENGINE

if TYPE_CHECKING:
    from archsim.spec.engine import Engine


class EngineOverheads(NamedTuple):
    """One engine at one version.

    kernels, version: the engine whose measured kernels stand for it. fused_qkv: linear layers that read the same
    activation (QKV, gate and up) run as one GEMM. chunked_prefill_with_decode: prompts share steps with decodes.
    composition: what a composed step may be off beyond its kernels, as logarithms of both ends. overhead_s: host work
    of one step that the device waits for, with its 80 % interval. launch_s: host time of a launch where steps are not
    captured as a graph (0: captured). accumulate: what products of 16-bit operands add up in. quantised_before: as in
    the engine's document.
    """

    name: str = DEFAULT_ENGINE
    chunked_prefill_with_decode: bool = True
    kernels: str = ""
    version: str = ""
    fused_qkv: bool = True
    composition: tuple[float, float] = (0.0, 0.0)
    overhead_s: float = 0.0
    overhead_low_s: float = 0.0
    overhead_high_s: float = 0.0
    launch_s: float = 0.0
    accumulate: Literal["fp16", "fp32"] = "fp32"
    quantised_before: Mapping[str, str] = MappingProxyType({})


def overheads_of(
    engine: str = DEFAULT_ENGINE,
    version: str = "",
    *,
    measured: Mapping[str, JsonMapping],
    document: Engine | None = None,
) -> EngineOverheads:
    """The overheads of an engine at a version: its document's, and the measured host work per step.

    That is of the newest version not above the one asked for, else of the oldest known. measured: of all engines, as
    calibrations state it. document: the engine's, where it is at hand.
    """
    if document is None:
        from archsim.spec.engine import load_engine

        document = load_engine(engine, version)
    kernels = document.time.kernels
    return EngineOverheads(
        name=engine, kernels=kernels, version=version if kernels == engine else "",
        fused_qkv=document.time.fused_qkv, quantised_before=document.time.quantised_before,
        chunked_prefill_with_decode=document.scheduler.chunked_prefill_with_decode,
        launch_s=document.time.launch_us * 1e-6, accumulate=document.time.accumulate,
        composition=tuple(measured.get("composition", {}).get("interval", (0.0, 0.0))),
        **_overhead(measured_overhead(engine, measured), version),
    )  # fmt: skip


UNSTATED = "any"
"""The version of runs that state none."""


def measured_overhead(engine: str, measured: Mapping[str, JsonMapping]) -> Mapping[str, tuple[float, float, float]]:
    """Host work per step in microseconds by version, each with the ends of its interval, as fitted to whole runs."""
    found: Mapping[str, tuple[float, float, float]] = measured.get(engine, {}).get("overhead_us", {})
    return found


def _overhead(by_version: JsonMapping, version: str) -> dict[str, float]:
    """Of the newest version not above the one asked for, else of the oldest; without a version, the middle value."""
    if not by_version:
        return {}
    asked = version_of(version) if version else None
    order = sorted(by_version, key=lambda text: version_of(text) or ())
    below = [text for text in order if asked is not None and (version_of(text) or ()) <= asked]
    if asked is None:
        middle = sorted(by_version, key=lambda text: float(by_version[text][0]))[len(by_version) // 2]
        value, low, high = by_version.get(UNSTATED) or by_version[middle]
    else:
        value, low, high = by_version[below[-1] if below else order[0]]
    return {"overhead_s": value * 1e-6, "overhead_low_s": low * 1e-6, "overhead_high_s": high * 1e-6}
