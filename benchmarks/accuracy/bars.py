"""Every claim about accuracy in one table: median, p90, bias, coverage and width, beside what it should be.

    python benchmarks/accuracy/bars.py [TABLE ...]

Kernels come from the calibrations: on fitted devices the errors on shape families that a fit had not seen, elsewhere
those of leaving out a device, an engine or a format (`archsim calibrate --borrowing`). Each TABLE adds what it holds:
kernels of devices that nothing was fitted on, by class; serving points, runs and runs under load, by metric, engine and
device, and TPOT apart for dense models and those with experts. Classes whose intervals are wider than their bar, and
cells whose coverage lies outside 72 to 90 %, are listed at the end.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from archsim.accuracy.checked import validate_files  # noqa: E402
from archsim.accuracy.question import model_of  # noqa: E402
from archsim.accuracy.rows import Rows  # noqa: E402
from archsim.accuracy.validation import Several, Validation  # noqa: E402
from archsim.base.errors import ArchsimError  # noqa: E402
from archsim.spec.parallelism import expert_counts  # noqa: E402

CALIBRATIONS = ROOT / "hardware" / "calibration"
COLLECTIVES = ("nccl_all_reduce", "engine_all_reduce", "nccl_all_gather", "nccl_reduce_scatter", "nccl_alltoall")
CLAIMS: Mapping[str, tuple[str, ...]] = {
    "GEMM": ("gemm",), "attention": ("attn_prefill", "attn_decode"), "MLA decode": ("mla_decode",),
    "MLA prefill": ("mla_prefill",), "MoE": ("moe",), "collectives": COLLECTIVES, "element-wise": ("elementwise",),
}  # fmt: skip
"""Kernels that have a bar of their own; all other classes are new ones."""

GRADES = {
    "engine": "another engine", "format": "another format", "device": "another device",
    "class": "another class of device", "far": "another device and format", "datasheet": "datasheet alone",
}  # fmt: skip
COVERED = (0.72, 0.90)
WIDEST, WIDEST_ON_PAPER = 3.0, 4.0
FEW = 40
"""Figures from which on a cell of serving points or runs has a bar."""


class Figure(NamedTuple):
    """What is claimed, over how many rows, and how far off it is; None where it is not known."""

    claim: str
    rows: int
    median: float
    p90: float
    bias: float
    covered: float | None
    width: float | None

    def line(self) -> str:
        """A row of the table."""
        texts = [f"{100 * value:.1f} %" for value in (self.median, self.p90)] + [f"{100 * self.bias:+.1f} %"]
        covered = "" if self.covered is None else f"{100 * self.covered:.0f} %"
        width = "" if self.width is None else f"{self.width:.1f}x"
        return f"| {self.claim} | {self.rows:,} | {' | '.join(texts)} | {covered} | {width} |"


def claim_of(op: str) -> str:
    """The claim that a class of kernels belongs to."""
    return next((claim for claim, ops in CLAIMS.items() if op in ops), f"new: {op}")


def fitted() -> Iterator[Figure]:
    """Errors on unseen shape families, by claim and device: the middle of all fits, each counting as its rows. Where
    implementations have fits of their own these count, as in estimates, not the one of all together.
    """
    found: dict[tuple[str, str], list[tuple[int, Mapping[str, float]]]] = defaultdict(list)
    for path in sorted(CALIBRATIONS.glob("*/*/calibration.yaml")):
        document = yaml.load(path.read_text("utf-8"), Loader=yaml.CSafeLoader)
        apart = {kind_of(fit) for fit in document["fits"] if fit.get("kernel")}
        for fit in document["fits"]:
            errors = fit.get("errors", {})
            if "unseen" in errors and (fit.get("kernel") or kind_of(fit) not in apart):
                found[claim_of(fit["op"]), document["device"]].append((errors["rows"], errors["unseen"]))
    for (claim, device), fits in sorted(found.items()):
        rows = sum(count for count, _ in fits)
        mean = {name: sum(n * unseen[name] for n, unseen in fits) / rows for name in ("median", "p90", "bias")}
        yield Figure(f"{claim}, {device}, unseen shapes", rows, mean["median"], mean["p90"], mean["bias"], None, None)


def kind_of(fit: Mapping[str, object]) -> tuple[object, ...]:
    """Class and formats of a fit."""
    return fit["op"], fit["dtype"], fit.get("kv_dtype", "")


def carried() -> Iterator[Figure]:
    """What fits of other engines, formats and devices are off, by class."""
    levels = yaml.load((CALIBRATIONS / "transfer.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader)["levels"]
    for op, grades in levels.items():
        for grade, level in grades.items():
            e = level["errors"]
            claim = f"{op}, {GRADES[grade]}"
            yield Figure(claim, e["rows"], e["median"], e["p90"], e["bias"], e["covered"], e["width"])


def figure(claim: str, rows: Rows, where: np.ndarray) -> Figure:
    """Error figures of some rows."""
    measured, predicted = rows.measured[where], rows.predicted[where]
    low, high = rows.low[where], rows.high[where]
    signed = predicted / measured - 1
    inside, width = (low <= measured) & (measured <= high), float(np.median(high / low))
    median, p90 = (float(np.quantile(np.abs(signed), q)) for q in (0.5, 0.9))
    return Figure(claim, len(measured), median, p90, float(np.median(signed)), float(inside.mean()), width)


def cells(answer: Validation) -> Iterator[Figure]:
    """Rows of a table by metric, engine and device; kernels by class and device."""
    rows, scored = answer.rows, answer.rows.scored & (answer.rows.predicted > 0) & (answer.rows.low > 0)
    empty = [""] * len(rows)
    columns = [list(rows.metrics), *(list(rows.labels.get(name, empty)) for name in ("op", "engine", "device"))]
    if answer.kind == "kernels":
        columns = columns[1:]
    columns[-2] = [name.partition("@")[0] for name in columns[-2]]
    names = np.array([" ".join(filter(None, parts)) for parts in zip(*columns, strict=True)], dtype=object)
    for name in sorted(set(names[scored])):
        yield figure(name, rows, scored & (names == name))
    if answer.kind != "serving":
        return
    with_experts = np.array([has_experts(name) for name in rows.labels["model"]])
    tpot, ttft = (scored & np.array([metric == name for metric in rows.metrics]) for name in ("tpot_ms", "ttft_ms"))
    masks = {"TPOT, dense": tpot & ~with_experts, "TPOT, experts": tpot & with_experts, "TTFT": ttft}
    for claim, mask in masks.items():
        if mask.any():
            yield figure(claim, rows, mask)


def has_experts(name: str) -> bool:
    """Whether a model of the catalog has experts."""
    try:
        return bool(expert_counts(model_of(name)[0]))
    except ArchsimError:
        return False


def misses(found: list[Figure]) -> Iterator[str]:
    """Intervals that are too wide or do not cover what they should."""
    for one in found:
        bar = WIDEST_ON_PAPER if one.claim.endswith("datasheet alone") else WIDEST
        if one.width is not None and one.width > bar:
            yield f"wide: {one.claim} {one.width:.1f}x (bar {bar:g}x)"
        if one.covered is not None and one.rows >= FEW and not COVERED[0] <= one.covered <= COVERED[1]:
            yield f"coverage: {one.claim} {one.covered:.0%} of {one.rows:,}"


def main() -> None:
    """Prints the table, then what misses."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*", type=Path)
    found = [*fitted(), *carried()]
    for table in parser.parse_args().tables:
        answer = validate_files(table)
        for part in answer.answers if isinstance(answer, Several) else (answer,):
            found += cells(part)
    print("| claim | rows | median | p90 | bias | in 80 % | width |\n| --- | --: | --: | --: | --: | --: | --: |")
    print("\n".join(one.line() for one in found))
    print("\n" + "\n".join(misses(found)))


if __name__ == "__main__":
    main()
