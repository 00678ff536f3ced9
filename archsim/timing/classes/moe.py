"""Fused expert layers: grouped matrix products over the experts that a rank holds, and the moves around them.

What `m` means: the tokens that enter the layer, before routing. With `ep` ranks the one that is timed holds
experts / ep experts and multiplies only the rows routed to them, m topk / ep on average; under a skewed
distribution it is the busiest rank.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from archsim.base.number import Num, exp, log2, maximum, minimum, where
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant, KernelModel, l2_hit_fraction, resident
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

BALANCED = 0.0
"""The `skew` of a table that gives every expert the same number of rows."""

SERVED = 0.5
"""The `skew` assumed where none is stated: the busiest expert gets three times the mean load, and as many experts
are hit as by independent draws. Tables at 1.01 and 1.2 are meant to be harder than that."""

TWO_MATRIX: Mapping[str, tuple[tuple[int, int, int, int], ...]] = {
    "sglang_": ((128, 6, 2688, 1856), (512, 22, 2048, 5120), (512, 22, 8192, 5120)),
    "vllm_unquantized": ((128, 6, 2688, 1856), (512, 22, 2048, 5120), (512, 22, 8192, 5120)),
    "vllm_modelopt": ((128, 6, 2688, 1856), (512, 22, 1024, 2688), (512, 22, 2048, 5120), (512, 22, 8192, 5120)),
}
"""Where tables time experts of two matrices without saying so: shapes (experts, topk, hidden, inter) by the start of
the kernel's name. Told by their times: with three matrices they would read weights at 1.3 times the others' rate."""

MANY = 6
"""Units from which on a device's are alike enough for rates per unit and cycle."""

CROSSING = 0.632
"""Share of experts hit at one row an expert, 1 - 1/e: independent draws below it, above it the power law's tail, which
hits no more experts than independent draws do."""

GAUGE = 0.2
"""Third-order term of the busiest rank's load, from draws of the distribution (seven shapes, within a tenth)."""


class Share(NamedTuple):
    """What one rank gets to do. rows: (token, expert) pairs. hits: experts with at least one row."""

    rows: Num
    hits: Num


def implementation(kernel: str) -> str:
    """A kernel's name without the token distribution that a table appends to it."""
    return kernel.partition("/")[0]


def traits(kernel: str) -> dict[str, float]:
    """What a table's kernel name says of a call: `skew` (the power law's exponent, 0 balanced) and `gated`."""
    name, _, distribution = kernel.partition("/")
    found = {"gated": 0.0 if "nongated" in name else 1.0, "warm": 1.0}
    if distribution.startswith("power_law_"):
        found["skew"] = float(distribution.removeprefix("power_law_"))
    elif distribution == "balanced":
        found["skew"] = BALANCED
    return found


def share(m: Num, experts: Num, topk: Num, ep: Num, skew: Num) -> Share:
    """Rows and experts of the busiest rank.

    Loads of experts follow a power law of exponent `skew` truncated to [1, 0.8 m], the distribution that the
    tables were measured under; the busiest of `ep` sums over experts / ep such loads is estimated from their
    variance and skewness. No expert takes a token twice. Balanced: equal shares, spread as far as they go.
    """
    local, each = experts / ep, m * topk / experts
    a = 1 - minimum(maximum(skew, 0.05), 1.9)
    a = where(a * a < 1e-6, 1e-3, a)
    span = maximum(0.8 * maximum(m, experts / topk), 1.5)
    mean = _moment(span, a, 1)
    spread = maximum(_moment(span, a, 2) / mean**2 - 1, 0) ** 0.5 / local**0.5
    normal = 0.564 * maximum(log2(ep), 0) ** 0.81
    busy = 1 + spread * (normal + GAUGE * spread * maximum(normal**2 - 1, 0))
    busy = where(skew <= BALANCED, 1.0, minimum(busy, minimum(ep, experts / topk)))
    rows = minimum(maximum(busy * m * topk / ep, 1.0), m * minimum(topk, local))
    edge = minimum(maximum(0.5 * mean / each, 1.0), span)
    heavy = 1 - (edge**a - 1) / (span**a - 1)
    hit = minimum(1 - exp(-rows / local), maximum(CROSSING, heavy))
    hit = where(skew <= BALANCED, 1.0, hit)
    return Share(rows, minimum(minimum(local, rows), maximum(local * hit, 1.0)))


