"""Peak memory on a CPU: bytes of the tensors that are alive, seen operator by operator."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Alive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storages that operators return, and takes off those that die. Scratch inside one is not seen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.held = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operator and note what is new."""
        before = {_key(x) for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and _key(x) not in before:
                self._note(x.untyped_storage())
        return result

    def _note(self, storage: Any) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()

        def gone(_: object) -> None:
            self.held -= size
            self._known.pop(key, None)

        self._known[key] = weakref.ref(storage, gone)
        self.held += size
        self.peak = max(self.peak, self.held)


def _key(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)


def cpu_peak(call: Callable[[], object]) -> int:
    """Most bytes that `call` held at once in tensors of its own."""
    with Alive() as alive:
        call()
    return int(alive.peak)
