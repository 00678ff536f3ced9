"""Standard output that is full, closed or left by its reader, for every layout and for errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = [
    ("list", "hw", "--json"),
    ("list", "hw"),
    ("count", "gpt2-small", "--json"),
    ("sweep", "gpt2-small", "--hw", "t4", "--batch", "1-3000", "--format", "csv"),
    ("sweep", "gpt2-small", "--hw", "t4", "--batch", "1-3000", "--json"),
    ("count", "no-such-model", "--json"),
    ("estimate", "--help"),
    ("--version",),
]


def run(args: tuple[str, ...], shell: str) -> subprocess.CompletedProcess[str]:
    """A command line whose streams the shell has redirected."""
    command = f'"{sys.executable}" -m archsim "$@" {shell}'
    return subprocess.run(
        ["bash", "-c", command, "bash", *args], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_output_that_cannot_be_written(args: tuple[str, ...]) -> None:
    """74 and one line on stderr: on a full device, and where stdout is closed."""
    for shell in (">/dev/full", ">&-"):
        done = run(args, shell)
        assert done.returncode == 74, (shell, done)
        assert done.stderr.startswith("error[E141]: ") and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_readers_that_leave(args: tuple[str, ...]) -> None:
    """141, and nothing is said."""
    done = run(args, "| true; exit ${PIPESTATUS[0]}")
    if done.returncode != 141:  # what fits into the pipe may be written before `true` has ended
        done = run(args, "> >(exec <&-; sleep 20); exit $?")
    assert (done.returncode, done.stderr) in ((141, ""), (0, ""), (2, "")), done


@pytest.mark.parametrize("shell", ["2>/dev/full", "2>&-"])
def test_a_closed_standard_error_changes_no_answer(shell: str) -> None:
    """The answer and the exit code stay."""
    done = run(("count", "gpt2-small", "--json"), shell)
    assert done.returncode == 0 and done.stdout.startswith("{")
    assert run(("count", "no-such-model"), shell).returncode == 2
