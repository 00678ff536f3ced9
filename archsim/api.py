"""The Python interface: the commands as functions.

Options are the commands' long flags in snake_case; each result has a `to_dict` that equals the command's
`--json`. Models and devices may be given by name, path or as loaded objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archsim.base.errors import UsageError

if TYPE_CHECKING:
    from archsim.comparison.compare import Comparison
    from archsim.counts.count import CountResult
    from archsim.evolution.diff import Difference
    from archsim.evolution.evolve import Evolution
    from archsim.ledger.claims import Ledger
    from archsim.ledger.survey import Survey
    from archsim.memory.answer import Fit
    from archsim.predict.estimate import Estimate
    from archsim.predict.timeline import Trace
    from archsim.spec.hardware import Hardware
    from archsim.spec.model import Model
    from archsim.sweeps.sweep import Sweep


def count(model: Model | str | Path, **options: Any) -> CountResult:
    """Parameters, weight and cache bytes, FLOPs: everything of a model that is exact.

    Options: batch=1, input_len=2048, weights=None, kv_cache_dtype=None, logits="last", parts=(), set=().
    """
    from archsim.counts.count import count as counted

    spec, options = _prepared(model, options)
    return counted(spec, **_known(counted, options))


def estimate(model: Model | str | Path, hw: Hardware | str | Path, **options: Any) -> Estimate:
    """Memory and time of a model on a device.

    Options: devices="auto", tp, pp, ep, dp, batch=1, input_len=2048, output_len=256, weights, kv_cache_dtype,
    engine="generic", set=().
    """
    from archsim.predict.estimate import estimate as estimated

    spec, options = _prepared(model, options)
    return estimated(spec, _device(hw), **_known(estimated, options))


def fit(model: Model | str | Path, hw: Hardware | str | Path, **options: Any) -> Fit:
    """Whether a serving engine starts with a model on a device, and how many tokens its cache holds.

    Options: devices (default: one, or tp x pp x dp), tp, pp, ep, dp, weights, kv_cache_dtype, engine="generic",
    batch=1, input_len, output_len, max_model_len, max_num_seqs, max_num_batched_tokens, gpu_memory_utilization,
    mem_fraction_static, block_size, enforce_eager=False, parts=(), max_loras=0, max_lora_rank=16, n_gpu_layers,
    cpu_moe=False, n_cpu_moe=0, cache_type_k, cache_type_v, enable_dp_attention=False, host_bandwidth (B/s),
    suggest=True, set=().
    """
    from archsim.memory.engine_fit import fit as fitted

    spec, options = _prepared(model, options)
    return fitted(spec, _device(hw), **_known(fitted, options))


def compare(
    models: Sequence[Model | str | Path],
    hw: Hardware | str | Path | Sequence[Hardware | str | Path],
    **options: Any,
) -> Comparison:
    """Models crossed with devices: figures and ratios against the first, where they differ, and how sure that is.

    Options: those of `estimate`; numbers may be ranges (`batch="1,8"`); `set` changes all models but the first.
    """
    from archsim.comparison.compare import compare as compared
    from archsim.predict.estimate import estimate as estimated

    changes = options.pop("set", ())
    found = [_prepared(model, {"set": changes if i else ()}) for i, model in enumerate(_several(models))]
    options = _known(estimated, {name: value for name, value in options.items() if value is not None})
    devices = [_device(one) for one in _several(hw)]
    formats = [hints.get("weights") for _, hints in found]
    return compared([spec for spec, _ in found], devices, formats=formats, **options)


def diff(a: Model | str | Path, b: Model | str | Path, **options: Any) -> Difference:
    """What sets two architectures apart, and what each decision changes by itself.

    Options: context_len=8192, set=() (of the second model), set_from=() (of the first).
    """
    from archsim.evolution.diff import difference

    pair, options = _pair(a, b, options)
    return difference(*pair, **_known(difference, options))


def evolve(
    a: Model | str | Path,
    b: Model | str | Path,
    hw: Hardware | str | Path | None = "h100-sxm",
    **options: Any,
) -> Evolution:
    """The path from one architecture to another, one decision at a time; `hw=None` for no times.

    Options: context_len=8192, order="story", orders=8, seed=0, set=() (of the second), set_from=() (of the first).
    """
    from archsim.evolution.evolve import evolve as evolved

    pair, options = _pair(a, b, {"orders": 8, **options})
    return evolved(*pair, None if hw is None else _device(hw), **_known(evolved, options))


def _pair(a: Any, b: Any, options: dict[str, Any]) -> tuple[tuple[Model, Model], dict[str, Any]]:
    """Both models, in the formats that their names imply, and the options less `set` and `set_from`."""
    from archsim.evolution.figures import stored_in

    options = {name: value for name, value in options.items() if value is not None}
    sides = []
    for model, changes in ((a, options.pop("set_from", ())), (b, options.pop("set", ()))):
        spec, hints = _prepared(model, {"set": changes})
        sides.append(stored_in(spec, hints["weights"]) if "weights" in hints else spec)
    return (sides[0], sides[1]), options


def validate(what: str | Path | None = None, **options: Any) -> Any:
    """Predictions beside measurements: of a kernel table, a run list, serving points or a folder of them; of the public
    runs that archsim comes with; or of a model, instantiated and timed on this machine's `device`.

    Options: limit (rows of each file); device="cpu" or "cuda" and the options of the loop, for a model.
    """
    options = {name: value for name, value in options.items() if value is not None}
    if what is not None and not isinstance(what, (str, Path)):
        raise UsageError(f"a file, a folder or a model is given by name or path, not {what!r}")
    from archsim.accuracy.checked import is_model, validate_files, validate_model

    if what is not None and is_model(str(what), "device" in options):
        return validate_model(str(what), options)
    return validate_files(None if what is None else Path(what), **_known(validate_files, options))


def report(models: Any, hw: Any, **options: Any) -> Any:
    """A page that compares models on devices: `.html` is its text, `.write(path)` writes it.

    models, hw: one or several, by name, path or as loaded objects; names may be joined by commas. Options:
    weights (formats to compare), devices="auto", batch=1, input_len=2048, output_len=256, kv_cache_dtype,
    engine="generic", set=(), light=False, stamp="".
    """
    reported = import_module(
        "archsim.render.html.request"
    ).report  # above this layer, so that `validate` may use it
    return reported(models, hw, {name: value for name, value in options.items() if value is not None})


def sweep(
    models: Model | str | Path | Sequence[Model | str | Path],
    hw: Hardware | str | Path | Sequence[Hardware | str | Path],
    **options: Any,
) -> Sweep:
    """Models, devices and formats crossed, over ranges of workloads; every point equals `estimate`.

    Lists may be written with commas, ranges as `1,8,32`, `1-256+1` (step) or `1-256*2` (factor). Options:
    devices="auto", tp, pp, ep, dp, batch=1, input_len=2048, output_len=256, weights, kv_cache_dtype,
    engine="generic", columns, where, pareto, set=(). The result's `chunks()` are priced as they are asked for.
    """
    from archsim.sweeps.sweep import sweep as swept

    options = {name: value for name, value in options.items() if value is not None}
    changes = {"set": options.pop("set", ())}
    prepared = [_prepared(model, changes) for model in _several(models)]
    if any(implied for _, implied in prepared):
        options.setdefault("weights", (None,))
    for name in ("weights", "kv_cache_dtype", "engine", "columns", "pareto"):
        if name in options:
            options[name] = _several(options[name])
    named = [(model, more.get("weights")) for model, more in prepared]
    return swept(named, [_device(device) for device in _several(hw)], **_swept(swept, options))


def trace(model: Model | str | Path, hw: Hardware | str | Path, **options: Any) -> Trace:
    """The predicted step as a timeline of kernels; `to_dict()` is what chrome://tracing and Perfetto load.

    Options: phase="decode" or "prefill", and those of `estimate`.
    """
    from archsim.predict.estimate import estimate as estimated
    from archsim.predict.timeline import trace as traced

    spec, options = _prepared(model, options)
    phase = options.pop("phase", "decode")
    return traced(spec, _device(hw), phase=phase, **_known(estimated, options))


def _several(value: Any) -> list[Any]:
    """A list, written with commas or not."""
    if isinstance(value, str):
        return [part.strip() for part in value.split(",") if part.strip()]
    return list(value) if isinstance(value, (list, tuple, set)) else [value]


def _swept(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options, without the check that names are text: here they are lists."""
    lists = {name: options.pop(name) for name in TEXTS if name in options}
    return {**_known(function, options), **lists}


