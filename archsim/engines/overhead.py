"""What an engine does around its kernels: which kernels it has, how it launches them, and its own time per step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from archsim.base.number import absent, exp, maximum
from archsim.base.version import version_of
from archsim.engines.names import DEFAULT_ENGINE
from archsim.timing.calibration import Store, default_store
from archsim.timing.kernel_timer import Timed
from archsim.timing.step_time import OpTime, Phase, Share, with_extra, with_share


class Profile(NamedTuple):
    """One engine at one version.

    kernels, version: the engine whose measured kernels stand for it. merged: products that read one
    activation run as one. mixes: prompts share steps with decodes. overhead_s: host work of one step that the device
    waits for, with its 80 % interval. launch_s: host time of a launch where steps are not captured as a graph (0:
    captured).
    """

    name: str = DEFAULT_ENGINE
    mixes: bool = True
    kernels: str = ""
    version: str = ""
    merged: bool = True
    composition: tuple[float, float] = (0.0, 0.0)
    overhead_s: float = 0.0
    overhead_low_s: float = 0.0
    overhead_high_s: float = 0.0
    launch_s: float = 0.0


def profile_of(engine: str = DEFAULT_ENGINE, version: str = "", store: Store | None = None) -> Profile:
    """The profile of an engine at a version: its document's, and the measured host work per step.

    That is of the newest version not above the one asked for, else of the oldest known.
    """
    from archsim.spec.engine import load_engine

    document = load_engine(engine, version)
    store = store or default_store()
    kernels = document.time.kernels
    return Profile(
        name=engine, kernels=kernels, version=version if kernels == engine else "",
        merged=document.time.fused_qkv, mixes=document.scheduler.chunked_prefill_with_decode,
        launch_s=document.time.launch_us * 1e-6,
        composition=tuple(store.engines.get("composition", {}).get("interval", (0.0, 0.0))),
        **_overhead(measured_overhead(engine, store), version),
    )  # fmt: skip


UNSTATED = "any"
"""The version of runs that state none."""


def measured_overhead(engine: str, store: Store) -> Mapping[str, tuple[float, float, float]]:
    """Host work per step in microseconds by version, each with the ends of its interval, as fitted to whole runs."""
    found: Mapping[str, tuple[float, float, float]] = store.engines.get(engine, {}).get("overhead_us", {})
    return found


def _overhead(by_version: Mapping[str, Any], version: str) -> dict[str, float]:
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


def driven(phase: Phase, profile: Profile) -> Phase:
    """The phase with the host's part: launches that the device waits for, and the engine's work between steps; and with
    what a composed step may be off beyond its kernels: other fusions, other schedules.
    """
    waiting = maximum(0.0, profile.launch_s * phase.launches - phase.total("expected_s"))
    value = profile.overhead_s + waiting
    if not absent(value):
        low, high = profile.overhead_low_s + waiting * 0.7, profile.overhead_high_s + waiting * 1.4
        phase = with_extra(phase, HOST, Timed(value, low, high, "calibrated"), "host")
    below, above = profile.composition
    if not (below or above):
        return phase
    total = phase.total("expected_s")
    return with_share(
        phase, Share("composition", "calibrated", 0.0, total * (exp(below) - 1), total * (exp(above) - 1))
    )


HOST = OpTime(
    path="engine", kind="host", count=1, flops=0, weight_bytes=0, state_bytes=0, act_bytes=0, comm_bytes=0,
    ideal_s=0.0, expected_s=0.0, compute_s=0.0, memory_s=0.0, comm_s=0.0,
)  # fmt: skip
"""The row of an engine's own time."""
