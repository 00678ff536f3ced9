"""`archsim compare`: models crossed with devices, what the difference is made of, and how sure it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import NamedTuple, Unpack, cast

from archsim.base.displayed import Tabular
from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.options import CompareArguments, CostArguments, EnergyArguments, PaidArguments
from archsim.base.ranges import parse_range
from archsim.comparison.uncertainty import Ratio, Timing, add_times, ratio, timing
from archsim.cost.served_cost import ServedCost
from archsim.counts.workload import Workload
from archsim.predict.estimate import Estimate, estimate
from archsim.predict.model_parts import seconds_by_part
from archsim.predict.what_fits import Facts, facts
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.timing.step_time import StepTime

PHASES = ("prefill", "decode", "end to end")
"""What is ranked: the time to the first token, the time per token, and that of a whole answer."""

MOST = 64
"""Candidates at all workloads together that one comparison holds."""

LOADS = ("batch", "input_len", "output_len")
DEGREES = ("devices", "tp", "pp", "ep", "dp")
"""Options that may be ranges: each workload is compared for itself; degrees make candidates of their own."""


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
    """A model on a device at a workload. answer, facts: None where there is none, and `reason` says why.
    name: the model's, numbered where it stands twice. degrees: what tells plans apart, where several are compared.
    """

    name: str
    model: Model
    hardware: Hardware
    workload: Workload
    degrees: Mapping[str, int | str]
    answer: Estimate | None = None
    facts: Facts | None = None
    reason: str = ""

    @property
    def label(self) -> str:
        """What it is called beside the others of its workload."""
        degrees = (f"{name} {value}" for name, value in self.degrees.items())
        return ", ".join((f"{self.name} on {self.hardware.id}", *degrees))

    @property
    def fits(self) -> bool:
        """Whether there is an answer, and the devices hold it."""
        return self.answer is not None and self.answer.memory.fits

    @property
    def figures(self) -> dict[str, float | None]:
        """Everything that candidates are compared by."""
        if self.answer is None or self.facts is None:
            return {}
        e, f, m = self.answer, self.facts, self.answer.metrics
        return {
            "params": e.params_total, "active_params": e.params_active, "weight_bytes": f.weight_bytes,
            "kv_bytes_per_token": f.kv_per_token, "flops_per_token": f.flops_per_token, "devices": e.plan.devices,
            "memory_bytes_per_device": e.memory.needed, **m, **_dollars(e), **_energy(e),
        }  # fmt: skip


DOLLARS = ("usd_per_hour", "usd_per_m_input", "usd_per_m_output", "usd_per_m_output_all_in")
"""Figures that a price gives."""


def _dollars(e: Estimate) -> dict[str, float | None]:
    """Dollars per hour and per million tokens, where a price is asked for."""
    return {} if e.cost is None else {name: getattr(e.cost.cost, name) for name in DOLLARS}


def _energy(e: Estimate) -> dict[str, float | None]:
    """Watts of one device, and joules of all devices per output token, where energy is asked for."""
    use = e.energy
    return {} if use is None else {"power_w_per_device": use.watts.expected, "j_per_output_token": use.joules.expected}


def cost_ratio(a: Estimate, b: Estimate) -> Ratio | None:
    """The whole bill of A's load per token over that of B, prices being exact; None where one has no price. Under a
    stated concurrency the errors are those of single requests.
    """
    if a.cost is None or b.cost is None:
        return None
    bills = [_bill(e.cost.cost) for e in (a, b) if e.cost is not None]
    times = [found for e in (a, b) if (found := _timing(e, "end to end")) is not None]
    if len(times) < 2 or not all(bills):
        return None
    seconds = [float(sum(part.time.expected for part in one.shares)) for one in times]
    factor = bills[0] / bills[1] * seconds[1] / seconds[0]
    return ratio(times[0], times[1], a.hardware.id == b.hardware.id, factor=factor)


def _bill(cost: ServedCost) -> float:
    """Dollars per million tokens of answers, of what writes none of prompts."""
    all_in = cost.usd_per_m_output_all_in
    return float(cost.usd_per_m_input if all_in is None else all_in)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison(Tabular):
    """All candidates; the first one at each workload is the baseline of the others."""

    __repr__ = Tabular.__repr__

    candidates: tuple[Candidate, ...]

    @property
    def first(self) -> Candidate:
        """The baseline, at the first workload."""
        return self.candidates[0]

    @property
    def by_workload(self) -> Mapping[Workload, tuple[Candidate, ...]]:
        """The candidates of each workload."""
        loads = dict.fromkeys(c.workload for c in self.candidates)
        return {load: tuple(c for c in self.candidates if c.workload == load) for load in loads}

    def base(self, candidate: Candidate) -> Candidate:
        """The baseline at a candidate's workload."""
        return next(c for c in self.candidates if c.workload == candidate.workload)

    def ratios(self, candidate: Candidate) -> dict[str, float | None]:
        """Each figure over that of the first."""
        base, own = self.base(candidate).figures, candidate.figures
        return {name: value / b if value is not None and (b := base.get(name)) else None for name, value in own.items()}

    def ranking(self, candidate: Candidate) -> dict[str, Ratio | None]:
        """The time of each phase over that of the first, with its interval and the probability that it is shorter."""
        base = self.base(candidate)
        if candidate.answer is None or base.answer is None:
            return dict.fromkeys(PHASES)
        same = candidate.hardware.id == base.hardware.id
        times = {name: (_timing(candidate.answer, name), _timing(base.answer, name)) for name in PHASES}
        return {name: ratio(this, first, same) if this and first else None for name, (this, first) in times.items()}

    def cost_ratio(self, candidate: Candidate) -> Ratio | None:
        """The bill per token over that of the first, where a price is asked for."""
        base = self.base(candidate).answer
        return None if candidate.answer is None or base is None else cost_ratio(candidate.answer, base)

    def parts(self, candidate: Candidate, phase: str) -> list[Part]:
        """Where the time of a phase differs from that of the first, the largest difference first."""
        base = self.base(candidate).answer
        if candidate.answer is None or base is None:
            return []
        first, this = (seconds_by_part(p) if (p := phase_of(x, phase)) else {} for x in (base, candidate.answer))
        found = [Part(name, first.get(name, 0.0), this.get(name, 0.0)) for name in {**first, **this}]
        return sorted(found, key=lambda part: (-abs(part.delta_s), part.name))

    def to_dict(self) -> JsonObject:
        """The `archsim.compare/1` object."""
        return {"schema": "archsim.compare/1", "candidates": [self._candidate(c) for c in self.candidates]}

    def _candidate(self, c: Candidate) -> JsonObject:
        ranked = {name: r.to_dict() if r else None for name, r in self.ranking(c).items()}
        dollars = self.cost_ratio(c)
        differ = {
            phase: [{**part._asdict(), "delta_s": part.delta_s} for part in self.parts(c, phase)]
            for phase in ("prefill", "decode")
        }
        return {
            "label": c.label, "model": {"name": c.model.name}, "hardware": {"name": c.hardware.id},
            "workload": asdict(c.workload),
            "against": self.base(c).label, "fits": c.fits, "reason": c.reason or None,
            "figures": c.figures, "ratios": self.ratios(c),
            "time_ratio": ranked, **({"cost_ratio": dollars.to_dict()} if dollars else {}), "difference": differ,
            "estimate": c.answer.to_dict() if c.answer else None,
        }  # fmt: skip


