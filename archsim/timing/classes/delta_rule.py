"""Delta rules: the gated one of Qwen3-Next and Qwen3.5 (`gdn_*`) and Kimi's, with a gate per channel (`kda_*`).

Every value head has a matrix state of head_dim x head_dim (arXiv:2412.06464, arXiv:2510.26692). A prefill runs in
chunks, whose states follow one another; a decode step reads and writes the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from archsim.base.number import Num, ceil_div, maximum, where
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant
from archsim.timing.classes.overlapped import TERMS, Overlapped, exponent
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

CHUNK = 64
"""Tokens that a prefill works on at once."""

STATE = 4
"""Bytes of one element of a state that is kept in 32 bits."""

NARROW = 2
"""Bytes where an engine keeps the state in 16 bits: the fewest that a table's row can mean."""

WORD = 2
"""Bytes of an activation."""


class DeltaRule(Overlapped):
    """What both phases share: a state per value head, and queries, keys, values and results in 16 bits.

    seq_q: new tokens of each of `batch` sequences. kv_heads: key heads, which groups of value heads share. gates: of a
    token and value head, 2 scalars or 1 and one for each channel.
    """

    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "heads", "kv_heads", "head_dim")
    families: ClassVar[tuple[str, ...]] = ("heads", "kv_heads")
    channel_gates: ClassVar[bool] = False
    growths: ClassVar[tuple[Axis, ...]] = (Axis("seq_q", 0, 1, 18), Axis("batch", 0, 1, 14))
    in_step: ClassVar[Mapping[str, tuple[str, ...]]] = {"batch": ("state_bytes",)}

    def smallest(self, call: KernelCall) -> KernelCall:
        """A graph's products are a part of their own."""
        found = super().smallest(call)
        return found._replace(dims={name: value for name, value in found.dims.items() if name != "flops"})

    def compute_dtype(self, call: KernelCall) -> str:
        """Products are taken in 16 bits."""
        return "bf16"

    def elements(self, call: KernelCall) -> Num:
        """Elements of all states."""
        return call.dims["batch"] * call.dims["heads"] * self.width(call)

    def width(self, call: KernelCall) -> Num:
        """Elements of one head's state."""
        return call.dims["head_dim"] * call.dims.get("head_dim_v", call.dims["head_dim"])

    def activation_bytes(self, call: KernelCall) -> Num:
        """Queries and keys of key heads, values, gates and results of value heads."""
        d, heads = call.dims["head_dim"], call.dims["heads"]
        gates = d if self.channel_gates else 2
        each = 2 * call.dims["kv_heads"] * d + heads * (2 * call.dims.get("head_dim_v", d) + gates)
        return call.dims["batch"] * call.dims["seq_q"] * each * WORD

    def state_bytes(self, call: KernelCall) -> Num:
        """The states in and out: the graph's own, else of the extents."""
        return call.dims.get("state_bytes", 2 * STATE * self.elements(call))

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """Activations, and the states once in the narrower format, beyond the last-level cache."""
        moved = DeltaRule.activation_bytes(self, call) + self.elements(call) * NARROW
        return maximum(moved - machine.cache_bytes, 0)


class GdnPrefill(DeltaRule):
    """The chunked scan: `extra` times the arithmetic of one state's products, and a chain of a step for each chunk of
    a sequence, `chunk_us` long.
    """

    kernel_class: ClassVar[str] = "gdn_prefill"
    constants: ClassVar[Mapping[str, Constant]] = {
        **TERMS, "floor_us": Constant(20.0, 2.0, 500.0), "chunk_us": Constant(1.5, 0.05, 30.0),
        "sequence_us": Constant(0.3, 0.005, 50.0),
    }  # fmt: skip
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("seq", 0, 1, 16), Axis("rows", 0, 1.5, 10)),
        (Axis("heads", 1, 1.2, 6), Axis("seq", 0, 3, 6)),
        (Axis("group", 0, 1, 4), Axis("m", 0, 3, 8)),
    )

    def flops(self, call: KernelCall) -> Num:
        """A prediction, a correction and a reading of the state for every token and head; a graph states its own."""
        return call.dims.get("flops", 6 * call.dims["seq_q"] * self.elements(call))

    def computed_flops(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The products of pairs inside chunks, which the scan adds; a chunk is computed whole."""
        tokens = ceil_div(call.dims["seq_q"], CHUNK) * CHUNK
        pairs = 8 * CHUNK * call.dims["head_dim"]
        return call.dims["batch"] * tokens * call.dims["heads"] * (6 * self.width(call) + pairs)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The states at both ends."""
        return self.state_bytes(call)

    def activation_bytes(self, call: KernelCall) -> Num:
        """Those of all chunks besides, written and read."""
        between = ceil_div(call.dims["seq_q"], CHUNK) - 1
        return super().activation_bytes(call) + self.elements(call) * 2 * WORD * between

    def chain_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The chunks of one sequence, one after another, and what is done for each sequence."""
        chunks = ceil_div(call.dims["seq_q"], CHUNK)
        heads = call.dims["batch"] * call.dims["heads"] / (machine.units or CHUNK)
        return (chunks * constants["chunk_us"] + heads * constants["sequence_us"]) * 1e-6

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of new tokens, sequences times heads, heads, value heads of a key head, and all tokens."""
        batch, s, heads = call.dims["batch"], call.dims["seq_q"], call.dims["heads"]
        return {
            "seq": exponent(s), "rows": exponent(batch * heads), "heads": exponent(heads),
            "group": exponent(heads / call.dims["kv_heads"]), "m": exponent(batch * s),
        }  # fmt: skip


class GdnDecode(DeltaRule):
    """The states of all sequences once in and once out; with drafts, one more out for each token that is verified."""

    kernel_class: ClassVar[str] = "gdn_decode"
    constants: ClassVar[Mapping[str, Constant]] = {**TERMS, "token_us": Constant(1.0, 0.02, 20.0)}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("states", 1, 1, 17), Axis("seq", 0, 1, 4)),
        (Axis("heads", 1, 1.2, 6), Axis("states", 1, 3, 6)),
    )

    def flops(self, call: KernelCall) -> Num:
        """Elementwise sums over the state, on the vector units; a graph may verify drafts by products."""
        return call.dims.get("flops", 0)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The states, in and out, and out again for every further token."""
        return self.state_bytes(call) + self.elements(call) * STATE * (call.dims["seq_q"] - 1)

    def held_bytes(self, call: KernelCall) -> Num:
        """One token's state is written where it was read; those of drafts stand beside it until one is taken."""
        return super().held_bytes(call) - where(call.dims["seq_q"] > 1, 0.0, self.state_bytes(call) / 2)

    def is_grown(self, call: KernelCall) -> bool:
        """A graph may verify drafts by products, which tables do not know."""
        return "flops" not in call.dims

    def chain_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Tokens of a sequence, one after another."""
        return call.dims["seq_q"] * constants["token_us"] * 1e-6

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of states, new tokens and heads."""
        states = exponent(call.dims["batch"] * call.dims["heads"])
        return {"states": states, "seq": exponent(call.dims["seq_q"]), "heads": exponent(call.dims["heads"])}


class KdaPrefill(GdnPrefill):
    """The chunked scan with a gate for each channel."""

    kernel_class: ClassVar[str] = "kda_prefill"
    channel_gates: ClassVar[bool] = True


class KdaDecode(GdnDecode):
    """One step, or the verification of drafts, with a gate for each channel."""

    kernel_class: ClassVar[str] = "kda_decode"
    channel_gates: ClassVar[bool] = True
