"""The steps of `campaign.sh` that need more than one command: blind predictions, the split, the comparison."""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import comparison as c

from archsim.base.errors import ArchsimError
from archsim.base.output_file import write_text
from archsim.measure import runs as run_list
from archsim.measure import table
from archsim.measure.machine import catalog_name, driver_name, engine
from archsim.measure.plan import NAMES, make, points_of
from archsim.measure.point import Point

ROOT = Path(__file__).resolve().parents[2]
Row = dict[str, Any]


# ---------------------------------------------------------------------- blind
def blind(args: argparse.Namespace) -> None:
    """Predictions of everything that will be timed, with what made them, in one file."""
    name = device_name(args)
    points = points_of(NAMES, args.size, tuple(args.models.split(",")))
    plan = make(points, args.budget, (), name, args.size).points
    table.write_plan(args.work / "plan.csv", plan, name, engine())
    kernels = predicted_kernels(args.work / "plan.csv")
    runs = predicted_runs([p for p in plan if p.whole and p.suite == "model"], name, args.size)
    made = {
        "schema": "archsim.blind/1", "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "device": name,
        "commit": commit(), "constants_sha256": constants(), "kernels": kernels, "runs": runs,
    }  # fmt: skip
    write_text(args.out / "blind.json", json.dumps(made, indent=1) + "\n", force=True)
    failed = sum("reason" in run for run in runs)
    print(f"{len(kernels)} kernels and {len(runs) - failed} of {len(runs)} runs predicted for {name}")


def predicted_kernels(path: Path) -> list[Row]:
    """What `archsim validate` says of a table without times: key, microseconds and interval of each row."""
    rows = list(table.read(path))
    answer = archsim("validate", str(path), "--json")
    found = []
    for row in (answer or {}).get("rows", ()):
        point = rows[int(row["id"])]
        kept = {name: row[name] for name in ("predicted", "low", "high", "evidence")}
        found.append({"key": list(table.key_of(point)), **kept})
    return found


def predicted_runs(points: Iterable[Point], device: str, size: str) -> list[Row]:
    """Times, bytes and memory of whole-model runs by `archsim estimate`; a reason where it refuses."""
    from archsim import api
    from archsim.importers.opening import open_model
    from archsim.spec.tiny import tiny

    found = []
    for point in points:
        base = {"key": list(point.key(device)), "text": point.text(), "op": point.op}
        past, decode = point["seq_kv"], point.op == "decode_step"
        try:
            model, _ = open_model(point.model, ())
            spec = tiny(model) if size == "small" else model
            answer = api.estimate(
                spec, device, devices=1, batch=point["batch"], input_len=past, output_len=1, weights="bf16"
            ).to_dict()
        except ArchsimError as error:
            found.append(base | {"reason": error.message})
            continue
        phase = answer["phases"]["decode" if decode else "prefill"]
        memory = answer["memory"]["per_device"]
        peak = sum(memory[n] for n in ("weights_bytes", "kv_cache_bytes", "activation_bytes"))
        found.append(base | {"phase": phase, "memory_bytes": peak})
    return found


def archsim(*args: str) -> dict[str, Any] | None:
    """The JSON of a command in a process of its own, None where it fails."""
    done = subprocess.run([sys.executable, "-m", "archsim", *args], capture_output=True, text=True)
    try:
        found = json.loads(done.stdout)
    except ValueError:
        found = None
    if done.returncode or not isinstance(found, dict):
        print(f"archsim {args[0]}: code {done.returncode} {done.stderr.strip()[-300:]}")
        return None
    return found


def commit() -> str | None:
    """The commit of this tree: from git, or from ARCHSIM_COMMIT where the tree was copied."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True)
    except OSError:
        return os.environ.get("ARCHSIM_COMMIT")
    return done.stdout.strip() or os.environ.get("ARCHSIM_COMMIT")


def constants() -> str:
    """SHA-256 over every calibration file, in the order of their names."""
    total = hashlib.sha256()
    for path in sorted((ROOT / "hardware" / "calibration").rglob("*")):
        if path.is_file():
            total.update(path.name.encode() + path.read_bytes())
    return total.hexdigest()


def device_name(args: argparse.Namespace) -> str:
    """As `archsim measure` names the device."""
    if args.hw:
        from archsim.spec.catalog import resolve

        return resolve("hw", args.hw).name
    return catalog_name(driver_name(args.device))


# ---------------------------------------------------------------------- after
def split(args: argparse.Namespace) -> None:
    """Two tables: rows that a fit may see, and rows that it may not."""
    rows = list(table.read(args.out / "kernels.csv"))
    for name, wanted in (("fit", table.FIT), ("held", table.HELD)):
        chosen = [row for row in rows if row["split"] == wanted]
        with (args.work / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, table.COLUMNS, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(chosen)
        print(f"{len(chosen)} rows {wanted}")


def again(args: argparse.Namespace) -> None:
    """The predictions with the fit of this device: held-out kernels and all runs."""
    name = device_name(args)
    points = points_of(("model",), args.size, tuple(args.models.split(",")))["model"]
    done = {tuple(run["key"]) for run in run_list.read(args.out / "runs.yaml") if run.get("key")}
    found = {
        "kernels": predicted_kernels(args.work / "held.csv"),
        "runs": predicted_runs([p for p in points if p.key(name) in done], name, args.size),
    }
    write_text(args.work / "again.json", json.dumps(found, indent=1) + "\n", force=True)


def report(args: argparse.Namespace) -> None:
    """`report.md`: what was predicted, what was measured, and how far apart they are."""
    kernels = list(table.read(args.out / "kernels.csv"))
    runs = run_list.read(args.out / "runs.yaml")
    made, later = load(args.out / "blind.json"), load(args.work / "again.json")
    lines = ["# Device campaign", "", *c.heading(made, kernels, runs)]
    lines += c.section("Kernels, predicted before", c.kernel_errors(kernels, made))
    lines += c.section("Held-out kernels, with the fit of this device", c.kernel_errors(kernels, later))
    copy = c.copy_bandwidth(kernels)
    peak = max((2 * c.product(row) for row in kernels if row["op"] == "gemm" and row["dtype"] == "bf16"), default=0.0)
    lines += c.section("Whole models, predicted before", c.run_table(runs, made, copy, peak))
    lines += c.section("Whole models, with the fit of this device", c.run_table(runs, later, copy, peak))
    lines += c.section("Fused against unfused", c.fused_table(kernels))
    lines += c.section("Skipped", c.skipped_table(args.out / "skipped.csv"))
    write_text(args.out / "report.md", "\n".join(lines) + "\n", force=True)
    print(f"report: {args.out / 'report.md'}")


def load(path: Path) -> dict[str, Any]:
    """A JSON file, empty where there is none."""
    return dict(json.loads(path.read_text())) if path.exists() else {}


STEPS = {"blind": blind, "split": split, "again": again, "report": report}


def main() -> None:
    """Run one step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="small")
    parser.add_argument("--models", default="")
    parser.add_argument("--hw", default="")
    parser.add_argument("--budget", type=float, default=480)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    STEPS[args.step](args)


if __name__ == "__main__":
    main()
