"""Options and helpers that all tests share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

SLOW = (
    "accuracy/test_model.py", "backend", "docs", "importers/test_random_configs.py", "measure", "oracles",
    "render/test_browser.py", "tracing", "ui/test_browser.py",
)  # fmt: skip
"""Not even imported under `--fast`: they run PyTorch, browsers, whole documentation pages or measurements, and what
they import takes seconds.
"""


gc.set_threshold(10_000, 50, 100)
"""Graphs and models that tests share stay for the whole run; by default a sixth of its time went to looking for cycles
among them again and again. A process still takes about 500 MB."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--update-goldens` writes golden files instead of comparing with them; `--fast` is what `make test` runs."""
    parser.addoption("--update-goldens", action="store_true", help="write the golden files anew")
    parser.addoption("--fast", action="store_true", help="leave out what is marked slow and the slow folders")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Under `--fast`, what `SLOW` names is passed over."""
    fast = config.getoption("--fast")
    return True if fast and collection_path in [ROOT / "tests" / place for place in SLOW] else None


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, obj: object) -> list[pytest.Item] | None:
    """Under `--fast`, the cases of a function that is marked slow are not even made."""
    if not collector.config.getoption("--fast"):
        return None
    slow = collector.get_closest_marker("slow") or any(mark.name == "slow" for mark in getattr(obj, "pytestmark", ()))
    return [] if slow else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Every other worker of `pytest -n` reads folders from their end, so that in a fresh clone each file is compiled
    by one worker and read by the others.
    """
    report = yield
    backwards = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 2
    if backwards and isinstance(collector, pytest.Directory):
        report.result.reverse()
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under `--fast`, what is marked slow is left out, and of what is marked `sampled(n)` every n-th case is run."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: item.path)  # workers must agree on the order
    if config.getoption("--fast"):
        cases: Counter[str] = Counter()
        passed = [item for item in items if item.get_closest_marker("slow") or not _in_sample(item, cases)]
        config.hook.pytest_deselected(items=passed)
        left_out = set(passed)
        items[:] = [item for item in items if item not in left_out]


def _in_sample(item: pytest.Item, cases: Counter[str]) -> bool:
    """Whether a case of a function with many belongs to the sample; counts the cases met so far."""
    mark = item.get_closest_marker("sampled")
    if mark is None:
        return True
    name = item.nodeid.partition("[")[0]
    cases[name] += 1
    return cases[name] % int(mark.args[0]) == 1


@dataclass(frozen=True)
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str


@pytest.fixture
def archsim(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """Runs a command line in this process, from the repository root unless told otherwise. terminal: columns of the
    terminal, where there is one.
    """
    from archsim.cli.main import main

    def run(*args: str, cwd: Path = ROOT, terminal: int | None = None) -> Result:
        monkeypatch.chdir(cwd)
        monkeypatch.delenv("ARCHSIM_DEBUG", raising=False)
        monkeypatch.delenv("COLUMNS", raising=False)
        if terminal is not None:
            monkeypatch.setenv("COLUMNS", str(terminal))
        capfd.readouterr()
        code = main(list(args))
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def archsim_process() -> Callable[..., Result]:
    """Runs a command line in a process of its own."""

    def run(args: Sequence[str], cwd: Path = ROOT, env: dict[str, str] | None = None) -> Result:
        variables = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
        for name in {"ARCHSIM_DEBUG", "COLUMNS"} - set(env or {}):
            variables.pop(name, None)
        command = [sys.executable, "-m", "archsim", *args]
        done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=120)
        return Result(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compares a text with `tests/golden/NAME`, or writes the file under `--update-goldens`."""

    def check(name: str, text: str) -> None:
        path = ROOT / "tests" / "golden" / name
        if request.config.getoption("--update-goldens"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        assert path.read_text("utf-8") == text, f"{name} differs; --update-goldens writes it anew"

    return check
