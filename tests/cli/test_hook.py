"""`archsim-hook` runs one command on several files, as pre-commit calls it."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from archsim.cli.main import run_on_files

SMALL, LARGE = "specs/models/llama3-8b.yaml", "specs/models/llama2-70b.yaml"
FIT = ("fit", "--hw", "h100", "--check", "-q")


@pytest.mark.parametrize(
    ("words", "code"),
    [((*FIT, "--", SMALL, LARGE), 1), ((*FIT, "--", LARGE, SMALL), 1), ((*FIT, "--", SMALL), 0), ((*FIT, "--"), 0),
     (("count", "-q", "--", SMALL, "nowhere.yaml"), 3), ((*FIT, SMALL), 2), (("--", SMALL), 2)],
)  # fmt: skip
def test_the_worst_file_counts(words: tuple[str, ...], code: int, monkeypatch: Any, capfd: Any) -> None:
    """Every file is looked at; the exit code is the highest, and 2 for a command line without `--`."""
    monkeypatch.setattr(sys, "argv", ["archsim-hook", *words])
    with pytest.raises(SystemExit) as ended:
        run_on_files()
    assert ended.value.code == code
    out = capfd.readouterr().out
    assert code > 1 or out.count("\n") == len(words) - words.index("--") - 1
