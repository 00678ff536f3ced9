"""`compare`, `diff` and `evolve` on the command line: layouts, exit codes, and what does not fit."""

from __future__ import annotations

import csv
import io
import json
import re
from typing import Any

import pytest

COMMANDS = {
    "compare": ("compare", "gpt2-small", "gpt2-medium", "--hw", "t4"),
    "diff": ("diff", "gpt2-small", "tinyllama-1.1b"),
    "evolve": ("evolve", "gpt2-small", "tinyllama-1.1b", "--orders", "2", "--context-len", "1k"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_layouts(command: str, archsim: Any) -> None:
    """Every layout is what it says: a page, Markdown tables, one JSON object, rows, one HTML file."""
    words = COMMANDS[command]
    page = archsim(*words)
    assert page.code == 0
    assert max(map(len, page.out.splitlines())) <= 100
    assert "| --- |" in archsim(*words, "--format", "md").out
    assert json.loads(archsim(*words, "--json").out)["schema"] == f"archsim.{command}/1"
    rows = list(csv.DictReader(io.StringIO(archsim(*words, "--format", "csv").out)))
    assert len(rows) >= 2
    html = archsim(*words, "--format", "html").out
    assert html.startswith("<!doctype html>")
    assert "default-src 'none'" in html
    assert not re.search(r"(?:src|href)=[\"']?http", re.sub(r"<script>.*?</script>", "", html, flags=re.S))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_two_runs_are_the_same_bytes(command: str, archsim: Any) -> None:
    """Nothing depends on time or chance."""
    for layout in ("table", "html"):
        words = (*COMMANDS[command], "--format", layout)
        assert archsim(*words).out == archsim(*words).out


def test_exit_code_of_diff(archsim: Any) -> None:
    """`--exit-code` answers 1 where the architectures differ, 0 where they do not."""
    assert archsim("diff", "gpt2-small", "gpt2-medium").code == 0
    assert archsim("diff", "gpt2-small", "gpt2-medium", "--exit-code").code == 1
    same = archsim("diff", "deepseek-v3", "deepseek-r1", "--exit-code")
    assert same.code == 0
    assert "the same architecture" in same.out


def test_set_changes_all_but_the_first(archsim: Any) -> None:
    """A model beside itself, changed."""
    words = ("llama3-8b", "llama3-8b", "--set", "attention.n_kv_heads=1")
    result = archsim("compare", *words, "--hw", "h100", "--json")
    rates = [c["figures"]["kv_bytes_per_token"] for c in json.loads(result.out)["candidates"]]
    assert rates[0] == 8 * rates[1]
    steps = json.loads(archsim("evolve", *words, "--json").out)["steps"]
    assert [step["decisions"] for step in steps] == [["sharing"]]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("evolve", "gpt2-xl", "llama3-8b", "--order", "nonsense"), 2),
        (("evolve", "gpt2-xl", "lama-9"), 2),
        (("compare", "gpt2-xl", "--hw", "t4"), 2),
        (("compare", "gpt2-xl", "gpt2-small"), 2),
        (("compare", "gpt2-xl", "gpt2-small", "--hw", "t4", "--batch", "x"), 2),
        (("diff", "gpt2-xl"), 2),
    ],
)
def test_refusals(words: tuple[str, ...], code: int, archsim: Any) -> None:
    """What cannot be answered says so on stderr, with its exit code and no traceback."""
    result = archsim(*words)
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    assert result.err


@pytest.mark.sampled(16)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("llama2-70b", "deepseek-v3", "--hw", "h100", "--devices", "2"), 0),
        (("llama2-70b", "deepseek-v3", "--hw", "t4", "--devices", "1"), 1),
        (("llama3-8b", "gpt2-xl", "--hw", "h100", "--tp", "4"), 0),
        (("llama3-8b", "gpt2-xl", "--hw", "h100", "--tp", "3"), 1),
    ],
)
@pytest.mark.parametrize("layout", ["table", "json", "csv", "md"])
def test_what_does_not_fit_is_said(words: tuple[str, ...], code: int, layout: str, archsim: Any) -> None:
    """One that does not fit leaves the others answered; where none does, the exit code is 1 and stderr says so."""
    result = archsim("compare", *words, "--format", layout)
    assert result.code == code
    assert ("error: none of the candidates" in result.err) is (code == 1)
    if layout == "json":
        assert [c["fits"] for c in json.loads(result.out)["candidates"]] == [code == 0, False]
    elif layout == "csv":
        lines = [x for x in csv.DictReader(io.StringIO(result.out)) if x["row"] == "candidate"]
        assert [x["fits"] for x in lines] == [str(code == 0).lower(), "false"]
    else:
        assert re.search("does not fit|Not answered", result.out)


@pytest.mark.slow
def test_three_models_on_two_devices_stay_within_a_terminal(archsim: Any) -> None:
    """No line is wider than the page, and a ranking is on one line."""
    result = archsim("compare", "llama2-70b", "deepseek-v3", "qwen3-235b-a22b", "--hw", "h100,h200")
    assert max(map(len, result.out.splitlines())) <= 100
    ranked = [line for line in result.out.splitlines() if line.startswith("    decode")]
    assert len(ranked) == 5
    assert all("sure" in line or "cannot be told" in line for line in ranked)


def test_a_range_compares_each_batch(archsim: Any) -> None:
    """A table for each workload, and sizes once."""
    out = archsim("compare", "gpt2-small", "gpt2-medium", "--hw", "t4", "--batch", "1,8").out
    assert [out.count(text) for text in ("Expected time at batch 1 ", "Expected time at batch 8 ", "Size ")] == [
        1,
        1,
        1,
    ]
