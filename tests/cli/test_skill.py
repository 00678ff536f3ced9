"""The skill for assistants: ten questions, each answered by the command and the field that it names."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

SKILL = Path(__file__).resolve().parents[2] / "skills" / "archsim" / "SKILL.md"
QUESTIONS = re.findall(r"^\| (.+\?) \| `archsim (.+)` \| (.+) \|$", SKILL.read_text("utf-8"), flags=re.M)

KNOWN = {
    "params.total": 671_026_404_352, "params.active": 671_026_404_352 - 58 * 248 * 3 * 7168 * 2048,
    "kv_cache.bytes_per_token": 2 * 80 * 8 * 128 * 2, "verdict": "NO", "phases.decode.bound": "memory",
}  # fmt: skip
"""What is published or follows from the config by hand."""

BETWEEN = {
    "kv_tokens": (380_000, 480_000),  # (0.92 of 80 GiB less 16.06 GB of weights and 1 to 6 GB) / 131,072 B
    "metrics.ttft_s": (2 * 68.5e9 * 4096 / (2 * 989.4e12), 1.0),  # two FLOP a parameter and token at the peak
    "metrics.tpot_s": (137.95e9 / 2 / 3.35e12, 0.05),  # every weight once at the bandwidth
    "phases.decode.ideal_s": (137.4e9 / 2 / 3.352e12, 1.1 * 138e9 / 2 / 3.35e12),
    "candidates[0].figures.tpot_s": (65.5e9 / 8e12, 0.04),
    "candidates[1].time_ratio.decode.value": (1.5, 2.6),  # 69 / 32.8 parameters
    "metrics.tpot_s.p50.value": (16.06e9 / 3.35e12, 0.03),
    "run.days": (6 * 8.03e9 * 15e12 / (1024 * 989.4e12) / 86400, 40),
    "metrics.mfu_causal": (0.3, 0.7),
    "laws[0].params": (40e9, 100e9), "laws[0].tokens": (1.0e12, 2.0e12),  # Chinchilla: 70e9, 1.4e12
}  # fmt: skip


def _field(answer: Any, path: str) -> Any:
    for key in re.findall(r"\w+", path):
        answer = answer[int(key)] if key.isdigit() else answer[key]
    return answer


def test_there_are_ten_questions() -> None:
    """And each names a field."""
    assert len(QUESTIONS) == 10


@pytest.mark.slow
@pytest.mark.parametrize(("question", "command", "fields"), QUESTIONS)
def test_a_question_is_answered(question: str, command: str, fields: str, archsim: Any) -> None:
    """By one command, with `--json` alone, by a figure that can be checked otherwise."""
    result = archsim(*shlex.split(command))
    assert result.code == 0, result.err
    answer = json.loads(result.out)
    checked = 0
    for path in re.findall(r"`([^`]+)`", fields):
        value = _field(answer, path)
        assert value is not None, (question, path)
        if path in KNOWN:
            assert value == KNOWN[path], (path, value)
        elif path in BETWEEN:
            low, high = BETWEEN[path]
            assert low <= value <= high, (path, value)
        checked += path in KNOWN or path in BETWEEN
    assert checked
