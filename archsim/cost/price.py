"""The price of one device and hour, with who asks it, on which terms, and when."""

from __future__ import annotations

import os
import re
from datetime import UTC, date, datetime
from typing import NamedTuple

from archsim.base.json_types import JsonObject
from archsim.base.notes import Note

OLD_DAYS = 180
"""Age from which a price is called old: rents of one device moved by a factor of two within three months of 2026."""

GIVEN = "given"
"""Provider and terms of a price that the user states."""


class Price(NamedTuple):
    """What one device costs an hour. terms: on-demand, spot, capacity-block, owned or given. as_of: the day or month on
    which it held; None where only the version of a catalogue is known, or where the user states the price.
    """

    usd_per_device_hour: float
    provider: str = GIVEN
    terms: str = GIVEN
    as_of: str | None = None
    source: str = "--price"
    region: str = ""
    notes: str = ""
    device: str = ""

    @property
    def in_words(self) -> str:
        """`$2.69 per device-hour, runpod, on-demand, 2026-03-21`."""
        amount = f"${self.usd_per_device_hour:,.4g} per device-hour"
        if self.provider == GIVEN:
            return f"{amount}, as given"
        return f"{amount}, {self.origin}"

    @property
    def origin(self) -> str:
        """Who asks it, on which terms, and when: `runpod, on-demand, 2026-03-21`."""
        where = f" {self.region}" if self.region else ""
        when = self.as_of or ("" if self.terms == OWNED else "undated")
        return ", ".join(filter(None, (self.provider + where, self.terms, when)))

    def age_days(self, today: date | None = None) -> int | None:
        """Days since the price held; None where it has no date."""
        then = day_of(self.as_of)
        return None if then is None else ((today or current_day()) - then).days

    def warning(self, today: date | None = None) -> str:
        """What to mind about it: age, a missing date, terms on which a device may be taken away; else nothing."""
        age, said = self.age_days(today), []
        if age is not None and age > OLD_DAYS:
            said.append(f"it is {age // 30} months old")
        if self.as_of is None and self.terms not in (GIVEN, OWNED):
            said.append("its catalogue has no date")
        if self.terms == "spot":
            said.append("a spot device may be taken away at any time")
        return f"the price of {self.provider}: {'; '.join(said)}" if said else ""

    @property
    def warnings(self) -> tuple[Note, ...]:
        """What to mind about it, as a page and JSON say it."""
        said = self.warning()
        return (Note("W15", said),) if said else ()

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "usd_per_device_hour": self.usd_per_device_hour, "provider": self.provider, "terms": self.terms,
            "as_of": self.as_of, "source": self.source, "region": self.region or None,
        }  # fmt: skip


OWNED = "owned"
"""Terms of a machine that is bought."""


def day_of(text: str | None) -> date | None:
    """The first day of a date, a month or a year; None for anything else."""
    match = re.fullmatch(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?", text or "")
    if match is None:
        return None
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None


def current_day() -> date:
    """Today, or the day that SOURCE_DATE_EPOCH states (reproducible-builds.org)."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(stated) if stated.isdigit() else datetime.now(UTC).timestamp(), UTC).date()
