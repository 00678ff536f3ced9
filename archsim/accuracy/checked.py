"""`archsim validate` of files: read, predicted without sight of what was measured, and put beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archsim.accuracy import kernels, runs, serving
from archsim.accuracy.files import Table, tables
from archsim.accuracy.times import RunTimes
from archsim.accuracy.validation import Kind, Several, Validation, joined
from archsim.base.errors import SpecError, UsageError
from archsim.spec.catalog import data_roots
from archsim.timing.calibration import Store

if TYPE_CHECKING:
    from archsim.accuracy.model import ModelCheck


def validate_files(
    path: Path | None = None, *, limit: int | None = None, store: Store | None = None
) -> Validation | Several:
    """The answer for a file, or of the runs that archsim comes with; for a folder of several kinds, one of each.

    limit: rows of each file at most, drawn with a fixed seed. store: the calibrations to predict with.
    Raises SpecError for a file that is no measurement.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"`--limit` must be positive, not {limit}")
    times = RunTimes(store)
    found: dict[Kind, list[Validation]] = {}
    for table in own_runs() if path is None else tables(path):
        found.setdefault(table.kind, []).append(answered(table.sample(limit), times))
    answers = tuple(joined(parts) for parts in found.values())
    return answers[0] if len(answers) == 1 else Several(answers=answers)


def own_runs() -> list[Table]:
    """The run lists that archsim comes with."""
    folder = data_roots("reports")[-1] / "runs"
    if not folder.is_dir():
        raise SpecError("this installation has no run lists", code="E109", hints=("name a file or a folder",))
    from archsim.accuracy.files import read

    return [read(path) for path in sorted(folder.glob("*.yaml"))]


PREDICTORS: Mapping[Kind, Callable[[Table, RunTimes], Validation]] = {
    "kernels": kernels.validated, "runs": runs.validated, "serving": serving.validated,
}  # fmt: skip


def answered(table: Table, times: RunTimes) -> Validation:
    """The answer for one file."""
    return PREDICTORS[table.kind](table, times)


MODEL_FILES = (".gguf", ".safetensors", ".safetensors.index.json")


def is_model(name: str, on_device: bool) -> bool:
    """Whether a name is that of a model, to be timed, rather than of a file of measurements."""
    path = Path(name)
    if name.lower().endswith(MODEL_FILES) or (path / "config.json").is_file() or on_device:
        return True
    if path.is_dir():
        return False
    if not path.is_file():
        return not (path.suffix in TABLES or path.name.endswith(".csv.gz"))
    from archsim.accuracy.files import read

    try:
        read(path)
    except SpecError as error:
        return _opens(name, error)
    return False


TABLES = (".csv", ".gz", ".yaml", ".yml", ".json")


def _opens(name: str, error: SpecError) -> bool:
    """Whether a file that holds no measurements is a model; else the error stands."""
    from archsim.base.errors import ArchsimError
    from archsim.importers.opening import open_model

    try:
        open_model(name)
    except ArchsimError:
        raise error from None
    return True


def validate_model(name: str, options: Mapping[str, Any]) -> ModelCheck:
    """The loop on this machine: one spec predicted, instantiated, checked and timed. Needs the extra `torch`.

    options: of `archsim.measure.loop.measured`, such as device, size, batch and input_len.
    """
    from archsim.accuracy.model import compared
    from archsim.importers.opening import open_model

    model, _ = open_model(name)  # a misspelt name is answered before anything is loaded
    try:
        loop = import_module("archsim.measure.model_run")
    except ModuleNotFoundError as error:
        missing = "PyTorch" if (error.name or "").startswith("torch") else "the part that times models"
        raise UsageError(
            f"timing {name} on a device needs {missing}, which is not installed",
            hints=("pip install 'archsim[torch]'", "a file of measurements needs neither"),
        ) from None
    unknown = sorted(set(options) - set(LOOP))
    if unknown:
        raise UsageError(f"no option named {unknown[0]!r}", hints=(f"known: {', '.join(LOOP)}",))
    return compared(loop.measured(model, **options))


LOOP = ("device", "size", "batch", "input_len", "dtype", "threads")
"""Options of the loop."""
