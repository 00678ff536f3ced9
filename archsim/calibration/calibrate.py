"""Calibrations from tables of measured kernels: fits, their errors on unseen shapes, and the files they go to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from archsim.accuracy.table import LARGEST_EXTENT, SMALLEST_EXTENT, Group, Key, merge_groups
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.output_file import make_folder, write_bytes
from archsim.base.progress import counted
from archsim.calibration import fitting
from archsim.calibration.fitting import Errors, Options
from archsim.calibration.writing import write_yaml
from archsim.spec.hardware import Hardware
from archsim.spec.loader import read as read_document
from archsim.timing.classes.call import BYTES, STORED, KernelCall
from archsim.timing.classes.catalog import MODELS
from archsim.timing.classes.elementwise import Elementwise, Rowwise
from archsim.timing.classes.model import Fitted, KernelModel
from archsim.timing.device import DeviceRates
from archsim.timing.kernel_timer import as_timed, split_engine
from archsim.timing.surface_file import FILE as SURFACES
from archsim.timing.surface_file import packed, read_surfaces

if TYPE_CHECKING:
    from archsim.base.arrays import Floats

FEWEST = 4
"""Rows below which nothing is fitted."""

SLOW = 0.3
"""Share of memory's rate that a pass over large tensors reaches at the least."""

FEW = 60
"""Rows of a regime below which its interval is that of all."""


class EngineStack(NamedTuple):
    """What one calibration file is of."""

    device: str
    engine: str
    version: str

    @property
    def folder(self) -> str:
        """Where it lies below the calibration folder."""
        return f"{self.device}/{'-'.join(filter(None, (self.engine, self.version)))}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFit:
    """One class of kernels in one format, fitted. local, measured, interval: as in `timing.calibration.Entry`. unused:
    constants that no row depends on.
    """

    key: Key
    fitted: Fitted
    local: bool = False
    measured: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    interval: Mapping[str, tuple[float, float]]
    errors: Errors | None
    formula: Errors | None
    naive: Errors
    families: tuple[str, ...]
    unused: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What its surfaces are called in their file."""
        parts = (self.key.op, self.key.dtype, self.key.kv_dtype and f"kv_{self.key.kv_dtype}", self.key.kernel)
        return "-".join(filter(None, parts)).replace("/", "_")


def calibrate(
    groups: Iterable[Group], hardware: Mapping[str, Hardware], options: Options | None = None
) -> dict[EngineStack, list[ClassFit]]:
    """Fits for every stack of some tables. hardware: by the device names of the tables."""
    found: dict[EngineStack, list[ClassFit]] = {}
    ordered = sorted(gather_groups(groups, hardware), key=lambda each: _quantises(each[1].key))
    for stack, group in counted(ordered, "groups of kernels"):
        machine = DeviceRates(hardware[group.key.device])
        fixed = known_constants(group.key, found.get(stack, ()))
        found.setdefault(stack, []).append(fit(group, machine, options, fixed))
    return found


def _quantises(key: Key) -> bool:
    return STORED.get(key.dtype, STORED["bf16"]).quantises


def known_constants(key: Key, fits: Iterable[ClassFit]) -> dict[str, float]:
    """Constants that a format which quantises shares with 16-bit kernels of its class and stack."""
    alike = [one for one in fits if one.key.op == key.op and not _quantises(one.key) and not one.key.kernel]
    if not _quantises(key) or not alike:
        return {}
    return {name: alike[0].fitted.constants[name] for name in MODELS[key.op].shared_by_formats}


def measured_ranges(model: KernelModel, call: KernelCall) -> dict[str, tuple[float, float]]:
    """The least and the greatest value of the extents by which implementations differ in what they can do."""
    found = {name: np.asarray(call.dims.get(name, model.optional.get(name, 0)), float) for name in model.supports}
    return {name: (float(values.min()), float(values.max())) for name, values in found.items()}


def gather_groups(groups: Iterable[Group], hardware: Mapping[str, Hardware]) -> Iterator[tuple[EngineStack, Group]]:
    """The groups that are fitted: each implementation alone where there are several, and all of them together."""
    parts: dict[tuple[EngineStack, Key], dict[str, list[Group]]] = {}
    for group in groups:
        model = MODELS.get(group.key.op)
        if model is None or group.key.device not in hardware:
            continue
        usable = prepare_rows(model, group)
        if not len(usable.seconds):
            continue
        engine, version = split_engine(group.key.engine)
        stack = EngineStack(hardware[group.key.device].id, engine, version)
        variants = parts.setdefault((stack, usable.key._replace(kernel="")), {})
        variants.setdefault(model.variant(group.key.kernel), []).append(usable)
        if isinstance(model, Rowwise) and as_quick_as_memory(model, usable, DeviceRates(hardware[group.key.device])):
            fused = as_elementwise(model, usable)
            parts.setdefault((stack, fused.key), {}).setdefault("", []).append(fused)
    for (stack, key), variants in parts.items():
        for name, members in variants.items() if len(variants) > 1 else ():
            whole = merge_groups(members, key._replace(kernel=name))
            if len(whole.seconds) >= MODELS[key.op].few:
                yield stack, whole
        whole = merge_groups([g for members in variants.values() for g in members], key)
        if len(whole.seconds) >= FEWEST:
            yield stack, whole


def as_quick_as_memory(model: Rowwise, group: Group, machine: DeviceRates) -> bool:
    """Whether rows are of whole passes, the largest of which read and write at a good part of memory's rate: a kernel
    that is held back by something else says nothing of other passes.
    """
    read, written = model.moved(group.call)
    total: Floats = np.asarray(read + written, float)
    large = total >= np.quantile(total, 0.9)
    reached = float(np.median(total[large] / group.seconds[large])) / machine.bandwidth
    return model.pass_of_its_own and reached > SLOW


def as_elementwise(model: Rowwise, group: Group) -> Group:
    """Rows of one elementwise class as passes of any kind, which is what a graph's fused kernels are."""
    read, written = model.moved(group.call)
    dtype = group.key.dtype if BYTES[group.key.dtype] > 1 else "bf16"  # as it is read
    key = group.key._replace(op=Elementwise.kernel_class, kernel="", dtype=dtype)
    return Group(key=key, rows=group.rows, dims={"read_bytes": read, "write_bytes": written}, seconds=group.seconds)


