"""The Python interface: the commands as functions.

Options are the commands' long flags in snake_case; each result has a `to_dict` that equals the command's
`--json`. Models and devices may be given by name, path or as loaded objects.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archsim.sim.counting import CountResult
    from archsim.sim.estimate import Estimate
    from archsim.spec.hardware import Hardware
    from archsim.spec.model import Model


def count(model: Model | str | Path, **options: Any) -> CountResult:
    """Parameters, weight and cache bytes, FLOPs: everything of a model that is exact.

    Options: batch=1, input_len=2048, weights=None, kv_cache_dtype=None, logits="last", parts=(), set=().
    """
    from archsim.sim.counting import count as counted

    spec, hint = _model(model, options.pop("set", ()))
    return counted(spec, **_with_hint(options, hint))


def estimate(model: Model | str | Path, hw: Hardware | str | Path, **options: Any) -> Estimate:
    """Memory and time of a model on a device.

    Options: devices="auto", tp, pp, ep, dp, batch=1, input_len=2048, output_len=256, weights, kv_cache_dtype,
    engine="generic", set=().
    """
    from archsim.sim.estimate import estimate as estimated
    from archsim.spec.load import load_hardware

    spec, hint = _model(model, options.pop("set", ()))
    device = load_hardware(str(hw)) if isinstance(hw, (str, Path)) else hw
    return estimated(spec, device, **_with_hint(options, hint))


def _model(model: Model | str | Path, changes: tuple[str, ...]) -> tuple[Model, str | None]:
    """The spec, and the weight format that its name implied (`-FP8`)."""
    if not isinstance(model, (str, Path)):
        return model, None
    from archsim.importers.opening import open_model

    spec, resolved = open_model(str(model), changes)
    return spec, resolved.format_hint


def _with_hint(options: dict[str, Any], hint: str | None) -> dict[str, Any]:
    if hint is not None and options.get("weights") is None:
        return {**options, "weights": hint}
    return options
