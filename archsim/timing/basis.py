"""What estimates of a device rest on: its own kernel tables, those of another device, whole runs, or a datasheet."""

from __future__ import annotations

from typing import NamedTuple

from archsim.spec.hardware import Hardware
from archsim.timing.calibration import FitQuery, Store
from archsim.timing.kernel_timer import distance, timer
from archsim.timing.relatives import related


class Basis(NamedTuple):
    """measured: engines whose kernels were timed on the device. borrowed: the device whose kernels stand for it where
    it has none, and whether the architecture is the same. runs: engines whose constants come from runs on devices of
    the vendor, or of the architecture. Names are those of the files.
    """

    measured: tuple[str, ...]
    borrowed: str
    alike: bool
    runs: tuple[str, ...]


def basis_of(hardware: Hardware, store: Store) -> Basis:
    """The basis of one device. Raises UsageError for one that lists no peak."""
    device = timer(hardware, store=store).device
    measured = {entry.engine for entry in store.entries if entry.device == device.id and entry.engine != "nccl"}
    query = FitQuery(device, "", "", "gemm", "bf16", "", "")
    tables = [entry for entry in store.by_op.get("gemm", ()) if entry.device and entry.device != device.id]
    near = [(cost, entry) for entry in tables if (cost := distance(entry, query)) is not None]
    best = min(near, key=lambda found: found[0])[1] if near and not measured else None
    runs = {entry.engine for entry in store.entries if not entry.device and entry.vendor == device.vendor}
    runs |= {name for name, found in store.engines.items() if hardware.arch.family in found.get("architectures", {})}
    return Basis(
        tuple(sorted(measured)), best.device if best else "", bool(best and related(best, device)),
        tuple(sorted(runs)),
    )  # fmt: skip
