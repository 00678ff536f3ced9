"""The Python interface: the commands as functions.

Options are the commands' long flags in snake_case; each result has a `to_dict` that equals the command's
`--json`. Models and devices may be given by name, path or as loaded objects.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archsim.base.errors import UsageError

if TYPE_CHECKING:
    from archsim.sim.counting import CountResult
    from archsim.sim.estimate import Estimate
    from archsim.sim.fit_answer import Fit
    from archsim.spec.hardware import Hardware
    from archsim.spec.model import Model


def count(model: Model | str | Path, **options: Any) -> CountResult:
    """Parameters, weight and cache bytes, FLOPs: everything of a model that is exact.

    Options: batch=1, input_len=2048, weights=None, kv_cache_dtype=None, logits="last", parts=(), set=().
    """
    from archsim.sim.counting import count as counted

    spec, options = _prepared(model, options)
    return counted(spec, **_known(counted, options))


def estimate(model: Model | str | Path, hw: Hardware | str | Path, **options: Any) -> Estimate:
    """Memory and time of a model on a device.

    Options: devices="auto", tp, pp, ep, dp, batch=1, input_len=2048, output_len=256, weights, kv_cache_dtype,
    engine="generic", set=().
    """
    from archsim.sim.estimate import estimate as estimated

    spec, options = _prepared(model, options)
    return estimated(spec, _device(hw), **_known(estimated, options))


def fit(model: Model | str | Path, hw: Hardware | str | Path, **options: Any) -> Fit:
    """Whether a serving engine starts with a model on a device, and how many tokens its cache holds.

    Options: devices (default: one, or tp x pp x dp), tp, pp, ep, dp, weights, kv_cache_dtype, engine="generic",
    batch=1, input_len, output_len, max_model_len, max_num_seqs, max_num_batched_tokens, gpu_memory_utilization,
    mem_fraction_static, block_size, enforce_eager=False, parts=(), max_loras=0, max_lora_rank=16, n_gpu_layers,
    cpu_moe=False, host_bandwidth (B/s), suggest=True, set=().
    """
    from archsim.sim.fit import fit as fitted

    spec, options = _prepared(model, options)
    return fitted(spec, _device(hw), **_known(fitted, options))


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
