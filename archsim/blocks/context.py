"""What a block needs to know of its surroundings while it is lowered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from archsim.blocks.dispatch import Impossible
from archsim.graph.step import Step
from archsim.graph.tensor import Tensor


@dataclass(slots=True)
class Context:
    """The step, and what the stack around a block shares with it.

    cached: keys and values go to a cache (decoders) or not (encoders). memory: the encoder's output, while
    there is one. shared: tensors declared once per stack (relative-position tables), by their spec. caches:
    key/value caches by the path of the layer that owns them, for layers that share them; repeats: how often
    each block around that layer repeats.
    """

    step: Step
    cached: bool = True
    memory: Tensor | None = None
    shared: dict[Any, Any] = field(default_factory=dict)
    caches: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    path: str = ""
    loops: tuple[int, ...] = ()
    repeats: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def shared_cache(self, path: str) -> tuple[Tensor, Tensor, tuple[int, ...]]:
        """The cache of the last repetition of the layer at `path`, and which repetition that is."""
        if path not in self.caches:
            known = ", ".join(self.caches) or "none"
            raise Impossible(f"kv_from: no layer `{path}` with a cache before this one; known: {known}")
        k, v = self.caches[path]
        return k, v, tuple(n - 1 for n in self.repeats[path])
