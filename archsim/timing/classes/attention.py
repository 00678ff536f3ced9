"""Attention: of prompts over themselves and what is cached (`attn_prefill`), of new tokens over a cache
(`attn_decode`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

from archsim.base.number import Num, ceil_div, everywhere, log2, maximum, minimum, nearest, where
from archsim.timing.classes.call import STORED, KernelCall
from archsim.timing.classes.model import Constant, KernelModel, l2_hit_fraction, resident
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

ROWS = 128
"""Query rows of one tile of a prompt (FlashAttention-2, arXiv:2307.08691, and -3, arXiv:2407.08608)."""

DECODE_ROWS = 64
"""Query rows of one tile of a decode step: the smallest product of Hopper's tensor cores."""

FINEST_ROWS = 16
"""Rows of the smallest product of tensor cores since Ampere, which kernels without Hopper's take."""

UNITS, FEWEST = 100, 16
"""Multiprocessors of a device that lists none, or so few that each must itself keep many tiles in flight."""

CLOCK = 1.83e9
"""Hz at which times of latency are stated, the H100's; other devices take longer as they run slower."""

OUT = 2
"""Bytes of one element of queries and results."""

SHARP = 4
"""Exponent of the smooth maximum of work spread over the device and work that one multiprocessor must do alone."""

GROUP = 32
"""Query heads per KV head beyond which some kernels no longer share what they load among them."""