def prepare_rows(model: KernelModel, group: Group) -> Group:
    """The rows that can be fitted, with the extents that the kernel's name implies."""
    usable = np.isfinite(group.seconds) & (group.seconds > 0)
    for name in model.dims:
        values = group.dims.get(name, np.full(len(usable), np.nan))
        usable &= np.isfinite(values) & (values >= SMALLEST_EXTENT)
    for values in group.dims.values():
        usable &= ~(np.abs(values) > LARGEST_EXTENT)
    taken = group.take(usable)
    filled = {n: np.where(np.isfinite(x), x, model.optional.get(n, np.nan)) for n, x in taken.dims.items()}
    absent = {name: np.full(len(taken.seconds), np.nan) for name in model.dims}  # then there are no rows
    taken = replace(taken, dims={**absent, **filled})
    call = model.prepare(as_timed(model, taken.call, split_engine(taken.key.engine)[0]))
    count = len(taken.seconds)
    dims = {name: np.broadcast_to(np.asarray(value, float), (count,)) for name, value in call.dims.items()}
    key = taken.key._replace(dtype=call.dtype, kv_dtype=call.kv_dtype)
    return Group(key=key, rows=taken.rows, dims=dims, seconds=taken.seconds)


def fit(
    group: Group, machine: DeviceRates, options: Options | None = None, fixed: Mapping[str, float] | None = None
) -> ClassFit:
    """The fit of all rows, and its errors and interval from fits that have not seen a row's family. fixed: constants
    that are known.
    """
    model = MODELS[group.key.op]
    options = options or Options(**model.options)
    options = options._replace(surfaces=options.surfaces and len(group.seconds) >= model.few, fixed=fixed or {})
    unseen = fitting.out_of_fold(model, group, machine, options)
    alone = fitting.out_of_fold(model, group, machine, options._replace(surfaces=False))
    fitted = fitting.fit(model, group, machine, options)
    known = np.isfinite(unseen)
    return ClassFit(
        key=group.key, fitted=fitted, families=model.families, local=model.local(group.call, machine),
        measured=measured_ranges(model, group.call) if group.key.kernel else {},
        interval=intervals(model, group, machine, unseen) if known.any() else {},
        errors=fitting.errors(unseen, group.seconds) if known.any() else None,
        formula=fitting.errors(alone, group.seconds) if known.any() else None,
        naive=fitting.errors(fitting.roofline(model, group.call, machine), group.seconds),
        unused=fitting.unused_constants(model, group, machine, fitted.constants),
        warnings=fitting.unidentified_constants(model, group, machine, fitted.constants),
    )  # fmt: skip


