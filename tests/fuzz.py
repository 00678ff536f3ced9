"""Runs random inputs through the command line, in this process, and says which of them it does not survive.

`python tests/fuzz.py --inputs 25000 --workers 2` is the full run; `--only 17` runs one input again and prints
what it does. Of every input must hold: an exit code of the contract and no defect of archsim (E199), no traceback and
no library's warning, an error in less than ten lines, an end after at most 20 seconds of work, and no file changed,
lost or left.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # this source, whatever is installed

from fuzz_inputs import Input, make

from archsim.cli.main import main

HANG_S = 20
CODES = (0, 1, 2, 3, 74)
LINES = 10
SENTINEL = {"keep.yaml": b"mine\n", "reports/accuracy.md": b"mine\n"}
"""Files that no command has to do with."""


class Hang(BaseException):
    """The time is up."""


@dataclass(frozen=True)
class Outcome:
    """What an input did. wrong: what must not be, in words; empty where all is well."""

    number: int
    kind: str
    words: tuple[str, ...]
    code: int
    seconds: float
    wrong: str
    err: str = ""


def check(seed: int, number: int, kind: str = "") -> Outcome:
    """Run the input of a number in a folder of its own. kind: as of `make`."""
    given = make(seed, number, kind)
    with tempfile.TemporaryDirectory(prefix="archsim-fuzz-") as name:
        folder = Path(name)
        before = {folder / place: data for place, data in (SENTINEL | dict(given.files)).items()}
        for path, data in before.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        start = time.process_time()
        code, out, err, trouble = execute(given, folder)
        seconds = time.process_time() - start
        after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    wrong = trouble or judge(given, code, out, err, before, after)
    return Outcome(number, given.kind, given.words, code, seconds, wrong, err if wrong else "")


def execute(given: Input, folder: Path) -> tuple[int, str, str, str]:
    """Exit code, stdout, stderr, and what went wrong beyond them."""
    out, err = io.StringIO(), io.StringIO()
    home = Path.cwd()
    os.chdir(folder)
    settings = {"ARCHSIM_DEBUG": "1", "COLUMNS": "1000"}  # a defect says where it is; lines are not wrapped
    try:
        with patch.dict(os.environ, settings), redirect_stdout(out), redirect_stderr(err), time_limit(HANG_S):
            return main(list(given.words)), out.getvalue(), err.getvalue(), ""
    except Hang:
        place = "".join(traceback.format_exc().splitlines(keepends=True)[-8:])
        return -1, out.getvalue(), place, f"a hang of more than {HANG_S} s"
    except BaseException as error:
        return -1, out.getvalue(), traceback.format_exc(), f"an exception: {type(error).__name__}"
    finally:
        os.chdir(home)


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Ends what runs inside after so many seconds of work, or six times as many on the clock."""

    def stop(number: int, frame: object) -> None:
        raise Hang

    timers = ((signal.ITIMER_PROF, signal.SIGPROF, seconds), (signal.ITIMER_REAL, signal.SIGALRM, 6 * seconds))
    before = [signal.signal(number, stop) for _, number, _ in timers]
    for timer, _, most in timers:
        signal.setitimer(timer, most)
    try:
        yield
    finally:
        for (timer, number, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def judge(given: Input, code: int, out: str, err: str, before: dict[Path, bytes], after: dict[Path, bytes]) -> str:
    """What must not be, or nothing."""
    if "E199" in err or "internal error" in out or code == 70:
        return "an internal error"
    if code not in CODES:
        return f"exit code {code}"
    if "Traceback" in err or re.search(r"\w*Warning: ", err):
        return "a traceback or a library's warning"
    if lost := [path.name for path, data in before.items() if after.get(path) != data]:
        return f"a file changed: {', '.join(lost)}"
    asked = {Path(word).name for word in given.words if "\0" not in word} if code in (0, 1) else set()
    more = [path.name for path in after if path not in before and path.name not in asked]
    if more and not (given.words[0] in ("report", "measure") and code in (0, 1)):
        return f"a file left behind: {', '.join(more)}"
    message = err[err.rindex("error") :] if code in (2, 3) and "error" in err else ""
    if len(message.splitlines()) > LINES or len(message) > 6000:
        return f"a message of {len(message.splitlines())} lines"
    return ""


def outcomes(seed: int, numbers: Iterable[int], workers: int = 1, kind: str = "") -> Iterator[Outcome]:
    """Every input's outcome; in processes of their own where there are several workers."""
    if workers == 1:
        yield from (check(seed, number, kind) for number in numbers)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(check, *zip(*((seed, n, kind) for n in numbers), strict=True), chunksize=25)


def show(outcome: Outcome) -> str:
    """An outcome that must not be."""
    words = " ".join(word if len(word) < 80 else word[:77] + "..." for word in outcome.words)
    return f"input {outcome.number} ({outcome.kind}): {outcome.wrong}\n  archsim {words!r}\n{outcome.err[-3000:]}\n"


def run(arguments: argparse.Namespace) -> int:
    """The inputs that were asked for; prints those that fail, and a summary."""
    numbers: Any = arguments.only or range(arguments.start, arguments.start + arguments.inputs)
    kinds: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    failed, slowest = 0, 0.0
    for done, outcome in enumerate(outcomes(arguments.seed, numbers, arguments.workers, arguments.kind), 1):
        kinds[outcome.kind] += 1
        codes[outcome.code] += 1
        slowest = max(slowest, outcome.seconds)
        if outcome.wrong:
            failed += 1
            print(show(outcome), flush=True)
        if done % 1000 == 0:
            print(f"{done:,} inputs, {failed} failed, the slowest took {slowest:.1f} s", flush=True)
    print(f"inputs by kind: {dict(kinds)}\nby exit code: {dict(codes)}\nslowest: {slowest:.1f} s\nfailed: {failed}")
    return 1 if failed else 0


def parse() -> argparse.Namespace:
    """The options of the full run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=25_000)
    parser.add_argument("--start", type=int, default=0, help="number of the first one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--kind", choices=("", "trace"), default="", help="traces and options of `simulate` alone")
    parser.add_argument("--only", type=int, nargs="*", help="numbers of inputs")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(run(parse()))
