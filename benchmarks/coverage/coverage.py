"""What can be opened: every default config of the installed transformers, and folders of released configs.

    python benchmarks/coverage/coverage.py [--configs FOLDER ...] [--only TYPE ...] [--no-trace] [--rows FILE]
                                           [--out FILE]

Parameters that the importer counts are compared with those of the class in transformers, built on the `meta` device;
types that the importer refuses are traced. Writes a page of tables: equal, different, refused by reason. About an
hour, most of it traces; with `--rows`, rows are kept as they come and a run that was stopped goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from page import page
from reference import Classes, classes, default_config, model_types
from rows import KeptRows, Row

from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping
from archsim.counts.count import count
from archsim.importers.hf.describe import from_config
from archsim.spec.load import model_from
from archsim.spec.model import Model

LONGEST = 480
"""Seconds of a processor that a trace may take."""


def too_long(*_: object) -> None:
    """Ends a trace."""
    raise TimeoutError(f"longer than {LONGEST} s of a processor")


OUT = Path(__file__).parents[2] / "reports" / "coverage.md"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--configs", nargs="*", default=[], type=Path, metavar="FOLDER")
    parser.add_argument("--only", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--no-trace", action="store_true")
    parser.add_argument("--rows", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    os.environ["TRANSFORMERS_VERBOSITY"] = "error"
    signal.signal(signal.SIGPROF, too_long)
    types, kept = args.only or model_types(), KeptRows(args.rows)
    rows = []
    for name in types:
        row = kept.row(f"type {name}", lambda name=name: row_of_type(name))
        if not args.no_trace and row.verdict != "equal":
            row = kept.row(f"trace {name}", lambda row=row: with_trace(row))
        rows.append(row)
        print(f"{len(rows)}/{len(types)} {name}: {rows[-1].verdict}", file=sys.stderr, flush=True)
    paths = [path for folder in args.configs for path in config_files(folder)]
    released = [kept.row(f"file {path.resolve()}", lambda path=path: row_of_file(path)) for path in paths]
    for row in [*rows, *released] if args.only else released:
        print(row)
    print(dict(Counter(row.verdict for row in rows)), dict(Counter(row.verdict for row in released)))
    if not args.only:
        args.out.write_text(page(rows, released), encoding="utf-8")


def row_of_type(name: str) -> Row:
    """The default config of a model type."""
    config, error = default_config(name)
    return (
        Row(name, "no default", reason=error)
        if config is None
        else compared(name, config, classes(config, default=True))
    )


def with_trace(row: Row) -> Row:
    """The row of a model type with what a trace of its default config gives."""
    config, _ = default_config(row.name)
    return row if config is None else row.traced(*trace(config))


def row_of_file(path: Path) -> Row:
    """A released config.json."""
    config = json.loads(path.read_text(encoding="utf-8"))
    plain = {key: value for key, value in config.items() if key not in ("auto_map", "quantization_config")}
    return compared(path.parent.name if path.name == "config.json" else path.stem, config, classes(plain))


def compared(name: str, config: JsonMapping, wanted: Classes) -> Row:
    """The importer's count beside that of the class."""
    known = max(wanted.totals.values(), default=None)
    try:
        counts, whole = imported(config)
    except ArchsimError as error:
        return Row(name, "refused", known, reason=str(error).splitlines()[0])
    if not wanted.totals:
        return Row(name, "no class", None, counts[0], reason=wanted.error)
    verdict = "equal" if any(wanted.has(n) for n in counts) else "different"
    towers = None if whole is None else wanted.has(whole)
    return Row(name, verdict, known, counts[0], towers)


def imported(config: JsonMapping) -> tuple[list[int], int | None]:
    """Parameters of the language model, also with a head for masked tokens where it has one; and with all towers."""
    model = model_from(from_config(config))
    parts = [(), ("mlm-head",)] if model.mlm_head is not None else [()]
    counts = [int(count(model, parts=part).total) for part in parts]
    return counts, whole_of(model) if model.towers else None


def whole_of(model: Model) -> int | None:
    """Parameters with the towers; None where the size of one is not known."""
    try:
        return int(count(model, parts=model.tower_names).total)
    except ArchsimError:
        return None


def trace(config: JsonMapping) -> tuple[int | None, str]:
    """Parameters that a trace of the class accounts for, or why there is none."""
    from archsim.tracing.build import from_transformers
    from archsim.tracing.trace import trace as traced

    try:
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        try:
            module = from_transformers(config)
            traced(module)  # refuses what does not account for every parameter
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except ArchsimError as error:
        return None, str(error).splitlines()[0]
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:150]
    return sum(p.numel() for p in module.net.parameters()), ""


def config_files(folder: Path) -> Iterator[Path]:
    """Files of a folder that hold the config of a model."""
    for path in sorted(folder.rglob("*config.json")):
        try:
            held = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if isinstance(held, dict) and "model_type" in held:
            yield path


if __name__ == "__main__":
    main()
