"""Options of commands that set loads of a server beside each other."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from archsim.base.data_class import dataclass

if TYPE_CHECKING:
    from archsim.base.json_types import JsonObject

Rates = Annotated[
    str | None,
    typer.Option("--rate", "--request-rate", metavar="RANGE", help="Simulate requests per second: 8 or 2-32*2."),
]
Concurrencies = Annotated[
    str | None,
    typer.Option("--concurrency", "--max-concurrency", metavar="RANGE", help="Simulate so many requests in flight."),
]
Slo = Annotated[
    str | None,
    typer.Option(
        "--slo", metavar="TARGETS",
        help="ttft=0.5,tpot=0.03[,p=99] in seconds; without a load, the largest that meets them is found.",
    ),
]  # fmt: skip


class Largest(StrEnum):
    """What may be found where no load is given."""

    rate = "rate"
    concurrency = "concurrency"


Find = Annotated[
    Largest | None,
    typer.Option("--find", help="What is found for --slo without a load. Default: concurrency, requests in flight."),
]
Spread = Annotated[
    float | None,
    typer.Option(
        "--length-spread", "--random-range-ratio", metavar="F",
        help="Each simulated length is uniform between F and 1 times the given one.",
    ),
]  # fmt: skip
Requests = Annotated[
    int | None, typer.Option("--requests", "--num-prompts", min=1, metavar="N", help="Requests of a simulated run.")
]
Replications = Annotated[
    int | None, typer.Option("--replications", min=1, max=1000, metavar="N", help="Independent simulated runs.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", min=1, max=1024, metavar="N", help="Processes for simulated loads. Default: 1.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Loads of a server, and how they are simulated."""

    rate: Rates = None
    concurrency: Concurrencies = None
    slo: Slo = None
    find: Find = None
    length_spread: Spread = None
    requests: Requests = None
    replications: Replications = None
    jobs: Jobs = None

    def options(self) -> JsonObject:
        """As `archsim.cli.studies.loads` takes them; None where one is not given."""
        return {
            "find": None if self.find is None else self.find.value, "rate": self.rate,
            "concurrency": self.concurrency, "slo": self.slo, "length_spread": self.length_spread,
            "requests": self.requests, "replications": self.replications, "jobs": self.jobs,
        }  # fmt: skip
