"""`archsim compare` as CSV: one table of two kinds of rows, candidates and the parts of the model in each phase."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from archsim.base.json_types import JsonObject
from archsim.comparison.compare import Candidate, Comparison
from archsim.render.flat import flatten

PART = ("phase", "part", "first_s", "this_s", "delta_s")


def rows(c: Comparison) -> list[JsonObject]:
    """A row for each candidate (`row` is `candidate`: figures, ratios, ranking), then one for each part of the model in
    each phase (`row` is `part`: its seconds in the candidate that it is set against, in this one, and the difference).
    """
    return [_candidate(c, x) for x in c.candidates] + [part for x in c.candidates for part in _parts(c, x)]


def _key(kind: str, x: Candidate) -> JsonObject:
    """What tells rows apart, in every row; then the columns of parts, which candidates leave empty."""
    own = {"label": x.label, "model": x.name, "hardware": x.hardware.id}
    return {"row": kind, **own, **asdict(x.workload), **dict.fromkeys(PART)}


def _candidate(c: Comparison, x: Candidate) -> JsonObject:
    ranked = {name.replace(" ", "_"): r.to_dict() for name, r in c.ranking(x).items() if r}
    ratios = {f"ratio_{name}": value for name, value in c.ratios(x).items()}
    told = {"against": c.base(x).label, "fits": x.fits, "reason": x.reason or None}
    return {**_key("candidate", x), **told, **x.figures, **ratios, **flatten(ranked)}


def _parts(c: Comparison, x: Candidate) -> Iterator[JsonObject]:
    for phase in ("prefill", "decode"):
        for part in c.parts(x, phase):
            yield {
                **_key("part", x), "against": c.base(x).label, "phase": phase, "part": part.name,
                "first_s": part.first_s, "this_s": part.this_s, "delta_s": part.delta_s,
            }  # fmt: skip
