"""Answers `archsim train`: defaults, the layout that is chosen, and changes that would help."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, MutableMapping
from dataclasses import field, replace
from math import prod

from archsim.base.data_class import dataclass
from archsim.base.diagnostics import quote
from archsim.base.errors import InvalidPlan, UsageError
from archsim.base.json_types import JsonMapping
from archsim.base.notes import Note
from archsim.base.options import LayoutArguments, TrainArguments
from archsim.base.positive import check_positive
from archsim.base.units import parse_quantity
from archsim.counts import graph_counts as c
from archsim.counts.count import step_for
from archsim.graph.passes.adapters import is_adapter, with_adapters
from archsim.graph.passes.checkpoint import recompute_of
from archsim.spec.hardware import Hardware
from archsim.spec.lower import lower
from archsim.spec.model import Model
from archsim.spec.stack import load_stack
from archsim.training.breakdown import step_parts
from archsim.training.changes import effects, suggestions
from archsim.training.layout import Layout, check_layout
from archsim.training.methods import Tuning, tuning_of
from archsim.training.objective import objective_named
from archsim.training.offload import Offload, offload_of
from archsim.training.optimizers import load_optimizer
from archsim.training.pricer import TRAINED_PARTS, Choice, Priced, Setup, TrainingPricer
from archsim.training.search import Fixed, candidates, divisors, search
from archsim.training.train import Metrics, Training, TrainingRun, tokens_of

USUAL_LENGTH = 4096
"""Tokens of a sequence, or the model's context where that is shorter."""

USUAL_TOKENS = 4 * 2**20
"""Tokens of a step of large runs; small groups of devices take 64k tokens a device."""

DEGREES = ("tp", "pp", "cp", "ep", "dp")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainRequest:
    """What is asked: fields of `Layout` where they are given, and the rest of a run. options: all of it by name, as
    it was given.
    """

    devices: int | None = None
    fields: Mapping[str, object]
    recompute: str | None = None
    recipe: str | None = None
    optimizer: str = "adamw"
    dialect: str | None = None
    loss: str | None = None
    stack: str = "generic"
    tokens: float | str | None = None
    mfu_peak: str = "auto"
    goodput: float = 0.9
    price: float | str | None = None
    grid: float | None = None
    pue: float | None = None
    search: bool = False
    offload: str | None = None
    objective: str = "time"
    by: str | None = None
    method: str | None = None
    rank: int | None = None
    targets: str | tuple[str, ...] | None = None
    options: Mapping[str, object] = field(default_factory=dict)


def request_of(options: JsonMapping) -> TrainRequest:
    """What options of `archsim.train` ask for. Raises UsageError for one that it does not have."""
    given = {name: value for name, value in options.items() if value is not None}
    run, layout = TrainArguments.__annotations__, LayoutArguments.__annotations__
    unknown = sorted(given.keys() - run.keys() - layout.keys())
    if unknown:
        raise UsageError(f"`train` has no option called {quote(unknown[0])}")
    asked = {name: value for name, value in given.items() if USUAL.get(name) != value}
    fields = {name: value for name, value in given.items() if name in layout}
    return TrainRequest(fields=fields, options=asked, **{name: given[name] for name in given if name in run})


USUAL: Mapping[str, object] = {
    "optimizer": "adamw", "stack": "generic", "mfu_peak": "auto", "goodput": 0.9, "search": False,
    "objective": "time",
}  # fmt: skip
"""Options with a value of their own where they are not given."""


