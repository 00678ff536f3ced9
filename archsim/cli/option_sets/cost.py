"""Options about prices, energy and emissions that several commands share."""

from __future__ import annotations

from typing import Annotated

import typer

Price = Annotated[
    str | None,
    typer.Option(
        "--price", metavar="USD|PROVIDER|cheapest|table",
        help="Dollars per device and hour, or a dated price on file (`archsim list prices`), such as runpod:spot.",
    ),
]  # fmt: skip
