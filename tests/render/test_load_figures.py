"""Charts of a simulated load."""

from __future__ import annotations

import pytest

import archsim
from archsim.render.figures.load import over_time


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_server_over_time(replicas: int) -> None:
    """One server shows its steps, several their sums; what waits and what is cached is said of the same curves."""
    answer = archsim.simulate(
        "gpt2-small", "t4", rate=100, requests=60, input_len=200, output_len=30, replications=1, replicas=replicas,
        expected_only=True, max_num_seqs=8, prefix_cache="off",
    )  # fmt: skip
    chart = over_time(answer)
    running, waiting, used = (list(trace["y"]) for trace in chart.traces)
    assert len(running) == len(waiting) == len(used) > 10
    assert 4 * replicas < max(running) <= 8 * replicas + 1e-9 and max(waiting) > 0 and 0 < max(used) < 1
    assert "at most 0 requests" not in chart.finding and "0.0 %" not in chart.finding
    assert max(running) <= answer.state["running"]["max"] + 1e-9