def train(
    model: Model, hardware: Hardware, asked: TrainRequest, *,
    pricers: MutableMapping[Hashable, TrainingPricer] | None = None, changes: bool = True,
) -> Training:  # fmt: skip
    """Memory, time and throughput of a training run. Degrees that are not given are chosen, the fastest that fits.

    pricers: of earlier runs, which runs of one model, device and setup share. changes: whether changes that would help
    are looked for. Raises InvalidPlan for degrees that the model does not allow, UsageError for options that cannot be.
    """
    stack = load_stack(asked.stack)
    tuning = tuning_of(stack, asked.method, asked.recipe, asked.rank, asked.targets)
    if asked.recompute is not None:
        recompute_of(asked.recompute)
    if not 0 < asked.goodput <= 1:
        raise UsageError(f"goodput is a share of the time, above 0 and at most 1, not {asked.goodput:g}")
    setup = Setup(
        recipe=tuning.recipe, optimizer=load_optimizer(asked.optimizer), stack=stack,
        dialect=asked.dialect or stack.dialect, trainable=tuning.trainable, adapters=tuning.adapters,
        loss=asked.loss or stack.loss,
    )  # fmt: skip
    pricer = _shared(pricers, model, hardware, setup, asked)
    layout, devices = start_layout(model, asked)
    objective, offload = objective_named(asked.objective), offload_of(asked.offload)
    chosen = asked.search or not any(name in asked.fields for name in DEGREES)
    if devices == 1 or not chosen:
        priced, tried = _given(pricer, model, layout, devices, asked, offload), 1
    else:
        fixed = Fixed(asked.fields, asked.recompute, offload)
        counts = (
            [n for n in divisors(devices) if n % known_degrees(asked.fields) == 0] if objective.fewer else [devices]
        )
        choices = (c for n in reversed(counts) for c in candidates(model, n, hardware.max_domain, layout, fixed))
        result = search(pricer, choices, objective=objective)
        priced, tried = result.best, result.tried
    return _answer(pricer, priced, asked, tuning, tried, changes)


def _shared(
    pricers: MutableMapping[Hashable, TrainingPricer] | None, model: Model, hardware: Hardware, setup: Setup,
    asked: TrainRequest,
) -> TrainingPricer:  # fmt: skip
    """The pricer of runs that differ in nothing but their layout."""
    if pricers is None:
        return TrainingPricer.of(model, hardware, setup)
    targets = asked.targets if asked.targets is None else str(asked.targets)
    key = (id(model), id(hardware), setup.recipe.name, asked.optimizer, setup.stack.name, setup.dialect, setup.loss,
           asked.method, asked.rank, targets)  # fmt: skip
    if key not in pricers:
        pricers[key] = TrainingPricer.of(model, hardware, setup)
    return pricers[key]


def start_layout(model: Model, asked: TrainRequest) -> tuple[Layout, int]:
    """The layout with what is given, and the number of devices."""
    given = dict(asked.fields)
    check_positive(**{name: n for name, n in given.items() if type(n) is int and name not in ("zero", "hsdp")})
    known = known_degrees(given)
    devices = asked.devices or known
    check_positive(devices=devices)
    if devices % known:
        raise InvalidPlan(
            f"--devices {devices} is not a multiple of tp x pp x cp x dp = {known}",
            hints=("leave one of them out: it is chosen",),
        )
    length = int(str(given.get("seq_len") or min(USUAL_LENGTH, model.max_context or USUAL_LENGTH)))
    given["seq_len"] = length
    micro = int(str(given.get("micro_batch", 1)))
    if "global_batch" not in given:
        unit = devices * micro
        given["global_batch"] = max(1, round(min(USUAL_TOKENS, devices * 2**16) / length / unit)) * unit
    return Layout(**given), devices  # type: ignore[arg-type]


def known_degrees(fields: Mapping[str, object]) -> int:
    """Devices that the degrees which are given take together."""
    return prod(int(str(fields.get(name, 1))) for name in ("tp", "pp", "cp", "dp"))


def _given(
    pricer: TrainingPricer, model: Model, layout: Layout, devices: int, asked: TrainRequest, offload: Offload
) -> Priced:
    """The layout as given: what is left of the devices are data ranks, or pipeline stages where data ranks
    are given.
    """
    rest = devices // layout.devices
    if rest > 1:
        free = "dp" if "dp" not in asked.fields else "pp" if "pp" not in asked.fields else "tp"
        if free in asked.fields:
            raise InvalidPlan(f"--devices {devices} is not tp x pp x cp x dp = {layout.devices}")
        layout = replace(layout, **{free: getattr(layout, free) * rest})
    stack = pricer.setup.stack
    if "zero" not in asked.fields:
        layout = replace(layout, zero=stack.zero if layout.data_ranks > 1 else 0)
    if "sp" not in asked.fields:
        layout = replace(layout, sp=layout.tp > 1)
    if "etp" not in asked.fields and "ep" in asked.fields:
        layout = replace(layout, etp=1 if layout.ep % layout.tp == 0 else layout.tp)
    if layout.vpp > 1 and "schedule" not in asked.fields:
        layout = replace(layout, schedule="interleaved")
    layout = check_layout(model, layout)
    if asked.recompute is not None:
        return pricer.price(Choice(layout, asked.recompute, offload))
    choices = [Choice(layout, recompute, offload) for recompute in ("none", "selective", "full")]
    return search(pricer, choices, objective=objective_named(asked.objective)).best


