"""What candidates of a report cost, where a price is stated: the column of dollars, and the prices behind it."""

from __future__ import annotations

from archsim.cost.priced_work import PricedWork
from archsim.render.cheapest import bill
from archsim.render.html.candidates import Candidate, Study
from archsim.render.html.markup import Cell, paragraph, table
from archsim.render.pages.cost import usd

PRICE_HEAD = ("", "USD per device-hour", "provider", "terms", "date", "source")


def cost_head(study: Study) -> tuple[str, ...]:
    """The title of the column; none without a price. Models that write nothing are paid by their prompts."""
    if not _priced(study):
        return ()
    return ("USD per million output tokens",) if study.decodes else ("USD per million prompt tokens",)


def cost_cells(c: Candidate, study: Study) -> list[Cell]:
    """The whole bill by output tokens with its 80 % interval; a dash of what cannot run or writes nothing."""
    if c.answer.cost is None:
        return []
    cost, value = c.answer.cost.cost, bill(c.answer, study.decodes)
    if not c.fits or value is None:
        return [Cell("–")]
    span = f"{usd(cost.low)} to {usd(cost.high)}" if study.decodes and cost.low is not None else ""
    return [Cell(usd(value), note=span)]


def prices(study: Study) -> str:
    """Each device's price with who asks it, on which terms and when; nothing without a price."""
    found = _priced(study)
    if not found:
        return ""
    rows = list(dict.fromkeys(_price(c.answer.hardware.id, priced) for c, priced in found))
    use = found[0][1].cost.use_in_words
    told = [f"Dollars cover the whole bill, prompts included; {use}. Their interval "
            "follows from that of the time."]  # fmt: skip
    told += dict.fromkeys(
        f"{c.answer.hardware.id}: {text}" for c, priced in found for text in priced.choice.range_in_words()
    )
    return table("Prices", PRICE_HEAD, rows, left=True) + "".join(paragraph(text, "dim") for text in told)


def _priced(study: Study) -> list[tuple[Candidate, PricedWork]]:
    return [(c, c.answer.cost) for c in study.candidates if c.answer.cost is not None]


def _price(device: str, priced: PricedWork) -> tuple[str | Cell, ...]:
    """One row. A source that is an address of the web becomes a link."""
    p = priced.choice.price
    who = f"{p.provider} {p.region}".strip()
    words = (Cell(who, left=True), Cell(p.terms, left=True), Cell(p.as_of or "–", left=True))
    return (device, Cell(f"{p.usd_per_device_hour:,.4g}", left=True), *words, Cell(p.source, left=True, url=p.source))
