"""`archsim claims`: numeric claims about transformers, each computed and judged by one rule."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

from archsim.base.diagnostics import quote
from archsim.base.displayed import Tabular
from archsim.base.errors import SpecError, UnknownName, UsageError
from archsim.base.expression import Named, evaluate
from archsim.base.json_types import JsonObject
from archsim.base.lazy_model import Field, model_validator
from archsim.blocks.dispatch import InvalidBlock, Spec
from archsim.blocks.mask import MaskSpec
from archsim.ledger.published_table import Origin, StudySpec, TotalRow, compare, data_file, load_study, totals
from archsim.ledger.quantities import ModelFacts, facts
from archsim.ledger.training_quantities import law_facts
from archsim.ledger.verdict import VERDICTS, Verdict, compare_values, over_models, together, value_text
from archsim.spec import loader
from archsim.spec.catalog import names

# ---------------------------------------------------------------------- documents
Line = Annotated[str, Field(min_length=1, max_length=300)]
Formula = Annotated[str, Field(min_length=1, max_length=600)]


class Given(Spec):
    """A number from the literature that no spec holds, with its source."""

    value: int | float
    source: Line


class Check(Spec):
    """One statement of a claim.

    Either `stated` beside `computed`, an expression, or `holds`, an expression that must be true, with `computed` to
    show what decides it. of: what it is. stated: text for a figure as printed, a whole number for a count that is
    exact. models: the models it is about where not the claim's own; `stated` may then be a list, one entry a model.
    `m` is the model in question. unit: what a computed value is shown in where `stated` does not say.
    """

    of: Line
    stated: int | str | tuple[int | str, ...] | None = None
    computed: Formula | None = None
    holds: Formula | None = None
    models: tuple[Line, ...] = ()
    unit: Literal["GB", "MB", "%", "B", "M", "x"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Check:
        if (self.stated is None) == (self.holds is None):
            raise InvalidBlock("a check has either `stated` or `holds`")
        if self.stated is not None and self.computed is None:
            raise InvalidBlock("`stated` needs `computed` beside it")
        if isinstance(self.stated, tuple) and len(self.stated) != len(self.models):
            raise InvalidBlock("`stated` is a list, one entry for each of `models`")
        return self


class Aside(Spec):
    """A figure that is shown and decides nothing."""

    of: Line
    computed: Formula
    unit: Literal["GB", "MB", "%", "B", "M", "x"] | None = None


class Qualified(Spec):
    """The qualification with which a claim is right, and the checks that show it."""

    by: Line
    checks: tuple[Check, ...]


class Claim(Spec):
    """One claim. says: in our own words. models: what `m` stands for. given, let: further names.

    qualified: asked only when the claim as it stands is not true. missing: what is not given or not disclosed, so
    that nothing can be checked. also: further figures. note: a cause worth a line, without figures of its own.
    """

    id: Annotated[str, Field(pattern=r"^C[0-9]{3}$")]
    says: Line
    models: tuple[Line, ...] = ()
    given: Mapping[str, Given] = Field(default_factory=dict)
    let: Mapping[str, Formula | int | float] = Field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    qualified: Qualified | None = None
    missing: Line | None = None
    also: tuple[Aside, ...] = ()
    note: Line | None = None

    @model_validator(mode="after")
    def _checkable(self) -> Claim:
        if not self.checks and self.missing is None and not self.models:
            raise InvalidBlock("a claim has `checks`, or says what is `missing`")
        for check in self.checks:
            if isinstance(check.stated, tuple) and not check.models:
                raise InvalidBlock("`stated` is a list, so the check names its `models`")
        return self


class ClaimsFile(Spec):
    """The claims of one article."""

    source: Origin
    claims: tuple[Claim, ...]


def load_claims() -> tuple[tuple[Origin, Claim], ...]:
    """Every claim with its article, by id. Raises SpecError (E105) for an id that is there twice."""
    found: dict[str, tuple[Origin, Claim]] = {}
    for path in sorted(data_file("claims", "").glob("*.yaml")):
        document = loader.validate(loader.read(path), ClaimsFile)
        for claim in document.claims:
            if claim.id in found:
                raise SpecError(f"the claim {quote(claim.id)} is there twice", code="E105")
            found[claim.id] = (document.source, claim)
    return tuple(found[name] for name in sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One statement about one model, or about none: what was stated and what came out."""

    model: str | None
    stated: str | None
    computed: str
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One statement of a claim, about each model that it names."""

    of: str
    formula: str
    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> Verdict:
        """What its findings amount to."""
        return over_models(finding.verdict for finding in self.findings)

    def text(self) -> str:
        """What came out, in words."""
        return f"{self.of}: {_list_values(self.findings)}"

    def mismatch(self) -> str:
        """What is wrong with it; nothing where it is true."""
        wrong = [f for f in self.findings if f.verdict != "true"]
        right = [f.model or "" for f in self.findings if f.verdict == "true"]
        if not wrong:
            return ""
        stated = list(dict.fromkeys(f.stated for f in wrong if f.stated is not None))
        text = f"{self.of}: {_list_values(wrong, named=bool(right))}"
        text += f", not {' and '.join(stated)}" if stated else ""
        text += " (within 3 %)" if {f.verdict for f in wrong} == {"approximately"} else ""
        if right:
            text += f", right for {_few(right)}"
        return text

    def to_dict(self) -> JsonObject:
        """As data."""
        listed = [
            {"model": f.model, "stated": f.stated, "computed": f.computed, "verdict": f.verdict} for f in self.findings
        ]
        return {"of": self.of, "formula": self.formula, "verdict": self.verdict, "findings": listed}


MANY = 3
"""Models that are named one by one in a line; of more their number is."""


def _few(models: list[str]) -> str:
    return ", ".join(models) if len(models) <= MANY else f"{len(models)} models"


def _list_values(findings: Iterable[Finding], named: bool = False) -> str:
    """Values with the models they belong to; one value alone is said once, with its models where `named`."""
    by_value: dict[str, list[str]] = {}
    for finding in findings:
        by_value.setdefault(finding.computed, []).append(finding.model or "")
    if len(by_value) == 1 and not named:
        return next(iter(by_value))
    return ", ".join(f"{value} ({_few(models)})" for value, models in by_value.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One claim with its verdict."""

    claim: Claim
    source: Origin
    verdict: Verdict
    checks: tuple[Checked, ...] = ()
    qualified: tuple[Checked, ...] = ()
    also: tuple[str, ...] = ()
    reason: str

    @property
    def computed(self) -> str:
        """What came out, in one line."""
        return "; ".join((*(check.text() for check in (*self.checks, *self.qualified)), *self.also))

    def to_dict(self) -> JsonObject:
        """An entry of the contract's list."""
        by = self.claim.qualified.by if self.qualified and self.claim.qualified else None
        return {
            "id": self.claim.id, "verdict": self.verdict, "computed": self.computed or None, "reason": self.reason,
            "claim": self.claim.says, "source": self.source.title,
            "checks": [check.to_dict() for check in self.checks], "qualification": by,
            "qualified_checks": [check.to_dict() for check in self.qualified],
            "let": dict(self.claim.let),
            "given": {name: fact.model_dump() for name, fact in self.claim.given.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger(Tabular):
    """All claims that were asked for."""

    __repr__ = Tabular.__repr__

    claims: tuple[Judged, ...]

    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        return {verdict: sum(one.verdict == verdict for one in self.claims) for verdict in VERDICTS}

    def to_dict(self) -> JsonObject:
        """The `archsim.claims/1` object."""
        listed = [one.to_dict() for one in self.claims]
        return {"schema": "archsim.claims/1", "verdicts": self.counts(), "claims": listed}


def claims(*, id: str | Collection[str] | None = None, verdict: str | None = None) -> Ledger:
    """The ledger, computed now; of one id or several, of one verdict.

    Raises UnknownName (E101) for an id that there is not, UsageError for a word that is no verdict.
    """
    if verdict is not None and verdict not in VERDICTS:
        raise UsageError(f"a verdict is {', '.join(VERDICTS)}, not {quote(str(verdict))}")
    listed = load_claims()
    wanted = (id,) if isinstance(id, str) else tuple(id or ())
    known = {claim.id for _, claim in listed}
    for name in wanted:
        if name.upper() not in known:
            raise UnknownName(f"no claim {quote(name)}", hints=[f"there are {min(known)} to {max(known)}"])
    chosen = {name.upper() for name in wanted} or known
    judged = tuple(judge(source, claim) for source, claim in listed if claim.id in chosen)
    return Ledger(claims=tuple(one for one in judged if verdict in (None, one.verdict)))


def judge(source: Origin, claim: Claim) -> Judged:
    """A claim's verdict by the rule, from what its checks compute."""
    closed = _without_spec(claim)
    if closed is not None:
        verdict, also, reason = closed
        return Judged(claim=claim, source=source, verdict=verdict, also=also, reason=reason)
    checks = tuple(_check_models(claim, check) for check in claim.checks)
    verdict, extra = _verdict(claim, checks)
    also = tuple(f"{one.of}: {value_text(_value(claim, one.computed), unit=one.unit)}" for one in claim.also)
    reason = _reason(claim, verdict, checks, extra)
    return Judged(
        claim=claim, source=source, verdict=verdict, checks=checks, qualified=extra, also=also, reason=reason
    )  # fmt: skip


def _verdict(claim: Claim, checks: tuple[Checked, ...]) -> tuple[Verdict, tuple[Checked, ...]]:
    """The verdict, and the checks of the one named qualification where that decides it."""
    if claim.missing is not None:
        return "uncheckable", ()
    verdict = together(check.verdict for check in checks)
    if verdict == "true" or claim.qualified is None:
        return verdict, ()
    extra = tuple(_check_models(claim, check) for check in claim.qualified.checks)
    if all(check.verdict in ("true", "approximately") for check in extra):
        return "approximately", extra
    return verdict, ()


def _check_models(claim: Claim, check: Check) -> Checked:
    """One check for each model that it is about, or once without any."""
    models: tuple[str | None, ...] = check.models or claim.models or (None,)
    given = check.stated if isinstance(check.stated, tuple) else (check.stated,) * len(models)
    findings = tuple(_finding(claim, check, model, stated) for model, stated in zip(models, given, strict=True))
    return Checked(of=check.of, formula=check.computed or check.holds or "", findings=findings)


def _finding(claim: Claim, check: Check, model: str | None, stated: int | str | None) -> Finding:
    """Stated against computed, or whether something holds."""
    if check.holds is None:
        value = _value(claim, check.computed or "", model)
        verdict = compare_values(stated or 0, value)
        printed = stated if isinstance(stated, str) else value_text(stated)
        return Finding(model=model, verdict=verdict, computed=value_text(value, stated, check.unit), stated=printed)
    holds = bool(_value(claim, check.holds, model))
    value = _value(claim, check.computed, model) if check.computed else holds
    return Finding(
        model=model, verdict="true" if holds else "false", computed=value_text(value, unit=check.unit), stated=None
    )  # fmt: skip


def _value(claim: Claim, formula: str, model: str | None = None) -> Any:
    """An expression of a claim, with its names and, as `m`, one model."""
    known: JsonObject = dict(FUNCTIONS) | {name: given.value for name, given in claim.given.items()}
    if model is None and len(claim.models) == 1:
        model = claim.models[0]
    if model is not None:
        known["m"] = facts(model)
    for name, text in claim.let.items():
        known[name] = evaluate(text, known) if isinstance(text, str) else text
    return evaluate(formula, known)


def _without_spec(claim: Claim) -> tuple[Verdict, tuple[str, ...], str] | None:
    """Of a model that the catalog knows and has no spec of: undisclosed is uncheckable, non-existent is false."""
    specless = {entry.name: entry.status or "" for entry in names("models") if entry.path is None}
    for name in claim.models:
        if name in specless:
            status = specless[name]
            if status.startswith("does not exist"):
                return "false", (f"models of the name {name}: 0",), f"{name}: {status}"
            return "uncheckable", (), f"{name}: {status}"
    return None


def _reason(claim: Claim, verdict: Verdict, checks: Iterable[Checked], extra: tuple[Checked, ...]) -> str:
    """One line: why this verdict."""
    wrong = [text for check in checks if (text := check.mismatch())]
    if claim.missing is not None:
        parts = [claim.missing]
    elif verdict == "true":
        parts = ["as stated, at the precision printed"]
    elif extra and claim.qualified is not None:
        parts = [f"right only {claim.qualified.by}", *wrong[:1]]
    else:
        parts = wrong
    return "; ".join(part for part in (*parts, claim.note) if part)


def summary(counts: Mapping[str, int]) -> str:
    """`48 true, 30 approximately, 54 false, 13 uncheckable`."""
    return ", ".join(f"{n} {verdict}" for verdict, n in counts.items())


# ---------------------------------------------------------------------- names that expressions may use
class StudyFacts(Named):
    """Counts over the rows of the 53-model study, by the specs and by its own table."""

    def quantity(self, name: str) -> Any:
        """`rows`; `count(id)` and `table(id)` of a number of its summary; `share` and `number` of a quantity."""
        known: JsonObject = {"count": self.count, "table": self.table, "share": self.share, "number": self.number}
        return len(self.study.rows) if name == "rows" else known[name]

    @cached_property
    def study(self) -> StudySpec:
        """The study's table."""
        return load_study()

    @cached_property
    def totals(self) -> dict[str, TotalRow]:
        """Its summary, counted again."""
        return {total.id: total for total in totals(self.study, compare(self.study))}

    def count(self, id: str) -> int:
        """Rows by their specs; rows without one as the study has them."""
        return self.totals[id].computed + self.totals[id].unknown

    def table(self, id: str) -> int:
        """Rows by the study's own cells."""
        return self.totals[id].in_table

    def share(self, name: str, *values: object, where: str = "", equals: object = None, since: str = "") -> float:
        """Share of the rows with a spec whose quantity is one of the values; of those alone `where` another is so, or
        that were released in the year `since` or later."""
        found = [m for m in self.rows if (m.model.released or "") >= since]
        found = [m for m in found if not where or m.quantity(where) == equals]
        return sum(m.quantity(name) in values for m in found) / len(found)

    def number(self, name: str, *values: object) -> int:
        """Rows with a spec whose quantity is one of the values."""
        return sum(m.quantity(name) in values for m in self.rows)

    @property
    def rows(self) -> list[ModelFacts]:
        """The first model of every row that has a spec."""
        return [facts(row.models[0]) for row in self.study.rows if row.models]


def pairs(kind: str, tokens: int, window: int | None = None) -> int:
    """(query, key) pairs of a mask over a sequence; sliding_both looks `window` keys to either side."""
    both = kind == "sliding_both"
    spec = MaskSpec.model_validate({"kind": "sliding" if both else kind, "window": window, "bidirectional": both})
    return int(spec.mask().pairs(0, tokens))


FUNCTIONS: Mapping[str, Callable[..., Any] | Named] = {
    "abs": abs, "min": min, "max": max, "round": round, "sum": lambda *xs: sum(xs), "len": len,
    "log2": math.log2, "model": facts, "pairs": pairs, "study": StudyFacts(), "law": law_facts,
}  # fmt: skip
"""Functions and objects by name."""