def _answer(
    pricer: TrainingPricer, priced: Priced, asked: TrainRequest, tuning: Tuning, tried: int, changes: bool
) -> Training:
    """The answer on a layout."""
    model = pricer.model
    one = lower(model, step_for(model, 1, 1), TRAINED_PARTS)
    total, active = int(c.params(one)), int(c.active_params(one))
    adapters = pricer.setup.adapters
    trained = total if adapters is None else int(c.params(with_adapters(one, adapters), where=is_adapter))
    found = effects(pricer, priced) if changes else ()
    helpful = suggestions(priced, found)
    run = _run(pricer, priced, asked, (total, active, trained))
    price = run.price if run is not None else None
    return Training(
        model=model, hardware=pricer.hardware, setup=pricer.setup, priced=priced,
        recipe_name=pricer.setup.recipe.name, optimizer_name=asked.optimizer, stack_name=pricer.setup.stack.name,
        method=tuning.method, params=(total, active, trained), metrics=metrics_of(pricer, priced, asked.mfu_peak),
        run=run, interval=pricer.factors.interval, tried=tried, objective=asked.objective, suggestions=helpful,
        neighbours=tuple(each for each in found if each not in helpful), options=asked.options,
        parts=step_parts(pricer, priced, asked.by) if asked.by is not None else (), pricer=pricer,
        assumptions=(*assumptions(pricer, priced, asked), *tuning.assumptions),
        warnings=(*tuning.warnings, *(price.warnings if price is not None else ())),
    )  # fmt: skip


def _run(
    pricer: TrainingPricer, priced: Priced, asked: TrainRequest, params: tuple[int, int, int]
) -> TrainingRun | None:
    """The whole run, where its tokens are given."""
    if asked.tokens is None:
        return None
    from archsim.training.whole_run import outcome_of, run_of  # scaling laws are read for it

    return run_of(pricer, priced, asked, outcome_of(asked, *params))


def metrics_of(pricer: TrainingPricer, priced: Priced, peak: str) -> Metrics:
    """Throughput, and the peak that utilisation divides by; `auto` is that of the recipe's activations: bf16, also
    where products are in fp8, and fp32 where everything is.
    """
    flops, n = priced.graph.flops, tokens_of(priced)
    peak = pricer.setup.recipe.activations if peak == "auto" else peak
    layout, name = priced.choice.layout, peak
    if peak.lower() in ("bf16", "fp16", "fp8", "fp4", "fp32", "tf32"):
        value = pricer.timer.machine.peak(peak.lower()).flops
    else:
        value, name = float(parse_quantity(peak, "FLOP/s")), "given"
    return Metrics(
        layout.tokens / priced.step.expected_s, layout.devices, value, name, float(flops.model_causal) / n,
        float(flops.model_full) / n, float(flops.executed) / n,
    )  # fmt: skip


def assumptions(pricer: TrainingPricer, priced: Priced, asked: TrainRequest) -> tuple[Note, ...]:
    """What was not said and had to be taken."""
    layout, setup = priced.choice.layout, pricer.setup
    notes = []
    if "global_batch" not in asked.fields:
        each = f"{layout.global_batch:,} sequences ({layout.tokens:,} tokens)"
        text = f"a step is {each} unless --global-batch says otherwise"
        notes.append(Note("A39", text))
    if "seq_len" not in asked.fields:
        notes.append(Note("A39", f"sequences have {layout.seq_len:,} tokens unless --seq-len says otherwise"))
    if pricer.model.encoder is not None:
        notes.append(Note("A39", "sources are as long as targets; a step's tokens are those of the targets"))
    notes.append(
        Note("A40", f"kernels, overlap and defaults are those of the stack {setup.stack.name} ({setup.stack.title})")
    )
    return (*notes, *pricer.timer.machine.notes)
