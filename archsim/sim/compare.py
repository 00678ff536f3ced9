"""`archsim compare`: models crossed with devices, what the difference is made of, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.sim.alternatives import Facts, facts
from archsim.sim.estimate import Estimate, estimate
from archsim.sim.op_parts import part_of
from archsim.sim.phases import Phase
from archsim.sim.ranking import Ratio, Timing, joined, ratio, timing
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model

PHASES = ("prefill", "decode", "end to end")
"""What is ranked: the time to the first token, the time per token, and that of a whole answer."""

MOST = 64
"""Models times devices that one comparison holds."""


class Part(NamedTuple):
    """A part of the model in one phase: expected seconds in the first candidate and in this one."""

    name: str
    first_s: float
    this_s: float

    @property
    def delta_s(self) -> float:
        """Seconds that this one takes more."""
        return self.this_s - self.first_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model on a device. answer, facts: None where there is none, and `reason` says why."""

    label: str
    model: Model
    hardware: Hardware
    answer: Estimate | None = None
    facts: Facts | None = None
    reason: str = ""

    @property
    def figures(self) -> dict[str, float | None]:
        """Everything that candidates are set against each other in."""
        if self.answer is None or self.facts is None:
            return {}
        e, f, m = self.answer, self.facts, self.answer.metrics
        return {
            "params": e.params_total, "active_params": e.params_active, "weight_bytes": f.weight_bytes,
            "kv_bytes_per_token": f.kv_per_token, "flops_per_token": f.flops_per_token, "devices": e.plan.devices,
            "memory_bytes_per_device": e.memory.needed, **m,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All candidates; the first one is what the others are set against."""

    candidates: tuple[Candidate, ...]

    @property
    def first(self) -> Candidate:
        """The baseline."""
        return self.candidates[0]

    def ratios(self, candidate: Candidate) -> dict[str, float | None]:
        """Each figure over that of the first."""
        base = self.first.figures
        return {name: _over(value, base.get(name)) for name, value in candidate.figures.items()}

    def ranking(self, candidate: Candidate) -> dict[str, Ratio | None]:
        """The time of each phase over that of the first, with its interval and how sure it is to be shorter."""
        if candidate.answer is None or self.first.answer is None:
            return dict.fromkeys(PHASES)
        same = candidate.hardware.id == self.first.hardware.id
        return {name: _ratio(candidate.answer, self.first.answer, name, same) for name in PHASES}

    def parts(self, candidate: Candidate, phase: str) -> list[Part]:
        """Where the time of a phase differs from that of the first, the largest difference first."""
        if candidate.answer is None or self.first.answer is None:
            return []
        sums = [_by_part(phase_of(x, phase), phase) for x in (self.first.answer, candidate.answer)]
        found = [
            Part(name, sums[0].get(name, 0.0), sums[1].get(name, 0.0)) for name in {**sums[0], **sums[1]}
        ]
        return sorted(found, key=lambda part: (-abs(part.delta_s), part.name))

    def to_dict(self) -> dict[str, Any]:
        """The `archsim.compare/1` object."""
        return {"schema": "archsim.compare/1", "candidates": [self._candidate(c) for c in self.candidates]}

    def _candidate(self, c: Candidate) -> dict[str, Any]:
        ranked = {name: r.to_dict() if r else None for name, r in self.ranking(c).items()}
        differ = {
            phase: [{**part._asdict(), "delta_s": part.delta_s} for part in self.parts(c, phase)]
            for phase in ("prefill", "decode")
        }
        return {
            "label": c.label, "model": {"name": c.model.name}, "hardware": {"name": c.hardware.id},
            "reason": c.reason or None, "figures": c.figures, "ratios": self.ratios(c),
            "time_ratio": ranked, "difference": differ,
            "estimate": c.answer.to_dict() if c.answer else None,
        }  # fmt: skip


def compare(
    models: Sequence[Model],
    hardware: Sequence[Hardware],
    *,
    formats: Sequence[str | None] = (),
    **options: Any,
) -> Comparison:
    """Every model on every device. options: of `estimate`. formats: of each model's weights, where the options name
    none. Raises UsageError for nothing to compare; a candidate that cannot be stays, with the reason.
    """
    if len(models) * len(hardware) < 2:
        raise UsageError("nothing to compare: give two models, or one model and `--hw A,B`")
    if len(models) * len(hardware) > MOST:
        raise UsageError(f"{len(models)} models on {len(hardware)} devices are more than {MOST} candidates")
    names = _labels([model.name for model in models])
    hints = [*formats, *[None] * len(models)]
    found = []
    for device in hardware:
        for model, name, hint in zip(models, names, hints, strict=False):
            asked = dict(options) if options.get("weights") or hint is None else {**options, "weights": hint}
            found.append(_candidate(f"{name} on {device.id}", model, device, asked))
    return Comparison(candidates=tuple(found))


def _candidate(label: str, model: Model, hardware: Hardware, options: Mapping[str, Any]) -> Candidate:
    try:
        answer = estimate(model, hardware, **options)
    except (AnswerNo, InvalidPlan) as error:
        return Candidate(label=label, model=model, hardware=hardware, reason=error.message)
    return Candidate(label=label, model=model, hardware=hardware, answer=answer, facts=facts(answer))


def _labels(names: Iterable[str]) -> list[str]:
    """Names, numbered from the second on where one stands twice."""
    seen: dict[str, int] = {}
    found = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


def phase_of(e: Estimate, name: str) -> Phase | None:
    """The prefill or decode phase of an estimate."""
    return e.prefill if name == "prefill" else e.decode


def _ratio(this: Estimate, first: Estimate, name: str, same: bool) -> Ratio | None:
    one, two = _timing(this, name), _timing(first, name)
    return None if one is None or two is None else ratio(one, two, same)


def _timing(e: Estimate, name: str) -> Timing | None:
    """The time of a phase; of a whole answer, the prefill and every step after it."""
    if e.decode is None:
        return None if name == "decode" else timing(e.prefill)
    if name == "decode":
        return timing(e.decode)
    steps = e.workload.output_len - 1 if name == "end to end" else 0
    return joined(timing(e.prefill), timing(e.decode, steps)) if steps else timing(e.prefill)


def _by_part(phase: Phase | None, name: str) -> dict[str, float]:
    sums: dict[str, float] = {}
    for op in phase.ops if phase else ():
        part = part_of(op, name)
        sums[part] = sums.get(part, 0.0) + float(op.expected_s) * (phase.busy if phase else 1.0)
    return sums
