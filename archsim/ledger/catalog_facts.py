"""What people choose models, devices and formats by, for every entry of the catalog.

Figures of what archsim comes with are counted once and kept until a file of the catalog or of the code changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from archsim.base.derived import derived
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonObject
from archsim.spec.catalog import BUILT_IN, Entry, Kind

CODE = ("base", "blocks", "graph", "spec", "cost", "counts", "ledger")
"""Packages that the figures are computed by."""


def catalog_facts(kind: Kind, entries: Iterable[Entry]) -> dict[str, JsonObject]:
    """Figures by name; none of an entry whose file cannot be read, and of kinds that have no figures.

    models: `params`, `active`, `context`, `kv_bytes_per_token`, `released`, `year`. hw: `memory_bytes`,
    `bandwidth_bytes_per_s`, `peak_flops` (dense, of 16-bit floats where there are such), `peak_dtype`,
    `usd_per_hour_low` and `usd_per_hour_high` of one device on demand, `announced`: whether its figures are those of an
    announcement. formats: `bits_per_weight`, of most tensors.
    """
    compute = FACTS.get(kind)
    if compute is None:
        return {}
    files = {entry.name: str(entry.path) for entry in entries if entry.path is not None and entry.origin == BUILT_IN}
    own = [entry for entry in entries if entry.path is not None and entry.origin != BUILT_IN]
    if not files:
        return {entry.name: _or_nothing(compute, str(entry.path)) for entry in own}
    package = Path(__file__).resolve().parent.parent
    code = [str(path) for place in CODE for path in package.joinpath(place).glob("*.py")]
    folder = Path(next(iter(files.values()))).parent / f"facts-{kind}"
    beside = [str(path) for path in BESIDE.get(kind, list)()]
    known = derived(
        folder, [*files.values(), *code, *beside], lambda: {n: _or_nothing(compute, path) for n, path in files.items()}
    )
    return {**known, **{entry.name: _or_nothing(compute, str(entry.path)) for entry in own}}


def _or_nothing(compute: Callable[[str], JsonObject], path: str) -> JsonObject:
    try:
        return compute(path)
    except ArchsimError:
        return {}


def _model(path: str) -> JsonObject:
    from archsim.counts.count import count
    from archsim.spec.load import load_model

    model = load_model(path)
    found = count(model, input_len=1)
    return {
        "params": found.total, "active": found.active, "context": model.max_context,
        "kv_bytes_per_token": found.kv_bytes_per_token, "released": model.released,
        "year": int(model.released[:4]) if model.released else None,
    }  # fmt: skip


HALVES = ("bf16", "fp16")
"""16-bit formats, of which the first that a device has is its peak in a list."""


def _device(path: str) -> JsonObject:
    from archsim.cost.price_choice import USUAL
    from archsim.cost.price_table import prices_of
    from archsim.spec.hardware import peaks
    from archsim.spec.load import load_hardware

    hardware = load_hardware(path)
    found = peaks(hardware)
    dtype = next((name for name in HALVES if name in found), max(found, key=lambda name: found[name], default=None))
    peak = found[dtype] if dtype else None
    listed = prices_of(hardware)
    prices = [p.usd_per_device_hour for p in listed if p.terms == USUAL] or [p.usd_per_device_hour for p in listed]
    return {
        "memory_bytes": hardware.memory_bytes, "bandwidth_bytes_per_s": hardware.bandwidth, "peak_flops": peak,
        "peak_dtype": dtype, "usd_per_hour_low": min(prices, default=None),
        "usd_per_hour_high": max(prices, default=None), "announced": hardware.announced,
    }  # fmt: skip


def _format(path: str) -> JsonObject:
    from archsim.spec.format import load_format

    return {"bits_per_weight": float(load_format(path).format().bits)}


FACTS: dict[str, Callable[[str], JsonObject]] = {"models": _model, "hw": _device, "formats": _format}
"""Kind -> the figures of one file."""


def _prices() -> list[Path]:
    from archsim.cost.price_table import table_file

    return [table_file()]


BESIDE: dict[str, Callable[[], list[Path]]] = {"hw": _prices}
"""Kind -> files beside the documents that the figures follow from."""
