"""Long commands say how far they are: on a terminal, on stderr, and nowhere else."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from archsim import api
from archsim.base.progress import counted, heard_by
from archsim.calibration.run import calibrate_tables
from archsim.cli.main import main
from archsim.cli.progress import progress

ROOT = Path(__file__).resolve().parents[2]

KERNELS = "op,device,dtype,m,n,k,time_us\n" + "".join(
    f"gemm,H100-SXM,bf16,{m},{n},4096,{2e-9 * m * n + 5:.3f}\n"
    for m in (1, 16, 64, 256, 1024, 4096) for n in (1024, 2048, 4096, 6144, 8192, 12288)
)  # fmt: skip


def test_items_are_counted_for_a_listener_alone() -> None:
    """Each is heard of before it is worked on, and the end; without a listener nothing happens."""
    heard: list[tuple[int, int | None, str]] = []
    with heard_by(lambda *state: heard.append(state)):
        assert list(counted("ab", "letters")) == ["a", "b"]
        assert list(counted(iter("a"), "letters")) == ["a"]
    assert heard == [
        (0, 2, "letters"),
        (1, 2, "letters"),
        (2, 2, "letters"),
        (0, None, "letters"),
        (1, None, "letters"),
    ]
    assert list(counted("ab", "letters")) == ["a", "b"] and len(heard) == 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "noun"),
    [
        (lambda folder: api.report(["gpt2-small", "gpt2-xl"], "h100", light=True), "candidates"),
        (lambda folder: api.evolve("gpt2-small", "llama2-7b", orders=2), "orders"),
        (lambda folder: api.validate(ROOT / "reports" / "runs" / "exllamav2.yaml"), "rows"),
        (lambda folder: calibrate_tables([folder / "k.csv"], out=folder, dry_run=True), "groups"),
    ],
    ids=["report", "evolve", "validate", "calibrate"],
)  # fmt: skip
def test_long_commands_say_how_far_they_are(work: Callable[[Path], Any], noun: str, tmp_path: Path) -> None:
    """Each counts to its end."""
    (tmp_path / "k.csv").write_text(KERNELS, "utf-8")
    heard: list[tuple[int, int | None, str]] = []
    with heard_by(lambda *state: heard.append(state)):
        work(tmp_path)
    found = [(done, total) for done, total, what in heard if what.startswith(noun)]
    assert found and found[-1][0] == found[-1][1] and found[-1][0] >= 1


class Terminal(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def shown(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, wait: bool) -> str:
    """What a second of work writes on stderr."""
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress("fitting", quiet_s=0):
        for _ in counted(range(7), "tables"):
            deadline = time.monotonic() + 10
            while wait and "of 7 tables" not in stream.getvalue() and time.monotonic() < deadline:
                time.sleep(0.01)
    return stream.getvalue()


def test_a_terminal_shows_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done, and of how much."""
    monkeypatch.delenv("ARCHSIM_NO_PROGRESS", raising=False)
    assert "of 7 tables" in shown(monkeypatch, Terminal(), wait=True)


def test_elsewhere_nothing_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in a pipe, and not where it is not wanted."""
    assert shown(monkeypatch, io.StringIO(), wait=False) == ""
    monkeypatch.setenv("ARCHSIM_NO_PROGRESS", "1")
    assert shown(monkeypatch, Terminal(), wait=False) == ""


def wait_for(stream: io.StringIO, text: str) -> None:
    """Until a text is shown; ten seconds at most."""
    deadline = time.monotonic() + 10
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)


def test_every_command_says_that_it_works_until_it_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command without a bar of its own is named on the terminal; before its first text the line is gone."""
    stream, answer = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(sys, "stdout", answer)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("ARCHSIM_NO_PROGRESS", raising=False)
    monkeypatch.setattr("archsim.cli.progress.WHOLE_COMMAND_S", 0.0)
    held: list[str] = []

    def work(args: list[str]) -> int:
        wait_for(stream, "claims")
        sys.stdout.write("the answer\n")
        held.append(stream.getvalue())
        time.sleep(0.3)
        return 0

    monkeypatch.setattr("archsim.cli.main._dispatch", work)
    assert main(["claims"]) == 0
    assert "claims" in held[0] and answer.getvalue() == "the answer\n"
    assert stream.getvalue() == held[0]


def test_a_bar_takes_the_place_of_the_one_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line at a time."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("ARCHSIM_NO_PROGRESS", raising=False)
    with progress("outer", quiet_s=0):
        wait_for(stream, "outer")
        with progress("inner", quiet_s=0):
            wait_for(stream, "inner")
        end = stream.getvalue().rpartition("inner")[2]
        time.sleep(0.3)
    assert "outer" not in end and stream.getvalue().endswith(end)
