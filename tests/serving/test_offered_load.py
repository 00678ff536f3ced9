"""The requests that options amount to: means, spreads, profiles, conversations, traces; and what is refused."""

from __future__ import annotations

import gzip
import json
import math
import random
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist, fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from archsim.base.errors import ArchsimError, SpecError, UsageError
from archsim.serving.arrival_times import parse_profile, stretch
from archsim.serving.lengths import parse_lengths
from archsim.serving.load import Requests
from archsim.serving.offered_load import LoadOptions, offered_load, workload_json
from archsim.serving.trace_file import read_trace


def load(**options: Any) -> Requests:
    """The requests of load options."""
    return offered_load(**options).requests(seed=1)


@pytest.mark.parametrize(
    ("arrival", "cv"), [("poisson", 1.0), ("constant", 0.0), ("gamma:0.5", 0.5), ("gamma:2", 2.0), ("gamma:1", 1.0)]
)
def test_gaps_have_the_stated_mean_and_spread(arrival: str, cv: float) -> None:
    """Within five standard errors, over 20,000 arrivals at 8 requests per second."""
    times = load(rate=8, arrival=arrival, requests=20_000).arrival_s
    gaps = [b - a for a, b in pairwise(times)]
    assert abs(fmean(gaps) * 8 - 1) < 5 * cv / len(gaps) ** 0.5 + 1e-9
    assert stdev(gaps) / fmean(gaps) == pytest.approx(cv, rel=0.1, abs=1e-9)
    assert all(gap >= 0 for gap in gaps)


def test_bursts_arrive_together_at_the_mean_rate() -> None:
    """Every eight requests have one time; bursts come at an eighth of the rate."""
    times = load(rate=8, arrival="burst:8", requests=16_000).arrival_s
    assert all(len(set(times[i : i + 8])) == 1 for i in range(0, 16_000, 8))
    assert times[-1] == pytest.approx(2000, rel=0.1)
    assert set(load(rate=math.inf, requests=50).arrival_s) == {0.0}


@given(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0, 20)), max_size=5), st.floats(0.1, 100))
def test_a_profile_multiplies_the_rate(pieces: list[tuple[float, float]], rate: float) -> None:
    """The integral of the rate up to an arrival is its unit time."""
    starts = [0.0]
    for length, _ in pieces:
        starts.append(starts[-1] + length)
    factors = [*(factor for _, factor in pieces), 1.0]
    profile = tuple(zip(starts, factors, strict=True))
    units = [0.5 * i for i in range(60)]
    for unit, time in zip(units, stretch(units, rate, profile), strict=True):
        ends = [*starts[1:], math.inf]
        area = sum(rate * f * max(0, min(time, e) - s) for s, e, f in zip(starts, ends, factors, strict=True))
        assert area == pytest.approx(unit, rel=1e-6, abs=1e-6)


def test_a_burst_of_ten_times_for_a_minute() -> None:
    """Ten times as many requests arrive between 60 and 120 s."""
    times = load(rate=10, rate_profile="0:1,60:10,120:1", duration=180).arrival_s
    counts = [sum(lo <= time < lo + 60 for time in times) for lo in (0, 60, 120)]
    assert all(abs(n - m) < 5 * m**0.5 for n, m in zip(counts, (600, 6000, 600), strict=True))
    assert parse_profile("60:10,120:1")[0] == (0.0, 1.0)


@pytest.mark.parametrize(
    ("text", "mean", "cv"),
    [("1k", 1024, 0), ("500", 500, 0), ("uniform:100-300", 200, 200 / 12**0.5 / 200), ("normal:1000,0.1", 1000, 0.1),
     ("lognormal:2k,0.5", 2048, 0.5), ("lognormal:300,1.5", 300, 1.5), ("sharegpt", 217.4, None),
     ("sharegpt:900", 900, None)],
)  # fmt: skip
def test_lengths_have_the_stated_mean_and_spread(text: str, mean: float, cv: float | None) -> None:
    """Of 20,000 draws."""
    drawn = load(rate=1, input_len=text, requests=20_000).input_len
    assert parse_lengths(text, "input-len").mean == pytest.approx(mean)
    assert fmean(drawn) == pytest.approx(mean, rel=0.03)
    assert cv is None or stdev(drawn) / mean == pytest.approx(cv, rel=0.06, abs=1e-9)
    assert min(drawn) >= 1