def _moment(span: Num, a: Num, order: int) -> Num:
    """The moment of that order of a density proportional to x^(a - 1) on [1, span]."""
    return a / (span**a - 1) * (span ** (order + a) - 1) / (order + a)


class Moe(KernelModel):
    """t = t0 + |arithmetic, weights|_p + moves: the grouped products overlap their two costs in part.

    Arithmetic: rows padded by `tile` in each expert hit. Weights: of the experts hit, `rereads` times, which is 4 where
    a kernel has 4-bit weights unpacked to 16 bits first. Moves: permuting, activating and combining rows are kernels of
    their own; a share `spread` of the rows of other ranks' experts passes through them too, since some engines mask
    these rows instead of dropping them, and a share `foreign` is even multiplied. `warm` and `cached` are how much
    faster than memory the last-level cache gives weights to a call that is timed over and over, and rows in any case.
    unpack, of some engines: weights that a unit loads and unpacks in one cycle.
    """

    kernel_class: ClassVar[str] = "moe"
    dims: ClassVar[tuple[str, ...]] = ("m", "experts", "topk", "hidden", "inter")
    optional: ClassVar[Mapping[str, float]] = {"tp": 1, "ep": 1, "skew": SERVED, "gated": 1, "warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.65, 0.05, 1.0),
        "memory": Constant(0.80, 0.3, 1.0),
        "rereads": Constant(1.0, 1.0, 6.0, start=1.2),
        "overlap": Constant(2.0, 1.0, 8.0),
        "tile": Constant(32.0, 1.0, 256.0),
        "foreign": Constant(0.01, 0.0001, 1.0),
        "warm": Constant(2.0, 1.0, 8.0),
        "stream": Constant(0.5, 0.03, 1.0),
        "cached": Constant(1.5, 1.0, 10.0),
        "spread": Constant(0.2, 0.01, 1.0),
        "floor_us": Constant(25.0, 3.0, 120.0),
    }
    extra: ClassVar[Mapping[str, Constant]] = {"unpack": Constant(20.0, 0.5, 200.0)}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("m", 0, 1, 17), Axis("local", 0, 1, 11)),
        (Axis("dense", 0, 1, 14), Axis("inter", 4, 2, 6)),
        (Axis("m", 0, 2, 9), Axis("read", 18, 1.5, 12)),
        (Axis("m", 0, 1, 17), Axis("skew", 0, 1, 2)),
    )
    options: ClassVar[Mapping[str, Any]] = {"ridge": 3.0, "bend": 8.0}
    families: ClassVar[tuple[str, ...]] = ("experts", "topk", "hidden", "inter")
    shares: ClassVar[tuple[str, ...]] = ("matrix", "memory")
    supports: ClassVar[tuple[str, ...]] = ("m", "gated")
    common_floor: ClassVar[bool] = True
    growths: ClassVar[tuple[Axis, ...]] = (Axis("m", 0, 1, 21),)

    def smallest(self, call: KernelCall) -> KernelCall:
        """Experts that are hit bound the call; its formula counts its own."""
        found = super().smallest(call)
        return found._replace(dims={name: value for name, value in found.dims.items() if name != "hits"})

    def prepare(self, call: KernelCall) -> KernelCall:
        """The call with `skew` and `gated` among its extents where its kernel's name states them."""
        if not call.kernel:
            return call
        stated = {name: call.dims["m"] * 0 + value for name, value in traits(call.kernel).items()}
        for start, shapes in TWO_MATRIX.items():
            for shape in shapes if call.kernel.startswith(start) else ():
                other = sum(abs(call.dims[name] - extent) for name, extent in zip(self.families, shape, strict=True))
                stated["gated"] = where(other == 0, 0.0, stated["gated"])
        return call._replace(dims={**stated, **call.dims})

    def variant(self, kernel: str) -> str:
        """The implementation; the distribution is an extent."""
        return implementation(kernel)

    def part(self, call: KernelCall) -> Share:
        """Rows and experts of the rank that is timed."""
        return share(call.dims["m"], call.dims["experts"], call.dims["topk"], call.dims.get("ep", 1), _skew(call))

    def even_hits(self, call: KernelCall) -> Num:
        """Experts of the rank that even loads hit: all, or one for each row."""
        ep = call.dims.get("ep", 1)
        return minimum(call.dims["experts"] / ep, call.dims["m"] * call.dims["topk"] / ep)

    def own_tokens(self, call: KernelCall) -> Num:
        """Tokens that the rank permutes and combines: with all ranks' tokens on each, all of them."""
        return call.dims["m"]

    def flops(self, call: KernelCall) -> Num:
        """An even share of the rows through one expert's matrices each."""
        return 2 * call.dims["m"] * call.dims["topk"] / call.dims.get("ep", 1) * _matrix(call)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The weights of the experts that an even router hits, where a graph counts them (`hits`); else as served."""
        hits = call.dims["hits"] if "hits" in call.dims else self.part(call).hits
        return hits * _matrix(call) * call.storage.weight

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The weights of as few experts as can take the rows, and tokens beyond the cache."""
        m, topk, ep = call.dims["m"], call.dims["topk"], call.dims.get("ep", 1)
        spread = self.even_hits(call)
        fewest = where(_skew(call) <= BALANCED, spread, topk / ep)
        moved = 2 * 2 * m * call.dims["hidden"] / ep
        most = spread * _matrix(call) * call.storage.weight
        weights = fewest * _matrix(call) * call.storage.weight * (1 - resident(call, most, machine))
        return weights + moved * (moved > machine.cache_bytes)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Partly overlapping grouped products, then what moves rows."""
        part, stored = self.part(call), call.storage
        strange = call.dims["m"] * call.dims["topk"] - part.rows
        padded = part.rows + part.hits * constants["tile"] + constants["foreign"] * strange
        compute = 2 * padded * _matrix(call) / (machine.matrix_flops(stored.compute) * constants["matrix"])
        read = part.hits * _matrix(call) * stored.weight * constants["rereads"]
        warm = 1 + (constants["warm"] - 1) * resident(call, read, machine)
        weights = read / (machine.bandwidth * constants["memory"] * warm)
        p = constants["overlap"]
        busy = compute**p + weights**p
        if "unpack" in constants and machine.units >= MANY:
            busy = busy + (part.hits * _matrix(call) / (constants["unpack"] * machine.cycles)) ** p
        products = busy ** (1 / p)
        touched = part.rows + constants["spread"] * strange
        inner = call.dims["inter"] / call.dims.get("tp", 1)
        moved = 2 * (touched * (2 * call.dims["hidden"] + 3 * inner) + 2 * self.own_tokens(call) * call.dims["hidden"])
        faster = 1 + (constants["cached"] - 1) * l2_hit_fraction(moved, machine)
        moves = moved / (machine.bandwidth * constants["stream"] * faster)
        return constants["floor_us"] * 1e-6 + products + moves

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of tokens, experts on the rank, rows per expert hit, width of an expert and bytes of weights read."""
        part = self.part(call)
        return {
            "m": log2(call.dims["m"]),
            "local": log2(call.dims["experts"] / call.dims.get("ep", 1)),
            "dense": log2(part.rows / part.hits),
            "inter": log2(call.dims["inter"] / call.dims.get("tp", 1)),
            "read": log2(part.hits * _matrix(call) * call.storage.weight),
            "skew": _skew(call),
        }


def _skew(call: KernelCall) -> Num:
    return call.dims.get("skew", SERVED)


def _matrix(call: KernelCall) -> Num:
    """Elements of one expert's matrices on this rank: up, down and, where gated, gate."""
    return (2 + call.dims.get("gated", 1)) * call.dims["hidden"] * call.dims["inter"] / call.dims.get("tp", 1)
