"""The answer of a search: the best spec, the front, the plateau that a law cannot tell apart, and what lost to it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from archsim.base.arrays import Array
from archsim.base.displayed import Tabular
from archsim.base.json_types import JsonObject
from archsim.base.units import format_bytes
from archsim.candidates.caveats import caveats
from archsim.candidates.evaluate import Evaluator, Rows, below, within
from archsim.candidates.question import Objective, Question
from archsim.candidates.search import Found, Part, best_rows, near_best
from archsim.spec.load import model_from
from archsim.spec.model import Model
from archsim.training.laws import load_laws

WITHIN_NATS = 0.005
"""Losses closer than this are the same, for all that a law knows; its standard errors are larger."""

MOST_SHOWN = 50
"""Candidates of the front that are part of an answer."""

WORDS = {"tpot_s": "TPOT", "ttft_s": "TTFT", "memory_bytes": "memory", "kv_bytes": "cache", "params": "parameters",
         "usd_per_m_output": "cost"}  # fmt: skip
"""Objectives in words."""

QUANTITIES = ("params", "active", "memory_bytes", "weights_bytes", "kv_bytes", "tpot_s", "ttft_s", "loss", "tokens",
              "train_flops", "usd_per_m_output")  # fmt: skip


COUNTS = ("params", "active", "memory_bytes", "weights_bytes", "kv_bytes")
"""Quantities that are whole numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One spec with its figures. numbers: dimensions. figures: quantities; None where nothing gives them."""

    structure: str
    weights: str
    document: JsonObject
    numbers: Mapping[str, int]
    figures: Mapping[str, float | None]
    choices: tuple[str, ...]

    @property
    def model(self) -> Model:
        """The spec, validated."""
        return model_from(self.document)

    @property
    def label(self) -> str:
        """Its dimensions in a line."""
        return ", ".join(f"{name} {value:,}" for name, value in self.numbers.items())

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "structure": self.structure, "weights": self.weights, "spec": self.document,
            "dimensions": dict(self.numbers), **self.figures, "caveats": caveats(self.choices),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """A candidate one step away from the best, and why it lost."""

    change: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plateau:
    """The candidates that the law cannot tell from the best. ranges: of dimensions and quantities among them; first: by
    each further objective, the best among them."""

    count: int
    ranges: Mapping[str, tuple[float, float]]
    first: Mapping[str, Candidate]

    def to_dict(self) -> JsonObject:
        """As data."""
        return {
            "count": self.count, "within_nats": WITHIN_NATS, "ranges": {k: list(v) for k, v in self.ranges.items()},
            "first": {name: candidate.to_dict() for name, candidate in self.first.items()},
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Design(Tabular):
    """What a search found. best: None where nothing keeps the limits. known: models of the catalog nearest to the best,
    with the largest relative difference of a dimension."""

    __repr__ = Tabular.__repr__

    question: Question
    found: Found
    seconds: float
    best: Candidate | None = None
    front: tuple[Candidate, ...] = ()
    front_size: int = 0
    plateau: Plateau | None = None
    neighbours: tuple[Neighbour, ...] = ()
    known: tuple[tuple[str, float], ...] = ()
    loss_range: tuple[float, float] | None = None
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> JsonObject:
        """The `archsim.design/1` object."""
        question, searched = self.question, self.found.searched
        load, training = question.load, question.training
        return {
            "schema": "archsim.design/1",
            "question": {
                "hw": [question.hardware.id], "engine": question.engine.name, "weights": list(question.weights),
                "context": load.input_len + load.output_len, "batch": load.batch, "output_len": load.output_len,
                "constraints": question.limits.to_dict(),
                "objectives": [objective.name for objective in question.objectives],
                "training": None if training is None else {
                    "law": training.name, "flops": training.flops, "tokens": training.tokens,
                    "rent": None if training.rent is None else training.rent.to_dict()},
                "price": None if question.price is None else question.price.to_dict(),
            },
            "searched": {
                "combinations": searched.combinations, "legal": searched.legal, "fit": searched.fit,
                "priced": searched.priced, "beyond_the_law": searched.beyond, "sampled": self.found.sampled,
                "seconds": self.seconds,
            },
            "best": None if self.best is None else {**self.best.to_dict(), "loss_range": self._loss()},
            "front": [candidate.to_dict() for candidate in self.front], "front_size": self.front_size,
            "plateau": None if self.plateau is None else self.plateau.to_dict(),
            "neighbours": [{"change": n.change, "reason": n.reason} for n in self.neighbours],
            "nearest_known": [{"model": name, "distance": distance} for name, distance in self.known],
            "assumptions": list(self.assumptions), "warnings": list(self.warnings),
        }  # fmt: skip

    def _loss(self) -> JsonObject | None:
        if self.loss_range is None or self.question.training is None:
            return None
        return {"law": self.question.training.name, "low": self.loss_range[0], "high": self.loss_range[1]}


def answer_of(question: Question, found: Found, seconds: float, openings: Callable[[], Iterable[str]]) -> Design:
    """The answer that the candidates left by a search make. openings: what to ask instead, where nothing is left."""
    table = found.table()
    if not table:
        return Design(question=question, found=found, seconds=seconds, warnings=(_nothing(found), *openings()))
    order = best_rows(table, question.objectives)
    best = _row(table, int(order[0]))
    part, rows = _part(found, table, int(order[0]))
    candidate = candidate_of(part, rows)
    return Design(
        question=question, found=found, seconds=seconds, best=candidate, front_size=len(order),
        front=tuple(candidate_of(*_part(found, table, int(i))) for i in order[:MOST_SHOWN]),
        plateau=_plateau(question, found, table), neighbours=_neighbours(part.evaluator, rows),
        known=nearest_known(candidate), loss_range=_loss_range(question, best),
        assumptions=_assumptions(question, found), warnings=_warnings(candidate, best),
    )  # fmt: skip


def candidate_of(part: Part, rows: Rows) -> Candidate:
    """One candidate, as rows of one, with its time to the first token."""
    evaluator = part.evaluator
    rows, structure = evaluator.with_prefill(rows), evaluator.space.structure
    numbers = {name: int(rows[name][0]) for name in evaluator.space.axes}
    population = evaluator.population(rows)
    choices = list(structure.choices)
    if numbers["n_heads"] > numbers.get("n_kv_heads", numbers["n_heads"]):
        choices.append("kv_heads")
    formats = evaluator.formats
    if formats.weights["default"].bits < 16 or any(fmt.bits < 15 for fmt in formats.weights.values()):
        choices.append("precision")
    return Candidate(
        structure=structure.name, weights=formats.name, document=population.document_of(0), numbers=numbers,
        figures={name: _number(name, rows[name][0]) if name in rows else None for name in QUANTITIES},
        choices=(*choices, "depth", "ffn_width"),
    )  # fmt: skip


def _number(name: str, value: float) -> float:
    """A quantity as data: counts and dimensions are whole numbers."""
    whole = name in COUNTS or np.issubdtype(np.asarray(value).dtype, np.integer)
    return int(value) if whole else float(value)


def _row(table: Rows, index: int) -> Rows:
    return {name: column[index : index + 1] for name, column in table.items()}


def _part(found: Found, table: Rows, index: int) -> tuple[Part, Rows]:
    """The part of a candidate in the table, and its row there."""
    part = found.parts[int(table["part"][index])]
    return part, _row(part.rows, int(table["place"][index]))


def _plateau(question: Question, found: Found, table: Rows) -> Plateau | None:
    """What is as good as the best by the first objective, where that is a loss."""
    first, *others = question.objectives
    if first.name != "loss":
        return None
    chosen = np.flatnonzero(near_best(table, first, WITHIN_NATS))
    names = [name for name in table if name not in ("part", "place", "beyond", "position")]
    ranges = {
        name: (_number(name, table[name][chosen].min()), _number(name, table[name][chosen].max())) for name in names
    }
    best = {
        objective.name: candidate_of(*_part(found, table, int(chosen[_argbest(table, objective, chosen)])))
        for objective in others
    }
    return Plateau(count=len(chosen), ranges=ranges, first=best)


def _argbest(table: Rows, objective: Objective, chosen: Array) -> int:
    return int(np.argmin(objective.sign * np.asarray(table[objective.name][chosen], dtype=float)))


# ---------------------------------------------------------------------- what lost
def _neighbours(evaluator: Evaluator, best: Rows) -> tuple[Neighbour, ...]:
    """The candidates one step away, each with the first reason for which it is not the answer."""
    space, found = evaluator.space, []
    around = space.neighbours(best["position"])
    rows = evaluator.rows(around, limited=False)
    places = {tuple(position): i for i, position in enumerate(rows["position"].tolist())} if rows else {}
    here = best["position"][0]
    for position in around:
        axis = int(np.flatnonzero(position != here)[0])
        name = tuple(space.axes)[axis]
        value = space.values(position[None, :])[name][0]
        change = f"{name} {int(best[name][0]):,} to {value:,.6g}"
        at = places.get(tuple(position.tolist()))
        reason = (
            "no such model: sizes do not divide, or outside the rules of the space"
            if at is None else _why(evaluator.question, _row(rows, at), best)
        )  # fmt: skip
        found.append(Neighbour(change=change, reason=reason))
    return tuple(found)


def _why(question: Question, row: Rows, best: Rows) -> str:
    """Why a candidate is not the best one."""
    limits = question.limits
    if row["free_bytes"][0] < 0:
        return f"does not fit: short by {format_bytes(-float(row['free_bytes'][0]))}"
    if limits.memory_bytes is not None and row["memory_bytes"][0] > limits.memory_bytes:
        return f"takes {format_bytes(float(row['memory_bytes'][0]))}"
    for name in ("tpot", "ttft"):
        limit = getattr(limits, f"{name}_s")
        if not below(row, name, limits)[0]:
            time = row[f"{name}_high_s" if limits.sure else f"{name}_s"][0]
            return f"{name.upper()} {1e3 * time:,.2f} ms, above the limit of {1e3 * limit:,.6g} ms"
    if not within(row["params"], limits.params)[0] or not within(row["active"], limits.active)[0]:
        return f"{int(row['params'][0]):,} parameters, outside the limits"
    return _worse(question, row, best)


def _worse(question: Question, row: Rows, best: Rows) -> str:
    """In which objectives a candidate is worse than the best, and in which better."""
    said = []
    for objective in question.objectives:
        ours, theirs = float(best[objective.name][0]), float(row[objective.name][0])
        if objective.name == "loss":
            said.append(f"loss {theirs - ours:+.4f} nats")
        else:
            said.append(f"{WORDS.get(objective.name, objective.name)} {100 * (theirs / ours - 1):+.1f} %")
    return ", ".join(said)


# ---------------------------------------------------------------------- beside the answer
def nearest_known(candidate: Candidate, count: int = 3) -> tuple[tuple[str, float], ...]:
    """The models of the catalog whose dimensions are nearest, with the largest relative difference of one."""
    from archsim.candidates.known import known_shapes

    mine = candidate.numbers
    found = []
    for shape in known_shapes():
        common = [name for name in mine if name in shape.numbers and name != "vocab_size"]
        if set(common) >= set(mine) - {"vocab_size", "d_expert"}:
            distance = max(abs(math.log(shape.numbers[name] / mine[name])) for name in common)
            found.append((shape.model, round(math.expm1(distance), 4)))
    return tuple(sorted(found, key=lambda pair: (pair[1], pair[0]))[:count])


def _loss_range(question: Question, best: Rows) -> tuple[float, float] | None:
    """The lowest and the highest loss of all laws that give one, of the active and of all parameters."""
    if question.training is None:
        return None
    sizes = {float(best["active"][0]), float(best["params"][0])}
    laws = [law.loss for law in load_laws().values() if law.loss is not None]
    found = [float(law.of(size, float(best["tokens"][0]))) for law in laws for size in sizes]
    return min(found), max(found)


def _assumptions(question: Question, found: Found) -> tuple[str, ...]:
    load = question.load
    said = [
        f"times of the last {load.output_len:,} tokens of a context of {load.input_len + load.output_len:,}, expected "
        "rather than at their worst" if not question.limits.sure else
        f"times of the last {load.output_len:,} tokens of a context of {load.input_len + load.output_len:,}, at the "
        "upper end of their interval"
    ]  # fmt: skip
    if question.training is not None:
        said.append(
            f"losses by {question.training.name}, a law of dense decoders on web text: it says nothing of benchmarks, "
            "of recall over long contexts or of stability; of experts only the active parameters count"
        )
    if question.training is not None and question.training.rent is not None:
        rent = question.training.rent
        said.append(
            f"training: {rent.device_hours:,.0f} hours of one {rent.hardware.id} at {rent.price.in_words}, with "
            f"{100 * rent.mfu:g} % of its bf16 peak"
        )
    if question.price is not None:
        said.append(f"cost of serving: {question.price.in_words}")
    if found.sampled:
        said.append("a sample of the space, and steps from its front until it stayed")
    return tuple(said)


def _warnings(candidate: Candidate, best: Rows) -> tuple[str, ...]:
    factor = float(best["beyond"][0]) if "beyond" in best else 1.0
    far = [f"the law is used {factor:,.1f}x beyond the runs that it was fitted to"] if factor > 1.05 else []
    return tuple(far)


def _nothing(found: Found) -> str:
    """Where the candidates were lost."""
    s = found.searched
    where = (
        "none of the combinations is a model within the rules of the space" if not s.legal
        else "no candidate is within the limits of parameters and memory" if not s.fit
        else "no candidate is fast enough"
    )  # fmt: skip
    return f"{where}: {s.combinations:,} combinations, {s.legal:,} models, {s.fit:,} in memory, {s.priced:,} timed"