def compare(
    models: Sequence[Model],
    hardware: Sequence[Hardware],
    *,
    formats: Sequence[str | None] = (),
    **options: Unpack[CompareArguments],
) -> Comparison:
    """Every model on every device. options: of `estimate`; the workload and the degrees may be ranges.
    formats: of each model's weights, where the options name none. Raises UsageError for nothing to compare; a
    candidate that cannot be stays, with the reason.
    """
    loads, plans = list(_loads(options)), list(_plans(options))
    _check_number(len(models) * len(hardware) * len(plans), len(loads))
    hints = [*formats, *[None] * len(models)][: len(models)]
    names = _labels([model.name for model in models], hints)
    costs = {name: value for name, value in options.items() if name in PaidArguments.__annotations__}
    plain = {name: value for name, value in options.items() if name not in (*LOADS, *DEGREES, *costs)}
    varied = [name for name in DEGREES if len({plan.get(name) for plan in plans}) > 1]
    found = []
    for load, device, plan in product(loads, hardware, plans):
        told = {name: plan[name] for name in varied}
        for model, name, hint in zip(models, names, hints, strict=True):
            own = {} if plain.get("weights") or hint is None else {"weights": hint}
            asked = {**plain, **own, **asdict(load), **plan}
            found.append(_candidate(name, model, device, load, told, asked, costs))
    return Comparison(candidates=tuple(found))


