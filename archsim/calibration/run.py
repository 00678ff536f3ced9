"""`archsim calibrate`: from files of measured kernels to a calibration folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from archsim.accuracy import table
from archsim.accuracy.files import MAX_HEADER, Table, kind_of
from archsim.accuracy.files import read_table as read_table
from archsim.accuracy.table import Group, open_text
from archsim.base.diagnostics import inert, quote, shorten
from archsim.base.errors import SpecError, UsageError
from archsim.base.input_file import is_folder, is_there, unusable
from archsim.base.json_types import JsonObject
from archsim.base.output_file import check_output, make_folder
from archsim.calibration.calibrate import (
    FEWEST,
    ClassFit,
    EngineStack,
    calibrate,
    earlier_fits,
    files_of,
    fit_data,
    gather_groups,
    states_schema,
    write,
)
from archsim.calibration.transfer import levels
from archsim.calibration.writing import write_yaml
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware
from archsim.spec.loader import read as read_document
from archsim.timing.calibration import Store, default_store, folders, read_entries
from archsim.timing.classes.catalog import MODELS

FOLDER = Path("hardware/calibration")
ENGINES, FAMILY, SCHEMA = "engines.yaml", "archsim.engines/", "archsim.engines/2"
"""The file of what whole runs say of engines, and the schema that it states, of any version and of this."""
SERVED = "served.yaml"
"""The file of errors of serving points and runs under load."""
TRAINING = "training.yaml"
"""The file of what training runs say of the words of stacks."""
POWER = "power.yaml"
"""The file of what tables of watts say of devices."""
TRANSFER = "transfer.yaml"
"""The file of what it costs to use the fit of another device, engine or format."""
HELD = "held"
"""What the column `split` says of rows that are kept for testing a calibration."""

TABLES = ("*.csv", "*.csv.gz")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What was fitted, and where it was written (nowhere on a dry run).

    engines: what whole runs gave. skipped: rows of no known class or device.
    """

    fits: Mapping[EngineStack, Sequence[ClassFit]]
    engines: tuple[str, ...] = ()
    written: tuple[Path, ...]
    rows: int
    skipped: Mapping[str, int]

    def to_dict(self) -> JsonObject:
        """The `archsim.calibrate/1` object."""
        stacks = [
            {"device": s.device, "engine": s.engine, "version": s.version, "fits": [fit_data(f) for f in fits]}
            for s, fits in self.fits.items()
        ]
        return {
            "schema": "archsim.calibrate/1", "rows": self.rows, "skipped": dict(self.skipped), "stacks": stacks,
            "engines": list(self.engines), "written": [str(path) for path in self.written],
        }  # fmt: skip


def calibrate_tables(
    sources: Sequence[Path],
    *,
    out: Path = FOLDER,
    dry_run: bool = False,
    borrowing: bool = False,
    title: str = "",
    source: str = "",
    hw: str | None = None,
    force: bool = False,
) -> Calibration:
    """Fits to every kernel table, run list, serving table and table of runs under load among `sources` (files, or
    folders), written below `out`.

    borrowing: also measure what it costs to use a fit for another engine, format or device, and write that. title,
    source: what the measurements are and where they come from. hw: device that rows of an
    unknown one belong to. force: replace files that exist. Raises UsageError, SpecError, OutputFailure.
    """
    kernels, runs = sorted_by_kind(table_files(sources))
    groups = [group for file in kernels for group in read_groups_of_table(file)]
    hardware, unknown = devices(groups, hw)
    usable = [g for g in groups if g.key.device in hardware and g.key.op in MODELS]
    if not dry_run:
        _check_outputs(out, usable, hardware, engines=bool(runs), transfer=borrowing, force=force)
        for name in [*([TRAINING] if runs.training else []), *([POWER] if runs.power else [])]:
            if out.is_dir():
                check_output(out / name, force=force)
    fits = calibrate(usable, hardware)
    skipped = reasons(groups, unknown)
    if kernels and not fits:
        why = (
            "; ".join(f"{reason}: {count:,} rows" for reason, count in skipped.items())
            or f"fewer than {FEWEST} rows of every class"
        )
        raise SpecError(f"nothing to fit in {', '.join(map(str, kernels))}: {why}", hints=AS_ANOTHER if unknown else ())
    written: list[Path] = []
    if not dry_run and fits:
        stated = {"title": title or ", ".join(file.name for file in kernels), **({"url": source} if source else {})}
        written += write(fits, out, {"measured": stated}, force=force)
        if borrowing and usable:
            written.append(write_transfer(out, usable, hardware, force=force))
    engines = tuple(refit_engines(runs, out, dry_run, force=force)) if runs else ()
    written += [out / ENGINES] if runs and not dry_run else []
    if runs.training:
        engines += refit_stacks(runs.training, out, dry_run, force=force)
        written += [] if dry_run else [out / TRAINING]
    if runs.power:
        engines += refit_power(runs.power, out, dry_run, force=force)
        written += [] if dry_run else [out / POWER]
    return Calibration(
        fits=fits, engines=engines, written=tuple(written), rows=sum(len(g.seconds) for g in groups), skipped=skipped
    )


