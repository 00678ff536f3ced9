"""Tables of the campaign's report: predictions beside measurements."""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from archsim.measure import table

Row = dict[str, Any]


def heading(made: dict[str, Any], kernels: list[Row], runs: list[Row]) -> list[str]:
    """What the campaign was."""
    if not made:
        return ["No predictions were made before the measurement.", ""]
    return [
        f"Device {made['device']}, predictions of {made['utc']}, commit {made['commit']}, "
        f"constants {made['constants_sha256'][:16]}.", "",
        f"{len(kernels)} kernels and {len(runs)} figures of whole models were measured.", "",
    ]  # fmt: skip


def section(title: str, rows: list[list[str]]) -> list[str]:
    """A Markdown table under a heading; its first row is the head."""
    if len(rows) < 2:
        return [f"## {title}", "", "None.", ""]
    ruled = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return [f"## {title}", "", *("| " + " | ".join(row) + " |" for row in ruled), ""]


def kernel_errors(kernels: list[Row], made: dict[str, Any]) -> list[list[str]]:
    """Errors by op and by whether a fit may see the rows."""
    known = {tuple(row["key"]): row for row in made.get("kernels", ())}
    found: dict[tuple[str, str, str], list[tuple[float, Row]]] = {}
    for row in kernels:
        if table.key_of(row) in known:
            place = (row["op"], row["dtype"], row["split"])
            found.setdefault(place, []).append((float(row["time_us"]), known[table.key_of(row)]))
    rows = [["op", "dtype", "rows", "n", "median APE", "p90 APE", "bias", "in 80 % interval"]]
    return rows + [[*place, *errors(pairs)] for place, pairs in sorted(found.items())]


def errors(pairs: list[tuple[float, Row]]) -> list[str]:
    """n, median and 90th percentile of the absolute error, median signed error, coverage."""
    signed = sorted((p["predicted"] - m) / m for m, p in pairs)
    absolute = sorted(map(abs, signed))
    inside = statistics.mean(p["low"] <= m <= p["high"] for m, p in pairs)
    ninth = absolute[min(int(0.9 * len(absolute)), len(absolute) - 1)]
    shown = (statistics.median(absolute), ninth, statistics.median(signed), inside)
    return [str(len(pairs)), *(f"{100 * value:.1f} %" for value in shown)]


def rate(row: Row) -> float:
    """Bytes per second of a row that says what it moves."""
    return float(row["moved_bytes"]) / float(row["time_us"]) * 1e6 if row["moved_bytes"] else 0.0


def copy_bandwidth(kernels: list[Row]) -> float:
    """The fastest of the large copies, which no cache holds."""
    copies = [row for row in kernels if row["op"] == "copy"]
    largest = max((int(row["bytes"]) for row in copies), default=0)
    return max((rate(row) for row in copies if 16 * int(row["bytes"]) >= largest), default=0.0)


def product(row: Row) -> float:
    """Multiply-adds per second of a product."""
    return float(row["m"]) * float(row["n"]) * float(row["k"]) / float(row["time_us"]) * 1e6


def run_table(runs: list[Row], made: dict[str, Any], copy: float, peak: float) -> list[list[str]]:
    """Every timed run beside its prediction, with its share of copy bandwidth and of the fastest product."""
    known = {tuple(run["key"]): run for run in made.get("runs", ()) if "phase" in run}
    memory = {place(run): run["value"] for run in runs if run["metric"] == "peak_mem_gb"}
    rows = [["run", "measured", "predicted", "error", "80 % interval", "of copy", "of product", "peak GiB", "said"]]
    for run in runs:
        prediction = known.get(tuple(run["key"] or ()))
        if prediction is None:
            continue
        phase, seconds = prediction["phase"], run["value"] / 1e3
        held = memory.get(place(run))
        rows.append([
            f"{run['model']} {run['metric']} b{run['batch']} s{run['isl']} {run['kernel']}", f"{run['value']:.4g}",
            f"{phase['expected_s'] * 1e3:.4g}", f"{100 * (phase['expected_s'] / seconds - 1):+.1f} %",
            f"{phase['low_s'] * 1e3:.4g}..{phase['high_s'] * 1e3:.4g}",
            f"{100 * phase['bytes'] / seconds / copy:.0f} %" if copy else "-",
            f"{100 * phase['flops'] / seconds / peak:.0f} %" if peak else "-",
            "-" if held is None else f"{held:.2f}", f"{prediction['memory_bytes'] / 2**30:.2f}",
        ])  # fmt: skip
    return rows


def place(run: Row) -> tuple[Any, ...]:
    """What a run's time and its memory have in common."""
    return tuple(run[name] for name in ("model", "step", "isl", "batch", "kernel"))


def fused_table(kernels: list[Row]) -> list[list[str]]:
    """Each row-wise function in its forms: bytes of one kernel, and times."""
    times: dict[tuple[str, str, str], dict[str, float]] = {}
    moved: dict[tuple[str, str, str], int] = {}
    for row in kernels:
        if row["kernel"] in ("eager", "torch.compile", "triton") and row["n"] and row["m"]:
            place = (row["op"], row["m"], row["n"])
            times.setdefault(place, {})[row["kernel"]] = float(row["time_us"])
            moved[place] = int(row["moved_bytes"])
    rows = [["op", "m", "n", "MB in one kernel", "eager us", "compiled us", "Triton us", "eager / best"]]
    for place, found in sorted(times.items()):
        if len(found) > 1:
            shown = [f"{found[form]:.2f}" if form in found else "-" for form in ("eager", "torch.compile", "triton")]
            ratio = found.get("eager", float("nan")) / min(found.values())
            rows.append([*place, f"{moved[place] / 1e6:.3f}", *shown, f"{ratio:.2f}"])
    return rows


def skipped_table(path: Path) -> list[list[str]]:
    """Reasons and how many points they cost."""
    counts: dict[tuple[str, str], int] = {}
    for row in table.read(path):
        place = (row["suite"], row["reason"].replace("|", "/"))
        counts[place] = counts.get(place, 0) + 1
    return [["suite", "reason", "points"], *([*place, str(n)] for place, n in sorted(counts.items()))]
