"""Options of commands that set loads of a server beside each other."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

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
