"""How often a narrower format is predicted on the right side of a wider one, by class of kernels.

    python benchmarks/accuracy/directions.py TABLE [TABLE ...] [--left-out] [--over PERCENT]

A pair is one shape on one device with one engine that a kernel table states in two formats: 8-bit products against
16-bit ones, 4-bit products against 8-bit ones, an 8-bit cache against a 16-bit one. Where several implementations were
timed the fastest stands for its format, measured and predicted alike. Pairs whose times differ by less than `--over`
percent (5) have no direction. `--left-out` predicts every device without any fit of that device.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import log
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from archsim.accuracy.table import Group  # noqa: E402
from archsim.calibration.calibrate import prepare_rows  # noqa: E402
from archsim.calibration.run import devices, read_groups_of_table  # noqa: E402
from archsim.spec.hardware import Hardware  # noqa: E402
from archsim.timing.calibration import Store, default_store  # noqa: E402
from archsim.timing.classes.catalog import MODELS  # noqa: E402
from archsim.timing.kernel_timer import timer  # noqa: E402

SIXTEEN, EIGHT, FOUR = ("bf16", "fp16"), ("fp8", "fp8_block"), ("nvfp4", "mxfp4", "w4a8_mxfp4_mxfp8")
PRODUCTS = (("8 against 16 bits", EIGHT, SIXTEEN), ("4 against 8 bits", FOUR, EIGHT))
CACHE = "8-bit cache against 16"
CLASSES = {"moe_wideep": "wide experts", "mla_decode": "MLA", "mla_prefill": "MLA", "mla_bmm": "MLA products"}

Shape = tuple[object, ...]


class Times(NamedTuple):
    """Of one shape in one format, in seconds: the fastest measured and the fastest predicted."""

    measured: float
    predicted: float


class Pair(NamedTuple):
    """A narrower format over a wider one, both as logarithms of times."""

    measured: float
    predicted: float


def shapes(
    groups: Iterable[Group], hardware: Mapping[str, Hardware], store: Store, left_out: bool
) -> dict[Shape, dict[tuple[str, str], Times]]:
    """By class, device, engine and extents: the times in every format of products and of the cache."""
    found: dict[Shape, dict[tuple[str, str], Times]] = defaultdict(dict)
    for group in groups:
        key = group.key
        if key.op not in MODELS or key.device not in hardware or not key.dtype:
            continue
        usable = prepare_rows(MODELS[key.op], group)
        if not len(usable.seconds):
            continue
        device = hardware[key.device]
        known = without(store, device.id) if left_out else store
        expected = timer(device, key.engine, store=known).time(usable.call).expected
        predicted = np.broadcast_to(np.asarray(expected, float), usable.seconds.shape)
        extents = [name for name in sorted(group.dims) if name in usable.dims]
        skewed = key.kernel.rsplit("_", 1)[-1] if key.op.startswith("moe") else ""
        rows = zip(*(usable.dims[name] for name in extents), usable.seconds, predicted, strict=True)
        for *at, measured, expected_s in rows:
            shape = (key.op, key.device, key.engine, skewed, *zip(extents, at, strict=True))
            other = found[shape].get((key.dtype, key.kv_dtype), Times(np.inf, np.inf))
            found[shape][key.dtype, key.kv_dtype] = Times(
                min(other.measured, measured), min(other.predicted, expected_s)
            )
    return found


_WITHOUT: dict[str, Store] = {}


def without(store: Store, device: str) -> Store:
    """The store as it would be had nobody measured a device."""
    if device not in _WITHOUT:
        _WITHOUT[device] = replace(store, entries=tuple(e for e in store.entries if e.device != device))
    return _WITHOUT[device]


def pairs(found: Mapping[Shape, Mapping[tuple[str, str], Times]]) -> Iterator[tuple[tuple[str, str, str], Pair]]:
    """Every pair, by class of kernels, kind of pair and device."""
    for shape, times in found.items():
        name = class_of(str(shape[0]))
        for (dtype, cache), narrow in times.items():
            for kind, narrower, wider in PRODUCTS:
                for other in wider if dtype in narrower else ():
                    if (other, cache) in times:
                        yield (name, kind, str(shape[1])), pair(narrow, times[other, cache])
            for other in SIXTEEN if cache in EIGHT else ():
                if (dtype, other) in times:
                    yield (name, CACHE, str(shape[1])), pair(narrow, times[dtype, other])


def pair(narrow: Times, wide: Times) -> Pair:
    """The ratio of two times, measured and predicted."""
    return Pair(log(narrow.measured / wide.measured), log(narrow.predicted / wide.predicted))


def class_of(op: str) -> str:
    """What a class is listed as: whole blocks together by phase."""
    return f"module {op.rsplit('_', 1)[-1]}" if "_module_" in op else CLASSES.get(op, op)


def right(found: Sequence[Pair]) -> float:
    """Share of pairs with the measured sign."""
    return sum(one.measured * one.predicted > 0 for one in found) / len(found)


def main() -> None:
    """Prints the share of right directions by class and kind of pair, over all devices and for each."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="+", type=Path)
    parser.add_argument("--left-out", action="store_true", help="predict each device without its own fits")
    parser.add_argument("--over", type=float, default=5.0, help="percent by which the times of a pair differ")
    asked = parser.parse_args()
    groups = [group for table in asked.tables for group in read_groups_of_table(table)]
    hardware, _ = devices(groups)
    by_class: dict[tuple[str, str], dict[str, list[Pair]]] = defaultdict(lambda: defaultdict(list))
    for (name, kind, device), one in pairs(shapes(groups, hardware, default_store(), asked.left_out)):
        if abs(one.measured) > log(1 + asked.over / 100):
            by_class[name, kind][device].append(one)
    for (name, kind), on in sorted(by_class.items()):
        every = [one for found in on.values() for one in found]
        faster = sum(one.measured < 0 for one in every) / len(every)
        each = ", ".join(f"{device} {right(found):.0%} of {len(found):,}" for device, found in sorted(on.items()))
        print(f"{name:16} {kind:22} {right(every):6.1%} of {len(every):6,} right; {faster:.0%} are faster ({each})")


if __name__ == "__main__":
    main()