def test_spread_makes_lengths_uniform_below_the_nominal() -> None:
    """As the InferenceX harness draws them: uniform in 0.8 to 1 of the nominal."""
    drawn = load(concurrency=4, input_len="1000", length_spread=0.8, requests=5000).input_len
    assert 800 <= min(drawn) < 802 and 998 < max(drawn) <= 1000 and fmean(drawn) == pytest.approx(900, rel=0.01)


def test_changing_one_option_leaves_the_other_draws_alone() -> None:
    """Answers keep their lengths when prompts or arrivals change; gaps scale with the rate."""
    plain = load(rate=5, input_len="uniform:1-900", output_len="uniform:1-900", requests=300)
    prompts = load(rate=5, input_len="lognormal:2k,1", output_len="uniform:1-900", requests=300)
    faster = load(rate=20, arrival="poisson", input_len="uniform:1-900", output_len="uniform:1-900", requests=300)
    assert prompts.output_len == plain.output_len == faster.output_len and faster.input_len == plain.input_len
    assert list(faster.arrival_s) == pytest.approx([time / 4 for time in plain.arrival_s])
    assert prompts.arrival_s == plain.arrival_s and prompts.input_len != plain.input_len
    rank = sorted(range(300), key=plain.input_len.__getitem__)
    ranked = [prompts.input_len[i] for i in rank if 1 < plain.input_len[i] < 900]
    assert sum(a > b for a, b in pairwise(ranked)) <= 300 // 5  # only among prompts that were equally long
    assert list(plain.input_len) != list(plain.output_len)


def test_conversations_grow_by_what_was_said() -> None:
    """Each prompt holds the prefix, every prompt and answer before it, and its own tokens; the runs say so."""
    requests = load(
        rate=2, input_len="uniform:10-50", output_len="uniform:5-20", turns="uniform:1-4", think="lognormal:3,1",
        shared_prefix="100:3", requests=200,
    )  # fmt: skip
    assert requests.prompts is not None and requests.after is not None and requests.think_s is not None
    for i, runs in enumerate(requests.prompts.runs):
        before = requests.after[i]
        assert sum(tokens for _, tokens in runs) == requests.input_len[i]
        if before < 0:
            assert len(runs) == 2 and runs[0][1] == 100 and 0 <= runs[0][0] < 3
        else:
            said = (*requests.prompts.runs[before], (requests.prompts.answers[before], requests.output_len[before]))
            assert runs[:-1] == said
    own = [runs[-1][0] for runs in requests.prompts.runs] + list(requests.prompts.answers)
    assert len(set(own)) == len(own) and not {0, 1, 2} & set(own)
    assert min(requests.think_s) >= 0 and 150 < len(requests) < 260


def test_two_columns_of_one_file_keep_together(tmp_path: Path) -> None:
    """A request has the prompt and the answer of one row."""
    path = tmp_path / "lengths.csv"
    path.write_text("a,b\n" + "".join(f"{i},{2 * i}\n" for i in range(1, 100)))
    requests = load(rate=1, input_len=f"{path}:a", output_len=f"{path}:b", requests=500)
    assert [2 * n for n in requests.input_len] == list(requests.output_len) and len(set(requests.input_len)) > 50


