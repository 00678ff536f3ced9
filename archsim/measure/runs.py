"""`runs.yaml`: whole-model results in the form of a run list, one run a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from archsim.base.input_file import read_text
from archsim.base.json_types import JsonObject
from archsim.measure.point import Key, Point, Result
from archsim.measure.table import HELD, LARGEST, SOURCE

HEADER = """# Measured whole-model runs, random weights. A line is a run; times are of one forward pass on one device.
schema_version: 1
definitions:
  ttft_mean: time of one prefill of the whole batch, logits of the last position
  tpot_mean: time of one decode step of the whole batch after `isl` cached tokens
  train_step: forward, backward and AdamW of one batch, in ms
  peak_mem: peak allocated device memory of the step, GiB
rows:
"""
METRICS = {
    "prefill": ("ttft_ms", "ttft_mean"), "decode_step": ("tpot_ms", "tpot_mean"),
    "train_step": ("train_step_ms", "train_step"),
}  # fmt: skip


def rows(point: Point, result: Result, device: str, engine: str, clock: int | None) -> list[JsonObject]:
    """The runs of one point: its time, and its peak memory where it was read."""
    metric, definition = METRICS[point.op]
    name, version = engine.split(" ", 1) if " " in engine else (engine, "")
    length = point.dims.get("seq_kv", point.dims["seq_q"])
    base: JsonObject = {
        "id": run_id(point, metric), "model": result.model or point.model, "device": device,
        "n_devices": 1, "tp": 1, "pp": 1,
        "ep": 1, "weights_dtype": point.dtype, "kv_dtype": point.kv_dtype or None, "engine": name,
        "engine_version": version, "metric": metric, "isl": length, "osl": 1, "batch": point["batch"],
        "value": float(f"{result.timing.us / 1e3:.5g}"), "definition": definition, "quality": "A",
        "source": SOURCE, "notes": result.note, "step": point.op, "kernel": point.kernel, "mode": result.timing.mode,
        "spread_pct": round(result.timing.spread_pct, 2), "n_calls": result.timing.calls, "clock_mhz": clock,
        "split": HELD, "key": list(point.key(device)),
    }  # fmt: skip
    if result.allocated is None:
        return [base]
    peak = base | {
        "id": run_id(point, "peak_mem_gb"), "metric": "peak_mem_gb", "definition": "peak_mem",
        "value": round(result.allocated / 2**30, 4), "spread_pct": None, "n_calls": 1,
        "reserved_gib": round((result.reserved or 0) / 2**30, 4), "key": None,
    }  # fmt: skip
    return [peak, base]


def run_id(point: Point, metric: str) -> str:
    """A name that the same point has in every session."""
    length = point.dims.get("seq_kv", point["seq_q"])
    parts = (point.model, point.op, metric, f"b{point['batch']}", f"s{length}", point.kernel)
    return re.sub(r"[^a-z0-9.]+", "-", " ".join(parts).lower()).strip("-")


def line(run: JsonObject) -> str:
    """A run as one line of YAML (flow style, which JSON is a part of)."""
    return "- " + json.dumps(run)


def read(path: Path) -> list[JsonObject]:
    """All runs of a file whose lines are whole."""
    if not path.exists():
        return []
    text = read_text(path, LARGEST)
    found = []
    for entry in text[: text.rfind("\n") + 1].splitlines():
        if entry.startswith("- {"):
            with suppress(ValueError):  # a line that someone else wrote
                found.append(json.loads(entry[2:]))
    return found


def keys(runs: Iterable[JsonObject]) -> set[Key]:
    """Keys of the points that are done."""
    return {tuple(run["key"]) for run in runs if run.get("key")}
