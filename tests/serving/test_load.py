"""Random streams and the order in which requests are handed out, against plain computations of the same."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.serving.load import Arrivals, Requests
from archsim.serving.random_numbers import Stream


def test_a_number_of_a_stream_depends_on_its_place_alone() -> None:
    """One by one, all at once and from the middle on they are equal, and other purposes have others."""
    stream = Stream.of(7, "lengths")
    every = list(stream.uniforms(50))
    assert every == [stream.uniform(i) for i in range(50)]
    assert every[20:] == list(stream.uniforms(30, first=20))
    assert every != list(Stream.of(7, "arrivals").uniforms(50)) != list(Stream.of(8, "arrivals").uniforms(50))


def test_numbers_are_uniform_and_uncorrelated() -> None:
    """Mean, variance and the correlation of neighbours of 100,000 numbers, within five standard errors."""
    values = Stream.of(0, "arrivals").uniforms(100_000)
    mean = sum(values) / len(values)
    assert abs(mean - 0.5) < 5 * (1 / 12 / len(values)) ** 0.5
    assert abs(sum((v - mean) ** 2 for v in values) / len(values) * 12 - 1) < 0.02
    neighbours = sum((a - mean) * (b - mean) for a, b in pairwise(values)) / len(values) * 12
    assert abs(neighbours) < 5 / len(values) ** 0.5


@pytest.mark.slow
def test_every_process_draws_the_same() -> None:
    """Nothing depends on the hash seed of a process."""
    line = "from archsim.serving.random_numbers import Stream; print(list(Stream.of(3, 'x', 2).uniforms(3)))"
    shown = {
        subprocess.run(
            [sys.executable, "-c", line], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert shown == {f"{list(Stream.of(3, 'x', 2).uniforms(3))}\n"}


def serve(requests: Requests, service_s: list[float]) -> list[tuple[int, float]]:
    """Requests in the order handed out, each with its time, on servers without end: each takes its service time."""
    arrivals, running, out = Arrivals(requests), [(inf, -1)], []
    while arrivals.next_s < inf or len(running) > 1:
        end = min(running)
        if end[0] <= arrivals.next_s:
            running.remove(end)
            arrivals.complete(end[1], end[0])
        else:
            now, index = arrivals.next_s, arrivals.pop()
            out.append((index, now))
            running.append((now + service_s[index], index))
    return out


times = st.lists(st.floats(0, 100), min_size=1, max_size=30).map(sorted)


@given(times)
def test_an_open_loop_hands_out_each_at_its_time(arrival_s: list[float]) -> None:
    """Whatever runs meanwhile."""
    n = len(arrival_s)
    requests = Requests(arrival_s=arrival_s, input_len=[1] * n, output_len=[1] * n)
    assert serve(requests, [3.0] * n) == list(enumerate(arrival_s))


@given(times, st.integers(1, 5), st.data())
def test_no_more_than_the_limit_are_in_flight(arrival_s: list[float], limit: int, data: st.DataObject) -> None:
    """Each comes at its time or when there is room, whichever is later: a queue of `limit` servers."""
    n = len(arrival_s)
    service = data.draw(st.lists(st.floats(0.1, 50), min_size=n, max_size=n))
    requests = Requests(arrival_s=arrival_s, input_len=[1] * n, output_len=[1] * n, concurrency=limit)
    free, expected = [0.0] * limit, []
    for index, at in enumerate(arrival_s):
        free.sort()
        start = max(at, free[0])
        expected.append((index, start))
        free[0] = start + service[index]
    assert serve(requests, service) == expected


def test_a_place_is_taken_when_its_own_request_has_ended() -> None:
    """Also where others have ended since and nobody has come yet: an engine that has scheduled a step takes no arrivals
    before it ends.
    """
    arrivals = Arrivals(Requests(arrival_s=[0.0] * 6, input_len=[1] * 6, output_len=[1] * 6, concurrency=3))
    assert [arrivals.pop() for _ in range(3)] == [0, 1, 2] and arrivals.next_s == inf
    for index, end_s in ((1, 5.0), (0, 7.0), (2, 7.5)):
        arrivals.complete(index, end_s)
    seen = [(arrivals.next_s, arrivals.pop()) for _ in range(3)]
    assert seen == [(5.0, 3), (7.0, 4), (7.5, 5)] and arrivals.next_s == inf


def test_a_turn_waits_for_the_answer_before_it_and_for_its_reader() -> None:
    """Two conversations of two turns, one in flight: 0 ends at 10, its next turn comes at 12 and ends at 22."""
    requests = Requests(
        arrival_s=[0, 0, 1, 1], input_len=[1] * 4, output_len=[1] * 4, concurrency=1, after=[-1, 0, -1, 2],
        think_s=[0, 2, 0, 3],
    )  # fmt: skip
    assert serve(requests, [10.0] * 4) == [(0, 0), (1, 12), (2, 22), (3, 35)]
    with pytest.raises(IndexError):
        Arrivals(Requests(arrival_s=[], input_len=[], output_len=[])).pop()