ROWS = [(0.0, 700, 5), (0.25, 1500, 7), (1.5, 512, 1), (1.5, 100, 3)]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:17:{3 + t:010.7f},{i},{o}\n" for t, i, o in ROWS
)
OWN = "t_s,input,output\n" + "".join(f"{t},{i},{o}\n" for t, i, o in ROWS)
BLOCKS = [[1, 2], [1, 2, 3], [4], [5]]
MOONCAKE = "".join(
    json.dumps({"timestamp": round(t * 1000), "input_length": i, "output_length": o, "hash_ids": b}) + "\n"
    for (t, i, o), b in zip(ROWS, BLOCKS, strict=True)
)
HASHED = "t_s,input,output,block_hashes_of_512\n" + "".join(
    f"{t},{i},{o},{'|'.join(map(str, b))}\n" for (t, i, o), b in zip(ROWS, BLOCKS, strict=True)
)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("text", [AZURE, OWN, MOONCAKE, HASHED])
def test_every_kind_of_trace_is_read(text: str, packed: bool, tmp_path: Path) -> None:
    """Times count from the first request; blocks become runs whose tokens add up to the prompt."""
    path = tmp_path / "trace"
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    requests = load(trace=str(path), speedup=2.0)
    assert list(requests.arrival_s) == pytest.approx([t / 2 for t, _, _ in ROWS])
    assert list(zip(requests.input_len, requests.output_len, strict=True)) == [(i, o) for _, i, o in ROWS]
    if requests.prompts is not None:
        assert [tuple(r) for r in requests.prompts.runs] == [
            ((1, 700),), ((1, 1500),), ((4, 512),), ((5, 100),)
        ]  # fmt: skip
    assert (requests.prompts is None) == (text in (AZURE, OWN))


def test_a_trace_is_cut_sorted_and_mended_with_a_note(tmp_path: Path) -> None:
    """What was changed is said."""
    path = tmp_path / "trace.csv"
    path.write_text("t_s,input,output\n5,10,10\n3,20,20\n4,30,0\n9,40,40\n")
    trace = read_trace(path)
    assert list(trace.arrival_s) == [0, 2, 6] and list(trace.input_len) == [20, 10, 40] and len(trace.notes) == 2
    assert len(read_trace(path, limit=1)) == 1


BAD = {
    "empty": "", "header": "t_s,input,output\n", "nan": OWN + "nan,1,1\n", "inf": OWN + "inf,1,1\n",
    "negative": OWN + "1,-5,1\n", "text": OWN + "1,x,1\n", "half": OWN + "1,2.5,1\n", "short": OWN + "1,2\n",
    "huge": OWN + "1,99999999999,1\n", "other": "a,b\n1,2\n", "json": '{"timestamp": 1}\n[]\n', "deep": '{"a":' * 5000,
    "blocks": HASHED + "9,100,1,1|2|3\n", "zeros": "t_s,input,output\n0,0,0\n", "nul": "t_s,input,output\n\0,1,1\n",
    "no blocks": HASHED + "9,100,1,\n", "time": AZURE + "yesterday,1,1\n",
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_trace_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    """A SpecError that names the file."""
    path = tmp_path / "trace.csv"
    path.write_text(BAD[name])
    with pytest.raises(SpecError, match=r"trace\.csv"):
        read_trace(path)


@pytest.mark.parametrize(
    "options",
    [
        {}, {"rate": 0}, {"rate": -1}, {"rate": math.nan}, {"concurrency": 0}, {"rate": 1, "requests": 0},
        {"rate": 1, "input_len": "0"}, {"rate": 1, "input_len": "uniform:9-3"}, {"rate": 1, "input_len": "normal:5"},
        {"rate": 1, "output_len": "lognormal:5,-1"}, {"rate": 1, "arrival": "gamma:0"}, {"rate": 1, "arrival": "often"},
        {"rate": 1, "rate_profile": "0:1,0:2"}, {"rate": 1, "rate_profile": "0:0"}, {"rate": 1, "length_spread": 0.0},
        {"rate": 1, "length_spread": 1.5}, {"rate": math.inf, "arrival": "poisson"}, {"rate": 1, "think": 3},
        {"concurrency": 4, "arrival": "poisson"}, {"rate": 1, "speedup": 2.0}, {"rate": 1, "shared_prefix": "a"},
        {"rate": 1, "turns": "5000", "requests": 5000}, {"rate": 1e-6, "duration": 1.0}, {"rate": 1, "input_len": ""},
        {"rate": 1e9, "duration": 1e9}, {"trace": "x", "rate": 1}, {"concurrency": 10**6},
    ],
)  # fmt: skip
def test_impossible_loads_are_refused(options: LoadOptions) -> None:
    """A usage error that names an option."""
    with pytest.raises(UsageError, match=r"--|a rate|arrives"):
        offered_load(**options).requests()


@pytest.mark.slow
def test_every_process_has_the_same_requests() -> None:
    """Whatever its hash seed, and in every replication others."""
    line = (
        "from archsim.serving.offered_load import offered_load as f; r = f(rate=3, arrival='gamma:2', "
        "turns='uniform:1-3', input_len='lognormal:500,1', requests=50).requests(5, 1); "
        "print(list(r.arrival_s), list(r.input_len))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", line], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(shown) == 1
    model = offered_load(rate=3, input_len="uniform:1-500", requests=50)
    assert model.requests(5, 0).input_len != model.requests(5, 1).input_len != model.requests(6, 1).input_len


def test_the_workload_of_the_json_says_what_was_sent() -> None:
    """Lengths as they were drawn, the rate as it was asked for."""
    asked = offered_load(rate=3, input_len="uniform:1-500", shared_prefix="1k:4", requests=500)
    sent = asked.requests()
    shown = workload_json(asked, sent)
    assert shown["arrival"] == "poisson" and shown["rate_per_s"] == 3 and shown["requests"] == 500
    assert shown["input_len"]["mean"] == pytest.approx(fmean(sent.input_len))
    assert shown["prefix"] == {"shared_tokens": 1024, "groups": 4}
    assert workload_json(offered_load(concurrency=5), sent)["arrival"] == "closed loop"


def bend(rng: random.Random, text: str) -> bytes:
    """A trace with something changed, cut out, doubled or put in."""
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 4)):
        at, end = sorted(rng.randrange(len(data) + 1) for _ in range(2))
        piece = rng.choice((b"", b"nan", b"-1", b"1e999", b"\0", b"\xff", b",", b"\n", b'"', b"{", b"9" * 40, b"inf"))
        action = rng.randrange(3)
        data[at : at if action else min(end, at + 9)] = piece if action < 2 else data[at:end]
    return gzip.compress(bytes(data))[: rng.choice((-5, None, None))] if rng.random() < 0.2 else bytes(data)