def claims(**options: Any) -> Ledger:
    """Numeric claims about transformers, each computed and judged by one rule.

    Options: id (one, or several), verdict ("true", "approximately", "false" or "uncheckable").
    """
    from archsim.ledger.claims import claims as judged

    return judged(**_known(judged, {name: value for name, value in options.items() if value is not None}))


def survey() -> Survey:
    """What the models of the catalog chose, by year of release, and a published study counted again."""
    from archsim.ledger.survey import survey as surveyed

    return surveyed()


TEXTS = ("weights", "kv_cache_dtype", "engine", "logits")
"""Options whose value is a name."""


def _prepared(model: Any, options: dict[str, Any]) -> tuple[Model, dict[str, Any]]:
    """The model, and the options less `set`; a format that the model's name implies (`-FP8`) is filled in."""
    from archsim.spec.model import Model

    options = {name: value for name, value in options.items() if value is not None}
    changes = options.pop("set", ())
    if isinstance(model, Model):
        if changes:
            raise UsageError("`set` changes a spec while it is read: give the model by name or path")
        return model, options
    if not isinstance(model, (str, Path)):
        raise UsageError(f"a model is a name, a path or a loaded Model, not {model!r}")
    from archsim.importers.opening import open_model

    spec, resolved = open_model(str(model), [changes] if isinstance(changes, str) else changes)
    if resolved.format_hint is not None:
        options.setdefault("weights", resolved.format_hint)
    return spec, options


def _device(hw: Any) -> Hardware:
    from archsim.spec.hardware import Hardware
    from archsim.spec.load import load_hardware

    if isinstance(hw, Hardware):
        return hw
    if not isinstance(hw, (str, Path)):
        raise UsageError(f"a device is a name, a path or a loaded Hardware, not {hw!r}")
    return load_hardware(str(hw))


def _known(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The options as `function` takes them (`with` is its `parts`), or UsageError for one it does not have."""
    if "with" in options:
        options["parts"] = options.pop("with")
    code = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    for name, value in options.items():
        if name not in known:
            listed = ", ".join(n for n in known if n not in ("model", "hardware"))
            raise UsageError(f"no option named {name!r}", hints=(f"known: {listed}",))
        if name in TEXTS and not isinstance(value, str):
            raise UsageError(f"{name} is a name, not {value!r}")
    return options
