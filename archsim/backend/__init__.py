"""The op graph as a PyTorch module: the only place that imports torch, when the module is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from archsim.backend.module import Net, build

__all__ = ["Net", "build"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from archsim.backend import module

    return getattr(module, name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
