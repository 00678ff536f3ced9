"""The report of a processor's run: kernels that no fit has seen, models composed from kernels, savings, and the bars.

    python benchmarks/cpu/report.py RUN > RUN/report.md

Models are shown as their blind plans predicted them, and once more as the time models of today do, which is not blind:
of the run's own constants. A run whose constants the time models of today do not know says so.

RUN holds `hardware/` (device file and calibration), `kernels.csv`, and one folder for each time the models were timed
(`models-1`, `models-2`), with the blind plans and `models.jsonl`. `remarks.md`, where there is one, stands at the top.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

BARS = (
    ("held-out kernels, median", "8 %"), ("held-out kernels, p90", "25 %"),
    ("naive roofline on the same rows", "2 x worse"),
    ("models in fp32, compiled, mean", "10 %"), ("models in fp32, eager, mean", "15 %"),
    ("models in fp32, bias", "± 5 %"), ("models in bf16 and int8, mean", "15 %"), ("steps of training, mean", "15 %"),
    ("80 % intervals cover, kernels", "72 to 90 %"), ("80 % intervals cover, models", "72 to 90 %"),
    ("live bytes at the peak, worst", "3 %"), ("live bytes of training, worst", "3 %"),
    ("resident memory over its baseline, median", "10 %"),
    ("order of any two cases of the same tokens", "95 %"), ("sign of a saving", "95 %"),
    ("size of a saving, median", "30 %"),
)  # fmt: skip


def main(run: Path) -> None:
    """Print the report."""
    os.environ["ARCHSIM_PATH"] = str(run.resolve())
    from archsim.measure import cpu_figures as figures
    from archsim.spec.load import load_hardware
    from archsim.timing.kernel_timer import timer

    (device,) = (run / "hardware" / "devices").glob("*.yaml")
    hardware = load_hardware(device.stem)
    with (run / "kernels.csv").open() as file:
        table = list(csv.DictReader(file))
    timed = timer(hardware, "torch 2.13.0")
    every, held = (figures.kernel_rows(table, timed, held=only) for only in (False, True))
    runs = {folder.name: list(_models(folder)) for folder in sorted(run.glob("models-*"))}
    models = [row for rows in runs.values() for row in rows]
    print(f"# {hardware.name}: predicted and measured\n")
    print("\n".join(f"- {note}" for note in hardware.notes))
    savings = figures.fusions(every)
    remarks = run / "remarks.md"
    if remarks.is_file():
        print("\n" + remarks.read_text().strip())
    missing = _missing_constants(run)
    if missing:
        print(
            f"\nThe constants of this run were fitted before the time models had {missing}: kernels and models priced "
            "today with priors in their place are no measure of either. The figures of its day stand in report.md; "
            "`archsim calibrate --from RUN/kernels.csv` fits the constants anew."
        )
    again = (
        [] if missing else [{**row, **new} for row, new in zip(models, _priced_today(models, hardware), strict=True)]
    )
    _bars(figures, held, models, savings, again)
    print("\n## Kernels that no fit has seen\n")
    _errors(figures.errors_by(held, ("op", "dtype")) | {"all": figures.errors(held)})
    for name, rows in runs.items():
        print(f"\n## Models, {name}\n")
        _errors(figures.errors_by(rows, ("phase", "form")) | {"all": figures.errors(rows)})
        print()
        _errors(figures.errors_by(rows, ("model", "dtype")))
    _fusions(savings)
    _worst(models)
    print("\n## Blind plans\n\n| plan | commit | SHA-256 |\n| --- | --- | --- |")
    for path in sorted(run.glob("models-*/plan-*.json")):
        import hashlib

        commit = json.loads(path.read_text())["commit"] or ""
        print(f"| {path.relative_to(run)} | {commit[:12]} | {hashlib.sha256(path.read_bytes()).hexdigest()} |")


def _models(folder: Path) -> Iterator[dict[str, Any]]:
    """Cases of one run with both sides."""
    from archsim.measure.cpu_check import ROWS, joined_row, read_rows

    seen = {row["id"]: row for row in read_rows(folder / ROWS)}
    for path in sorted(folder.glob("plan-*.json")):
        for row in json.loads(path.read_text())["rows"]:
            joined = joined_row(row, seen.get(row["id"], {}))
            if joined.get("measured_s"):
                yield {**joined, "model": Path(joined["model"]).stem}


def _missing_constants(run: Path) -> str:
    """Constants of today's time models that the run's calibration does not have, in words."""
    import yaml

    from archsim.timing.classes.catalog import MODELS

    found = dict[str, None]()
    for path in run.glob("hardware/calibration/*/*/calibration.yaml"):
        for fit in yaml.safe_load(path.read_text())["fits"]:
            model = MODELS.get(fit["op"])
            for name in model.constants if model is not None else ():
                if name not in fit["constants"]:
                    found[name] = None
    return ", ".join(found)


def _priced_today(rows: Sequence[dict[str, Any]], hardware: Any) -> Iterator[dict[str, Any]]:
    """The predictions of the cases by the code as it is now."""
    from archsim.importers.opening import open_model
    from archsim.measure.cpu_plan import Case, Predictor

    known: dict[tuple[str, str], Predictor] = {}
    for row in rows:
        name, *_ = row["id"].partition(f"/{row['dtype']}/")
        case = Case(name, row["dtype"], *(row[field] for field in Case._fields[2:]))
        if (name, case.dtype) not in known:
            own = MODELS_FOLDER / f"{Path(name).stem}.yaml"
            model, _ = open_model(str(own) if own.is_file() else name)
            known[name, case.dtype] = Predictor(model, hardware, case.dtype)
        new = known[name, case.dtype].row(case)
        held = new["weight_bytes_predicted"] + new["cache_bytes_predicted"] + new["activation_bytes"]
        yield {key: new[key] for key in ("predicted_s", "low_s", "high_s")} | {"predicted_peak_bytes": held}


MODELS_FOLDER = Path(__file__).parent / "models"


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def _errors(groups: dict[str, dict[str, Any]]) -> None:
    print("| | n | median | mean | p90 | bias | in 80 % | roofline, median |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: |")
    for name, e in groups.items():
        if e["rows"]:
            cells = [_share(e[key]) for key in ("median", "mean", "p90", "bias", "inside", "roofline_median")]
            print(f"| {name} | {e['rows']} | {' | '.join(cells)} |")


def _bars(
    figures: Any, held: Sequence[Any], models: Sequence[Any], savings: Sequence[Any], again: Sequence[Any]
) -> None:
    """What the run shows beside what was asked for: predicted blind, and priced again today."""
    kernels = figures.errors(held)
    told, right = (sum(s[key] for s in savings) for key in ("told_apart", "sign_right"))
    sizes = [s["size_error"] for s in savings if s["size_error"] is not None]
    of_kernels = {
        "held-out kernels, median": _share(kernels.get("median")), "held-out kernels, p90": _share(kernels.get("p90")),
        "naive roofline on the same rows":
            f"{kernels['roofline_median'] / kernels['median']:.1f} x" if kernels["rows"] else "-",
        "80 % intervals cover, kernels": _share(kernels.get("inside")),
        "sign of a saving": f"{_share(right / told)} of {told}" if told else "-",
        "size of a saving, median": _share(median(sizes)) if sizes else "-",
    }  # fmt: skip
    blind, today = _model_bars(figures, models), _model_bars(figures, again) if again else {}
    print("\n## The bars\n\n| what | bar | blind | priced again today |\n| --- | --: | --: | --: |")
    for what, bar in BARS:
        now = of_kernels.get(what) or today.get(what, "-")
        print(f"| {what} | {bar} | {'' if what in of_kernels else blind.get(what, '-')} | {now} |")


def _model_bars(figures: Any, models: Sequence[Any]) -> dict[str, str]:
    """The figures of whole models."""
    trained = [row for row in models if row["phase"] == "train"]
    passes = [row for row in models if row["phase"] != "train"]
    wide = [row for row in passes if row["dtype"] == "fp32"]
    whole, by_form = figures.errors(wide), figures.errors_by(wide, ("form",))
    narrow = figures.errors([row for row in passes if row["dtype"] != "fp32"])
    resident = [
        abs(r["predicted_peak_bytes"] / r["resident_bytes"] - 1)
        for r in models if r.get("resident_bytes") and r.get("predicted_peak_bytes")
    ]  # fmt: skip
    order = figures.orders(models, lambda r: tuple(r[n] for n in ("phase", "batch", "new", "past")))
    return {
        "models in fp32, compiled, mean": _share(by_form.get("compiled", {}).get("mean")),
        "models in fp32, eager, mean": _share(by_form.get("eager", {}).get("mean")),
        "models in fp32, bias": _share(whole.get("bias")),
        "models in bf16 and int8, mean": _share(narrow.get("mean")),
        "steps of training, mean": _share(figures.errors(trained).get("mean")),
        "80 % intervals cover, models": _share(figures.errors(models).get("inside")),
        "live bytes at the peak, worst": _worst_peak(passes), "live bytes of training, worst": _worst_peak(trained),
        "resident memory over its baseline, median": _share(median(resident)) if resident else "-",
        "order of any two cases of the same tokens":
            f"{_share(order['right'] / order['pairs'])} of {order['pairs']} pairs" if order["pairs"] else "-",
    }  # fmt: skip


def _worst_peak(rows: Sequence[Any]) -> str:
    peaks = [abs(r["predicted_peak_bytes"] / r["peak_bytes"] - 1) for r in rows if r.get("peak_bytes")]
    return _share(max(peaks)) if peaks else "-"


def _fusions(savings: Sequence[Any]) -> None:
    print("\n## Savings of fusions and of narrower products, as shares of the time without\n")
    print("| | pairs | predicted | measured | sign right | error of the size |")
    print("| --- | --: | --: | --: | --: | --: |")
    for s in savings:
        sign = f"{s['sign_right']} of {s['told_apart']}"
        print(f"| {s['fusion']} | {s['pairs']} | {_share(s['predicted'])} | {_share(s['measured'])} | {sign} "
              f"| {_share(s['size_error'])} |")  # fmt: skip


def _worst(rows: Sequence[Any]) -> None:
    print("\n## The ten cases that are farthest off, and the class of kernels that carries most of it\n")
    print("| case | predicted | measured | spread | most of the difference |\n| --- | --: | --: | --: | --- |")
    for r in sorted(rows, key=lambda r: -abs(r["predicted_s"] / r["measured_s"] - 1))[:10]:
        seen = r.get("measured_by_class_s") or {}
        off = {name: r["by_class_s"].get(name, 0.0) - took for name, took in seen.items()}
        name = max(off, key=lambda n: abs(off[n])) if off else ""
        part = f"{name} {1e3 * off[name]:+.2f} ms" if name else "not known by class"
        case = f"{r['model']} {r['dtype']} {r['form']} {r['phase']} {r['batch']}/{r['new']}/{r['past']}"
        print(
            f"| {case} | {1e3 * r['predicted_s']:.2f} ms | {1e3 * r['measured_s']:.2f} ms "
            f"| {r['spread_pct']} % | {part} |"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
