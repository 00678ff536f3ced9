"""One thing to time, and where its result goes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

DIMS = (
    "m", "n", "k", "batch", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim", "window", "experts", "topk",
    "hidden", "inter", "tp", "ep", "n_gpus", "bytes", "threads", "between",
)  # fmt: skip
"""Sizes of a kernel table, in its order."""

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What to time.

    op, dtype, kv_dtype, dims: as in a kernel table. kernel: the back end that runs it. l2: whether weights and
    caches come from memory (`cold`) or may lie in the last-level cache (`warm`). rank: 0 is the most informative.
    seconds: expected cost, preparation included. held: kept out of fits. model: of a whole-model run, its name.
    within: the pass through a layer that the call is timed in, and `ops` those that it runs there.
    """

    suite: str
    op: str
    kernel: str
    dims: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    dtype: str = "bf16"
    kv_dtype: str = ""
    l2: str = "cold"
    rank: int = 0
    seconds: float = 0.15
    held: bool = False
    model: str = ""
    within: object = None
    ops: frozenset[str] = frozenset()

    def __getitem__(self, name: str) -> int:
        """A size."""
        return self.dims[name]

    @property
    def whole(self) -> bool:
        """Whether a whole model runs, whose result is a run and not a kernel."""
        return bool(self.model)

    def key(self, device: str) -> Key:
        """What makes a point the same one in a later session."""
        sizes = (str(self.dims.get(name, "")) for name in DIMS)
        return (device, self.model, self.op, self.kernel, self.l2, self.dtype, self.kv_dtype, *sizes)

    def text(self) -> str:
        """The point in one line, for progress and messages."""
        sizes = " ".join(f"{name}={self.dims[name]}" for name in DIMS if name in self.dims)
        return " ".join(part for part in (self.model, self.op, self.dtype, self.kernel, sizes) if part)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Microseconds per call: the median (on a CPU the least) of `calls` calls; spread in percent of it.

    mode: `graph` where a captured graph was replayed, `eager` where calls were issued one by one.
    """

    us: float
    spread_pct: float
    calls: int
    mode: str = "eager"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A timing and what else was read: bytes that the form moves, peak memory in bytes, the model that really ran
    (a small one of the same kinds at toy size), a remark.
    """

    timing: Timing
    moved: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    model: str = ""
    note: str = ""


class Skip(Exception):
    """A point that this device or this torch cannot run; the message says why."""