def intervals(model: KernelModel, group: Group, machine: DeviceRates, unseen: Floats) -> dict[str, tuple[float, float]]:
    """The ends of the 80 % interval by regime; a regime of few rows takes those of all."""
    known = np.isfinite(unseen)
    whole = fitting.quantiles(unseen, group.seconds)
    found = {"all": round_interval(whole)}
    share = fitting.roofline(model, group.call, machine) / np.where(known, unseen, 1.0)
    regime = np.where(known, model.regime(group.call, share), -1)
    for code in range(4):
        here = regime == code
        found[str(code)] = round_interval(
            fitting.quantiles(unseen[here], group.seconds[here]) if here.sum() >= FEW else whole
        )
    return found


def round_interval(ends: tuple[float, float]) -> tuple[float, float]:
    """Ends of an interval to four places; the prediction itself lies inside."""
    return round(min(ends[0], 0.0), 4), round(max(ends[1], 0.0), 4)


# ---------------------------------------------------------------------- files
def files_of(stack: EngineStack, folder: Path) -> tuple[Path, Path]:
    """The two files of a stack below `folder`: the document, and the surfaces beside it."""
    return folder / stack.folder / "calibration.yaml", folder / stack.folder / SURFACES


def write(
    found: Mapping[EngineStack, list[ClassFit]], folder: Path, about: JsonMapping, *, force: bool = False
) -> list[Path]:
    """The calibration files below `folder`, each written whole or not at all; returns their paths.

    force: replace files that exist; classes of kernels that are in them and not among the new fits stay as they are.
    Raises OutputRefused, OutputFailure.
    """
    written = []
    for stack, fits in found.items():
        path, beside = files_of(stack, folder)
        make_folder(path.parent)
        kept = earlier_fits(path, {one.key.op for one in fits})
        surfaces = {one.name: one.fitted.surfaces for one in fits if one.fitted.surfaces}
        surfaces |= {name: read_surfaces(str(beside), name) for data in kept if (name := str(data.get("surfaces", "")))}
        if surfaces:
            write_bytes(beside, packed(surfaces), force=force)
        heading = {"schema": "archsim.calibration/1", **stack._asdict()}
        write_yaml(path, {**heading, **about, "fits": [*kept, *(fit_data(one) for one in fits)]}, force=force)
        written.append(path)
    return written


def earlier_fits(path: Path, ops: Set[str]) -> list[JsonObject]:
    """The fits of a stack's file that are not of some classes; none where there is no calibration. Raises SpecError."""
    if not states_schema(path, "archsim.calibration/"):
        return []
    found: list[JsonObject] = json.loads(json.dumps(read_document(path).get("fits", ())))
    return [fit for fit in found if fit["op"] not in ops]


def states_schema(path: Path, name: str) -> bool:
    """Whether a file is there and names a schema: one that does is kept or complained of, and anything else is no
    document of ours, which `force` replaces.
    """
    return path.is_file() and name.encode() in path.read_bytes()


def fit_data(one: ClassFit) -> JsonObject:
    """One fit as the file states it."""
    key = one.key
    data: JsonObject = {"op": key.op, "dtype": key.dtype}
    data |= {name: getattr(key, name) for name in ("kv_dtype", "kernel") if getattr(key, name)}
    data["constants"] = dict(one.fitted.constants)
    data |= {"unused": list(one.unused)} if one.unused else {}
    if one.fitted.surfaces:
        data["surfaces"] = one.name
    data |= {"local": True} if one.local else {}
    data |= {"measured": {name: list(ends) for name, ends in one.measured.items()}} if one.measured else {}
    data["interval"] = {name: list(ends) for name, ends in one.interval.items()}
    data["errors"] = {
        "held_out": f"whole families of {' x '.join(one.families)}", "rows": one.naive.rows,
        **{name: round_errors(found) for name, found in (("unseen", one.errors), ("formula", one.formula),
                                                   ("roofline", one.naive)) if found},
    }  # fmt: skip
    if one.warnings:
        data["warnings"] = list(one.warnings)
    return data


def round_errors(found: Errors) -> dict[str, float]:
    """Error figures to four places."""
    return {name: round(value, 4) for name, value in found._asdict().items() if name != "rows"}
