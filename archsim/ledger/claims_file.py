"""The ledger's documents: what articles state, in our words, and how it is checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, model_validator

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.blocks.dispatch import InvalidBlock, Spec
from archsim.ledger.published_table import Origin, data_file
from archsim.spec import loader

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
