"""Models on the present processor: the blind plan first, then every case timed, then both side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.output_file import make_folder
from archsim.importers.opening import open_model
from archsim.measure.checked_rows import CheckedRow, checked_object
from archsim.measure.cpu_figures import errors, errors_by, orders
from archsim.measure.cpu_layers import FORMATS
from archsim.measure.cpu_plan import LONGEST_S, Case, Predictor, cases, plan_document, plan_of, write_plan
from archsim.measure.table import Lines
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware

PLAN, ROWS = "plan-{model}-{dtype}.json", "models.jsonl"
HEADER = '{"schema": "archsim.cpu-rows/1"}'
ROOM = 0.6
"""Share of the machine's memory that a case may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CpuCheck(Tabular):
    """The comparison. plan: the file of the predictions; plan_sha256: of it, as it stood before anything was timed.
    rows: cases with predictions and, as far as they were timed, measurements. left: cases that the budget left.
    """

    __repr__ = Tabular.__repr__

    model: str
    device: str
    dtype: str
    plan: Path
    plan_sha256: str
    rows: tuple[JsonObject, ...]
    left: int
    seconds: float

    exact = True

    @property
    def figures(self) -> dict[str, JsonObject]:
        """Error figures by form and phase."""
        return errors_by(self.rows, ("phase", "form"))

    def to_dict(self) -> JsonObject:
        """The `archsim.validate/1` object of kind `model`; `cases` has everything that was measured of each."""
        found = [row for case in self.rows for row in checked_rows(case)]
        return {
            **checked_object(found), "model": self.model, "device": self.device, "dtype": self.dtype,
            "plan": str(self.plan), "plan_sha256": self.plan_sha256, "left": self.left,
            "seconds": round(self.seconds, 1),
            "all": errors(self.rows), "figures": self.figures, "order": orders(self.rows, work_of),
            "cases": list(self.rows),
        }  # fmt: skip

    def json(self) -> Iterator[str]:
        """The same as JSON text."""
        yield json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def checked_rows(case: JsonMapping) -> Iterator[CheckedRow]:
    """The time of a case, and its peak of live tensor bytes where both sides of that are known."""
    about = case["phase"], case["batch"], case["past"] or case["new"], case["form"]
    yield CheckedRow(
        case["id"], f"{case['phase']}_s", case.get("measured_s"), case["predicted_s"], case["low_s"], case["high_s"],
        "calibrated", *about,
    )  # fmt: skip
    peak = case.get("predicted_peak_bytes")
    if peak is not None:
        yield CheckedRow(case["id"], "peak_bytes", case["peak_bytes"], peak, None, None, "modelled", *about)


def work_of(row: JsonMapping) -> tuple[object, ...]:
    """What two ways of doing the same share: the model, and the tokens."""
    return tuple(row[name] for name in ("model", "phase", "batch", "new", "past"))


def measured_machine() -> Hardware | None:
    """The present machine's device, if `archsim measure --here` has written it; None otherwise."""
    from archsim.measure.here import machine_facts

    try:
        return load_hardware(machine_facts().id)
    except ArchsimError:
        return None


def check_on_cpu(
    name: str,
    hardware: Hardware,
    *,
    dtype: str = "fp32",
    out: Path | None = None,
    budget: float = 120.0,
    progress: Callable[[str], None] = lambda text: None,
) -> CpuCheck:
    """Predict a model's cases, write the plan, and time as many as `budget` seconds hold; results go on behind what is
    in `out` already. Raises UsageError for a number format that modules are not built in.
    """
    if dtype not in FORMATS:
        raise UsageError(f"a model is timed on a processor in {' or '.join(FORMATS)}, not in {dtype}")
    began = time.monotonic()
    model, _ = open_model(name)
    folder = make_folder(out or Path("measured") / hardware.id)
    path = folder / PLAN.format(model=model.name, dtype=dtype)
    if not path.exists():
        predictor = Predictor(model, hardware, dtype)
        rows = [predictor.row(case) for case in cases(model, dtype)]
        write_plan(path, plan_document([row for row in rows if is_feasible(row, hardware)], hardware))
    plan, digest = plan_of(path)
    wanted = [Case(*(row[field] for field in Case._fields)) for row in plan["rows"]]
    done = {row["id"]: row for row in read_rows(folder / ROWS)}
    left = _time(model.name, name, dtype, [c for c in wanted if c.id not in done], folder, (began, budget), progress)
    done = {row["id"]: row for row in read_rows(folder / ROWS)}
    joined = tuple(joined_row(row, done.get(row["id"], {})) for row in plan["rows"])
    return CpuCheck(
        model=model.name, device=hardware.id, dtype=dtype, plan=path, plan_sha256=digest, rows=joined, left=left,
        seconds=time.monotonic() - began,
    )  # fmt: skip


def is_feasible(row: JsonMapping, hardware: Hardware) -> bool:
    """Whether a case is short enough to be timed, and leaves room in memory for what else runs."""
    held = row["weight_bytes_predicted"] + row["cache_bytes_predicted"] + row["activation_bytes"]
    return bool(row["predicted_s"] < LONGEST_S and held < ROOM * hardware.working_set_bytes)


def joined_row(predicted: JsonMapping, measured: JsonMapping) -> JsonObject:
    """A case with both sides; weights and caches are what PyTorch holds, activations what the graph predicts."""
    found = {**predicted, **measured}
    if "weight_bytes" in measured:
        held = measured["weight_bytes"] + measured["cache_bytes"]
        found["peak_bytes"] = held + measured["own_peak_bytes"]
        found["predicted_peak_bytes"] = predicted["weight_bytes_predicted"] + predicted["cache_bytes_predicted"]
        found["predicted_peak_bytes"] += predicted["activation_bytes"]
    return found


def _time(
    title: str, name: str, dtype: str, wanted: Sequence[Case], folder: Path, clock: tuple[float, float],
    progress: Callable[[str], None],
) -> int:  # fmt: skip
    """Time cases until the budget ends, each on disk as soon as it is known; how many are left."""
    if not wanted:
        return 0
    import torch

    from archsim.measure.cpu_models import ModelInTraining, ModelOnCpu, TimedModel, measured_row

    began, budget = clock
    rows = Lines(folder / ROWS, HEADER)
    model, _ = open_model(name)
    progress(f"{title}: random weights in {dtype}")
    on_cpu: TimedModel | None = None
    for i, case in enumerate(sorted(wanted, key=is_training)):
        if time.monotonic() - began > budget:
            rows.close()
            return len(wanted) - i
        progress(f"[{i + 1}/{len(wanted)}] {case.id}")
        if on_cpu is None or is_training(case) != isinstance(on_cpu, ModelInTraining):
            on_cpu, threads = None, torch.get_num_threads()  # the weights of one are gone before the other's are drawn
            on_cpu = ModelInTraining(model, threads) if is_training(case) else ModelOnCpu(model, dtype, threads)
        row = measured_row(on_cpu, case)
        if not row.get("disturbed"):
            rows.write(json.dumps(row))
    rows.close()
    return 0


def is_training(case: Case) -> bool:
    """Whether a case is a step of training, which needs a module of its own."""
    return case.phase == "train"


def read_rows(path: Path) -> Iterator[JsonObject]:
    """Results of earlier runs; a torn last line is left out."""
    if not path.exists():
        return
    text = path.read_text(encoding="utf-8")
    for line in text[: text.rfind("\n") + 1].splitlines()[1:]:
        yield json.loads(line)
