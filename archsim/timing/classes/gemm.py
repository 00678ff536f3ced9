"""Matrix products y[m, n] = x[m, k] w[k, n], in every weight format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from archsim.base.number import Num, ceil_div, log2, maximum, minimum
from archsim.timing.classes.call import STORED, KernelCall
from archsim.timing.classes.model import HOST, Constant, KernelModel, launched_from_host, resident
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

OUT = 2
"""Bytes of one output element."""

TILE = 128
"""Rows and columns of the output that one unit computes at a time (NVIDIA, "Matrix Multiplication Background")."""

UNITS = 100
"""Units of a device that lists none."""

MANY = 6
"""Units from which on a device's are alike enough for rates per unit and cycle."""

COPIES = 6
"""Copies of the weights that timing loops take in turn: they stay in the cache where all of them fit in it. Steps in
the time of skinny products at a sixth of the L40S's 96 MiB show it.
"""

QUANTISING: Mapping[str, Constant] = {"quantise_us": Constant(2.2, 0.5, 30.0), "quantise": Constant(0.8, 0.1, 4.0)}
"""Of the pass that writes a product's activations in its own format: the launches, and the share of memory bandwidth,
more than 1 where the last-level cache holds both sides."""

LIBRARIES = ("cublas/",)
"""Beginnings of kernel names that say where in a model a product stands, not how it is computed."""


