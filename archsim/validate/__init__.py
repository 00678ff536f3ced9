"""Predictions beside measurements, and the fits that predictions rest on.

The package has the name of a function of the Python interface, `archsim.validate(file)`; so it can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package that is called as the function of its name."""

    def __call__(self, what: Any = None, **options: Any) -> Any:
        """See `archsim.api.validate`."""
        from archsim.api import validate

        return validate(what, **options)


sys.modules[__name__].__class__ = _Callable
