"""`archsim fit`: whether an engine starts with a model on a device, and how many tokens its cache holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

from archsim.base.errors import AnswerNo, InvalidPlan, UsageError
from archsim.counts.formats import choose_formats
from archsim.counts.optional_parts import checked_parts
from archsim.engines.names import DEFAULT_ENGINE, engine_of
from archsim.memory.answer import Fit
from archsim.memory.device_fill import Case, Settings
from archsim.predict.estimate import _device_count
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, candidates, check, check_degrees, expert_counts, plan_for

TIGHT = 0.10
"""Share of a request's need within which the room that remains counts as tight, either side."""

WIDE = ("bf16", "fp16", "fp32")
"""Formats of checkpoints that an engine may convert while it loads them."""

MOST_DEVICES = 64
"""Devices up to which the fewest are looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Everything that `fit` is asked with, in the options' words."""

    devices: int | str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    weights: str | None = None
    kv_cache_dtype: str | None = None
    engine: str = DEFAULT_ENGINE
    settings: Settings = field(default_factory=Settings)

    @property
    def degrees(self) -> dict[str, int]:
        """The parallel degrees that were given."""
        given = {"tp": self.tp, "pp": self.pp, "ep": self.ep, "dp": self.dp}
        return {name: n for name, n in given.items() if n is not None}


def fit(
    model: Model,
    hardware: Hardware,
    *,
    devices: int | str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    batch: int = 1,
    input_len: int = 2048,
    output_len: int = 256,
    weights: str | None = None,
    kv_cache_dtype: str | None = None,
    engine: str = DEFAULT_ENGINE,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    mem_fraction_static: float | None = None,
    block_size: int | None = None,
    enforce_eager: bool = False,
    parts: Collection[str] = (),
    max_loras: int = 0,
    max_lora_rank: int = 16,
    n_gpu_layers: int | None = None,
    cpu_moe: bool = False,
    n_cpu_moe: int = 0,
    cache_type_k: str | None = None,
    cache_type_v: str | None = None,
    enable_dp_attention: bool = False,
    host_bandwidth: float | None = None,
    suggest: bool = True,
) -> Fit:
    """Whether the engine starts and holds one request of `max_model_len`, and what would change that.

    devices: one, or what the degrees make; "auto" for the fewest. enable_dp_attention: SGLang's meaning of tp and dp:
    of tp devices in all, which share the experts, groups of tp/dp share the attention of one replica. suggest:
    whether to look for changes that would make it fit, or fit more. The rest: see `Settings`. Raises InvalidPlan for
    degrees that do not divide the model; AnswerNo for "auto" when no number of devices is enough.
    """
    names = checked_parts(parts if isinstance(parts, str) else ",".join(parts))
    settings = Settings(
        batch=batch, input_len=input_len, output_len=output_len, max_model_len=max_model_len,
        max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, block_size=block_size,
        gpu_memory_utilization=gpu_memory_utilization, mem_fraction_static=mem_fraction_static,
        enforce_eager=enforce_eager, parts=names, max_loras=max_loras, max_lora_rank=max_lora_rank,
        n_gpu_layers=n_gpu_layers, cpu_moe=cpu_moe, n_cpu_moe=n_cpu_moe, cache_type_k=cache_type_k,
        cache_type_v=cache_type_v, host_bandwidth=host_bandwidth,
    )  # fmt: skip
    if cache_type_k == cache_type_v and cache_type_k is not None:
        kv_cache_dtype, settings = cache_type_k, replace(settings, cache_type_k=None, cache_type_v=None)
    if enable_dp_attention:
        tp, dp, ep = _replicas(model, tp, dp, ep)
    asked = Asked(
        devices=devices, tp=tp, pp=pp, ep=ep, dp=dp, weights=weights, kv_cache_dtype=kv_cache_dtype,
        engine=engine, settings=settings,
    )  # fmt: skip
    answer = answered(model, hardware, asked)
    return _with_more(model, hardware, asked, answer) if suggest else answer


def _replicas(model: Model, tp: int | None, dp: int | None, ep: int | None) -> tuple[int, int, int]:
    """Degrees in which `tp` devices hold `dp` replicas of the attention and share the experts."""
    group = tp or dp or 1
    replicas = dp or group
    if group % replicas:
        hint = "tp counts all devices here, dp the replicas among them"
        raise InvalidPlan(f"tp {group} is not a multiple of dp {replicas}", hints=(hint,))
    if not expert_counts(model):
        raise InvalidPlan(f"`--enable-dp-attention` is for models with experts; {model.name} has none")
    return group // replicas, replicas, ep or group


