"""The limits that servers of the public sweep were told, for runs under load: its tables do not state them.

They are completed as flags in the words of a row's engine, which the row's own flags come after.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from math import inf
from typing import NamedTuple

from archsim.accuracy.launch_flags import names_of_flags, run_engine
from archsim.accuracy.public_sweep import document, is_older
from archsim.accuracy.question import DAY, device_of, has_drafts, model_of, text, whole
from archsim.accuracy.stated_load import in_flight
from archsim.base.errors import ArchsimError
from archsim.base.json_types import JsonMapping
from archsim.engines.names import choose_engine, engine_and_version

READ_AS = (
    "rows whose `source` is InferenceX or InferenceMAX are simulated with the limits, drafts and cache format of that "
    "sweep's launch scripts where they state none, and with room for all requests in flight where no script sets a "
    "limit; under another `source` they are simulated as they stand"
)
"""What a reader has to know of rows of the sweep."""

IN_FLIGHT, DEFAULT = "in flight", "default"
"""As many requests as the load keeps in flight, of a pool so many that none waits for a place; the engine's own
limit.
"""

MOST = 2048
"""Requests that a server admits where no script says less than are in flight: SGLang's and TensorRT-LLM's own limit,
for all loads, so that rows of one server share the times of its steps.
"""


class Limits(NamedTuple):
    """What scripts say of some servers.

    of: which they are, each key with its value or with several: engine: as the row names it; device: by its name in the
    catalog, or its architecture's family; model: by its name in the catalog; weights: as the row names them; pool:
    prefill, decode or nothing; drafts, dp_attention, experts (over the ranks of the pool): whether; isl: nominal; tp:
    of the pool; above, up_to: requests in flight, without bound in an open loop; since, until: days of the run, the
    last left out; before: versions older than this one.

    say: seqs: requests that run at once, or one of `IN_FLIGHT` and `DEFAULT`; tokens: of a chunk; prompt_tokens: of the
    prompts of a step; share: of memory; drafts: of a step; kv: format of the cache. seqs_each, tokens_each: of each
    device of the pool. in_flight_per_seq: in place of seqs, requests in flight over those that a worker runs at once, a
    power of two, at least. script: file and commit, or the pull request.
    """

    of: JsonMapping
    say: JsonMapping
    script: str

    def are_of(self, facts: JsonMapping) -> bool:
        """Whether these are of a server of which all this is known."""
        return all(_holds(key, value, facts) for key, value in self.of.items())


COMPARED: Mapping[str, Callable[[JsonMapping, object], bool]] = {
    "above": lambda facts, load: facts["in_flight"] > load,
    "up_to": lambda facts, load: facts["in_flight"] <= load,
    "since": lambda facts, day: bool(facts["day"]) and facts["day"] >= day,
    "until": lambda facts, day: bool(facts["day"]) and facts["day"] < day,
    "before": lambda facts, version: is_older(facts["version"], str(version)),
}
"""Keys whose value is not that of the row itself."""


def _holds(key: str, value: object, facts: JsonMapping) -> bool:
    if key in COMPARED:
        return COMPARED[key](facts, value)
    found: bool = facts[key] in value if isinstance(value, list) else facts[key] == value
    return found


def is_row_of_sweep(row: JsonMapping) -> bool:
    """Whether the source of a row is the sweep: the name of its repository comes first, with or without its owner."""
    names = "|".join(map(re.escape, document()["sources"]))
    return re.match(rf"([\w.-]+/)?({names})(?![\w-])", text(row, "source") or "", re.IGNORECASE) is not None


def says_of(row: JsonMapping, pool: str = "") -> JsonMapping:
    """What the scripts say of the server of a row, or of a pool of it; nothing of rows of other sources. What several
    entries say is that of the last.
    """
    if not is_row_of_sweep(row):
        return {}
    try:
        facts = _facts(row, pool)
    except ArchsimError:  # refused where it is predicted
        return {}
    found: dict[str, object] = {}
    for limits in sweep_limits():
        if limits.are_of(facts):
            found |= limits.say
    return found


def _facts(row: JsonMapping, pool: str) -> JsonMapping:
    """What entries are found by. Raises ArchsimError for a model, device or load that is not known."""
    prefix = f"{pool}_" if pool else ""
    device, day, load = device_of(str(row.get("device"))), text(row, "date") or "", in_flight(row)
    return {
        "engine": text(row, "engine"), "device": device.name, "family": device.arch.family,
        "model": model_of(str(row.get("model")))[0].name, "weights": text(row, "weights"), "pool": pool,
        "drafts": has_drafts(row),
        "dp_attention": text(row, "dp_attention") == "yes", "experts": _ranks(row, f"{prefix}ep") > 1,
        "isl": whole(row, "isl"), "tp": _ranks(row, f"{prefix}tp"), "in_flight": inf if load is None else load,
        "day": day if DAY.match(day) else "", "version": engine_and_version(run_engine(row)[0])[1],
    }  # fmt: skip


def _ranks(row: JsonMapping, column: str) -> int:
    """Ranks that a column states; 1 where it does not, or says whether there are several."""
    stated = text(row, column)
    return 2 if stated == "yes" else 1 if stated in (None, "no") else whole(row, column) or 1


def completed_flags(row: JsonMapping, pool: str = "") -> str:
    """The flags of a row, or of a pool of it, after those of the sweep's scripts."""
    own = text(row, "flags") or ""
    if not is_row_of_sweep(row):
        return own
    said, engine = says_of(row, pool), run_engine(row)[0]
    words, devices = names_of_flags(engine_and_version(engine)[0]), _devices(row, pool)
    values = {**said, "tokens": said.get("tokens_each", 0) * devices or said.get("tokens"),
              "seqs": said.get("seqs_each", 0) * devices or _seqs(row, pool, said, engine)}  # fmt: skip
    left_out = () if has_drafts(row) else ("drafts",)
    flags = [f"--{words[key]} {value}" for key, value in values.items()
             if value and key in words and key not in left_out]  # fmt: skip
    return " ".join([*flags, own]).strip()


