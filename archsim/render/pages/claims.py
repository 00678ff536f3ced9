"""`archsim claims` for terminals, as Markdown and as a page that stands alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from itertools import groupby

from archsim.base.json_types import JsonObject
from archsim.ledger.claims import Judged, Ledger, summary
from archsim.ledger.published_table import Origin
from archsim.render.html.page import html_document
from archsim.render.markdown import escape as marked
from archsim.render.page import Cell, Page, Section, Style, facts, plural, row

STYLES: Mapping[str, Style] = {"true": "good", "false": "bad", "approximately": "note", "uncheckable": "dim"}
RULE = (
    "true: right at the precision printed; approximately: within 3 %, or right for some of the models named, or right "
    "with one named qualification; uncheckable: undisclosed, or no baseline or setup given; false: all others."
)
STYLE = """
table{width:100%}thead th:first-child{padding-left:0}
th,td{text-align:left;white-space:normal}
td{min-width:9rem}td:first-child,td:nth-child(3){min-width:0;white-space:nowrap}
.true{color:var(--good)}.approximately{color:var(--near)}.false{color:var(--bad)}.uncheckable{color:var(--dim)}
"""
TITLE = "Numeric claims about transformers, computed"


def page(ledger: Ledger) -> Page:
    """All claims by article, each with its verdict and reason; a single one with its figures."""
    head = (title(ledger), summary(ledger.counts()))
    if len(ledger.claims) == 1:
        return Page(head=head, sections=tuple(_details(ledger.claims[0])))
    sections = []
    for origin, found in articles(ledger):
        rows = [line for one in found for line in _lines(one)]
        sections.append(Section(title=article(origin), rows=tuple(rows)))
    return Page(head=head, notes=(RULE,), sections=tuple(sections))


def title(ledger: Ledger) -> str:
    """What was judged, and how much of it."""
    number = len({one.source.title for one in ledger.claims})
    return f"{plural(len(ledger.claims), 'claim')} of {plural(number, 'article')}"


def articles(ledger: Ledger) -> Iterator[tuple[Origin, list[Judged]]]:
    """The claims of each article, in the order of their ids."""
    for origin, found in groupby(ledger.claims, key=lambda one: one.source):
        yield origin, list(found)


def article(origin: Origin) -> str:
    """An article's title, author and date."""
    return ", ".join(part for part in (origin.title, origin.author, origin.published) if part)


def bare(ledger: Ledger) -> str:
    """Id and verdict, one a line."""
    return "".join(f"{one.claim.id} {one.verdict}\n" for one in ledger.claims)


def rows(ledger: Ledger) -> list[JsonObject]:
    """One flat row a claim."""
    return [
        {
            "id": one.claim.id, "verdict": one.verdict, "claim": one.claim.says, "computed": one.computed,
            "reason": one.reason, "source": one.source.title,
        } for one in ledger.claims
    ]  # fmt: skip


def _lines(one: Judged) -> Iterator[tuple[Cell, ...]]:
    yield row(one.claim.id, Cell(one.verdict, STYLES[one.verdict]), one.claim.says)
    yield row("", "", Cell(_outcome(one), "dim"))


def _outcome(one: Judged) -> str:
    """What came out where that is as stated, else why it is not."""
    return one.computed if one.verdict == "true" else one.reason


def _details(one: Judged) -> Iterator[Section]:
    told = {"verdict": one.verdict, "reason": one.reason, "article": article(one.source)}
    yield facts(f"{one.claim.id}: {one.claim.says}", told.items())
    lines = [
        row(check.of, finding.model or "", finding.stated or "", finding.computed, finding.verdict)
        for check in (*one.checks, *one.qualified)
        for finding in check.findings
    ]
    if lines:
        header = ("model", "stated", "computed", "verdict")
        yield Section(title="Figures", rows=tuple(lines), header=header, align="llrr")
    formulas = [row(check.of, check.formula) for check in (*one.checks, *one.qualified)]
    formulas += [row(name, str(text)) for name, text in one.claim.let.items()]
    if formulas:
        yield Section(title="Computed as", rows=tuple(formulas))
    given = [row(name, f"{fact.value:g}", fact.source) for name, fact in one.claim.given.items()]
    if given:
        yield Section(title="Given", rows=tuple(given))
    if one.also:
        yield Section(title="Beside it", rows=tuple(row(text) for text in one.also))


def markdown(ledger: Ledger) -> str:
    """The report in the repository: every claim with its figures, one table an article."""
    lines = [
        f"# {TITLE}", "",
        f"{title(ledger)}: {summary(ledger.counts())}. {RULE}", "",
        "Written by `archsim claims --write-report reports/claims.md --force`; the claims and what computes them are "
        "in [specs/claims](../specs/claims), in our words.",
    ]  # fmt: skip
    for origin, found in articles(ledger):
        lines += ["", f"## {marked(article(origin))}", "", "| id | claim | verdict | computed | reason |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        for one in found:
            cells = (one.claim.id, one.claim.says, one.verdict, one.computed, one.reason)
            lines.append("| " + " | ".join(marked(text) for text in cells) + " |")
    return "\n".join(lines) + "\n"


def document(ledger: Ledger) -> str:
    """A page that stands alone."""
    parts = []
    for origin, found in articles(ledger):
        parts.append(f"<h2>{escape(article(origin))}</h2>\n{_table(found, article(origin))}")
    lead = [f"{title(ledger)}: {summary(ledger.counts())}.", RULE]
    return html_document(TITLE, lead, "".join(parts), STYLE)


def _table(found: list[Judged], name: str) -> str:
    heads = "".join(f'<th scope="col">{text}</th>' for text in ("id", "claim", "verdict", "computed", "reason"))
    body = "".join(
        f'<tr id="{one.claim.id}"><th scope="row">{one.claim.id}</th><td>{escape(one.claim.says)}</td>'
        f'<td class="{one.verdict}">{one.verdict}</td><td>{escape(one.computed)}</td>'
        f"<td>{escape(one.reason)}</td></tr>\n"
        for one in found
    )
    label = escape(name, quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{label}"><table><thead><tr>{heads}</tr>'
        f"</thead>\n<tbody>{body}</tbody></table></div>\n"
    )