def _check_outputs(
    out: Path, groups: Sequence[Group], hardware: Mapping[str, Hardware], *, engines: bool, transfer: bool, force: bool
) -> None:
    """Refuses, before anything is fitted, a folder with files that would be replaced without `force`, or with earlier
    fits that cannot be read.
    """
    stacks = dict.fromkeys(stack for stack, _ in gather_groups(groups, hardware))
    paths = [path for stack in stacks for path in files_of(stack, out)]
    wanted = {ENGINES: engines, SERVED: engines, TRANSFER: transfer and bool(groups)}
    paths += [out / name for name in wanted if wanted[name]]
    for path in paths:
        if path.parent.is_dir():  # else it is made
            check_output(path, force=force)
    for stack in stacks:
        earlier_fits(files_of(stack, out)[0], set())


class RunTables(NamedTuple):
    """Tables of whole runs. lists: run lists and serving tables. loaded: rows of tables of runs under load.
    measured: all of them, as they are validated. training, power: lists of training runs and tables of watts, which say
    nothing of engines.
    """

    lists: list[Table]
    loaded: list[Mapping[str, str]]
    measured: list[Table]
    training: list[Table]
    power: list[Table]

    def __bool__(self) -> bool:
        return bool(self.lists or self.loaded)


LOADED = frozenset({"arrival", "concurrency", "tpot_mean_ms", "engine", "device", "model"})
"""Columns that make a table one of runs under load."""


def sorted_by_kind(paths: Sequence[Path]) -> tuple[list[Path], RunTables]:
    """Kernel tables by path, and tables of whole runs as they are; told apart by content."""
    kernels: list[Path] = []
    runs = RunTables([], [], [], [], [])
    for path in paths:
        columns = columns_of(path)
        if kind_of(columns) == "kernels":
            kernels.append(path)
        elif set(columns) >= LOADED:
            with open_text(path) as stream:
                runs.loaded.extend(csv.DictReader(stream))
            runs.measured.append(read_table(path))
        elif (read := read_table(path)).kind == "training":
            runs.training.append(read)
        elif read.kind == "energy":
            runs.power.append(read)
        else:
            runs.lists.append(read)
            runs.measured.append(read)
    return kernels, runs


def columns_of(path: Path) -> list[str]:
    """The first line's fields; of a file that is no CSV, something that is no table of kernels."""
    try:
        with open_text(path) as stream:
            return next(csv.reader([stream.readline(MAX_HEADER)]), [])
    except (UnicodeDecodeError, csv.Error):
        raise unusable(path, "its first line is not a table header") from None


def reasons(groups: Sequence[Group], unknown: Mapping[str, int]) -> dict[str, int]:
    """Why rows are left out, and how many."""
    skipped = {f"no device named {quote(name)}": count for name, count in unknown.items()}
    for group in groups:
        if group.key.op not in MODELS:
            reason = f"no time model for {quote(group.key.op)}"
            skipped[reason] = skipped.get(reason, 0) + len(group.seconds)
    return skipped


def refit_engines(runs: RunTables, out: Path, dry_run: bool, *, force: bool = False) -> Iterator[str]:
    """What whole runs say of engines, one line each; written to `engines.yaml` of the folder."""
    from archsim.calibration.architecture_fits import refit_architectures
    from archsim.calibration.engine_fits import refit
    from archsim.calibration.engine_fits import write as write_engines
    from archsim.calibration.loaded_fits import LONGEST, MOST_TOKENS, loaded_points, refit_loaded
    from archsim.calibration.served_errors import served_errors

    places = (out / ENGINES, *(f / ENGINES for f in folders()))
    path = next((place for place in places if states_schema(place, FAMILY)), None)
    known = json.loads(json.dumps(read_document(path))) if path else {"schema": SCHEMA, "engines": {}}
    lines: list[str] = []
    document: JsonObject = refit(known, runs.lists, lines.append) if runs.lists else known
    loaded: JsonObject = {}
    if runs.loaded:
        document = refit_architectures(document, runs.loaded, default_store(), lines.append)
        refused: list[str] = []
        tables = [table for table in runs.measured if table.kind == "loaded"]
        points = loaded_points(tables, _store_of(document), refused)
        errors = refit_loaded(document, points, lines.append)
        most = f"more than {LONGEST:,} requests, or {MOST_TOKENS:,} tokens of answers"
        loaded = {"refused": len(refused), "without": most, "groups": errors["seen"], "fits": errors["groups"]}
    if not dry_run:
        write_engines(document, path, make_folder(out) / ENGINES, force=force)
        seen = served_errors(runs.measured, _store_of(document))
        seen |= {"loaded": loaded} if loaded else {}
        if len(seen) > 1:
            write_yaml(out / SERVED, _earlier_errors() | seen, force=force)
    yield from lines