class Gemm(KernelModel):
    """t = t0 + |arithmetic, memory, serial|_p: the three overlap in part; a large p is a hard roofline.

    matrix, memory: shares of the peaks that are reached. pad: fraction (0 to 1) of the padding of edge tiles that is
    computed. wave: fraction (0 to 1) of the idle SM time in the last wave that is actually lost (kernels choose among
    tiles and splits, so a part of either is avoided). step_ns: time of one step along k within a tile, which no
    parallelism shortens. warm: speed of the cache against memory. floor_us: ramp of one launch inside a captured
    graph. host_us: of the loop that timed a table's rows.

    Some engines have more: unpack: weights that a unit loads and unpacks in one cycle, where that holds a kernel back
    (llama.cpp's matrix-vector products on an A100). pass_rows: rows of one pass, each of which reads the weights.
    widen_rows: rows from which on weights are first widened to 16 bits in memory and multiplied there, with the share
    `widened` of the 16-bit peak (llama.cpp's switch from its own kernels to cuBLAS). vector_rows: rows up to which
    products without such a switch are sums of vectors; beyond, tiles of weights are loaded, unpacked and multiplied one
    after another, and shared by all units to the last (its MMVQ and MMQ with stream-k). Engines switch where the other
    kernel gains: a row takes no less before the switch than just after it.

    Rows in formats that quantise hold that pass too (`QUANTISING`), which a graph's call has by its extent `quantise`:
    1 where a kernel of its own does it, 0 where what comes before writes the product's format. The floor of these
    formats is that of 16-bit products of the same device and engine: rows cannot tell both apart.
    """

    kernel_class: ClassVar[str] = "gemm"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    optional: ClassVar[Mapping[str, float]] = {"warm": 0, "quantise": 0}
    shared_by_formats: ClassVar[tuple[str, ...]] = ("floor_us",)
    constants: ClassVar[Mapping[str, Constant]] = {
        "matrix": Constant(0.80, 0.2, 1.0),
        "memory": Constant(0.83, 0.2, 1.0),
        "overlap": Constant(2.4, 1.0, 8.0),
        "pad": Constant(0.5, 0.01, 1.0),
        "wave": Constant(0.5, 0.01, 1.0),
        "step_ns": Constant(0.3, 0.01, 20.0),
        "warm": Constant(2.0, 1.0, 6.0),
        "floor_us": Constant(3.0, 0.5, 10.0),
        "host_us": HOST,
    }
    extra: ClassVar[Mapping[str, Constant]] = {
        "unpack": Constant(20.0, 0.5, 200.0),
        "pass_rows": Constant(512.0, 1.0, 1e6),
        "widen_rows": Constant(64.0, 1.0, 1e6),
        "widened": Constant(0.5, 0.05, 1.0),
        "vector_rows": Constant(8.0, 1.0, 1e6),
        **QUANTISING,
    }
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = ((Axis("m", 0, 1, 16), Axis("n", 5, 1.5, 9), Axis("k", 5, 1.5, 9)),)
    options: ClassVar[Mapping[str, Any]] = {"ridge": 0.2, "bend": 1.0}
    families: ClassVar[tuple[str, ...]] = ("n", "k")
    rising: ClassVar[str] = "m"
    growths: ClassVar[tuple[Axis, ...]] = (Axis("m", 0, 1, 17),)
    in_step: ClassVar[Mapping[str, tuple[str, ...]]] = {"m": ("epilogue_bytes",)}

    def constants_of(self, dtype: str) -> Mapping[str, Constant]:
        """Formats that quantise have two more."""
        return {**self.constants, **QUANTISING} if STORED.get(dtype, STORED["bf16"]).quantises else self.constants

    def flops(self, call: KernelCall) -> Num:
        """2mnk."""
        return 2 * call.dims["m"] * call.dims["n"] * call.dims["k"]

    def operand_bytes(self, call: KernelCall) -> Num:
        """The weights once, with their scales and what else is stored beside them."""
        return call.dims["n"] * call.dims["k"] * call.storage.weight

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The weights once, and operands beyond the last-level cache."""
        m, n, k = (call.dims[name] for name in self.dims)
        moved, weights = m * (k * call.storage.read + n * OUT), self.operand_bytes(call)
        found = resident(call, COPIES * weights, machine)
        return weights * (1 - found) + moved * (moved > machine.cache_bytes)

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Three terms with partial overlap, a floor, and what an epilogue moves beside the product."""
        busy = _busy_by_rows(call, machine, constants)
        epilogue = call.dims.get("epilogue_bytes", 0) / (machine.bandwidth * constants["memory"])
        busy = busy + epilogue + call.dims.get("quantise", 0) * _quantising(call, machine, constants)
        return launched_from_host(call, constants["floor_us"] * 1e-6 + busy, constants.get("host_us", HOST.usual))

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of the three extents."""
        return {name: log2(call.dims[name]) for name in self.dims}

    def probe(self, like: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """The product of these extents, with weights from memory as in a model."""
        return like._replace(dims={name: 2 ** at[name] for name in self.dims})

    def prepare(self, call: KernelCall) -> KernelCall:
        """A kernel timed by itself may have found its weights in the cache, and quantises if its format does."""
        if not call.kernel:
            return call
        here = call.dims["m"] * 0 + 1.0
        return call._replace(dims={"warm": here, "quantise": here * call.storage.quantises, **call.dims})

    def regime(self, call: KernelCall, share: Num) -> Num:
        """By rows: one request's token, a batch's, a chunk of a prompt, whole prompts."""
        m = call.dims["m"]
        return (m > 16) * 1 + (m > 128) * 1 + (m > 1024) * 1

    def variant(self, kernel: str) -> str:
        """The implementation, where the name says one."""
        return "" if kernel.startswith(LIBRARIES) else kernel


def _busy_by_rows(call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
    """Seconds of the kernel that the engine has for so many rows: its own, or from `widen_rows` on the product in 16
    bits, or beyond `vector_rows` its own in tiles, whose work does not overlap.
    """
    name, m = next((name for name in ("widen_rows", "vector_rows") if name in constants), ""), call.dims["m"]
    if not name:
        return _busy(call, machine, constants)
    most = constants[name]
    own = _busy(call._replace(dims={**call.dims, "m": minimum(m, most)}), machine, constants)
    many = call._replace(dims={**call.dims, "m": maximum(m, most)})
    if name == "widen_rows":
        beyond = _widened(many, machine, constants)
    else:
        beyond = _busy(many, machine, {**constants, "overlap": 1.0, "wave": 0.0})
    return maximum(own, beyond * minimum(m / most, 1))


def _busy(call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
    """Seconds of arithmetic, traffic, the serial loop and unpacking, which overlap in part."""
    n, k, stored, p = call.dims["n"], call.dims["k"], call.storage, constants["overlap"]
    peak = machine.matrix_flops(stored.compute) * constants["matrix"]
    rows = minimum(call.dims["m"], constants.get("pass_rows", call.dims["m"]))
    once = call._replace(dims={**call.dims, "m": rows})
    compute = 2 * k * _outputs(once, machine, constants) * (call.dims["m"] / rows) / peak
    memory = _traffic(call, machine, constants["warm"], _passes(call, constants))
    memory = memory / (machine.bandwidth * constants["memory"])
    busy = compute**p + memory**p + (k * constants["step_ns"] * 1e-9) ** p
    if "unpack" in constants and machine.units >= MANY:
        busy = busy + (n * k / (constants["unpack"] * machine.cycles)) ** p
    return busy ** (1 / p)


def _widened(call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
    """Seconds of a product in 16 bits, after each pass has written its weights in 16 bits."""
    wide = call._replace(dtype="fp16", dims={name: call.dims[name] for name in ("m", "n", "k")})
    rates, each = {**constants, "matrix": constants["widened"]}, call.dims["n"] * call.dims["k"]
    written = each * (call.storage.weight + OUT) * _passes(call, constants)
    rates.pop("unpack", None)
    return written / (machine.bandwidth * constants["memory"]) + _busy(wide, machine, rates)


def _passes(call: KernelCall, constants: Mapping[str, float]) -> Num:
    """Passes over the weights: one, unless the engine cuts prompts into passes of so many rows."""
    return ceil_div(call.dims["m"], constants["pass_rows"]) if "pass_rows" in constants else 1


def _outputs(call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
    """Output elements computed: those asked for, with shares of what whole tiles and whole waves add."""
    m, n, units = call.dims["m"], call.dims["n"], machine.units or UNITS
    rows, columns = ceil_div(m, TILE), ceil_div(n, TILE)
    tiled = (m + (m > TILE) * (rows * TILE - m)) * (n + (n > TILE) * (columns * TILE - n))
    tiles = rows * columns
    idle = (tiles > units) * (ceil_div(tiles, units) * units / tiles - 1)
    return m * n + constants["pad"] * (tiled * (1 + constants["wave"] * idle) - m * n)


def _traffic(call: KernelCall, machine: DeviceRates, warm: float, passes: Num) -> Num:
    """Bytes, at the speed of memory: weights once a pass, operands and results."""
    m, n, k, stored = call.dims["m"], call.dims["n"], call.dims["k"], call.storage
    weights = n * k * stored.weight
    held = resident(call, COPIES * weights, machine)
    return weights * passes * (1 - held + held / warm) + m * (k * stored.read + n * OUT)


def _quantising(call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
    """Seconds of writing the activations in the product's format: 16 bits in, the format out, and the launches."""
    moved = call.dims["m"] * call.dims["k"] * (2 + call.storage.read)
    floor, share = (constants.get(name, QUANTISING[name].usual) for name in ("quantise_us", "quantise"))
    return floor * 1e-6 + moved / (machine.bandwidth * share)