def _check_number(each: int, loads: int) -> None:
    if each < 2:
        raise UsageError("nothing to compare: give two models, `--hw A,B`, or several degrees such as `--tp 1,2`")
    if each * loads > MOST:
        at = f" at {loads} workloads" if loads > 1 else ""
        raise UsageError(f"{each} candidates{at} are more than {MOST}", hints=("`archsim sweep` takes any number",))


def _loads(options: JsonMapping) -> Iterator[Workload]:
    """The workloads of ranges, the batch innermost."""
    usual = asdict(Workload())
    values = {name: parse_range(options.get(name, usual[name]), name.replace("_", "-")) for name in LOADS}
    for output_len, input_len, batch in product(*(values[name] for name in reversed(LOADS))):
        yield Workload(batch=batch, input_len=input_len, output_len=output_len)


def _plans(options: JsonMapping) -> Iterator[dict[str, int | str]]:
    """The plans of ranges of degrees; what is not asked for is left to `estimate`."""
    asked = {name: options[name] for name in DEGREES if options.get(name) is not None}
    values: list[tuple[int | str, ...]]
    values = [("auto",) if str(v).lower() == "auto" else parse_range(v, name) for name, v in asked.items()]
    for found in product(*values):
        yield dict(zip(asked, found, strict=True))


def _candidate(
    name: str, model: Model, hardware: Hardware, load: Workload, told: Mapping[str, int | str], options: JsonMapping,
    costs: JsonMapping,
) -> Candidate:  # fmt: skip
    answer, reason = None, ""
    try:
        answer = estimate(model, hardware, **options)
    except (AnswerNo, InvalidPlan) as error:
        reason = error.message
    if answer is not None and costs:
        from archsim.predict.priced import with_costs

        energy = {name: costs[name] for name in EnergyArguments.__annotations__ if name in costs}
        paid = {name: costs[name] for name in CostArguments.__annotations__ if name in costs}
        answer = with_costs(answer, cast(CostArguments, paid), cast(EnergyArguments, energy))
    return Candidate(
        name=name, model=model, hardware=hardware, workload=load, degrees=told, answer=answer,
        facts=facts(answer) if answer else None, reason=reason,
    )  # fmt: skip


def _labels(models: Sequence[str], formats: Sequence[str | None]) -> list[str]:
    """Names; of a model that stands twice with the format that its spelling asks for, else numbered."""
    seen: dict[str, int] = {}
    found = []
    for model, form in zip(models, formats, strict=True):
        name = f"{model} {form}" if form and models.count(model) > 1 else model
        seen[name] = seen.get(name, 0) + 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def phase_of(e: Estimate, name: str) -> StepTime | None:
    """The prefill or decode phase of an estimate."""
    return e.prefill if name == "prefill" else e.decode


def _timing(e: Estimate, name: str) -> Timing | None:
    """The time of a phase; of a whole answer, the prefill and every step after it."""
    if e.decode is None:
        return None if name == "decode" else timing(e.prefill)
    if name == "decode":
        return timing(e.decode)
    steps = e.workload.output_len - 1 if name == "end to end" else 0
    return add_times(timing(e.prefill), timing(e.decode, steps)) if steps else timing(e.prefill)