def _earlier_errors() -> JsonObject:
    """The errors of serving points and runs under load that are known: of kinds without tables they stay."""
    path = next((f / SERVED for f in folders() if states_schema(f / SERVED, "archsim.served/")), None)
    return json.loads(json.dumps(read_document(path))) if path else {}


def _store_of(document: JsonObject) -> Store:
    """The store whose engines are those of a document."""
    measured: JsonObject = {**document["engines"], "composition": document.get("composition", {})}
    return replace(default_store(), engines=measured)


def refit_stacks(tables: Sequence[Table], out: Path, dry_run: bool, *, force: bool = False) -> tuple[str, ...]:
    """What training runs say of stacks, one line a source; written to `training.yaml` of the folder."""
    from archsim.calibration.training_fits import fit_training
    from archsim.spec.stack import load_stack_fits

    fit = fit_training(tables, load_stack_fits())
    if not dry_run:
        head = "# What the words of training stacks cost; written by `archsim calibrate --from` a list of runs.\n"
        write_yaml(make_folder(out) / TRAINING, fit.to_dict(), head, force=force)
    return fit.report()


def refit_power(tables: Sequence[Table], out: Path, dry_run: bool, *, force: bool = False) -> tuple[str, ...]:
    """What tables of watts say of devices, one line each; written to `power.yaml` of the folder."""
    from archsim.calibration.power_fits import fit_power

    document, lines = fit_power(tables)
    if not dry_run:
        head = "# Power over TDP by what a device does; written by `archsim calibrate --from` a table of watts.\n"
        write_yaml(make_folder(out) / POWER, document, head, force=force)
    return lines


def write_transfer(
    out: Path, groups: Sequence[Group], hardware: Mapping[str, Hardware], *, force: bool = False
) -> Path:
    """What it costs to use a fit of another device, engine or format: `transfer.yaml` of the folder."""
    whole = [group for _, group in gather_groups(groups, hardware)]
    path = make_folder(out) / TRANSFER
    document = {"schema": "archsim.transfer/1", "levels": levels(whole, hardware, read_entries(out))}
    write_yaml(path, document, force=force)
    return path


def table_files(sources: Sequence[Path]) -> list[Path]:
    """The tables among files and folders. Raises UsageError where there is none."""
    files: list[Path] = []
    for path in sources:
        if is_folder(path):
            files += sorted(file for pattern in TABLES for file in path.glob(pattern))
        elif is_there(path):
            files.append(path)
        else:
            raise UsageError(f"cannot read {quote(str(path), 200)}: no such file or folder")
    if not files:
        raise UsageError(
            f"no kernel table in {', '.join(map(str, sources))}", hints=["`archsim measure --out DIR` writes one"]
        )
    return files


def read_groups_of_table(path: Path) -> list[Group]:
    """The groups of one table, without rows that its campaign held back. Raises SpecError for a file that is none."""
    try:
        groups = table.read_groups(path, leave=HELD)
    except (ValueError, csv.Error) as error:
        raise unusable(path, f"no kernel table: {shorten(inert(str(error)), 200)}") from None
    if groups and not any(group.key.op for group in groups):
        raise unusable(path, "no kernel table: it has no column `op`")
    return groups


AS_ANOTHER = ("`--hw NAME` or `--hw FILE.yaml` says which device these rows are of",)


def devices(groups: Sequence[Group], other: str | None = None) -> tuple[dict[str, Hardware], dict[str, int]]:
    """Hardware by the names of a table, and the rows of each name that the catalog does not know. other: the device
    that stands for these. Raises UnknownName where it is unknown itself.
    """
    known: dict[str, Hardware] = {}
    unknown: dict[str, int] = {}
    for group in groups:
        name = group.key.device
        if name in known:
            continue
        try:
            known[name] = load_hardware(name)
        except UsageError:
            if other is not None:
                known[name] = load_hardware(other)
                continue
            unknown[name] = unknown.get(name, 0) + len(group.seconds)
    return known, unknown
