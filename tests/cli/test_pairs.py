"""`compare`, `diff` and `evolve` on the command line: layouts, exit codes, and names that mean harm."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

COMMANDS = {
    "compare": ("compare", "gpt2-small", "gpt2-medium", "--hw", "t4"),
    "diff": ("diff", "gpt2-small", "tinyllama-1.1b"),
    "evolve": ("evolve", "gpt2-small", "tinyllama-1.1b", "--orders", "2", "--context-len", "1k"),
}

HOSTILE = '<script>alert(1)</script>"onload=x|`*=HYPERLINK("http://x")'

SPEC = """
name: {name}
d_model: 64
vocab_size: 100
layers:
  - repeat: 2
    norm: {{kind: rmsnorm}}
    attention: {{kind: gqa, n_heads: 4, n_kv_heads: 2, d_head: 16}}
    ffn: {{kind: swiglu, d_ff: 128}}
"""


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
    assert not re.search(r"(?:src|href)=[\"']?http", html)


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
        (("evolve", "bert-base", "gpt2-xl"), 1),
        (("evolve", "gpt2-xl", "llama3-8b", "--order", "nonsense"), 2),
        (("evolve", "gpt2-xl", "lama-9"), 2),
        (("compare", "gpt2-xl", "--hw", "t4"), 2),
        (("diff", "gpt2-xl"), 2),
    ],
)
def test_refusals(words: tuple[str, ...], code: int, archsim: Any) -> None:
    """What cannot be answered says so on stderr, with its exit code and no traceback."""
    result = archsim(*words)
    assert (result.code, result.out) == (code, "")
    assert "Traceback" not in result.err
    assert result.err


@pytest.mark.parametrize("layout", ["table", "md", "csv", "html", "json"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_hostile_name_is_inert(command: str, layout: str, archsim: Any, tmp_path: Path) -> None:
    """Markup in a name stays text, whatever is written."""
    path = tmp_path / "a.yaml"
    path.write_text(SPEC.format(name=json.dumps(HOSTILE)), "utf-8")
    more = ("--hw", "t4") if command == "compare" else ()
    result = archsim(command, str(path), "gpt2-small", *more, "--format", layout)
    assert result.code == 0
    if layout == "html":
        assert "<script>alert" not in result.out
    if layout == "md":
        assert "<script>" not in result.out.replace("\\<", "")
    if layout == "csv":
        cells = [cell for line in csv.reader(io.StringIO(result.out)) for cell in line]
        assert not [cell for cell in cells if cell.startswith(("=", "@"))]
