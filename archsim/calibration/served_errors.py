"""Errors of serving points by engine, generation and device, for the accuracy page; runs under load have theirs from
their fits (`loaded_fits.py`).

The tables themselves are not shipped; their figures are written beside the fits, each with what was fitted on its rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from archsim.accuracy.checked import validate_table
from archsim.accuracy.files import Table
from archsim.accuracy.question import device_of
from archsim.accuracy.summary import figures
from archsim.accuracy.times import RunTimes
from archsim.accuracy.validation import Validation
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.engines.names import choose_engine
from archsim.timing.calibration import Store

SCHEMA = "archsim.served/1"
"""What the file of these errors states."""

FEWEST = 5
"""Figures below which a group has no line of its own."""

KEYS = {"median_ape": "median", "p90_ape": "p90", "bias": "bias", "coverage_80": "covered",
        "median_high_over_low": "width"}  # fmt: skip
"""Figures of a validation -> their names in the file."""

LABELS = ("metric", "engine", "device", "definition")
"""Of rows, those that make their group."""

Group = tuple[str, str, str, str, str]
"""Metric, engine, how it drives the device, device, and what the runs have beside it: drafts, pools."""


def served_errors(tables: Sequence[Table], store: Store) -> JsonObject:
    """The document: groups of serving points, and what was refused."""
    times = RunTimes(store)
    answers = [validate_table(table, times) for table in tables if table.kind == "serving"]
    groups = [group for answer in answers for group in groups_of(answer, store.engines)]
    refused = sum(len(answer.refused) for answer in answers)
    return {"schema": SCHEMA} | ({"serving": {"refused": refused, "groups": groups}} if answers else {})


def groups_of(answer: Validation, engines: Mapping[str, JsonMapping]) -> list[JsonObject]:
    """The figures of each group of rows."""
    import numpy as np

    labels = answer.rows.labels
    rows: dict[Group, list[int]] = {}
    for at, asked in enumerate(zip(*(labels[name] for name in LABELS), strict=True)):
        metric, engine, device, beside = asked
        chosen = choose_engine(engine)
        rows.setdefault((metric, chosen.name, chosen.rules.time.host, device, beside), []).append(at)
    found = []
    for group, places in sorted(rows.items()):
        where = answer.rows.scored & np.isin(np.arange(len(answer.rows)), places)
        if where.sum() >= FEWEST:
            seen = figures(answer.rows, where, len(places))
            named = dict(zip(("metric", "engine", "way", "device", "with"), group, strict=True))
            numbers = {name: round(float(seen[key]), 4) for key, name in KEYS.items()}
            found.append({**named, "fitted": fitted_on(answer.kind, group, engines),
                          "rows": seen["scored"], **numbers})  # fmt: skip
    return found


def fitted_on(kind: str, group: Group, engines: Mapping[str, JsonMapping]) -> str:
    """What was fitted on the rows of a group; nothing where they were left alone."""
    metric, engine, way, device, _ = group
    measured = engines.get(engine, {})
    if kind == "loaded":
        profile = measured.get("architectures", {}).get(device_of(device).arch.family)
        launches = ", launches of prompts" if profile and "prompt_launch_us" in profile else ""
        if metric.startswith("ttft"):
            return f"front end, first step{launches}" if "front_end" in measured else ""
        return f"launch gap, share of peak{launches}" if metric.startswith("tpot") and profile is not None else ""
    if metric.startswith("ttft"):
        return "front end" if "first_token" in measured else ""
    return "host work" if way in measured.get("host", {}) else ""