WORDS = ("0", "-1", "nan", "inf", "1e400", "", ":", "uniform:", "1-0", "x" * 99, "1k", "٣", "\0", "sharegpt:0", "m",
         "1:2", "normal:1,99", "a.csv:b", "gamma:nan", "burst:1e9", "0:1,60:10", "1.5", "lognormal:1k,3")  # fmt: skip


def mutants(numbers: range, path: Path) -> None:
    """Traces and options with mistakes are answered or refused: no other error leaves."""
    for number in numbers:
        rng = random.Random(number)
        path.write_bytes(bend(rng, rng.choice((AZURE, OWN, MOONCAKE, HASHED))))
        names = rng.sample(["input_len", "output_len", "arrival", "rate_profile", "turns", "think", "shared_prefix"], 2)
        options: Any = {name: rng.choice(WORDS) for name in names} | {
            rng.choice(("rate", "concurrency", "duration", "length_spread", "requests")): rng.choice(
                (0, -1, math.nan, math.inf, 1, 0.5, 50, True)
            )
        }
        for work in (lambda: load(trace=str(path)), lambda o=options: load(**({"rate": 2, "requests": 30} | o))):
            attempt(work, number)


def attempt(work: Callable[[], Requests], number: int) -> None:
    """What must hold of any load that is not refused."""
    try:
        requests = work()
    except ArchsimError:
        return
    times = [time for i, time in enumerate(requests.arrival_s) if requests.after is None or requests.after[i] < 0]
    assert times == sorted(times) and times[0] >= 0 and math.isfinite(times[-1]), number
    assert min(requests.input_len) >= 1 and min(requests.output_len) >= 1, number


def test_a_hundred_mutants_are_answered_or_refused(tmp_path: Path) -> None:
    """A sample of the full run."""
    mutants(range(100), tmp_path / "trace")


@pytest.mark.slow
def test_five_thousand_mutants_are_answered_or_refused(tmp_path: Path) -> None:
    """The full run."""
    mutants(range(5000), tmp_path / "trace")


def test_bell_curves_are_those_of_the_standard_library() -> None:
    """The median of a lognormal is below its mean by the factor of its spread."""
    lognormal = parse_lengths("lognormal:1000,1", "input-len")
    assert lognormal.quantile(0.5) == pytest.approx(1000 / 2**0.5)
    assert lognormal.quantile(NormalDist().cdf(1)) / lognormal.quantile(0.5) == pytest.approx(
        math.e ** math.log(2) ** 0.5
    )
