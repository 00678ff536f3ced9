"""The Python interface: the commands as functions.

Options are the commands' long flags in snake_case, listed with their types and defaults in `archsim.base.options`; each
result has a `to_dict` that equals the command's `--json`, and prints as the command's page. Models and devices may be
given by name, path or as loaded objects; a model also as the dict of its spec or config.json.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

from archsim.base import options as o
from archsim.base.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from archsim.accuracy.request_log import LoggedServer
    from archsim.accuracy.validation import Several, Validation
    from archsim.base.json_types import JsonMapping
    from archsim.candidates.advise import Advise
    from archsim.candidates.answer import Design
    from archsim.comparison.compare import Comparison
    from archsim.comparison.training import TrainingComparison
    from archsim.counts.count import CountResult
    from archsim.evolution.diff import Difference
    from archsim.evolution.evolve import Evolution
    from archsim.ledger.claims import Ledger
    from archsim.ledger.survey import Survey
    from archsim.measure.cpu_check import CpuCheck
    from archsim.measure.model_check import ModelCheck
    from archsim.memory.check_fit import Fit
    from archsim.predict.estimate import Estimate
    from archsim.predict.fits import Fits
    from archsim.predict.simulation import Simulation
    from archsim.predict.timeline import Trace
    from archsim.render.html.document import Report
    from archsim.render.html.training_report import TrainingReport
    from archsim.spec.hardware import Hardware
    from archsim.spec.model import Model
    from archsim.sweeps.sweep import Sweep
    from archsim.sweeps.training_runs import TrainingSweep
    from archsim.training.scaling import Scaling
    from archsim.training.train import Training

    Checked = Validation | Several | ModelCheck | CpuCheck

    AnyModel = Model | str | Path | JsonMapping
    AnyDevice = Hardware | str | Path

T = TypeVar("T")


def count(model: AnyModel, **options: Unpack[o.CountOptions]) -> CountResult:
    """Parameters, weight and cache bytes, FLOPs: what is exact about a model."""
    from archsim.counts.count import count as counted

    args = _given(options, o.CountOptions)
    spec, hint = _opened(model, args.get("set", ()))
    return counted(spec, **_only(args, o.CountArguments, weights=hint))


def estimate(model: AnyModel, hw: AnyDevice, **options: Unpack[o.EstimateOptions]) -> Estimate:
    """Memory and time of a model on a device."""
    from archsim.predict.estimate import estimate as estimated

    args = _given(options, o.EstimateOptions)
    (device,), args = _devices(hw, args)
    spec, hint = _opened(model, args.get("set", ()))
    found = estimated(spec, device, **_only(args, o.EstimateArguments, weights=hint))
    if {*o.CostArguments.__annotations__, *o.EnergyArguments.__annotations__} & set(args):
        from archsim.predict.priced import with_costs

        found = with_costs(found, _only(args, o.CostArguments), _only(args, o.EnergyArguments))
    what = args.get("by")
    if what is None:
        return found
    from archsim.render.pages.breakdown import estimate_by

    return estimate_by(found, what)


def fit(model: AnyModel, hw: AnyDevice, **options: Unpack[o.FitOptions]) -> Fit:
    """Whether a serving engine starts with a model on a device, and how many tokens its cache holds."""
    from archsim.memory.fit import fit as fitted

    args = _given(options, o.FitOptions)
    (device,), args = _devices(hw, args)
    spec, hint = _opened(model, args.get("set", ()))
    draft, form = (None, None) if (given := args.get("draft_model")) is None else _opened(given)
    known = _only({**args, "draft_model": draft}, o.FitArguments, weights=hint, draft_weights=form)
    return fitted(spec, device, **known)


def fits(hw: AnyDevice, **options: Unpack[o.FitsOptions]) -> Fits:
    """Which models of the catalog one device holds, in which weight formats, and how fast each decodes."""
    from archsim.predict.fits import fits as held

    return held(_device(hw), **_given(options, o.FitsOptions))


def compare(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], **options: Unpack[o.CompareOptions]
) -> Comparison:
    """Models crossed with devices: figures, ratios to the first, where they differ, and the confidence.

    Numbers may be ranges (`batch="1,8"`).
    """
    from archsim.comparison.compare import compare as compared

    weights = _several(options.get("weights"))
    args = _given({**options, "weights": weights[0] if len(weights) == 1 else None}, o.CompareOptions)
    changes = args.get("set", ())
    opened = [_opened(model, changes if i else ()) for i, model in enumerate(_several(models))]
    if len(weights) > 1:
        opened = [(spec, form) for spec, _ in opened for form in weights]
    devices, args = _devices(hw, args)
    specs, formats = [spec for spec, _ in opened], [hint for _, hint in opened]
    return compared(specs, devices, formats=formats, **_only(args, o.CompareArguments))


def diff(a: AnyModel, b: AnyModel, **options: Unpack[o.DiffOptions]) -> Difference:
    """How two architectures differ, and what each design decision changes by itself."""
    from archsim.evolution.diff import difference

    weights = _several(options.get("weights"))
    if len(weights) > 2:
        raise UsageError(f"`weights` has a format for each of two models, not {len(weights)}")
    args = _given({**options, "weights": None}, o.DiffOptions)
    first = _stored(a, args.get("set_from", ()), weights[0] if weights else None)
    second = _stored(b, args.get("set", ()), weights[-1] if weights else None)
    return difference(first, second, **_only(args, o.PairArguments))


def evolve(
    a: AnyModel, b: AnyModel, hw: AnyDevice | None = "h100-sxm", **options: Unpack[o.EvolveOptions]
) -> Evolution:
    """The path from one architecture to another, one decision at a time; `hw=None` for no times."""
    from archsim.evolution.evolve import evolve as evolved

    args = _given(options, o.EvolveOptions)
    first, second = _stored(a, args.get("set_from", ())), _stored(b, args.get("set", ()))
    device = None if hw is None else _device(hw)
    return evolved(first, second, device, **_only(args, o.EvolveArguments, orders=8))


def validate(what: str | Path | None = None, **options: Unpack[o.ValidateOptions]) -> Checked:
    """Predictions against measurements: of a kernel table, a run list, serving points or a folder of them; of the
    public runs that archsim comes with; or of a model, instantiated and timed on this machine's `device`.
    """
    args = _given(options, o.ValidateOptions)
    if what is not None and not isinstance(what, (str, Path)):
        raise UsageError(f"a file, a folder or a model is given by name or path, not {what!r}")
    from archsim.accuracy.checked import is_model, validate_files

    if what is not None and is_model(str(what), "device" in args):
        from archsim.measure.model_check import check_model
        from archsim.measure.on_this_processor import check_here

        found = check_here(str(what), _only(args, o.TimingArguments))
        return found or check_model(str(what), **_only(args, o.TimingArguments))
    path = None if what is None else Path(what)
    server, files = partial(_logged_server, args), _only(args, o.FileArguments)
    return validate_files(path, server=server, stated=_stated(args), **files)


def _logged_server(args: o.ValidateOptions, said: JsonMapping) -> LoggedServer | None:
    """The server of a log of requests, by options and by what the log says where they do not; None where neither
    names a model and a device.
    """
    from archsim.engines.names import DEFAULT_ENGINE

    model, hw = args.get("model", said.get("model")), args.get("hw", said.get("device"))
    if model is None or hw is None:
        return None
    from archsim.accuracy.request_log import LoggedServer
    from archsim.predict.simulation import server_request

    spec, hint = _opened(cast("AnyModel", model), ())
    (device,), given = _devices(cast("AnyDevice", hw), args)
    own = {name for name, value in args.items() if value not in (None, "auto", DEFAULT_ENGINE)}
    before = {"tp": {"tp", "devices"}, "engine": {"engine"}}  # column of a log -> options that come before it
    columns = {name: said[name] for name, options in before.items() if name in said and not options & own}
    given = cast("o.ValidateOptions", {**given, **columns})
    return LoggedServer(
        model=spec, hardware=device, request=server_request(_only(given, o.ServerArguments, weights=hint))
    )


def _stated(args: o.ValidateOptions) -> dict[str, object]:
    """What options say of all rows of a table (`complete` of `archsim.accuracy.stated_options`)."""
    from archsim.accuracy.stated_options import SERVER_OPTIONS
    from archsim.engines.names import DEFAULT_ENGINE, engine_and_version
    from archsim.spec.catalog import split_count

    model, hw, devices = args.get("model"), args.get("hw"), args.get("devices")
    count, device = split_count(str(hw)) if isinstance(hw, (str, Path)) else (None, hw)
    engine, version = engine_and_version(args.get("engine") or DEFAULT_ENGINE)
    if engine == DEFAULT_ENGINE:  # nothing is said
        engine = version = ""
    found = {
        "model": str(model) if isinstance(model, Path) else model, "device": device, "engine": engine,
        "engine_version": version, "tp": args.get("tp"),
        "n_devices": count or (devices if str(devices).isdecimal() else None),
        "weights": args.get("weights"), "kv_dtype": args.get("kv_cache_dtype"),
        **{name: args.get(name) for name in SERVER_OPTIONS},
    }  # fmt: skip
    return {name: value for name, value in found.items() if value not in (None, "")}


def report(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], **options: Unpack[o.ReportOptions]
) -> Report:
    """A page that compares models on devices: `.html` is its text, `.write(path)` writes it."""
    from archsim.render.html.document import report as reported

    args = _given(options, o.ReportOptions)
    changes = args.get("set", ())
    changes = (changes,) if isinstance(changes, str) else tuple(changes)
    devices, args = _devices(hw, args)
    return reported(
        [(_name(model, "name"), *_opened(model, changes)) for model in _several(models)],
        list(zip(_labels(hw), devices, strict=True)),
        changes=changes, weights=_several(args.get("weights")), costs=_only(args, o.CostArguments),
        **_only(args, o.PageArguments),
    )  # fmt: skip


def sweep(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], **options: Unpack[o.SweepOptions]
) -> Sweep:
    """Models, devices and formats crossed, over ranges of workloads; each row equals `estimate` at that point.

    The result's `chunks()` are computed as they are asked for.
    """
    from archsim.engines.names import DEFAULT_ENGINE
    from archsim.sweeps.sweep import sweep as swept

    args = _given(options, o.SweepOptions)
    named = [_opened(model, args.get("set", ())) for model in _several(models)]
    devices, args = _devices(hw, args)
    return swept(
        named, devices, where=args.get("where"),
        weights=_several(args.get("weights")) or (None,),
        kv_cache_dtype=_several(args.get("kv_cache_dtype")) or (None,),
        engine=_several(args.get("engine")) or (DEFAULT_ENGINE,), columns=_several(args.get("columns")),
        pareto=_several(args.get("pareto")), price=args.get("price"), utilization=args.get("utilization"),
        **_only(args, o.RangeArguments),
    )  # fmt: skip


def simulate(model: AnyModel, hw: AnyDevice, **options: Unpack[o.SimulateOptions]) -> Simulation:
    """What requests see of a serving engine under a load: latencies, throughput and queues, request by request."""
    from archsim.predict.capacity import simulated

    args = _given(options, o.SimulateOptions)
    (device,), args = _devices(hw, args)
    spec, hint = _opened(model, args.get("set", ()))
    found = simulated(
        spec, device, _only(args, o.LoadOptions), _only(args, o.ServerArguments, weights=hint),
        _only(args, o.RunArguments),
    )  # fmt: skip
    costs = _only(args, o.CostArguments)
    if not costs:
        return found
    from archsim.predict.priced_run import with_run_cost

    return with_run_cost(found, **costs)


def trace(model: AnyModel, hw: AnyDevice, phase: str = "decode", **options: Unpack[o.TraceOptions]) -> Trace:
    """The predicted step as a timeline of kernels; `to_dict()` is what chrome://tracing and Perfetto load.

    phase: "decode" or "prefill".
    """
    from archsim.predict.timeline import trace as traced

    args = _given(options, o.TraceOptions)
    (device,), args = _devices(hw, args)
    spec, hint = _opened(model, args.get("set", ()))
    return traced(spec, device, phase=phase, **_only(args, o.EstimateArguments, weights=hint))


def claims(**options: Unpack[o.ClaimOptions]) -> Ledger:
    """Numeric claims about transformers, each computed and judged by one rule."""
    from archsim.ledger.claims import claims as judged

    return judged(**_given(options, o.ClaimOptions))


def train(model: AnyModel, hw: AnyDevice, **options: Unpack[o.TrainOptions]) -> Training:
    """Memory, step time, throughput and cost of training a model on a device."""
    from archsim.training.answer import request_of
    from archsim.training.answer import train as answered

    args = _given(options, o.TrainOptions)
    (device,), args = _devices(hw, args)
    changes = args.get("set", ())
    spec, _ = _opened(model, changes)
    asked = request_of({**_only(args, o.LayoutArguments), **_only(args, o.TrainArguments)})
    return answered(spec, device, replace(asked, options={**asked.options, "set": changes}) if changes else asked)


def sweep_training(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], **options: Unpack[o.TrainSweepOptions]
) -> TrainingSweep:
    """Training runs crossed: models, devices, and options of `train` that are ranges or lists (`micro_batch="1-8*2"`,
    `stack="megatron-core,torchtitan"`). Each row equals `train` there.
    """
    from archsim.sweeps.training_runs import training_sweep

    args = _given(options, o.TrainSweepOptions)
    named, devices, runs = _training_runs(models, hw, args)
    return training_sweep(
        named, devices, runs, columns=_several(args.get("columns")), where=args.get("where"),
        pareto=_several(args.get("pareto")),
    )  # fmt: skip


def compare_training(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], **options: Unpack[o.TrainRunsOptions]
) -> TrainingComparison:
    """Training runs side by side, the first as the baseline; options as in `sweep_training`."""
    from archsim.comparison.training import compare_training as compared
    from archsim.sweeps.training_runs import crossed_runs

    return compared(crossed_runs(*_training_runs(models, hw, _given(options, o.TrainRunsOptions))))


def report_training(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], *, plotlyjs: str = "inline",
    **options: Unpack[o.TrainRunsOptions],
) -> TrainingReport:  # fmt: skip
    """A page that compares training runs: `.html` is its text, `.write(path)` writes it."""
    from archsim.render.html.training_report import training_report

    return training_report(compare_training(models, hw, **options), plotlyjs)


def _training_runs(
    models: AnyModel | Sequence[AnyModel], hw: AnyDevice | Sequence[AnyDevice], options: Mapping[str, Any]
) -> tuple[list[tuple[str, Model]], list[Hardware], dict[str, object]]:
    """Models with their names, devices, and the options of the runs."""
    devices, args = _devices(hw, options)
    changes = args.get("set", ())
    named = [(_name(model, "name"), _opened(model, changes)[0]) for model in _several(models)]
    kept = o.TrainRunsOptions.__annotations__.keys() - {"set"}
    return named, devices, {name: value for name, value in args.items() if name in kept}


def scaling(compute: float | str | None = None, **options: Unpack[o.ScalingOptions]) -> Scaling:
    """What scaling laws say of a compute budget in FLOP, a model size, a number of training tokens, or a run."""
    from archsim.training.scaling import question
    from archsim.training.scaling import scaling as answered

    args = _given(options, o.ScalingOptions)
    device = _device(args["hw"]) if "hw" in args else None
    return answered(question(compute, device, args), _several(args.get("law")))


def design(hw: AnyDevice, **options: Unpack[o.DesignOptions]) -> Design:
    """The best spec for a device, a context and a budget, the Pareto front, and the designs that a law puts level."""
    from archsim.candidates.design import design as designed

    args = _given(options, o.DesignOptions)
    like = _opened(cast("AnyModel", args["like"]))[0] if args.get("like") is not None else None
    given = _only(args, o.DesignArguments)
    if "train_hw" in given:
        given["train_hw"] = _device(cast("AnyDevice", given["train_hw"]))
    return designed(_device(hw), like, **given)


def advise(model: AnyModel, hw: AnyDevice, **options: Unpack[o.AdviseOptions]) -> Advise:
    """Every single change to a model on a device, counted exactly, estimated, and ranked by what it gains."""
    from archsim.candidates.advise import advise as advised
    from archsim.candidates.design import request_lengths
    from archsim.cost.price_choice import choose_price

    args = _given(options, o.AdviseOptions)
    (device,), args = _devices(hw, args)
    given, price = _several(args.get("set")), args.get("price")
    asked = _only(args, o.EstimateArguments, weights=_opened(model, given)[1])
    asked.update(request_lengths(args.get("context"), asked))  # type: ignore[typeddict-item]
    return advised(
        lambda changes: _opened(model, (*given, *changes))[0], device, asked,
        objective=args.get("objective_of", "tpot"), pairs=args.get("pairs", False),
        price=None if price is None else choose_price(price, device).price,
    )  # fmt: skip


def survey() -> Survey:
    """What the models of the catalog chose, by year of release, and a published study recounted."""
    from archsim.ledger.survey import survey as surveyed

    return surveyed()


def _given(options: Mapping[str, Any], kind: type[T]) -> T:
    """The options that are not None. Raises UsageError for one that `kind` lacks, and for a name that is no text."""
    found = {"parts" if name == "with" else name: value for name, value in options.items() if value is not None}
    for name, value in found.items():
        if name not in kind.__annotations__:
            from difflib import get_close_matches

            known = ", ".join(kind.__annotations__)
            close = get_close_matches(str(name)[:60], kind.__annotations__, n=1)
            raise UsageError(f"no option named {name!r}", hints=(*did_you_mean(close), f"known: {known}"))
        if name in NAMES and kind not in LISTED and not isinstance(value, str):
            raise UsageError(f"{name} is a name, not {value!r}")
    if "store" in found:
        _check_store(found["store"])
    return cast(T, found)


def _check_store(store: object) -> None:
    from archsim.timing.calibration import Store

    if not isinstance(store, Store):
        hint = "`archsim.timing.calibration.default_store()` is the one that archsim comes with"
        raise UsageError(f"store is a Store of archsim.timing.calibration, not {store!r}", hints=(hint,))


NAMES = ("weights", "kv_cache_dtype", "engine", "logits")
"""Options whose value is one name."""

LISTED = (o.SweepOptions, o.ReportOptions)
"""Options in which they may be several."""


def _only(options: object, kind: type[T], **defaults: object) -> T:
    """Those of the options that `kind` has, and what stands for those that are not given."""
    given = cast(dict[str, object], options)
    found = {name: value for name, value in given.items() if name in kind.__annotations__}
    return cast(T, {**{name: value for name, value in defaults.items() if value is not None}, **found})


def _several(given: object) -> list[Any]:
    """One or several; a text is cut at its commas, unless it is the name of a file."""
    if given is None:
        return []
    if isinstance(given, str):
        parts = [given] if os.path.exists(given) else given.split(",")
        return [part.strip() for part in parts if part.strip()]
    if isinstance(given, (Sequence, Set)):
        return [part for one in given for part in _several(one)]
    return [given]


def _name(given: object, field: str) -> str:
    """What was given as text, or the name of what was loaded."""
    return str(given) if isinstance(given, (str, Path)) else str(getattr(given, field, given))


def _opened(model: AnyModel, changes: str | Sequence[str] = ()) -> tuple[Model, str | None]:
    """The model, and the weight format that its name implies (`-FP8`)."""
    from archsim.spec.model import Model

    if isinstance(model, Model):
        if changes:
            raise UsageError("`set` changes a spec while it is read: give the model by name or path")
        return model, None
    if isinstance(model, Mapping):
        from archsim.importers.opening import from_mapping

        return from_mapping(model, [changes] if isinstance(changes, str) else changes), None
    if not isinstance(model, (str, Path)):
        raise UsageError(f"a model is a name, a path, a dict or a loaded Model, not {model!r}")
    from archsim.importers.opening import open_model

    spec, resolved = open_model(str(model), [changes] if isinstance(changes, str) else changes)
    return spec, resolved.format_hint


def _stored(model: AnyModel, changes: str | Sequence[str], weights: str | None = None) -> Model:
    """The model in a format, by default the one that its name implies."""
    from archsim.evolution.figures import stored_in

    spec, hint = _opened(model, changes)
    stored = weights or hint
    return spec if stored is None else stored_in(spec, stored)


def _devices(hw: AnyDevice | Sequence[AnyDevice], options: T) -> tuple[list[Hardware], T]:
    """The devices, and the options with the number that a name states (`8xh100`).

    Raises UsageError for several numbers, or for another than `devices` states.
    """
    from archsim.spec.catalog import one_count, split_count

    given = cast(Mapping[str, object], options)
    parts = [split_count(one) if isinstance(one, str) else (None, one) for one in _named(hw)]
    if isinstance(hw, str) and not parts:
        raise UsageError("the device name is empty", hints=("`archsim list hw` shows all devices",))
    stated = given.get("devices")
    count = one_count([n for n, _ in parts if n], [] if stated is None else [str(stated)])
    counted = given if count is None or stated is not None else {**given, "devices": count}
    return [_device(cast("AnyDevice", name)) for _, name in parts], cast(T, counted)


def _labels(hw: AnyDevice | Sequence[AnyDevice]) -> list[str]:
    """The names that devices are asked for by, without a number."""
    from archsim.spec.catalog import split_count

    return [split_count(one)[1] if isinstance(one, str) else _name(one, "id") for one in _several(hw)]


def _named(hw: AnyDevice | Sequence[AnyDevice]) -> list[object]:
    """The devices that are asked for. A path is a name of its own, and so is what no list has."""
    return _several(hw) if isinstance(hw, (str, Sequence, Set)) else [hw]


def _device(hw: AnyDevice) -> Hardware:
    from archsim.spec.hardware import Hardware
    from archsim.spec.load import load_hardware

    if isinstance(hw, Hardware):
        return hw
    if not isinstance(hw, (str, Path)):
        raise UsageError(f"a device is a name, a path or a loaded Hardware, not {hw!r}")
    return load_hardware(str(hw))
