"""Cold start against the imports it cannot avoid, as ratios of medians in one run.

    python benchmarks/speed/cold_start.py

Bars: `estimate` <= 1.8, `--help` <= 1.1, each against `python -c "import typer, pydantic, rich.table, yaml"`.
Modules are compiled before the first round, as an installation has them: PYTHONDONTWRITEBYTECODE would have every run
compile the sources of an editable installation again, which takes longer than the command.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import time

FLOOR = [sys.executable, "-c", "import typer, pydantic, rich.table, yaml"]
ARCHSIM = [sys.executable, "-m", "archsim"]
COMMANDS = {
    "floor": FLOOR,
    "--help": [*ARCHSIM, "--help"],
    "--version": [*ARCHSIM, "--version"],
    "estimate": [*ARCHSIM, "estimate", "llama2-70b", "--hw", "h100"],
    "count": [*ARCHSIM, "count", "deepseek-v3"],
    "list models": [*ARCHSIM, "list", "models"],
}
ROUNDS = 15
COMPILED = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def once(command: list[str]) -> float:
    """CPU seconds (user + system) of one run: steadier than wall time on a shared machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)  # os.times() counts in steps of 10 ms
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=COMPILED)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Interleave the commands, so that drift hits all alike, and print medians and ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    start = time.perf_counter()
    for command in COMMANDS.values():
        once(command)
    for _ in range(ROUNDS):
        for name, command in COMMANDS.items():
            seconds[name].append(once(command))
    floor = statistics.median(seconds["floor"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(f"{name:12} {middle * 1e3:7.0f} ms CPU   {middle / floor:5.2f} x floor")
    print(f"{ROUNDS} rounds in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
