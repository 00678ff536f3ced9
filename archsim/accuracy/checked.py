"""`archsim validate` of files: read, predicted without sight of what was measured, and put beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from archsim.accuracy import energy, kernels, loaded, runs, serving, training
from archsim.accuracy.files import Table, read_table, tables
from archsim.accuracy.request_log import ServerOf, validate_log
from archsim.accuracy.rows import Kind
from archsim.accuracy.stated_options import complete, require_use
from archsim.accuracy.times import RunTimes
from archsim.accuracy.validation import Several, Validation, join_validations
from archsim.base.errors import ArchsimError, SpecError, UsageError
from archsim.base.input_file import is_file, is_folder, is_there
from archsim.importers.opening import open_model
from archsim.spec.catalog import data_roots
from archsim.timing.calibration import Store


def validate_files(
    path: Path | None = None, *, limit: int | None = None, store: Store | None = None,
    server: ServerOf | None = None, stated: Mapping[str, object] | None = None,
) -> Validation | Several:  # fmt: skip
    """The answer for a file, or of the runs that archsim comes with; for a folder of several kinds, one of each.

    limit: rows of each file at most, drawn with a fixed seed. store: the calibrations to predict with. server: what
    served the requests of a log, by what the log says of it. stated: what holds for all rows that do not say it
    (`complete` of `stated_options.py`). Raises SpecError for a file that is no measurement, UsageError for what is
    stated in vain.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"`--limit` must be positive, not {limit}")
    if path is None and stated:
        raise UsageError(
            "a model, a device or a server's options have no effect without a file: archsim's own runs state theirs",
            hints=("name the FILE that you measured; `--by device,model` groups archsim's own runs",),
        )
    times = RunTimes(store)
    found: dict[Kind, list[Validation]] = {}
    every = list(own_runs() if path is None else tables(path))
    require_use({table.kind for table in every}, stated or {})
    for table in every:
        found.setdefault(table.kind, []).append(validate_table(complete(table, stated or {}), times, server, limit))
    answers = tuple(join_validations(parts) for parts in found.values())
    return answers[0] if len(answers) == 1 else Several(answers=answers)


def own_runs() -> list[Table]:
    """The run lists that archsim comes with."""
    folder = data_roots("reports")[-1] / "runs"
    if not folder.is_dir():
        raise SpecError("this installation has no run lists", code="E109", hints=("name a file or a folder",))
    return [read_table(path) for path in sorted(folder.glob("*.yaml"))]


PREDICTORS: Mapping[Kind, Callable[[Table, RunTimes], Validation]] = {
    "kernels": kernels.validate_table, "runs": runs.validate_table, "serving": serving.validate_table,
    "loaded": loaded.validate_table, "training": training.validate_table,
    "energy": energy.validate_table,
}  # fmt: skip


def validate_table(
    table: Table, times: RunTimes, server: ServerOf | None = None, limit: int | None = None
) -> Validation:
    """The answer for one file. server: of a log of requests. limit: rows at most; a log is run whole all the same."""
    if table.kind == "requests":
        return validate_log(table, server, limit)
    return PREDICTORS[table.kind](table.sample(limit), times)


MODEL_FILES = (".gguf", ".safetensors", ".safetensors.index.json")


def is_model(name: str, on_device: bool) -> bool:
    """Whether a name is that of a model, to be timed, rather than of a file of measurements."""
    path = Path(name)
    if name.lower().endswith(MODEL_FILES) or is_file(path / "config.json") or on_device:
        return True
    if is_folder(path):
        return False
    if not is_there(path):
        return not (path.suffix in TABLES or path.name.endswith(".csv.gz"))
    try:
        read_table(path)
    except SpecError as error:
        return _opens(name, error)
    return False


TABLES = (".csv", ".gz", ".yaml", ".yml", ".json", ".jsonl")


def _opens(name: str, error: SpecError) -> bool:
    """Whether a file that holds no measurements is a model; else the error stands."""
    try:
        open_model(name)
    except ArchsimError:
        raise error from None
    return True
