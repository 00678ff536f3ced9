"""Requests of a simulated run as rows, and as a timeline that Perfetto draws.

The format is that of `timeline.py`. Every request of a window has a track of its own with where it waited, when its
prompt was computed and when it decoded; each replica has counters of running and waiting requests and of used cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from archsim.base.json_types import JsonObject
from archsim.serving.record import RunRecord, Samples

COLUMNS = (
    "id", "arrival_s", "replica", "wait_s", "first_s", "last_s", "input", "output", "prefix_hit", "preemptions",
    "refused",
)  # fmt: skip
"""replica: where its prompt was computed. wait_s: from arrival to the first step, seconds. first_s, last_s: when the
first and the last token were made; None for what was refused."""

MOST_EVENTS = 50_000
"""Events of a trace: half of them at most are counters, the others requests with their three parts."""

MOST_REQUESTS = 12_000
"""Requests drawn."""


def request_rows(record: RunRecord) -> Iterator[JsonObject]:
    """One mapping a request, in order of its number, with `COLUMNS`."""
    for i in range(len(record)):
        done = record.last_s[i] >= 0
        yield {
            "id": i, "arrival_s": _time(record.arrival_s[i]), "replica": record.replica[i],
            "wait_s": record.start_s[i] - record.arrival_s[i] if record.start_s[i] >= 0 else None,
            "first_s": _time(record.first_s[i]), "last_s": record.last_s[i] if done else None,
            "input": record.input_len[i], "output": record.output_len[i], "prefix_hit": record.prefix_hit[i],
            "preemptions": record.preemptions[i], "refused": record.refused.get(i),
        }  # fmt: skip


def _time(seconds: float) -> float | None:
    return seconds if seconds >= 0 else None


def timeline(record: RunRecord, about: JsonObject, *, start_s: float = 0.0, most: int = MOST_REQUESTS) -> JsonObject:
    """The first `most` requests that arrive from `start_s` on, and the counters meanwhile. about: what is simulated."""
    parts = record.parts or (record,)
    sampled = 3 * sum(len(part.samples.t_s) for part in parts)
    stride = max(1, -(-2 * sampled // MOST_EVENTS))
    room = MOST_EVENTS - sampled // stride - len(parts) - 1
    drawn = [i for i in range(len(record)) if record.arrival_s[i] >= start_s][: min(most, room // 4)]
    drawn = [i for i in drawn if record.first_s[i] >= 0]
    end_s = max((record.last_s[i] for i in drawn), default=start_s)
    window = {"from_s": start_s, "to_s": end_s, "requests": len(drawn), "of": len(record)}
    events = [*_names(drawn, _servers(record)), *_spans(record, drawn)]
    for process, part in enumerate(parts):
        events += _counters(part.samples, start_s, end_s, process + FIRST_SERVER, stride)
    other = {**about, "schema": "archsim.simulate.trace/1", "window": window}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": other}


REQUESTS, FIRST_SERVER = 1, 2
"""Processes: the requests, and the first replica's counters."""


def _servers(record: RunRecord) -> list[str]:
    """What the replicas are called."""
    if not record.parts:
        return ["server"]
    return [" ".join(filter(None, (part.name, f"replica {part.number}"))) for part in record.parts]


def _names(drawn: list[int], servers: list[str]) -> Iterator[JsonObject]:
    for process, name in enumerate(("requests", *servers), REQUESTS):
        yield {"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}}
    for i in drawn:
        yield {"ph": "M", "name": "thread_name", "pid": REQUESTS, "tid": i + 1, "args": {"name": f"request {i}"}}


def _spans(record: RunRecord, drawn: list[int]) -> Iterator[JsonObject]:
    """Waiting, prompt and decode of each request; microseconds."""
    for i in drawn:
        args = {"input": record.input_len[i], "output": record.output_len[i], "preemptions": record.preemptions[i]}
        ends = record.arrival_s[i], record.start_s[i], record.first_s[i], record.last_s[i]
        for name, begin, end in zip(("waiting", "prompt", "decode"), ends, ends[1:], strict=False):
            if end > begin:
                yield {
                    "ph": "X", "name": name, "cat": "request", "pid": REQUESTS, "tid": i + 1, "ts": begin * 1e6,
                    "dur": (end - begin) * 1e6, "args": args,
                }  # fmt: skip


def _counters(samples: Samples, start_s: float, end_s: float, process: int, stride: int) -> Iterator[JsonObject]:
    """Running and waiting requests and blocks of the cache in use, where the run was sampled, or rarer."""
    rows = zip(samples.t_s, samples.running, samples.waiting, samples.used_blocks, strict=True)
    for t_s, running, waiting, blocks in islice(rows, stride - 1, None, stride):
        if start_s <= t_s <= end_s:
            for name, value in (("running", running), ("waiting", waiting), ("cache blocks", blocks)):
                yield {"ph": "C", "name": name, "pid": process, "tid": 0, "ts": t_s * 1e6, "args": {name: value}}
