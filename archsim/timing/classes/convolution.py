"""Causal depthwise convolutions of linear attention and state-space layers (`conv1d_prefill`, `conv1d_decode`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, maximum
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant
from archsim.timing.classes.overlapped import TERMS, Overlapped, exponent
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates
from archsim.timing.roofline import Work

UNITS = 100
"""Units of a device that lists none."""

WORD = 2
"""Bytes of an activation, and of a kept input."""


class Conv1dPrefill(Overlapped):
    """m tokens of n channels in and out; the k - 1 inputs that the state keeps of each sequence are read and written.

    The products are few. Each channel of each sequence costs `row_ns` of a unit, which rules where sequences are short.
    host_us: what the loop that timed a table's rows does on the host before each launch. (vLLM's causal_conv1d_fn
    counts the blocks of all sequences there where it is not given them: half a millisecond of every call by itself, and
    once a step in a server.)
    """

    kernel_class: ClassVar[str] = "conv1d_prefill"
    dims: ClassVar[tuple[str, ...]] = ("m", "n", "k", "batch", "seq_q")
    constants: ClassVar[Mapping[str, Constant]] = {
        **TERMS, "floor_us": Constant(6.0, 0.5, 100.0), "row_ns": Constant(1.0, 0.01, 500.0),
        "host_us": Constant(0.1, 0.1, 2000.0),
    }  # fmt: skip
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("rows", 9, 1, 14), Axis("seq", 0, 1, 16)),
        (Axis("n", 9, 1.25, 6), Axis("seq", 0, 3, 6)),
    )
    families: ClassVar[tuple[str, ...]] = ("n", "batch")
    serial: ClassVar[tuple[str, ...]] = ("row_ns",)
    growths: ClassVar[tuple[Axis, ...]] = (Axis("seq_q", 0, 1, 18), Axis("batch", 0, 1, 14))

    def smallest(self, call: KernelCall) -> KernelCall:
        """One token of one sequence; kept inputs as the extents say them."""
        dims = {n: v for n, v in call.dims.items() if n not in ("hbm_bytes", "flops", "held_bytes")}
        each = call.dims["m"] / (call.dims["batch"] * call.dims["seq_q"])
        return call._replace(dims={**dims, "m": each, "batch": 1.0, "seq_q": 1.0})

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """So many sequences and tokens."""
        batch, new = 2.0 ** at["batch"], 2.0 ** at["seq_q"]
        tokens = smallest.dims["m"] * batch * new
        return smallest._replace(dims={**smallest.dims, "m": tokens, "batch": batch, "seq_q": new})

    def is_grown(self, call: KernelCall) -> bool:
        """Whether no graph counts what is kept."""
        return "held_bytes" not in call.dims

    def flops(self, call: KernelCall) -> Num:
        """No matrix unit is involved, and the taps are little work for the vector units."""
        return 0

    def minimum_work(self, call: KernelCall, machine: DeviceRates) -> Work:
        """A graph's call states the taps' arithmetic (`flops`), which vector units do."""
        return super().minimum_work(call, machine)._replace(conv_flops=call.dims.get("flops", 0))

    def operand_bytes(self, call: KernelCall) -> Num:
        """The taps of every channel, and the kept inputs: the graph's own (`held_bytes`), else by the extents."""
        stated = call.dims.get("held_bytes")
        if stated is not None:
            return stated
        kept = 2 * call.dims["batch"] * call.dims["n"] * (call.dims["k"] - 1) * WORD
        return call.dims["n"] * call.dims["k"] * WORD + kept

    def activation_bytes(self, call: KernelCall) -> Num:
        """Every channel of every token in and out; more where a graph states what is added to it or kept beside it."""
        own, stated = 2 * call.dims["m"] * call.dims["n"] * WORD, call.dims.get("hbm_bytes")
        if stated is None or "held_bytes" not in call.dims:
            return own
        return maximum(own, stated - call.dims["held_bytes"])

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """Tokens alone: whether a table's row keeps inputs is not stated."""
        return maximum(self.activation_bytes(call) - machine.cache_bytes, 0)

    def chain_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """What is done once for each channel of each sequence, over the device's units."""
        rows = call.dims["batch"] * call.dims["n"] / (machine.units or UNITS)
        return rows * constants["row_ns"] * 1e-9

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The main loop over the floor, after what a table's loop does on the host."""
        host = call.dims.get("warm", 0) * constants["host_us"] * 1e-6
        return super().formula(call, machine, constants) + host

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of sequences times channels, channels, and new tokens of a sequence."""
        rows = exponent(call.dims["batch"] * call.dims["n"])
        return {"rows": rows, "n": exponent(call.dims["n"]), "seq": exponent(call.dims["seq_q"])}


class Conv1dDecode(Conv1dPrefill):
    """One or a few new tokens of each sequence."""

    kernel_class: ClassVar[str] = "conv1d_decode"
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("rows", 9, 1, 18), Axis("seq", 0, 1, 4)),
        (Axis("n", 9, 1.25, 6), Axis("rows", 9, 3, 7)),
    )