class AttnPrefill(KernelModel):
    """Arithmetic and traffic overlap in part: t = t0 + (T_a^p + T_m^p)^(1/p).

    T_a is the larger of all tiles spread over the device and the longest tile alone; a query-key pair costs 4d /
    (matrix·P) on the matrix units plus `softmax` operations on the vector units (the exponentials of arXiv:2407.08608),
    a tile `tile_us` to start. outside: share of the pairs beyond a window that kernels work through nevertheless.
    cached: how much faster the last-level cache is read than memory, where it holds queries, keys, values and results.
    """

    kernel_class: ClassVar[str] = "attn_prefill"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "kv_heads", "head_dim")
    optional: ClassVar[Mapping[str, float]] = {"window": 0, "causal": 1}
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.65, 0.05, 1.0),
        "softmax": Constant(12.0, 1.0, 60.0),
        "memory": Constant(0.5, 0.1, 1.0),
        "tile_us": Constant(3.0, 0.2, 20.0),
        "overlap": Constant(1.8, 1.0, 8.0),
        "outside": Constant(0.02, 0.005, 1.0),
        "cached": Constant(1.5, 1.0, 8.0),
        "floor_us": Constant(11.0, 1.0, 60.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("rows", 0, 1, 16), Axis("seq", 0, 1, 15)),
        (Axis("width", 6, 1, 3), Axis("rows", 0, 2, 8), Axis("seq", 0, 2, 8)),
        (Axis("group", 0, 1, 7), Axis("rows", 0, 2, 8), Axis("seq", 0, 2, 8)),
        (Axis("windowed", 0, 1, 2), Axis("rows", 0, 2, 8), Axis("seq", 0, 2, 8)),
        (Axis("beyond", 0, 1, 8), Axis("width", 6, 1, 3)),
    )
    families: ClassVar[tuple[str, ...]] = ("heads", "kv_heads", "head_dim", "window")
    shares: ClassVar[tuple[str, ...]] = ("matrix", "memory")
    converts: ClassVar[bool] = True
    supports: ClassVar[tuple[str, ...]] = ("head_dim",)
    growths: ClassVar[tuple[Axis, ...]] = (Axis("batch", 0, 1, 13), Axis("seq_q", 0, 1, 18), Axis("past", 0, 1, 21))
    only_raised: ClassVar[tuple[str, ...]] = ("past",)

    def growth(self, call: KernelCall) -> Mapping[str, Num]:
        """log2 of sequences, of new tokens and of cached ones, with one more."""
        past = maximum(call.dims["seq_kv"] - call.dims["seq_q"], 0)
        return {"batch": log2(call.dims["batch"]), "seq_q": log2(call.dims["seq_q"]), "past": log2(1 + past)}

    def smallest(self, call: KernelCall) -> KernelCall:
        """One token of one sequence; what a graph counts in place of the extents' own stays as many times that."""
        return with_counts(call, {"batch": 1.0, "seq_q": 1.0, "seq_kv": 1.0}, self._counts)

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """So many sequences and tokens."""
        new = 2.0 ** at["seq_q"]
        return with_counts(
            smallest, {"batch": 2.0 ** at["batch"], "seq_q": new, "seq_kv": new + 2.0 ** at["past"] - 1}, self._counts
        )

    def is_grown(self, call: KernelCall) -> bool:
        """Whether a graph counts what the extents say."""
        return counts_as_stated(call, self._counts(call))

    def _counts(self, call: KernelCall) -> Mapping[str, Num]:
        """What a graph may state, by the extents: pairs of one head and bytes of the cache."""
        batch = call.dims["batch"]
        entry = call.dims["kv_heads"] * sum(widths(call)) * call.cache_bytes
        return {"pairs": batch * pairs(call, 1), "kv_bytes": batch * span(call) * entry}

    def flops(self, call: KernelCall) -> Num:
        """2 FLOP for every pair that is seen and every element of its key and value."""
        return 2 * call.dims["heads"] * seen_pairs(call) * sum(widths(call))

    def compute_dtype(self, call: KernelCall) -> str:
        """As stored; weights have no part in it."""
        return compute(call)

    def operand_bytes(self, call: KernelCall) -> Num:
        """Keys and values in the window, once."""
        return kv_bytes(call, span(call))

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The KV cache once, and queries and results beyond the cache."""
        rows = call.dims["batch"] * call.dims["seq_q"] * call.dims["heads"]
        moved = OUT * rows * sum(widths(call))
        return self.operand_bytes(call) + moved * (moved > machine.cache_bytes)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Arithmetic of tiles against their traffic, with partial overlap and a floor."""
        rows = call.dims["batch"] * call.dims["heads"] * call.dims["seq_q"]
        moved = OUT * rows * sum(widths(call)) + self.operand_bytes(call)
        faster = 1 + (constants["cached"] - 1) * l2_hit_fraction(moved, machine)
        memory = moved / (machine.bandwidth * constants["memory"] * faster)
        arithmetic, p = self._arithmetic(call, machine, constants), constants["overlap"]
        return microseconds(constants["floor_us"], machine) + (arithmetic**p + memory**p) ** (1 / p)

    def _arithmetic(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds of all tiles over all multiprocessors, or of the longest tile where that is more.

        A tile over a long cached prefix is split until the multiprocessors are busy.
        """
        s, batch, heads, groups = (call.dims[name] for name in ("seq_q", "batch", "heads", "kv_heads"))
        matrix = machine.attention_flops(compute(call)) * constants["matrix"]
        pair = 2 * sum(map(padded, widths(call))) / matrix + constants["softmax"] / machine.vector_flops
        rows = minimum(ROWS, ceil_div(s, 16) * 16)
        done, counted = pairs(call, rows), batch * pairs(call, 1)
        if has_window(call):
            done = done + constants["outside"] * (pairs(call, rows, windowed=False) - done)
        done = done * call.dims.get("pairs", counted) / counted  # masks beyond a window
        longest = last(call) + constants["outside"] * (call.dims["seq_kv"] - last(call))
        tiles = batch * groups * ceil_div(heads * s / groups, ROWS)
        spread = batch * heads * done * pair + tiles * microseconds(constants["tile_us"], machine) / units(machine)
        splits = maximum(1, minimum(units(machine) / tiles, longest / s))
        alone = rows * longest * pair * units(machine) / splits
        return (spread**SHARP + alone**SHARP) ** (1 / SHARP)

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of extents; `seq` is the prompt without a prefix that has as many pairs."""
        s, window = call.dims["seq_q"], call.dims.get("window", 0)
        inside = where(window > 0, minimum(s, window), s)
        doubled = where(call.dims.get("causal", 1) > 0, 2 * span(call) - s, 2 * span(call))
        return {
            "seq": log2(maximum(s * doubled, 1)) / 2,
            "rows": log2(call.dims["batch"] * call.dims["heads"]),
            "group": log2(call.dims["heads"] / call.dims["kv_heads"]),
            "width": log2(padded(call.dims["head_dim"])),
            "windowed": where(window > 0, 1.0, 0.0),
            "beyond": log2(s / inside),
        }


class OverCache(KernelModel):
    """Attention of new tokens over cached ones: what it has in common as sequences and caches grow."""

    growths: ClassVar[tuple[Axis, ...]] = (Axis("seq_kv", 0, 1, 22), Axis("batch", 0, 1, 14))
    halved: ClassVar[str] = "batch"

    def smallest(self, call: KernelCall) -> KernelCall:
        """One cached token of one sequence."""
        return with_counts(call, {"batch": 1.0, "seq_kv": 1.0}, self._counts)

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """So many sequences and cached tokens."""
        return with_counts(smallest, {name: 2.0**value for name, value in at.items()}, self._counts)

    def is_grown(self, call: KernelCall) -> bool:
        """Sequences that differ in length are like others of their mean."""
        return "longest" not in call.dims and counts_as_stated(call, self._counts(call))

    @abstractmethod
    def _counts(self, call: KernelCall) -> Mapping[str, Num]:
        """What a graph may state, by the extents: bytes of the cache."""


class AttnDecode(OverCache):
    """Arithmetic and traffic overlap in part: t = t0 + (T_a^p + T_m^p)^(1/p).

    T_m reads the cache. T_a is the larger of two: all tiles spread over the device, each `tile_us` to start beside
    its padded products and `row_ns` for every query row; and one tile that walks a whole cache of 128 wide heads at
    `serial_ns` a token, which is short where kernels split the cache. Kernels have weak spots, each with a constant
    that is small where it is absent: without grouped heads or with a window, `alone_ns` more per token and `alone`,
    the share of query heads in tiles of their own; `large`, the same for groups beyond 32; `outside`, the
    share of tokens beyond a window that is read. (FlashAttention-2 joins a group's heads and splits the cache only
    for grouped heads without a window.) warm: how much faster a cache is read that repeated runs of one kernel
    find in the last-level cache.
    """

    kernel_class: ClassVar[str] = "attn_decode"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_kv", "heads", "kv_heads", "head_dim")
    optional: ClassVar[Mapping[str, float]] = {"window": 0, "seq_q": 1, "warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "memory": Constant(0.85, 0.2, 1.0),
        "matrix": Constant(0.6, 0.02, 1.0),
        "tile_us": Constant(2.5, 0.2, 20.0),
        "row_ns": Constant(0.2, 0.01, 20.0),
        "serial_ns": Constant(0.3, 0.005, 100.0, start=3.0),
        "alone_ns": Constant(0.3, 0.005, 100.0, start=3.0),
        "alone": Constant(0.02, 0.005, 1.0),
        "large": Constant(0.02, 0.005, 1.0),
        "outside": Constant(0.02, 0.005, 1.0),
        "overlap": Constant(2.2, 1.0, 8.0),
        "warm": Constant(1.5, 1.0, 8.0),
        "floor_us": Constant(10.0, 1.0, 60.0),
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("tiles", 0, 1, 17), Axis("length", 1, 1, 17)),
        (Axis("group", 0, 1, 7), Axis("tiles", 0, 2, 9), Axis("length", 1, 2, 9)),
        (Axis("width", 6, 1, 3), Axis("tiles", 0, 2, 9), Axis("length", 1, 2, 9)),
        (Axis("windowed", 0, 1, 2), Axis("tiles", 0, 2, 9), Axis("length", 1, 2, 9)),
        (Axis("group", 0, 1, 7), Axis("width", 6, 1, 3), Axis("tiles", 0, 2, 9)),
        (Axis("beyond", 0, 1, 8), Axis("width", 6, 1, 3)),
    )
    families: ClassVar[tuple[str, ...]] = ("heads", "kv_heads", "head_dim", "window")
    shares: ClassVar[tuple[str, ...]] = ("matrix", "memory")
    supports: ClassVar[tuple[str, ...]] = ("head_dim",)
    finest: ClassVar[Mapping[str, tuple[float, float]]] = {"rows": (DECODE_ROWS, FINEST_ROWS)}

    def prepare(self, call: KernelCall) -> KernelCall:
        """A row of a table, which names its kernel, was timed over and over on one cache."""
        return call._replace(dims={"warm": call.dims["batch"] * 0 + 1.0, **call.dims}) if call.kernel else call

    def _counts(self, call: KernelCall) -> Mapping[str, Num]:
        """What a graph may state, by the extents: bytes of the cache."""
        entry = call.dims["kv_heads"] * sum(widths(call)) * call.cache_bytes
        return {"kv_bytes": call.dims["batch"] * seen(call) * entry}

    def flops(self, call: KernelCall) -> Num:
        """2 FLOP for every token that a query sees and every element of its key and value."""
        seen_by_all = call.dims["batch"] * call.dims.get("seq_q", 1) * seen(call)
        return 2 * call.dims["heads"] * call.dims.get("pairs", seen_by_all) * sum(widths(call))

    def compute_dtype(self, call: KernelCall) -> str:
        """As stored; weights have no part in it."""
        return compute(call)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The KV cache inside the window, once."""
        return kv_bytes(call, seen(call))

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The KV cache inside the window, but for what a repeated run finds in the last-level cache."""
        cache = self.operand_bytes(call)
        return cache * (1 - resident(call, cache, machine))

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The cache's traffic against the work of tiles, with partial overlap and a floor."""
        rows = call.dims["heads"] * call.dims.get("seq_q", 1)
        length = seen(call) + constants["outside"] * (call.dims["seq_kv"] - seen(call))
        cache = self.operand_bytes(call) * length / seen(call)
        held = resident(call, cache, machine)
        moved = cache * (1 - held + held / constants["warm"]) + OUT * call.dims["batch"] * rows * sum(widths(call))
        memory = moved / (machine.bandwidth * constants["memory"])
        busy, p = self._arithmetic(call, length, machine, constants), constants["overlap"]
        return microseconds(constants["floor_us"], machine) + (busy**p + memory**p) ** (1 / p)

    def _arithmetic(self, call: KernelCall, length: Num, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds of all tiles over all multiprocessors, or of one over a whole cache where that is more."""
        groups, d = call.dims["kv_heads"], sum(map(padded, widths(call))) / 2
        group = call.dims["heads"] / groups
        rows = call.dims["heads"] * call.dims.get("seq_q", 1)
        alone = where((group <= 1) | (call.dims.get("window", 0) > 0), 1, 0)
        large = minimum(maximum(2 * log2(group / GROUP), 0), 1)
        apart = maximum(constants["alone"] * alone, constants["large"] * large)
        tile = constants.get("rows", DECODE_ROWS)
        joined = groups * ceil_div(rows / groups, tile)
        tiles = call.dims["batch"] * (joined + apart * (rows - joined))
        each = 4 * tile * d * length / (machine.attention_flops(compute(call)) * constants["matrix"])
        each = each + microseconds(constants["tile_us"], machine) / units(machine)
        spread = tiles * each + call.dims["batch"] * rows * microseconds(constants["row_ns"] * 1e-3, machine)
        token = constants["serial_ns"] + constants["alone_ns"] * alone
        longest = length * longest_row(call) / call.dims["seq_kv"]
        walk = longest * d / 128 * microseconds(token * 1e-3, machine)
        return (spread**SHARP + walk**SHARP) ** (1 / SHARP)

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of extents; `length` counts what a window leaves, `beyond` how much longer the cache is."""
        length = seen(call)
        return {
            "tiles": log2(call.dims["batch"] * call.dims["kv_heads"]),
            "length": log2(length),
            "group": log2(call.dims["heads"] / call.dims["kv_heads"]),
            "width": log2(padded(call.dims["head_dim"])),
            "windowed": where(call.dims.get("window", 0) > 0, 1.0, 0.0),
            "beyond": log2(call.dims["seq_kv"] / length),
        }


COUNTED = ("pairs", "kv_bytes")
"""Extents of a graph's call that are counts of their own."""

ALIKE = 2**0.5
"""Factor between counts within which calls are of one kind: how a window is counted differs by a token, or a chunk."""

EQUAL = 1e-6
"""Difference, as a share, of counts that are equal."""

LEAST = 1e-3
"""Share of the extents' own counts below which calls are alike."""

BESIDE = ("hbm_bytes", "longest")
"""Extents of a graph's call that do not grow with others."""


def with_counts(
    call: KernelCall, extents: Mapping[str, Num], counts: Callable[[KernelCall], Mapping[str, Num]]
) -> KernelCall:
    """A call with other extents, in which what a graph counts is about as many times the extents' own as before, in
    steps of `ALIKE`. counts: of a call, by its extents; other counts have no part in its time.
    """
    dims = {**{n: v for n, v in call.dims.items() if n not in (*COUNTED, *BESIDE)}, **extents}
    other = call._replace(dims=dims)
    before, after = counts(call), counts(other)
    stated = [n for n in COUNTED if n in call.dims and n in before]
    times = {
        n: ALIKE ** nearest(log2(maximum(call.dims[n] / maximum(before[n], 1), LEAST)) / log2(ALIKE)) for n in stated
    }
    return other._replace(dims={**dims, **{n: times[n] * after[n] for n in stated}})


def counts_as_stated(call: KernelCall, counts: Mapping[str, Num]) -> bool:
    """Whether what a graph counts in a call is what its extents say."""
    stated = [n for n in COUNTED if n in call.dims and n in counts]
    return all(everywhere(abs(call.dims[n] - counts[n]) <= EQUAL * counts[n]) for n in stated)


def compute(call: KernelCall) -> str:
    """The dtype that products are taken in."""
    return STORED.get(call.dtype, STORED["bf16"]).compute


def units(machine: DeviceRates) -> int:
    """Multiprocessors that tiles are spread over."""
    return machine.units if machine.units >= FEWEST else UNITS


def microseconds(value: Num, machine: DeviceRates) -> Num:
    """Seconds of some steps that take `value` microseconds at the reference clock."""
    known = machine.units >= FEWEST and machine.cycles
    return value * 1e-6 * (CLOCK * machine.units / machine.cycles if known else 1.0)


def padded(head_dim: Num) -> Num:
    """The width of heads that a kernel is built for: the next multiple of 32 from 64 on, as in FlashAttention."""
    return ceil_div(maximum(head_dim, 64), 32) * 32


def widths(call: KernelCall) -> tuple[Num, Num]:
    """Elements that one query-key pair multiplies for its score (of all score products), and for its value."""
    return call.dims["head_dim"], call.dims.get("head_dim_v", call.dims["head_dim"])


def kv_bytes(call: KernelCall, tokens: Num) -> Num:
    """Bytes of the keys and values that are read: the graph's own, else of so many tokens of every sequence."""
    stated = call.dims.get("kv_bytes")
    if stated is not None:
        return stated
    return call.dims["batch"] * call.dims["kv_heads"] * tokens * sum(widths(call)) * call.cache_bytes


def seen_pairs(call: KernelCall) -> Num:
    """Query-key pairs of all sequences that one head computes: the graph's own, else by the extents."""
    stated = call.dims.get("pairs")
    return call.dims["batch"] * pairs(call, 1) if stated is None else stated


def has_window(call: KernelCall) -> bool:
    """Whether any of a table of calls has a window."""
    return not everywhere(call.dims.get("window", 0) == 0)


def longest_row(call: KernelCall) -> Num:
    """Tokens of the longest sequence of a ragged call; `seq_kv` is the mean."""
    return call.dims.get("longest", call.dims["seq_kv"])


def seen(call: KernelCall) -> Num:
    """Cached tokens that the last query sees: all, or the window; a window of 0 is none."""
    length, window = call.dims["seq_kv"], call.dims.get("window", 0)
    return where(window > 0, minimum(length, window), length)


def span(call: KernelCall) -> Num:
    """Cached tokens that at least one query of a prompt sees, its own among them."""
    length, window = call.dims["seq_kv"], call.dims.get("window", 0)
    return where(window > 0, minimum(length, window + call.dims["seq_q"] - 1), length)


def last(call: KernelCall) -> Num:
    """Cached tokens that the last tile of queries goes through."""
    length, window = call.dims["seq_kv"], call.dims.get("window", 0)
    return where(window > 0, minimum(length, window + minimum(call.dims["seq_q"], ROWS)), length)


def pairs(call: KernelCall, rows: Num, windowed: bool = True) -> Num:
    """Query-key pairs that one head of a prompt goes through, in tiles of `rows` queries and `rows` keys.

    With one row a tile they are exactly the pairs that count: s·(c + (s+1)/2) for s queries after c cached tokens.
    """
    s, length, window = call.dims["seq_q"], call.dims["seq_kv"], call.dims.get("window", 0) if windowed else 0
    tiles, before = ceil_div(s, rows), maximum(length - s, 0)
    widest = where(window > 0, window + rows - 1, length + rows)
    growing = minimum(maximum((widest - before) / rows, 0), tiles)
    causal = growing * (before + rows * (growing + 1) / 2) + (tiles - growing) * widest
    flat = tiles * where(window > 0, minimum(length, window + rows - 1), length)
    return rows * where(call.dims.get("causal", 1) > 0, causal, flat)
