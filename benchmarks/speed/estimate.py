"""One in-process estimate of llama2-70b on H100, median and spread; bar: <= 2 ms.

python benchmarks/speed/estimate.py
"""

from __future__ import annotations

import statistics
import time

import archsim

ROUNDS = 300


def main() -> None:
    """Time `archsim.estimate` with model and device already loaded."""
    model, device = archsim.load_model("llama2-70b"), archsim.load_hardware("h100")
    archsim.estimate(model, device)
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        archsim.estimate(model, device)
        seconds.append(time.perf_counter() - start)
    low, middle, high = (1e3 * q for q in statistics.quantiles(seconds, n=4))
    print(f"estimate llama2-70b: median {middle:.2f} ms, quartiles {low:.2f} to {high:.2f} ms, {ROUNDS} runs")


if __name__ == "__main__":
    main()
