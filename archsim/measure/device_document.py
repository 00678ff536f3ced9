"""The device file of the present machine: what was read of it and what it sustained, with the spread of the rounds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from archsim.base.json_types import JsonObject
from archsim.measure.here import MachineFacts
from archsim.measure.probe import Noise, Rate

MATRIX = {"bf16": ("amx_bf16",), "int8": ("amx_int8",), "fp16": (), "fp32": ()}
"""Instruction sets with which products of a format run on matrix units, beside the vector unit."""

USABLE = 0.9
"""Share of the memory that a process may plan with."""


def device_document(facts: MachineFacts, rates: Sequence[Rate], noise: Noise) -> JsonObject:
    """The `archsim.hardware/1` document, at all threads that torch uses."""
    found = {(rate.what, rate.threads): rate for rate in rates}
    peaks = {
        what.removeprefix("peak/"): rate for (what, threads), rate in found.items()
        if what.startswith("peak/") and threads == facts.threads
    }  # fmt: skip
    caches = [_cache(facts, found, name, size) for name, size in _named_caches(facts)]
    return {
        "schema": "archsim.hardware/1", "id": facts.id, "name": f"{facts.name}, {facts.cores} cores",
        "vendor": facts.vendor, "per": "socket", "confidence": "high" if noise.quiet else "low",
        "arch": {"family": facts.name, "isa": " ".join(facts.sets) or facts.capability},
        "compute": {
            "units": {"kind": "core", "count": facts.cores},
            "peak": {dtype: {_unit(facts, dtype): _flops(rate.value)} for dtype, rate in peaks.items()},
            "sustained": dict.fromkeys(peaks, 1.0),
        },
        "memory": {
            "type": "DDR", "capacity": f"{facts.memory} B", "unified": True,
            "working_set": f"{int(facts.memory * USABLE)} B",
            "bandwidth": _bytes_per_s(found["bandwidth/memory", facts.threads].value),
            "one_thread": _bytes_per_s(found["bandwidth/memory", 1].value),
        },
        "cache": {"llc": f"{facts.last_cache} B", "levels": caches} if caches else {},
        "notes": notes(facts, noise),
        "sources": {
            "here": {
                "title": f"archsim measure --here, torch {facts.torch}, {facts.threads} threads", "kind": "measured",
                "date": time.strftime("%Y-%m-%d"), "covers": ["compute", "memory", "cache"],
                "spread": _spreads(found, facts.threads),
            }
        },
    }  # fmt: skip


def notes(facts: MachineFacts, noise: Noise) -> list[str]:
    """What a reader has to know of the figures."""
    told = [
        f"Rates are the best sustained ones of {facts.threads} threads, no datasheet's: a kernel may reach them, and "
        "hardly more."
    ]
    if facts.numa > 1:
        told.append(f"{facts.numa} memory nodes; a process that runs on one of them sees that one's share.")
    if noise.quiet:
        return [*told, f"The machine was quiet: rounds spread by ±{noise.spread:.1%}, drift {noise.drift:.1%}."]
    return [*told, f"The machine was not quiet: {'; '.join(noise.reasons)}. Times of the same session are no better."]


def default_path(name: str) -> Path:
    """`./hardware/devices/NAME.yaml`, where a clone has its devices and `--hw NAME` looks first anywhere."""
    return Path("hardware/devices") / f"{name}.yaml"


def _named_caches(facts: MachineFacts) -> list[tuple[str, int]]:
    inner = [(f"l{cache.level}", cache.size) for cache in facts.caches[:-1] if cache.level > 1]
    return [*inner, *([("llc", facts.last_cache)] if facts.last_cache else [])]


def _cache(facts: MachineFacts, found: dict[tuple[str, int], Rate], name: str, size: int) -> JsonObject:
    rates = {threads: found[f"bandwidth/{name}", threads].value for threads in dict.fromkeys((1, facts.threads))}
    return {
        "name": name, "size": f"{size} B", "bandwidth": _bytes_per_s(rates[facts.threads]),
        "one_thread": _bytes_per_s(rates[1]),
    }  # fmt: skip


def _unit(facts: MachineFacts, dtype: str) -> str:
    """Whether products of a format run beside the vector unit or on it."""
    return "matrix" if any(word in facts.sets for word in MATRIX.get(dtype, ())) else "vector"


def _spreads(found: dict[tuple[str, int], Rate], threads: int) -> dict[str, float]:
    """Spread by field path, in shares."""
    paths: dict[str, float] = {}
    for (what, count), rate in found.items():
        kind, _, name = what.partition("/")
        if count != threads or kind == "operator":
            continue
        at = f"compute.peak.{name}" if kind == "peak" else "memory" if name == "memory" else f"cache.levels.{name}"
        paths[at if at != "memory" else "memory.bandwidth"] = round(rate.spread, 4)
    return paths


def _flops(value: float) -> str:
    return f"{value / 1e12:.4g} TFLOP/s"


def _bytes_per_s(value: float) -> str:
    return f"{value / 1e9:.4g} GB/s"