def _devices(row: JsonMapping, pool: str) -> int:
    """Devices of a server, or of each worker of a pool."""
    if not pool:
        return whole(row, "n_devices") or 1
    return (whole(row, f"{pool}_devices") or 1) // (whole(row, f"{pool}_workers") or 1)


def _seqs(row: JsonMapping, pool: str, said: JsonMapping, engine: str) -> int:
    """Requests that run at once, as scripts say. Where they do not, and the engine's own limit is below what a closed
    loop keeps in flight, `MOST` on each replica. 0: the engine's own.
    """
    load, stated, ratio = in_flight(row) or 0, said.get("seqs"), said.get("in_flight_per_seq")
    rules = choose_engine(engine).rules.scheduler.batching
    divided = rules is not None and "seqs" in rules.divided
    replicas = _devices(row, pool) if text(row, "dp_attention") == "yes" else 1
    if ratio and load:
        workers = (whole(row, f"{pool}_workers") if pool else None) or 1
        most = max(int(load / workers / ratio), 1)
        return max((1 << (most.bit_length() - 1)) // (1 if divided else replicas), 1)
    if stated is not None:
        every = max(load, MOST) if pool else load
        return stated if isinstance(stated, int) else every if stated == IN_FLIGHT else 0
    closed = (text(row, "arrival") or "").startswith("closed loop")
    if not closed or load <= own_limit(engine, drafts=has_drafts(row) and pool != "prefill"):
        return 0
    return MOST * (replicas if divided else 1)


def own_limit(engine: str, *, drafts: bool) -> int:
    """Requests that an engine runs at once where nobody says how many, on its smallest device. drafts: with them."""
    rules = choose_engine(engine).rules.scheduler
    seqs = [limits.seqs for limits in rules.limits if limits.seqs]
    batching = rules.batching
    if batching is not None:
        seqs += [batching.seqs] if batching.seqs else []
        seqs += [batching.seqs_with_drafts] if drafts and batching.seqs_with_drafts else []
    return min(seqs, default=MOST)


@cache
def sweep_limits() -> tuple[Limits, ...]:
    """All that is known of the limits in the sweep's scripts."""
    return tuple(Limits(**entry) for entry in document()["limits"])
