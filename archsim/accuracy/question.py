"""One row of a run list or a serving table as a typed question: model, device, plan, workload, and what is asked."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, UnknownName, UsageError
from archsim.base.json_types import JsonMapping
from archsim.engines.names import DEFAULT_ENGINE, choose_engine, engine_and_version, version_of_day
from archsim.engines.overhead import NO_FLAGS, ServerFlags
from archsim.importers.opening import open_model
from archsim.spec.format import load_format, stored_format
from archsim.spec.hardware import Hardware
from archsim.spec.load import load_hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import expert_counts

LARGEST = 10**9
"""Of any whole number of a row: tokens, sequences, devices."""

ANY = "any"
"""The device of a figure that needs none."""

VERSION = re.compile(r"[~v]?[0-9]+(\.[0-9x]+)+\S*|b[0-9]+")
"""A version as engines number them, or a build; a date or a year is none."""


DAY = re.compile(r"20[0-9]{2}-[01][0-9]-[0-3][0-9]")
"""A day as tables write it, with or without a time behind it."""

MONTH = re.compile(r"(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* (20[0-9]{2})")
"""A month as sources write it where they state no version."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")

STATIC = re.compile(r"\bstatic batch", re.IGNORECASE)
"""What sources write behind an engine's name where in-flight batching was off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What was run. model, device: as spelt. weights, kv: formats, None for the model's own. isl, osl, batch: None
    where not stated. definition: what was divided by what. memory_share, longest, total_gib: as the engine was told.
    static: batches start and end together, with in-flight batching off. cut: `--chunked-prefill` as it was started.
    one_length: whether its requests are of exactly these lengths. flags: what the server was told beside. command: its
    flags, in the words of its engine. workers: how many there are of it. decode: what makes the answers, where this run
    computes prompts alone.
    """

    model: str
    device: str
    devices: int = 1
    tp: int = 1
    pp: int = 1
    ep: int = 1
    dp: int = 1
    weights: str | None = None
    kv: str | None = None
    engine: str = DEFAULT_ENGINE
    metric: str = ""
    definition: str = ""
    isl: int | None = None
    osl: int | None = None
    batch: int | None = None
    memory_share: float | None = None
    longest: int | None = None
    total_gib: float | None = None
    static: bool = False
    cut: str | None = None
    one_length: bool = False
    flags: ServerFlags = NO_FLAGS
    command: str = ""
    workers: int = 1
    decode: Run | None = None
    notes: tuple[str, ...] = ()

    @property
    def degrees(self) -> dict[str, int]:
        """The parallel degrees as `estimate` and `fit` take them."""
        return {"tp": self.tp, "pp": self.pp, "ep": self.ep, "dp": self.dp}

    @property
    def replicas(self) -> int:
        """Copies of the model that run side by side, where more devices are given than one plan takes."""
        return max(1, self.devices // (self.tp * self.pp * self.dp))


@lru_cache(maxsize=256)
def model_of(name: str) -> tuple[Model, str | None]:
    """The model of a name, and the weight format that its spelling implies. Raises UsageError for none, UnknownName,
    SpecError.
    """
    if not name.strip():
        raise UsageError("the row names no model: `--model` says which, for all rows that do not")
    model, resolved = open_model(name)
    return model, resolved.format_hint


@lru_cache(maxsize=1024)
def weights_of(name: str, asked: str | None) -> str | None:
    """The weight format of a model as a row states it; None for the checkpoint's own.

    Rows name a family: `fp8` of a checkpoint that is published with 8-bit blocks is these blocks. So a format of the
    same arithmetic and nearly the same bits as the checkpoint's own stands for the own one.
    """
    model, hint = model_of(name)
    wanted = asked or hint
    if wanted is None:
        return None
    spec = load_format(wanted)
    own = [stored_format(text) for role, text in model.weights.items() if role in ("linear", "expert")]
    if spec.mixture is None and own:
        format = spec.format()
        if all(f.compute == format.compute and abs(f.bits - format.bits) < NEARLY for f in own):
            return None
        if format.bits >= SIXTEEN and all(f.bits < NARROW for f in own):
            return None  # published in 4 bits alone, whatever the row says of its products
        if format.compute == FOUR_BIT_FLOATS and any(f.block == MICROSCALED and f.bits < NARROW for f in own):
            return None  # published in 4-bit floats: tables have one word for all of them
    return wanted


SIXTEEN, NARROW = 16, 6
"""Bits of unquantised products, and bits below which a checkpoint is published in a narrow format."""

FOUR_BIT_FLOATS, MICROSCALED = "fp4", (32, 1)
"""What 4-bit floats are multiplied as, and the elements that share a scale in the microscaling formats (OCP)."""

NEARLY = 0.3
"""Bits by which formats of one family differ: their scales."""


@lru_cache(maxsize=256)
def device_of(name: str) -> Hardware:
    """The device of a name. Raises UsageError for none, UnknownName, SpecError."""
    if not name.strip():
        raise UsageError("the row names no device: `--hw` says which, for all rows that do not")
    return load_hardware(name)


def require_modelled(row: JsonMapping) -> None:
    """Raises UsageError with the reason that a row itself has for not being predicted (see `tool_output.py`)."""
    if reason := text(row, "not_modelled"):
        raise UsageError(reason)


def run_of(row: JsonMapping) -> Run:
    """A row of a run list. Raises UsageError for a field that is no such number."""
    require_modelled(row)
    engine, notes = engine_of(row.get("engine"), row.get("engine_version"))
    tp, pp, dp = degrees_of(row, engine)
    ep = experts_over(str(row.get("model", "")), whole(row, "ep") or 1)
    return Run(
        model=str(row.get("model", "")), device=str(row.get("device", "")), tp=tp, pp=pp, dp=dp,
        ep=ep, engine=engine, devices=whole(row, "n_devices") or pp * max(tp * dp, ep),
        weights=text(row, "weights_dtype"), kv=text(row, "kv_dtype"), metric=str(row.get("metric", "")),
        definition=str(row.get("definition") or ""),
        isl=whole(row, "isl"), osl=whole(row, "osl"), batch=whole(row, "batch"),
        memory_share=real(row, "gpu_memory_utilization"), longest=whole(row, "max_model_len"),
        total_gib=real(row, "device_total_gib"), notes=notes,
        static=STATIC.search(str(row.get("engine"))) is not None,
    )  # fmt: skip


def degrees_of(row: JsonMapping, engine: str) -> tuple[int, int, int]:
    """tp, pp and dp of a row: all its devices as one group where it states none; layers, where the engine splits so."""
    tp, pp, dp = (whole(row, name) for name in ("tp", "pp", "dp"))
    if tp is pp is dp is None:
        tp = whole(row, "n_devices")
    tp, pp, dp = tp or 1, pp or 1, dp or 1
    if tp > 1 and choose_engine(engine).rules.parallelism.splits == "layers":
        tp, pp = 1, tp * pp
    return tp, pp, dp


def engine_of(name: object, version: object, day: str = "") -> tuple[str, tuple[str, ...]]:
    """An engine and its version as `--engine` takes them; one that nobody knows is none in particular. day: of the run;
    without a version, the newest that was out then is meant, or at the end of the month that stands in its place.
    """
    spelt = str(name or DEFAULT_ENGINE).strip()
    try:
        known = engine_and_version(spelt)[0]
    except UnknownName:
        layer, _, own = spelt.rpartition("-")
        if layer:  # `dynamo-sglang`: the version may be that of either
            found, _ = engine_of(own, None, day)
            if found != DEFAULT_ENGINE:
                which = found if "@" in found else f"{found}, version not stated"
                return found, (f"{quote(spelt)}: predicted as {which}",)
        return DEFAULT_ENGINE, (f"no engine named {quote(spelt)}: predicted with the generic rules",)
    stated = str(version or "").strip()
    if not VERSION.fullmatch(stated):
        day = day if DAY.match(day) else _end_of_month(stated)
        stated = version_of_day(known, day[:10]) if day else ""
    return (f"{known}@{stated.lstrip('~v')}" if stated else known), ()


def _end_of_month(text: str) -> str:
    """`May 2024` as a day that no day of that month is after; empty where the text is no month."""
    found = MONTH.fullmatch(text)
    return f"{found[2]}-{MONTHS.index(found[1]) + 1:02}-31" if found else ""


def reason_of(error: Exception) -> str:
    """Why a row has no prediction; a defect of archsim's own is said to be one, and the other rows are answered."""
    if isinstance(error, ArchsimError):
        return error.message
    return f"internal error: {type(error).__name__}: {error}; please report it"


def has_drafts(row: JsonMapping) -> bool:
    """Whether a row is of speculative decoding."""
    return (text(row, "speculative") or "none") != "none"


def experts_over(model: str, ep: int) -> int:
    """The expert-parallel degree of a row; none of a model without experts."""
    try:
        return ep if expert_counts(model_of(model)[0]) else 1
    except ArchsimError:
        return ep


def text(row: JsonMapping, name: str) -> str | None:
    """A field as text; None where it is empty or says that nothing is known."""
    value = row.get(name)
    return None if value is None or str(value).strip().lower() in ("", "none", "null") else str(value).strip()


def whole(row: JsonMapping, name: str) -> int | None:
    """A field as a whole number that is not negative; None where it is empty."""
    found = real(row, name)
    if found is None:
        return None
    if found < 0 or found != int(found):
        raise UsageError(f"{name} must be a whole number, not {quote(str(row[name]))}")
    if found > LARGEST:
        raise UsageError(f"{name} must be at most {LARGEST:,}, not {quote(str(row[name]))}")
    return int(found)


def real(row: JsonMapping, name: str) -> float | None:
    """A field as a finite number; None where it is empty."""
    value = text(row, name)
    if value is None:
        return None
    try:
        found = float(value)
    except ValueError:
        found = float("nan")
    if not abs(found) < float("inf"):
        raise UsageError(f"{name} must be a number, not {quote(value)}")
    return found


def number(value: object) -> float | None:
    """A finite number of a field, or None."""
    if not isinstance(value, (str, int, float)):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if found == found and abs(found) != float("inf") else None