def _with_more(model: Model, hardware: Hardware, asked: Asked, answer: Fit) -> Fit:
    from archsim.memory.suggest import inverse, suggestions

    changes = tuple(suggestions(model, hardware, asked, answer))
    return replace(answer, suggestions=changes, inverse=inverse(model, hardware, asked, answer))


def answered(model: Model, hardware: Hardware, asked: Asked) -> Fit:
    """The answer without suggestions."""
    engine = engine_of(asked.engine)
    start = Plan(**asked.degrees, engine=engine.name, splits=engine.rules.parallelism.splits)
    check_degrees(model, start)
    formats = choose_formats(model, asked.weights, asked.kv_cache_dtype, engine=asked.engine)
    online = engine.rules.memory.online
    made = asked.weights is not None and online is not None and formats.name in online.formats
    native = choose_formats(model) if made else None
    case = Case(
        model=model, hardware=hardware, formats=formats, engine=engine, settings=asked.settings,
        native=native if native is not None and native.name in WIDE else None,
    )  # fmt: skip
    if asked.devices == "auto" and not {"tp", "pp"} & asked.degrees.keys():
        return _fewest(case, start, frozenset(asked.degrees))
    count = start.devices if asked.devices in ("auto", None) else _device_count(asked.devices)
    plan = plan_for(model, count, hardware.max_domain, start, frozenset(asked.degrees))
    return _judged(case, _spread(case, plan))


def _spread(case: Case, plan: Plan) -> Plan:
    """Whole experts on each rank, where the engine of that version kept them so."""
    if case.engine.rules.parallelism.experts == "spread" and plan.ep == 1 and plan.tp > 1:
        try:
            return check(case.model, replace(plan, ep=plan.tp))
        except UsageError:
            return plan
    return plan


def _fewest(case: Case, start: Plan, fixed: frozenset[str]) -> Fit:
    last: Fit | None = None
    for plan in candidates(case.model, case.hardware.max_domain, start, fixed):
        if plan.devices > MOST_DEVICES:
            break
        last = _judged(case, _spread(case, plan))
        if last.fits:
            return last
    raise AnswerNo(
        f"{case.model.name} in {case.formats.name} does not fit on up to {MOST_DEVICES} {case.hardware.name}",
        hints=("a narrower format: `--weights fp8` or `--weights int4`", "a shorter `--max-model-len`"),
    )


def _judged(case: Case, plan: Plan) -> Fit:
    """One plan judged: the stage that holds fewest tokens speaks for all."""
    length = case.length
    ranks = case.ranks(plan)
    paging = case.paging
    rows = []
    for stage in ranks.stages:
        budget = case.budget(plan, ranks, stage, length)
        need = stage.request_bytes(length, paging) * case.settings.batch
        rows.append((budget, stage, need))
    budget, stage, need = min(rows, key=lambda row: _ratio(row[0].room, row[2]))
    tokens = stage.tokens(budget.room, length, paging) if stage.caches else None
    fits = budget.room >= need
    near = need > 0 and abs(budget.room - need) <= TIGHT * need
    offload, peak = case.offload(plan), case.load_peak(plan, budget)
    return Fit(
        model=case.model, hardware=case.hardware, plan=plan, formats=case.formats, engine=case.engine,
        settings=case.settings, fits=fits, verdict="TIGHT" if near else "FITS" if fits else "NO",
        length=length, kv_tokens=tokens, longest=case.longest(plan, ranks), need=need, budget=budget,
        concurrency=_concurrency(budget.room, stage.request_bytes(length, paging)),
        request_bytes=stage.request_bytes(length, paging), growth=_growth(case, stage), uniform=stage.paged,
        batched_tokens=case.tokens, seqs=case.seqs, offload=offload, load_peak=peak,
        assumptions=(*case.formats.assumptions, *case.assumptions(plan)),
        warnings=tuple(case.warnings(plan, budget, peak)),
    )  # fmt: skip


def _ratio(room: int, need: int) -> float:
    return room / need if need else float(room)


def _concurrency(room: int, request: int) -> float | None:
    return max(room, 0) / request if request else None


def _growth(case: Case, stage: Any) -> int:
    """Bytes that one more token takes while no window is full."""
    page = replace(case.paging, block=1)
    return int(stage.request_bytes(2, page) - stage.request_bytes(1, page))
