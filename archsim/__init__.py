"""archsim estimates what transformer architectures cost: parameters, FLOPs, KV cache, memory and time from one spec.

>>> import archsim
>>> archsim.count(archsim.load_model("llama2-70b")).total
68976648192
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from archsim.base.version import VERSION

if TYPE_CHECKING:
    from archsim.api import (
        advise,
        claims,
        compare,
        compare_training,
        count,
        design,
        diff,
        estimate,
        evolve,
        fit,
        fits,
        report,
        report_training,
        scaling,
        simulate,
        survey,
        sweep,
        sweep_training,
        trace,
        train,
        validate,
    )
    from archsim.base.errors import ArchsimError
    from archsim.importers.opening import load_model
    from archsim.spec.load import load_hardware

__version__ = VERSION

_LAZY = {
    "ArchsimError": "archsim.base.errors",
    "advise": "archsim.api",
    "claims": "archsim.api",
    "compare": "archsim.api",
    "compare_training": "archsim.api",
    "count": "archsim.api",
    "design": "archsim.api",
    "diff": "archsim.api",
    "estimate": "archsim.api",
    "evolve": "archsim.api",
    "fit": "archsim.api",
    "fits": "archsim.api",
    "load_hardware": "archsim.spec.load",
    "load_model": "archsim.importers.opening",
    "report": "archsim.api",
    "report_training": "archsim.api",
    "scaling": "archsim.api",
    "simulate": "archsim.api",
    "survey": "archsim.api",
    "sweep": "archsim.api",
    "sweep_training": "archsim.api",
    "trace": "archsim.api",
    "train": "archsim.api",
    "validate": "archsim.api",
}

__all__ = [
    "ArchsimError",
    "__version__",
    "advise",
    "claims",
    "compare",
    "compare_training",
    "count",
    "design",
    "diff",
    "estimate",
    "evolve",
    "fit",
    "fits",
    "load_hardware",
    "load_model",
    "report",
    "report_training",
    "scaling",
    "simulate",
    "survey",
    "sweep",
    "sweep_training",
    "trace",
    "train",
    "validate",
]


def __getattr__(name: str) -> Any:
    """Public names, imported when first used."""
    if name not in _LAZY:
        raise AttributeError(f"module 'archsim' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
