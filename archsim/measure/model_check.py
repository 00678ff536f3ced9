"""One model on this machine: what was counted and predicted of it, line by line beside what was seen of it.

Counts must be equal. Times and memory are predictions with an interval; each line says whether the figure lies inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, Unpack

from archsim.base.displayed import Tabular
from archsim.base.errors import ArchsimError, UsageError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.options import TimingArguments
from archsim.counts.count import CountResult, count, flops_of, step_for
from archsim.counts.formats import choose_formats
from archsim.importers.opening import open_model
from archsim.measure.checked_rows import CheckedRow, checked_object
from archsim.predict.estimate import Estimate, estimate
from archsim.spec.catalog import resolve
from archsim.spec.load import load_hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model

if TYPE_CHECKING:
    from archsim.measure.model_run import Measured, PhaseTime

Verdict = Literal["equal", "differs", "inside", "outside", "not predicted", "not measured"]

LINE = ("what", "unit", "predicted", "measured", "low", "high", "evidence")
STAND_IN = "cpu"
"""The device that stands for a processor that the catalog does not know."""

ITEM = {"fp32": 4, "bf16": 2, "fp16": 2}
PLANNED = ("out", "budget")
"""Options of a check that follows a plan, which this one does not."""
STEP = 0.25
"""Half-width, as a share, of the memory of a step's activations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One figure. unit: B, FLOP, s or none. low, high: the 80 % interval; both the prediction where it is a count."""

    what: str
    unit: str
    predicted: float | None
    measured: float | None
    low: float | None = None
    high: float | None = None
    evidence: str = "exact"
    phase: PhaseTime | None = None

    def row(self, name: str) -> CheckedRow | None:
        """The row of a time or a peak; None of a count. name: of the model."""
        if self.phase is None:
            return None
        x, metric = self.phase, "peak_bytes" if self.unit == "B" else f"{self.phase.name}_s"
        length = x.past or x.new
        return CheckedRow(
            f"{name}/{x.name}/{x.batch}/{length}", metric, self.measured, self.predicted, self.low, self.high,
            self.evidence, x.name, x.batch, length,
        )  # fmt: skip

    def to_dict(self) -> JsonObject:
        """The figure without its phase, of which the name says enough."""
        return {name: getattr(self, name) for name in LINE} | {"verdict": self.verdict}

    @property
    def verdict(self) -> Verdict:
        """How the two figures agree."""
        if self.predicted is None:
            return "not predicted"
        if self.measured is None:
            return "not measured"
        if self.low is None or self.high is None:
            return "equal" if self.predicted == self.measured else "differs"
        return "inside" if self.low <= self.measured <= self.high else "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTime:
    """A block's time in one phase, all its calls together."""

    phase: str
    block: str
    predicted: float
    measured: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck(Tabular):
    """The comparison. asked: the model's name; reduced: why not that one ran. hardware: whose times are predicted."""

    __repr__ = Tabular.__repr__

    asked: str
    model: str
    reduced: str
    device: str
    hardware: str | None
    engine: str
    dtype: str
    lines: tuple[Line, ...]
    parts: tuple[BlockTime, ...]
    spread_pct: float
    notes: tuple[str, ...]

    @property
    def exact(self) -> bool:
        """Whether every count is what was seen."""
        return all(line.verdict != "differs" for line in self.lines)

    def to_dict(self) -> JsonObject:
        """The `archsim.validate/1` object of kind `model`; `lines` has the counts too."""
        lines = [line.to_dict() for line in self.lines]
        rows = [row for line in self.lines if (row := line.row(self.model)) is not None]
        parts = [asdict(part) for part in self.parts]
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in ("lines", "parts")}
        return {**checked_object(rows), "exact": self.exact, **plain, "notes": list(self.notes), "lines": lines,
                "parts": parts}  # fmt: skip

    def json(self) -> Iterator[str]:
        """The same as JSON text."""
        import json

        yield json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def check_model(name: str, **options: Unpack[TimingArguments]) -> ModelCheck:
    """The predictions of a model beside what it takes here. Needs the extra `torch`: UsageError without it."""
    model, _ = open_model(name)  # a misspelt name is answered before anything is loaded
    try:
        from archsim.measure.model_run import measure_model
    except ModuleNotFoundError as error:
        missing = "PyTorch" if (error.name or "").startswith("torch") else "the part that times models"
        raise UsageError(
            f"timing {name} on a device needs {missing}, which is not installed",
            hints=("pip install 'archsim[torch]'", "a file of measurements needs neither"),
        ) from None
    timing = {key: value for key, value in options.items() if key not in PLANNED}
    return compared(measure_model(model, **timing))  # type: ignore[arg-type]


