"""The page of what can be opened."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from importlib import metadata

from rows import Row

VERDICTS = {
    "equal": "counted by the importer, equal to the class",
    "different": "counted by the importer, different from the class",
    "no class": "counted by the importer, transformers cannot build its own class",
    "refused": "refused by the importer",
    "no default": "transformers has no default config",
}


EXPLAINED = {
    "longcat_flash": "the class allots matrices to experts that pass through, which no checkpoint has",
    "qwen2_5_omni": "its class holds a talker and a vocoder besides, which are no part of what archsim counts",
    "stepfun-ai--Step-3.7-Flash_config": "the class takes its default vocabulary, 81 rows fewer than the file's",
    "stepfun-ai--Step-3.7-Flash-FP8_config": "the same",
}
"""Why a count is not that of the class."""


def page(rows: Sequence[Row], released: Sequence[Row]) -> str:
    """The whole page."""
    import torch
    import transformers

    head = [
        "# What archsim can open",
        "",
        f"Every model type of transformers {transformers.__version__} that reads or writes text, with the default "
        f"values of its config, and released configs. Counts are compared with the parameters of the class of "
        f"transformers on the meta device (torch {torch.__version__}{also()}). Written by "
        f"`python benchmarks/coverage/coverage.py`.",
        "",
    ]
    types = [*summary(rows), *towers(rows), *refusals(rows), *untraced(rows)]
    files = ["## Released configs", "", *summary(released), *refusals(released)] if released else []
    return "\n".join([*head, "## Model types", "", *types, *files]).rstrip() + "\n"


def also() -> str:
    """What is installed beside torch that some classes need."""
    found = []
    for name in ("pillow", "timm", "torchvision"):
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    return ", " + ", ".join(found) if found else ""


def summary(rows: Sequence[Row]) -> list[str]:
    """How many came to which end."""
    lines = ["| | |", "|---|--:|"]
    for verdict, words in VERDICTS.items():
        n = sum(row.verdict == verdict for row in rows)
        lines += [f"| {words} | {n} |"] if n else []
    by_trace = sum(row.verdict != "equal" and row.traced_as is not None for row in rows)
    lines += [f"| of the others, counted by a trace (`--via transformers`) | {by_trace} |"] if by_trace else []
    lines += [f"| all | {len(rows)} |", ""]
    different = [row for row in rows if row.verdict == "different"]
    lines += [f"- `{r.name}`: {r.counted_by_importer:,}, the class has {r.known:,}{why(r)}" for r in different]
    return [*lines, ""] if different else lines


def towers(rows: Sequence[Row]) -> list[str]:
    """How many sums with encoders are those of the class."""
    held = [row for row in rows if row.towers is not None]
    if not held:
        return []
    wrong = [f"`{row.name}`{why(row)}" for row in held if not row.towers and row.verdict == "equal"]
    text = f"{len(held)} of them have encoders of images or sounds; {sum(bool(r.towers) for r in held)} sums with all "
    return [text + "encoders are those of the class" + (f", not {', '.join(wrong)}." if wrong else "."), ""]


def why(row: Row) -> str:
    """The explanation of a difference, where there is one."""
    return f" ({EXPLAINED[row.name]})" if row.name in EXPLAINED else ""


def refusals(rows: Sequence[Row]) -> list[str]:
    """Refused configs by reason."""
    refused = [row for row in rows if row.verdict in ("refused", "no default")]
    if not refused:
        return []
    lines = ["| why the importer refuses | | |", "|---|--:|---|"]
    for reason, held in grouped(refused, lambda row: general(row.reason)):
        lines.append(f"| {reason} | {len(held)} | {', '.join(row.name + mark(row) for row in held)} |")
    return [*lines, "", "\\* counted by a trace.", ""] if any(row.traced_as for row in refused) else [*lines, ""]


def mark(row: Row) -> str:
    """A star where a trace counts it."""
    return "\\*" if row.traced_as is not None else ""


def untraced(rows: Sequence[Row]) -> list[str]:
    """Types that neither the importer nor a trace counts, by reason."""
    left = [row for row in rows if not row.counted and row.trace_reason]
    if not left:
        return []
    lines = ["| why there is no trace either | | |", "|---|--:|---|"]
    for reason, held in grouped(left, lambda row: general(row.trace_reason, row.name)):
        lines.append(f"| {reason} | {len(held)} | {', '.join(row.name for row in held)} |")
    return [*lines, ""]


def grouped(rows: Sequence[Row], key: Callable[[Row], str]) -> list[tuple[str, list[Row]]]:
    """Rows with the same key, the largest groups first."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))


def general(reason: str, name: str = "") -> str:
    """A reason without what differs from type to type."""
    reason = re.sub(r"unknown model_type .*", "unknown model_type", reason)
    reason = re.sub(r"^model_type \S+ cannot be imported: ", "", reason)
    reason = reason.replace(f"`{name}`", "it") if name else reason
    reason = re.sub(rf"\b{re.escape(name)}\b", "it", reason) if name else reason
    return reason.replace("|", "/").replace("\n", " ")[:160]
