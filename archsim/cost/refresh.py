"""`python -m archsim.cost.refresh CATALOG.csv --provider NAME --as-of DATE --source TEXT --out prices.csv`.

Makes a price table anew from a catalogue of one provider that the user has: the CSV files of SkyPilot
(`AcceleratorName, AcceleratorCount, Price, SpotPrice, Region`) and of gpuhunt (`gpu_name, gpu_count, gpu_memory, price,
spot, location`). Rows of the provider in the present table are replaced, all others stay. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from archsim.base.errors import ArchsimError, SpecError, UsageError
from archsim.base.input_file import read_text
from archsim.base.output_file import write_text
from archsim.cost.price import Price, day_of
from archsim.cost.price_table import COLUMNS, LARGEST, UNDATED, price_table
from archsim.spec.catalog import resolve

ON_DEMAND, SPOT = "on-demand", "spot"


def read_catalogue(text: str, provider: str, as_of: str, source: str) -> tuple[list[Price], dict[str, int]]:
    """The lowest price of each device, terms and region, and names of no known device with their rows.

    Raises SpecError for columns of neither catalogue.
    """
    reader = csv.DictReader(io.StringIO(text))
    columns = set(reader.fieldnames or ())
    if {"AcceleratorName", "AcceleratorCount", "Price"} <= columns:
        offers = _skypilot
    elif {"gpu_name", "gpu_count", "price"} <= columns:
        offers = _gpuhunt
    else:
        hint = "AcceleratorName, AcceleratorCount and Price, or gpu_name, gpu_count and price"
        raise SpecError("no catalogue of prices: its columns are neither SkyPilot's nor gpuhunt's", hints=(hint,))
    lowest: dict[tuple[str, str, str], float] = {}
    unknown: dict[str, int] = {}
    for row in reader:
        for name, terms, region, usd in offers(row):
            try:
                device = resolve("hw", name).name
            except ArchsimError:
                unknown[name] = unknown.get(name, 0) + 1
                continue
            key = device, terms, region
            lowest[key] = min(usd, lowest.get(key, usd))
    prices = [Price(round(usd, 6), provider, terms, as_of, source, region, "", device)
              for (device, terms, region), usd in sorted(lowest.items())]  # fmt: skip
    return prices, unknown


def _skypilot(row: Mapping[str, str]) -> Iterator[tuple[str, str, str, float]]:
    name, count = (row.get("AcceleratorName") or "").strip(), _positive(row.get("AcceleratorCount"))
    for column, terms in (("Price", ON_DEMAND), ("SpotPrice", SPOT)):
        usd = _positive(row.get(column))
        if name and count and usd:
            yield name, terms, (row.get("Region") or "").strip(), usd / count


def _gpuhunt(row: Mapping[str, str]) -> Iterator[tuple[str, str, str, float]]:
    name, count, usd = (row.get("gpu_name") or "").strip(), _positive(row.get("gpu_count")), _positive(row.get("price"))
    if not (name and count and usd):
        return
    memory = _positive(row.get("gpu_memory"))
    spot = (row.get("spot") or "").strip().lower() in ("true", "1")
    yield _with_memory(name, memory), SPOT if spot else ON_DEMAND, (row.get("location") or "").strip(), usd / count


def _with_memory(name: str, gigabytes: float | None) -> str:
    """`A100` with 80 GB is `A100-80GB` where there is such a device, else the plain name."""
    sized = f"{name}-{gigabytes:g}GB" if gigabytes else name
    try:
        resolve("hw", sized)
    except ArchsimError:
        return name
    return sized


def _positive(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def table_text(prices: Sequence[Price]) -> str:
    """A price table as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for p in sorted(prices, key=lambda p: (p.device, p.provider, p.terms, p.region, p.as_of or "")):
        dated = p.as_of or UNDATED
        row = (p.device, p.provider, p.terms, f"{p.usd_per_device_hour:g}", p.region, dated, p.source, p.notes)
        writer.writerow(row)
    return out.getvalue()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m archsim.cost.refresh", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("catalogue", type=Path)
    parser.add_argument("--provider", required=True)
    parser.add_argument("--as-of", required=True, help="the day or month on which the prices held: 2026-11-01")
    parser.add_argument("--source", required=True, help="where the catalogue comes from")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--force", action="store_true", help="overwrite an existing file")
    asked = parser.parse_args(arguments)
    try:
        if day_of(asked.as_of) is None:
            raise UsageError(f"`--as-of` is a date such as 2026-11-01, not {asked.as_of!r}")
        text = read_text(asked.catalogue, 16 * LARGEST)
        found, unknown = read_catalogue(text, asked.provider, asked.as_of, asked.source)
        kept = [price for price in price_table() if price.provider != asked.provider]
        write_text(asked.out, table_text([*kept, *found]), force=asked.force)
    except ArchsimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    skipped = ", ".join(f"{name} ({rows})" for name, rows in sorted(unknown.items()))
    sys.stdout.write(f"{len(found):,} prices of {asked.provider}, {len(kept):,} of others in {asked.out}\n")
    sys.stdout.write(f"no device of these names: {skipped}\n" if skipped else "")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
