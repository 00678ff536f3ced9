"""`archsim validate MODEL --device`: one spec predicted, instantiated, checked and timed on this machine."""

from __future__ import annotations

from typing import Unpack

from archsim.accuracy.model import ModelCheck, compared
from archsim.base.errors import UsageError
from archsim.base.options import TimingArguments
from archsim.importers.opening import open_model


def check_model(name: str, **options: Unpack[TimingArguments]) -> ModelCheck:
    """The predictions of a model beside what it takes here. Needs the extra `torch`: UsageError without it."""
    model, _ = open_model(name)  # a misspelt name is answered before anything is loaded
    try:
        from archsim.measure.model_run import measured
    except ModuleNotFoundError as error:
        missing = "PyTorch" if (error.name or "").startswith("torch") else "the part that times models"
        raise UsageError(
            f"timing {name} on a device needs {missing}, which is not installed",
            hints=("pip install 'archsim[torch]'", "a file of measurements needs neither"),
        ) from None
    return compared(measured(model, **options))
