"""Multi-head latent attention: prompts over expanded or latent keys, and decoding over the latent cache.

A graph's call states `score_dim` and `value_dim`, the elements that one query-key pair multiplies for its score and
for its value. A table's row does not: all were measured at the shapes of DeepSeek-V2 (arXiv:2405.04434, section 2.1), a
latent of 512 and a rotary key of 64 per token, heads of 128 with a rotary part of 64. Other shapes scale by FLOP and
bytes, and their interval is wider. `heads` are those of one GPU; `tp`, by which tables list them too, has no effect
of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, ceil_div, log2, maximum
from archsim.timing.classes.attention import OverCache, counts_as_stated, with_counts
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant, KernelModel, l2_hit_fraction, resident
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

LATENT = 512
ROTARY = 64
KEY = 192
VALUE = 128
TILE = 128
"""Rows of queries that one block of threads works on in a prompt."""

HEADS = 64
"""Heads that share one block of threads when decoding: the rows of one tile of the product."""

UNITS = 100
"""Units of a device that lists none."""


class MlaPrefill(KernelModel):
    """t = t0 + |arithmetic, longest block, traffic|_p over the causal triangle, over keys and values expanded per head.

    Kernels that attend over the latent instead do 1088 / 320 of this arithmetic and fit a `matrix` that is lower by
    as much. The longest block of queries walks all keys alone: `chain` is the rate it reaches on its unit. Operands
    that fit the last-level cache move `cached` times faster.
    """

    kernel_class: ClassVar[str] = "mla_prefill"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "heads")
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.50, 0.03, 1.0),
        "chain": Constant(0.50, 0.03, 2.0),
        "memory": Constant(0.40, 0.05, 1.0),
        "cached": Constant(2.0, 1.0, 10.0),
        "overlap": Constant(1.5, 1.0, 8.0),
        "floor_us": Constant(12.0, 2.0, 60.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("seq", 0, 1, 16), Axis("rows", 0, 1, 16), Axis("heads", 0, 2.333, 4)),
    )
    families: ClassVar[tuple[str, ...]] = ("heads",)
    shares: ClassVar[tuple[str, ...]] = ("matrix", "memory")
    converts: ClassVar[bool] = True
    rising: ClassVar[str] = "seq"
    growths: ClassVar[tuple[Axis, ...]] = (Axis("batch", 0, 1, 13), Axis("seq_q", 0, 1, 18), Axis("past", 0, 1, 21))
    only_raised: ClassVar[tuple[str, ...]] = ("past",)

    def growth(self, call: KernelCall) -> Mapping[str, Num]:
        """log2 of sequences, of new tokens and of cached ones, with one more."""
        past = maximum(_prefix(call) - call.dims["seq_q"], 0)
        return {"batch": log2(call.dims["batch"]), "seq_q": log2(call.dims["seq_q"]), "past": log2(1 + past)}

    def smallest(self, call: KernelCall) -> KernelCall:
        """One token of one sequence."""
        return with_counts(call, {"batch": 1.0, "seq_q": 1.0, "context": 1.0}, self._counts)

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """So many sequences and tokens."""
        new = 2.0 ** at["seq_q"]
        extents = {"batch": 2.0 ** at["batch"], "seq_q": new, "context": new + 2.0 ** at["past"] - 1}
        return with_counts(smallest, extents, self._counts)

    def is_grown(self, call: KernelCall) -> bool:
        """Whether a graph counts what the extents say."""
        return counts_as_stated(call, self._counts(call))

    def _counts(self, call: KernelCall) -> Mapping[str, Num]:
        """What a graph may state, by the extents: pairs of one head and bytes of the cache."""
        batch, s, context = call.dims["batch"], call.dims["seq_q"], _prefix(call)
        entries = batch * context * (LATENT + ROTARY) * call.cache_bytes
        return {"pairs": batch * s * (2 * (context - s) + s + 1) / 2, "kv_bytes": entries}

    def flops(self, call: KernelCall) -> Num:
        """The causal triangle, or the pairs that the graph counts."""
        return 2 * call.dims["heads"] * self._pairs(call, 1) * self._width(call)

    def compute_dtype(self, call: KernelCall) -> str:
        """A cache in fp8 may be multiplied as it is."""
        return _fastest(call)

    def covers(self, call: KernelCall) -> bool:
        """Tables hold one shape."""
        return _widths(call, KEY, VALUE) == (KEY, VALUE)

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """Queries, keys, values and outputs where they exceed the cache."""
        moved = self._moved(call)
        return moved * (moved > machine.cache_bytes)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The part of keys that comes from the cache: of a table's row the whole entry."""
        entries = call.dims["batch"] * _prefix(call) * (LATENT + ROTARY) * call.cache_bytes
        return call.dims.get("kv_bytes", entries)

    def _width(self, call: KernelCall) -> Num:
        return sum(_widths(call, KEY, VALUE))

    def _pairs(self, call: KernelCall, tile: int) -> Num:
        """Query-key pairs in tiles of so many queries; those of the graph where it counts others than the triangle."""
        s, past = call.dims["seq_q"], _prefix(call) - call.dims["seq_q"]
        triangle = call.dims["batch"] * s * (2 * past + s + tile) / 2
        counted = call.dims.get("pairs")
        if counted is None:
            return triangle
        return triangle * counted / (call.dims["batch"] * s * (2 * past + s + 1) / 2)

    def _moved(self, call: KernelCall) -> Num:
        """Bytes of queries, keys, values and outputs in 16 bits, and of the cache entry."""
        tokens = call.dims["batch"] * (call.dims["seq_q"] + _prefix(call))
        return tokens * call.dims["heads"] * 2 * self._width(call) + self.operand_bytes(call)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Three terms in a p-norm over the floor."""
        peak, width = machine.attention_flops("bf16"), self._width(call)
        compute = 2 * call.dims["heads"] * self._pairs(call, TILE) * width / (peak * constants["matrix"])
        block = 2 * TILE * _prefix(call) * width * (machine.units or UNITS) / (peak * constants["chain"])
        moved = self._moved(call)
        faster = 1 + (constants["cached"] - 1) * l2_hit_fraction(moved, machine)
        memory = moved / (machine.bandwidth * constants["memory"] * faster)
        p = constants["overlap"]
        return constants["floor_us"] * 1e-6 + (compute**p + block**p + memory**p) ** (1 / p)

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of the extents; `rows` is sequences times heads."""
        heads = log2(call.dims["heads"])
        return {"seq": log2(call.dims["seq_q"]), "rows": log2(call.dims["batch"]) + heads, "heads": heads}

    def probe(self, like: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """A call at these extents."""
        batch = 2.0 ** (at["rows"] - at["heads"])
        return like._replace(dims={"batch": batch, "seq_q": 2.0 ** at["seq"], "heads": 2.0 ** at["heads"]})


class MlaDecode(OverCache):
    """t = t0 + |arithmetic, cache, longest walk|_p + blocks, in the absorbed form over latent entries.

    A share `padding` of the rows that fill heads up to the next 64 is multiplied in vain. Each (sequence, 64 heads)
    is at least one block of threads, which costs `block_us` of its unit whatever its length; `walk_ns` is the time
    per cached token where kernels do not split a sequence among units, near 0 where they do. `stream` is the rate
    of queries and outputs, which may still be in a cache.
    """

    kernel_class: ClassVar[str] = "mla_decode"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_kv", "heads")
    optional: ClassVar[Mapping[str, float]] = {"warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.60, 0.02, 1.0),
        "memory": Constant(0.85, 0.05, 1.0),
        "padding": Constant(0.5, 0.01, 1.0),
        "warm": Constant(2.0, 1.0, 8.0),
        "overlap": Constant(2.0, 1.0, 8.0),
        "walk_ns": Constant(0.4, 0.01, 300.0),
        "block_us": Constant(5.0, 0.1, 40.0),
        "stream": Constant(0.6, 0.05, 2.0),
        "floor_us": Constant(12.0, 2.0, 60.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("seq", 1, 1, 17), Axis("batch", 0, 1, 11), Axis("heads", 0, 1.75, 5)),
    )
    families: ClassVar[tuple[str, ...]] = ("heads",)
    shares: ClassVar[tuple[str, ...]] = ("matrix", "memory")
    serial: ClassVar[tuple[str, ...]] = ("walk_ns",)
    rising: ClassVar[str] = "seq"

    def _counts(self, call: KernelCall) -> Mapping[str, Num]:
        """What a graph may state, by the extents: bytes of the cache."""
        width = _widths(call, LATENT + ROTARY, LATENT)[0]
        return {"kv_bytes": self._entries(call) * width * call.cache_bytes}

    def prepare(self, call: KernelCall) -> KernelCall:
        """A row of a table, which names its kernel, was timed over and over on one cache."""
        return call._replace(dims={"warm": call.dims["batch"] * 0 + 1.0, **call.dims}) if call.kernel else call

    def flops(self, call: KernelCall) -> Num:
        """For every query and every entry that it sees: a score over the whole entry, a sum over the latent."""
        width = sum(_widths(call, LATENT + ROTARY, LATENT))
        return 2 * call.dims["heads"] * call.dims.get("pairs", self._entries(call)) * width

    def compute_dtype(self, call: KernelCall) -> str:
        """A cache in fp8 may be multiplied as it is."""
        return _fastest(call)

    def covers(self, call: KernelCall) -> bool:
        """Tables hold one shape."""
        return _widths(call, LATENT + ROTARY, LATENT) == (LATENT + ROTARY, LATENT)

    def operand_bytes(self, call: KernelCall) -> Num:
        """Every cached entry once for all heads."""
        width = _widths(call, LATENT + ROTARY, LATENT)[0]
        return call.dims.get("kv_bytes", self._entries(call) * width * call.cache_bytes)

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The entries, but for what a repeated run finds in the last-level cache."""
        read = self.operand_bytes(call)
        return read * (1 - resident(call, read, machine))

    def _entries(self, call: KernelCall) -> Num:
        return call.dims["batch"] * call.dims["seq_kv"]

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The terms of the class; several new tokens of a sequence are more rows over the same entries."""
        batch, entries = call.dims["batch"], self._entries(call)
        wide, narrow = _widths(call, LATENT + ROTARY, LATENT)
        heads = call.dims["heads"] * call.dims.get("queries", 1)
        rows = heads + constants["padding"] * (HEADS * ceil_div(heads, HEADS) - heads)
        compute = 2 * entries * rows * (wide + narrow) / (machine.attention_flops("bf16") * constants["matrix"])
        read = self.operand_bytes(call)
        warm = 1 + (constants["warm"] - 1) * resident(call, read, machine)
        memory = read / (machine.bandwidth * constants["memory"] * warm)
        longest = call.dims.get("longest", call.dims["seq_kv"]) * wide / (LATENT + ROTARY)
        walk = longest * constants["walk_ns"] * 1e-9
        p = constants["overlap"]
        busy = (compute**p + memory**p + walk**p) ** (1 / p)
        blocks = batch * (1 + heads / HEADS) / (machine.units or UNITS) * constants["block_us"] * 1e-6
        moved = 2 * batch * heads * (wide + narrow) / (machine.bandwidth * constants["stream"])
        return constants["floor_us"] * 1e-6 + busy + blocks + moved

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of the three extents."""
        return {"seq": log2(call.dims["seq_kv"]), "batch": log2(call.dims["batch"]), "heads": log2(call.dims["heads"])}

    def probe(self, like: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """A call at these extents, timed as tables do."""
        names = {"seq": "seq_kv", "batch": "batch", "heads": "heads"}
        return like._replace(dims={"warm": 1.0, **{name: 2.0 ** at[key] for key, name in names.items()}})


def _fastest(call: KernelCall) -> str:
    """The dtype whose peak bounds the products: a cache in fp8 may be multiplied as it is."""
    return "fp8" if call.kv_dtype == "fp8" else "bf16"


def _widths(call: KernelCall, score: int, value: int) -> tuple[Num, Num]:
    """Elements that one query-key pair multiplies for its score and for its value; by default those of tables."""
    return call.dims.get("score_dim", score), call.dims.get("value_dim", value)


def _prefix(call: KernelCall) -> Num:
    """Tokens that the last query of a prompt sees: the prompt, and what is cached before it."""
    return call.dims.get("context", call.dims["seq_q"])
