"""The golden table of predictions: every catalog model on six devices.

`python tests/predictions.py` (or `make golden`) writes `tests/golden/predictions.csv` anew and prints what moved. The
table is sorted and holds five digits of every number, so that a change of a formula, a fit or a spec is seen in review
as the rows it moves. After a merge that left both sides' rows in the file, write it anew.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "tests" / "golden" / "predictions.csv"

DEVICES = ("a100-sxm-80gb", "b200-sxm", "h100-sxm", "h200-sxm", "mi300x", "rtx-4090")
"""Calibrated ones, ones whose fits are carried over, and ones that only a datasheet describes."""

WORKLOAD = {"batch": 8, "input_len": 2048, "output_len": 256}
NUMBERS = ("devices", "ttft_ms", "tpot_ms", "memory_gb", "kv_tokens")
COLUMNS = ("model", "device", *NUMBERS)
TOLERANCE = 1.5e-4
"""Relative: five digits are written, and sums may be taken in another order on another machine."""

Key = tuple[str, str]
Row = Mapping[str, str]


@dataclass(frozen=True)
class Change:
    """One number that is not what the table says; an empty text stands for a number that does not exist."""

    key: Key
    column: str
    golden: str
    now: str

    @property
    def ratio(self) -> float:
        """New over old; infinite where one of the two does not exist or is zero."""
        try:
            return float(self.now) / float(self.golden)
        except (ValueError, ZeroDivisionError):
            return float("inf")

    def __str__(self) -> str:
        change = f"{self.ratio - 1:+.2%}" if self.ratio < float("inf") else "appears or disappears"
        return f"{' on '.join(self.key)}: {self.column} {self.golden or '-'} -> {self.now or '-'} ({change})"


def model_names() -> list[str]:
    """Names of all catalog models, sorted."""
    return sorted(p.stem for p in (ROOT / "specs" / "models").glob("*.yaml") if not p.stem.startswith("_"))


def predicted(device: str, models: Iterable[str] | None = None) -> dict[Key, Row]:
    """The rows of one device, by model and device: of some models, or of the whole catalog."""
    import archsim

    hardware = archsim.load_hardware(device)
    return {(name, device): _row(archsim.load_model(name), hardware) for name in models or model_names()}


def _row(model: object, hardware: object) -> Row:
    import archsim

    try:
        answer = archsim.estimate(model, hardware, **WORKLOAD).to_dict()  # type: ignore[arg-type]
    except archsim.ArchsimError as error:
        return {"devices": error.code, **dict.fromkeys(NUMBERS[1:], "")}
    memory = answer["memory"]["per_device"]
    used = sum(memory[f"{part}_bytes"] for part in ("weights", "kv_cache", "activation", "runtime"))
    numbers = (
        answer["hardware"]["devices"],
        _scaled(answer["metrics"]["ttft_s"], 1e3),
        _scaled(answer["metrics"]["tpot_s"], 1e3),
        used / 1e9,
        answer["memory"]["kv_tokens"],
    )
    return dict(zip(NUMBERS, map(_text, numbers), strict=True))


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.5g}" if abs(value) < 1e5 else f"{float(f'{value:.5g}'):.0f}"


def golden() -> dict[Key, Row]:
    """The rows of the table as it is checked in."""
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {(row.pop("model"), row.pop("device")): row for row in csv.DictReader(file)}


def written(rows: Mapping[Key, Row]) -> str:
    """The text of the table."""
    lines = [",".join(COLUMNS)]
    lines += [",".join((*key, *(rows[key][name] for name in NUMBERS))) for key in sorted(rows)]
    return "\n".join(lines) + "\n"


def changes(before: Mapping[Key, Row], now: Mapping[Key, Row]) -> list[Change]:
    """Numbers that differ by more than the tolerance, the largest change first; missing rows count as empty."""
    empty: Row = dict.fromkeys(NUMBERS, "")
    pairs = [(key, before.get(key, empty), now.get(key, empty)) for key in sorted({*before, *now})]
    found = [Change(key, name, old[name], new[name]) for key, old, new in pairs for name in NUMBERS]
    moved = [change for change in found if change.golden != change.now and abs(change.ratio - 1) > TOLERANCE]
    return sorted(moved, key=lambda change: -abs(change.ratio - 1))


def summary(moved: list[Change], most: int = 25) -> str:
    """What moved: counts and medians per column, then the largest changes."""
    lines = []
    for name in NUMBERS:
        some = [change.ratio for change in moved if change.column == name]
        if some:
            lines.append(f"{name}: {len(some)} rows, median change {median(some) - 1:+.2%}")
    lines += [f"  {change}" for change in moved[:most]]
    if len(moved) > most:
        lines.append(f"  and {len(moved) - most} more")
    return "\n".join(lines) or "nothing moved"


def main(devices: Iterable[str] = DEVICES) -> None:
    """Writes the table anew and says what moved."""
    now: dict[Key, Row] = {}
    for device in devices:
        now |= predicted(device)
    print(summary(changes(golden(), now)) if TABLE.exists() else "a new table")
    TABLE.write_text(written(now), "utf-8")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
