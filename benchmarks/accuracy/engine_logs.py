"""What engines print when they start, beside what `archsim fit` says: `python benchmarks/accuracy/engine_logs.py FILE`.

FILE is YAML with `cases`: what was started (model, weights, engine with its version or month, gpu, degrees, limits),
what the log states (`expect`: fits, kv_gib, kv_tokens; `breakdown_gib.total`: the memory that the process saw, which is
given to `fit`), and a source. Cases with `runnable: false`, and cases with a field that `fit` has no option for, are
listed with the reason. The last line has the share of verdicts that agree and the median error.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import archsim
from archsim.base.errors import ArchsimError
from archsim.engines.names import choose_engine
from archsim.memory.check_fit import Fit

GIB = 2**30

TOLD = frozenset({"id", "runnable", "model", "weights", "engine", "gpu", "expect", "breakdown_gib", "note", "source"})
"""Fields with a meaning of their own; all others are options of `fit`."""

SPELT = {"awq_w4_g128": "awq_int4", "gptq_w4_g128": "gptq_int4"}
"""Formats as people write them."""


@dataclass(frozen=True, slots=True)
class LoggedStart:
    """One start: what the log states and what `fit` says; `refused` where there is no answer, with the reason."""

    id: str
    stated: Mapping[str, Any]
    answer: Fit | None
    refused: str = ""

    @property
    def agrees(self) -> bool | None:
        """Whether the verdict is that of the log; TIGHT agrees with both."""
        if self.answer is None or "fits" not in self.stated:
            return None
        return bool(self.answer.fits == self.stated["fits"] or self.answer.verdict == "TIGHT")

    @property
    def errors(self) -> dict[str, float]:
        """Relative errors of the cache's room, and of its tokens, where the log states them and the engine started."""
        if self.answer is None:
            return {}
        said = {"kv_gib": self.answer.budget.room / GIB, "kv_tokens": self.answer.kv_tokens}
        return {
            name: float(value) / self.stated[name] - 1
            for name, value in said.items()
            if value is not None and self.stated.get(name) and not (name == "kv_tokens" and not self.stated["fits"])
        }


def read_starts(cases: Sequence[Mapping[str, Any]]) -> list[LoggedStart]:
    """Every case of a file, answered or refused."""
    return [read_start(case) for case in cases]


def read_start(case: Mapping[str, Any]) -> LoggedStart:
    """One case through `fit`."""
    stated = case.get("expect", {})
    if case.get("runnable") is False:
        return LoggedStart(case["id"], stated, None, "cannot be run as stated")
    try:
        answer = archsim.fit(_model(case["model"]), _device(case["gpu"]), suggest=False, **options(case))
    except ArchsimError as error:
        return LoggedStart(case["id"], stated, None, str(error).splitlines()[0])
    return LoggedStart(case["id"], stated, answer)


def options(case: Mapping[str, Any]) -> dict[str, Any]:
    """The options of `fit` that a case states."""
    found = {name: value for name, value in case.items() if name not in TOLD}
    weights, total = case.get("weights"), case.get("breakdown_gib", {}).get("total")
    if weights is not None:
        found["weights"] = SPELT.get(weights, weights)
    if total is not None:
        found["visible_memory"] = round(total * GIB)
    if "eager" in case["engine"]:
        found["enforce_eager"] = True
    return found | {"engine": _engine(case["engine"])}


def _engine(text: str) -> str:
    """`vLLM 0.6.x V0` as `vllm@0.6.x`; a month stands for the newest version that was out by its end."""
    name = text.split()[0].rstrip(",")
    version = re.search(r"\b(v?\d+(?:\.\d+)+(?:\.x)?(?:rc\d+)?|b\d{4,5})\b", text)
    month = re.search(r"\b([A-Z][a-z]{2})[a-z]* (20\d\d)\b", text)
    if month:
        end = datetime.strptime(f"{month[1]} {month[2]}", "%b %Y").strftime("%Y-%m-31")
        out = [number for number, day in choose_engine(name).rules.released.items() if day <= end]
        return f"{name}@{out[-1]}" if out else name
    return f"{name}@{version[1]}" if version else name


def _model(text: str) -> str:
    """The model's name without a remark in brackets."""
    return re.sub(r"\s*\(.*\)$", "", text)


def _device(text: str) -> str:
    """The device; `L4-24` with the memory behind the name where the catalog does not spell it so."""
    try:
        archsim.load_hardware(text)
    except ArchsimError:
        return re.sub(r"-\d+(GB)?$", "", text)
    return text


def table(starts: Sequence[LoggedStart]) -> str:
    """One line for each start, and the summary."""
    lines = []
    for start in starts:
        if start.answer is None:
            lines.append(f"{start.id:6} refused: {start.refused}")
            continue
        errors = "  ".join(f"{name} {start.stated[name]} {error:+.1%}" for name, error in start.errors.items())
        verdict = {True: "agrees", False: "DIFFERS", None: "not stated"}[start.agrees]
        lines.append(f"{start.id:6} {start.answer.verdict:5} {verdict:10} {errors}")
    agreed = [start.agrees for start in starts if start.agrees is not None]
    sizes = [abs(error) for start in starts for error in start.errors.values()]
    middle = f"{median(sizes):.1%}" if sizes else "none"
    lines.append(f"{sum(agreed)} of {len(agreed)} verdicts agree; median error of {len(sizes)} figures {middle}")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(read_starts(yaml.safe_load(Path(sys.argv[1]).read_text("utf-8"))["cases"])))