def compared(seen: Measured) -> ModelCheck:
    """The comparison with what `model_run` measured. Predictions use its model and shapes, never its figures."""
    hardware, notes = device_for(seen.hardware, seen.device)
    lines = list(counts(seen))
    parts: list[BlockTime] = []
    for phase in seen.phases:
        estimated = _estimate_of(seen.model, hardware, phase, seen.dtype)
        lines += phase_lines(seen, phase, estimated)
        parts += by_block(phase, estimated)
    return ModelCheck(
        asked=seen.asked, model=seen.model.name, reduced=seen.reduced, device=seen.device, engine=seen.engine,
        hardware=hardware, dtype=seen.dtype, lines=tuple(lines), parts=tuple(parts), notes=notes,
        spread_pct=max(phase.spread_pct for phase in seen.phases),
    )  # fmt: skip


def device_for(name: str, device: str) -> tuple[str | None, tuple[str, ...]]:
    """The catalog's device that times are predicted for, and what had to be assumed."""
    try:
        return resolve("hw", name).name, ()
    except ArchsimError:
        pass
    if device != "cpu":
        return None, (f"{name} is not in the catalog: times are not predicted",)
    stand_in = resolve("hw", STAND_IN).name
    return stand_in, (f"{name} is not in the catalog: times are predicted for {stand_in}, which it is not",)


def counts(seen: Measured) -> Iterator[Line]:
    """Parameters, their bytes, and cache bytes. Buffers are no parameters."""
    estimated: CountResult = count(seen.model)
    item = ITEM[seen.dtype]
    yield Line(what="parameters", unit="", predicted=estimated.total, measured=seen.params)
    yield Line(what="weights", unit="B", predicted=estimated.total * item, measured=seen.weight_bytes)
    if seen.kv_bytes or estimated.kv_bytes_per_token:
        batch = seen.phases[0].batch
        held = count(seen.model, batch=batch, input_len=seen.kv_tokens // batch).kv_bytes * item // 2
        yield Line(what="KV cache", unit="B", predicted=held, measured=seen.kv_bytes)


def phase_lines(seen: Measured, phase: PhaseTime, estimated: Estimate | None) -> Iterator[Line]:
    """FLOP, time and peak memory of one forward pass."""
    yield Line(what=f"{phase.name} work", unit="FLOP", predicted=flops(seen.model, phase), measured=phase.flops)
    priced = None if estimated is None else estimated.prefill if phase.name == "prefill" else estimated.decode
    found: JsonMapping = priced.to_dict() if priced is not None else {}
    yield Line(
        what=f"{phase.name} time", unit="s", predicted=found.get("expected_s"), measured=phase.seconds,
        low=found.get("low_s"), high=found.get("high_s"), evidence=found.get("evidence", "none"), phase=phase,
    )  # fmt: skip
    if estimated is not None and phase.name == "prefill":
        own = estimated.memory
        step = own.activations
        whole = own.weights + own.kv_cache + step
        yield Line(
            what="peak memory", unit="B", predicted=whole, measured=phase.allocated, low=whole - STEP * step,
            high=whole + 2 * STEP * step, evidence="modelled", phase=phase,
        )  # fmt: skip


def flops(model: Model, phase: PhaseTime) -> int:
    """FLOP of a phase over every pair of keys, as torch counts them; an encoder's output is there when decoding."""
    source = phase.past if phase.past and model.encoder is not None else None
    step = step_for(model, phase.batch, phase.new, phase.past, source, masked=False)
    return int(flops_of(choose_formats(model).apply(lower(model, step))).total)


def _estimate_of(model: Model, hardware: str | None, phase: PhaseTime, dtype: str) -> Estimate | None:
    """The estimate whose prefill, or decode step after `past` tokens, is the phase's."""
    if hardware is None:
        return None
    length = phase.past or phase.new
    return estimate(
        model, load_hardware(hardware), devices=1, batch=phase.batch, input_len=length, output_len=2, weights=dtype
    )


def by_block(phase: PhaseTime, estimated: Estimate | None) -> Iterator[BlockTime]:
    """Times by block, those of every phase together its own."""
    if estimated is None:
        return
    priced = estimated.prefill if phase.name == "prefill" else estimated.decode
    if priced is None:
        return
    expected = _summed((op.path, float(op.expected_s)) for op in priced.ops)
    seen = _summed((op.paths[0], op.seconds) for op in phase.ops)
    for block in dict.fromkeys([*expected, *seen]):
        yield BlockTime(
            phase=phase.name, block=block, predicted=expected.get(block, 0.0), measured=seen.get(block, 0.0)
        )


def _summed(times: Iterable[tuple[str, float]]) -> dict[str, float]:
    found: dict[str, float] = {}
    for path, seconds in times:
        block = path.rstrip("()+=").rsplit(".", 1)[0]
        found[block] = found.get(block, 0.0) + seconds
    return found
