"""Options about prices that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from archsim.base.data_class import dataclass
from archsim.cli import options as o

if TYPE_CHECKING:
    from archsim.base.options import PaidArguments

Price = Annotated[
    str | None,
    typer.Option(
        "--price", metavar="USD|PROVIDER|cheapest|table",
        help="Dollars per device and hour, or a dated price on file (`archsim list prices`), such as runpod:spot.",
    ),
]  # fmt: skip
Utilization = Annotated[
    float | None,
    typer.Option("--utilization", metavar="SHARE", help="Share of the paid hours that serve this load. Default: 1."),
]
Capex = Annotated[
    float | None, typer.Option("--capex", metavar="USD", help="Instead of rent: dollars for one device of your own.")
]
Years = Annotated[
    float | None, typer.Option("--years", metavar="N", help="With --capex: written off over N years. Default: 3.")
]
HostShare = Annotated[
    float | None,
    typer.Option(
        "--host-share", metavar="SHARE", help="With --capex: host, network and rack, as its share. Default: 0.3."
    ),
]
PowerPrice = Annotated[
    float | None, typer.Option("--power-price", metavar="USD", help="With --capex: electricity, dollars per kWh.")
]
Pue = Annotated[
    float | None,
    typer.Option("--pue", metavar="X", help="Electricity of the facility over that of its machines. Default: 1.2."),
]
Energy = Annotated[bool, typer.Option("--energy", help="Watts, joules per token and kWh.")]
Grid = Annotated[
    float | None, typer.Option("--grid", metavar="G", help="Grams of CO2 per kWh, for emissions: 20 (hydro) to 900.")
]
PowerLimit = Annotated[
    float | None,
    typer.Option("--power-limit", metavar="W", help="Power cap of each device, in watts: heavier steps slow down."),
]
AgainstTokens = Annotated[
    str | None,
    typer.Option(
        "--break-even", metavar="USD[,USD]",
        help="From which volume on it beats a price per million tokens (or prices in,out).",
    ),
]  # fmt: skip
CachedInput = Annotated[
    int,
    typer.Option(
        "--cached-input", parser=o.tokens, metavar="N",
        help="With --concurrency: tokens of each prompt that a prefix cache holds.",
    ),
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rent:
    """What devices cost: rented at a price, or owned."""

    price: Price = None
    utilization: Utilization = None
    capex: Capex = None
    years: Years = None
    host_share: HostShare = None


def given(energy: bool = False, **options: float | str | None) -> PaidArguments:
    """The options that are given."""
    stated = {name: value for name, value in options.items() if value is not None}
    return cast("PaidArguments", {**({"energy": True} if energy else {}), **stated})
