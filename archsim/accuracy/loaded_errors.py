"""How far runs under load are off beyond the times of their steps, by what is known of a run before it is measured:
whether it has pools or drafts, and how much of a figure is time in lines.

Where servers keep up with their requests, first tokens take a front end and a prompt, and are off by what those are
off. Where requests wait in a queue, first tokens are off by what the whole throughput before them is off. Both are told
apart by the simulation itself.
"""

from __future__ import annotations

from collections.abc import Mapping

from archsim.base.json_types import JsonMapping
from archsim.serving.observe import Measured

QUEUED = 2 / 3
"""Share of a first token's time in lines above which a run counts as queued. First tokens of closed loops wait less."""

KINDS = ("server", "server queued", "drafts", "drafts queued", "pools", "pools queued")
"""Of runs whose intervals are their own: by what serves them, and whether requests wait for it."""


def waited_shares(measured: Measured, front_s: float) -> dict[str, float]:
    """By statistic of TTFT, the share of it that requests wait in lines: before the front end, and in the engine's
    queue for their first step. front_s: seconds that a request takes in the front end, without its line.
    """
    first, inside, queue = (measured.latencies[name] for name in ("ttft_s", "ttft_engine_s", "queue_s"))
    return {name: min(1.0, (queue[name] + max(0.0, first[name] - inside[name] - front_s)) / first[name])
            for name in ("mean", "p50", "p99")}  # fmt: skip


def kind_of(metric: str, waited: Mapping[str, float], *, drafts: bool = False, pools: bool = False) -> str:
    """Of `KINDS`. waited: as of `waited_shares`. Figures of other metrics than TTFT are of all requests: the median
    wait counts. Drafts are made after first tokens: what is not known of them is no part of TTFT.
    """
    first = metric.startswith("ttft")
    served = "pools" if pools else "drafts" if drafts and not first else "server"
    return served + " queued" * (waited[metric.split("_")[1] if first else "p50"] > QUEUED)


def known_errors(engines: Mapping[str, JsonMapping]) -> JsonMapping:
    """What runs under load are off by metric and kind, as the store of engines has it: of all engines together, since
    left-out runs of one are no nearer to its others than to those of the rest.
    """
    found: JsonMapping = engines.get("composition", {}).get("loaded", {})
    return found


def loaded_error(known: JsonMapping, metric: str, kind: str) -> tuple[float, float]:
    """What a figure is off beyond its steps, as logarithms of both ends. known: by metric. kind: of `KINDS`; where it
    has no runs, that of the same servers otherwise, else the first that has.
    """
    by, served = known.get(metric, {}), kind.partition(" ")[0]
    alike = [name for name in KINDS if name.partition(" ")[0] == served]
    below, above = next((by[name] for name in (kind, *alike, *KINDS) if name in by), (0.0, 0.0))
    return below, above
