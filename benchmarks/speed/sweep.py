"""Points a second of a sweep of llama2-70b over batch, context, 4 formats and 4 devices, on one core.

    OMP_NUM_THREADS=1 python benchmarks/speed/sweep.py

Bars: core metrics (fits, memory, ideal times) >= 4 million points/s, with expected times >= 1 million;
a cold `archsim sweep` of 10,000 points <= 3 s.
Seconds are of the processor, which a busy machine disturbs less than those of a clock.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import archsim

MODEL, DEVICES, FORMATS = "llama2-70b", "a100,h100,h200,mi300x", "bf16,fp8,int8,int4"
CORE = "devices,fits,memory_bytes_per_device,prefill_ideal_s,decode_ideal_s"
EXPECTED = CORE + ",ttft_s,tpot_s,tokens_per_s_per_device,decode_low_s,decode_high_s,decode_evidence"
GRID = {"batch": "1-256+1", "input_len": "128-32768+128"}
ROUNDS = 5


def rate(columns: str, devices: str) -> float:
    """Points a second, the best of some rounds."""
    swept = archsim.sweep(MODEL, DEVICES, weights=FORMATS, devices=devices, columns=columns, **GRID)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        points = sum(chunk.points for chunk in swept.chunks())
        best = min(best, time.process_time() - start)
    assert points == swept.points == 256 * 256 * 16
    return points / best


def command(suffix: str, *options: str) -> tuple[float, float]:
    """Processor seconds and peak MB of a command of its own that writes a file."""
    with tempfile.TemporaryDirectory() as folder:
        out = ["--out", str(Path(folder) / f"sweep{suffix}")]
        call = [sys.executable, "-m", "archsim", "sweep", MODEL, "--hw", DEVICES, "--weights", FORMATS]
        process = subprocess.Popen([*call, *options, *out], stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        assert status == 0
        return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def main() -> None:
    """Print the rates and the two commands."""
    for name, columns in (("core", CORE), ("expected times", EXPECTED), ("all columns", "")):
        fixed, auto = rate(columns, "8"), rate(columns, "auto")
        print(f"{name:15} {fixed / 1e6:5.2f} M points/s on 8 devices, {auto / 1e6:5.2f} M/s with `--devices auto`")
    seconds, _ = command(".csv", "--batch", "1-16+1", "--input-len", "128-5000+128")
    print(f"cold sweep of 16 x 39 x 16 = 9,984 points to CSV: {seconds:.2f} s")
    if "--large" in sys.argv:
        seconds, peak = command(".parquet", "--batch", "1-400+1", "--input-len", "16-25000+16", "--devices", "8")
        print(f"9,996,800 points to Parquet, all columns: {seconds:.0f} s, peak {peak:.0f} MB")
    print(f"this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main()
