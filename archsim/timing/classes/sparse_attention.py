"""Kernels of sparse latent attention: an indexer's scores (`*_logits`), the selection of the best entries (`*_topk`)
and attention over what is selected (`dsa_attn`) or over compressed entries (`hca_attn`).

dsa: of DeepSeek-V3.2 and GLM-5, one entry a token. csa, hca: of DeepSeek-V4, an entry for 4 or 128 tokens. `seq_kv`
counts tokens throughout, `seq_q` of them new. A graph's call also states what it counts: `pairs` of a query and an
entry, `kv_bytes` of the cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from archsim.base.number import Num, ceil_div, log2, maximum, minimum
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant
from archsim.timing.classes.overlapped import TERMS, Overlapped, exponent
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

COUNTED = ("pairs", "scores", "flops", "kv_bytes", "places")
"""Extents of a graph's call that are counts of its own."""

SCORE = 4
"""Bytes of one score."""

UNITS = 100
"""Units of a device that lists none."""

WINDOW = 128
"""Tokens before a query that DeepSeek-V4 also attends to uncompressed."""


class RowTile(NamedTuple):
    """What a row of sparse attention is multiplied as. heads: to whose multiple its heads are padded. units: that work
    on one such tile together.
    """

    heads: int
    units: int


ROW_TILES: Mapping[int, RowTile] = {10: RowTile(128, 2)}
"""Tiles of FlashMLA's sparse kernel by major compute capability: engines pad the heads to 128 on data centre Blackwell,
where a cluster of two units shares a tile, elsewhere to 64 (SGLang, `required_padding` in `_forward_flashmla_sparse` of
srt/layers/attention/nsa_backend.py). Times rise by whole waves of such tiles: after 74 rows on a B200's 148 units,
after 132 on an H100's 132.
"""

HOPPER_TILE = RowTile(64, 1)
"""The tile elsewhere."""


def seen_entries(new: Num, length: Num, each: float = 1, most: Num | None = None) -> Num:
    """Entries, of `each` tokens, that all new tokens of a sequence see together, at most `most` each."""
    first, last = (length - new + 1) / each, length / each
    if most is None:
        return new * (first + last) / 2
    growing = minimum(maximum((most - first) * each, 0), new)
    return growing * (first + minimum(last, most)) / 2 + (new - growing) * minimum(most, last)


class SparseKernel(Overlapped):
    """What these kernels share; a row is one new token of one sequence."""

    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv")
    tokens_per_entry: ClassVar[float] = 1
    constants: ClassVar[Mapping[str, Constant]] = {
        **TERMS, "memory": Constant(0.5, 0.02, 1.0), "row_us": Constant(1.0, 0.01, 100.0),
    }  # fmt: skip
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("rows", 0, 1.5, 13), Axis("length", 0, 2, 11)),
        (Axis("batch", 0, 2, 6), Axis("rows", 0, 3, 7), Axis("length", 0, 4, 6)),
    )
    families: ClassVar[tuple[str, ...]] = ("batch", "seq_q")
    growths: ClassVar[tuple[Axis, ...]] = (Axis("batch", 0, 1, 13), Axis("seq_q", 0, 1, 18), Axis("past", 0, 1, 22))
    only_raised: ClassVar[tuple[str, ...]] = ("past",)

    def growth(self, call: KernelCall) -> Mapping[str, Num]:
        """log2 of sequences, of new tokens and of those before them, with one more."""
        past = maximum(call.dims["seq_kv"] - call.dims["seq_q"], 0)
        return {"batch": log2(call.dims["batch"]), "seq_q": log2(call.dims["seq_q"]), "past": log2(1 + past)}

    def smallest(self, call: KernelCall) -> KernelCall:
        """One token of one sequence; what a graph counts in place of the extents' own does not go along."""
        dims = {n: v for n, v in call.dims.items() if n not in (*COUNTED, "hbm_bytes")}
        return call._replace(dims={**dims, "batch": 1.0, "seq_q": 1.0, "seq_kv": 1.0})

    def grown(self, smallest: KernelCall, at: Mapping[str, Num]) -> KernelCall:
        """So many sequences and tokens."""
        new = 2.0 ** at["seq_q"]
        extents = {"batch": 2.0 ** at["batch"], "seq_q": new, "seq_kv": new + 2.0 ** at["past"] - 1}
        return smallest._replace(dims={**smallest.dims, **extents})

    def is_grown(self, call: KernelCall) -> bool:
        """Calls of a graph, which counts pairs and bytes, are like those of a table."""
        return not any(name in call.dims for name in COUNTED)

    def rows(self, call: KernelCall) -> Num:
        """New tokens of all sequences."""
        return call.dims["batch"] * call.dims["seq_q"]

    def scores(self, call: KernelCall) -> Num:
        """Entries that all rows look at, or the pairs that the graph counts."""
        if "pairs" in call.dims:
            return call.dims["pairs"]
        each = seen_entries(call.dims["seq_q"], call.dims["seq_kv"], self.tokens_per_entry)
        return call.dims["batch"] * each

    def chain_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """What a row costs its unit whatever its length."""
        return self.rows(call) / (machine.units or UNITS) * constants["row_us"] * 1e-6

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of rows, sequences and length."""
        rows, batch = exponent(self.rows(call)), exponent(call.dims["batch"])
        return {"rows": rows, "batch": batch, "length": exponent(call.dims["seq_kv"])}


class DsaLogits(SparseKernel):
    """The scores of all entries for every row, of `heads` index heads in 8 bits, written in 32."""

    kernel_class: ClassVar[str] = "dsa_logits"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "head_dim")

    def compute_dtype(self, call: KernelCall) -> str:
        """Queries and keys are stored in 8 bits, unless the graph keeps them in 16."""
        return "bf16" if call.kv_dtype == "bf16" else "fp8"

    def flops(self, call: KernelCall) -> Num:
        """2 for every index head and element of a pair."""
        return call.dims.get("flops", 2 * self.scores(call) * call.dims["heads"] * call.dims["head_dim"])

    def operand_bytes(self, call: KernelCall) -> Num:
        """The keys of all entries with their scales."""
        if "kv_bytes" in call.dims:
            return call.dims["kv_bytes"]
        entries = call.dims["batch"] * call.dims["seq_kv"] / self.tokens_per_entry
        return entries * (call.dims["head_dim"] + SCORE)

    def activation_bytes(self, call: KernelCall) -> Num:
        """Queries in, scores out."""
        written = call.dims.get("scores", self.scores(call))
        return self.rows(call) * call.dims["heads"] * call.dims["head_dim"] + written * SCORE


class CsaLogits(DsaLogits):
    """The same over entries of four tokens."""

    kernel_class: ClassVar[str] = "csa_logits"
    tokens_per_entry: ClassVar[float] = 4


class DsaTopk(SparseKernel):
    """The `topk` best of each row's scores: one pass over them, `close` times as long where they lie close together."""

    kernel_class: ClassVar[str] = "dsa_topk"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "topk")
    constants: ClassVar[Mapping[str, Constant]] = {**SparseKernel.constants, "close": Constant(2.0, 1.0, 5.0)}

    optional: ClassVar[Mapping[str, float]] = {"warm": 0, "ordered": 0}
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = (
        (Axis("ordered", 0, 1, 2), Axis("rows", 0, 1.5, 13), Axis("length", 10, 1, 11)),
        (Axis("batch", 0, 2, 6), Axis("rows", 0, 3, 7)),
    )

    def prepare(self, call: KernelCall) -> KernelCall:
        """Which scores it was timed on: `ordered` where the best stand last, else they all lie close together."""
        prepared = super().prepare(call)
        if not call.kernel:
            return prepared
        last = call.dims["batch"] * 0 + float(call.kernel.endswith("top_last"))
        return prepared._replace(dims={"ordered": last, **prepared.dims})

    def variant(self, kernel: str) -> str:
        """The implementation; the scores are an extent."""
        return kernel.partition("/")[0]

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """More passes over scores that lie close together."""
        plain = super().formula(call, machine, constants)
        return plain * (1 + (constants["close"] - 1) * (1 - call.dims.get("ordered", 0)))

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """Also which scores they are."""
        return {**super().coordinates(call, machine), "ordered": call.dims.get("ordered", 0)}

    def activation_bytes(self, call: KernelCall) -> Num:
        """Scores in, positions out."""
        return (self.scores(call) + self.rows(call) * call.dims["topk"]) * SCORE

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The scores beyond the last-level cache."""
        return maximum(self.scores(call) * SCORE - machine.cache_bytes, 0)


class CsaTopk(DsaTopk):
    """The same over entries of four tokens."""

    kernel_class: ClassVar[str] = "csa_topk"
    tokens_per_entry: ClassVar[float] = 4


class DsaAttn(SparseKernel):
    """Attention of every row over its own `topk` entries: kernels multiply all places, also those that are empty."""

    kernel_class: ClassVar[str] = "dsa_attn"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "head_dim", "topk")
    optional: ClassVar[Mapping[str, float]] = {"warm": 0, "rotary": 64}

    def compute_dtype(self, call: KernelCall) -> str:
        """Entries are unpacked to 16 bits."""
        return "bf16"

    def places(self, call: KernelCall) -> Num:
        """Places of one row that are multiplied."""
        return call.dims["topk"]

    def selected(self, call: KernelCall) -> Num:
        """Entries that all rows attend to."""
        if "pairs" in call.dims:
            return call.dims["pairs"]
        each = seen_entries(call.dims["seq_q"], call.dims["seq_kv"], 1, call.dims["topk"])
        return call.dims["batch"] * each

    def _pair(self, call: KernelCall) -> Num:
        """FLOP of one row and entry: a score over the whole entry, a sum over what is not rotary."""
        return 2 * call.dims["heads"] * self._widths(call)

    def _widths(self, call: KernelCall) -> Num:
        """Numbers of an entry that a score takes and of those that a sum does."""
        return call.dims["head_dim"] + maximum(call.dims["head_dim"] - call.dims.get("rotary", 64), 0)

    def flops(self, call: KernelCall) -> Num:
        """Entries that exist."""
        return self.selected(call) * self._pair(call)

    def computed_flops(self, call: KernelCall, machine: DeviceRates) -> Num:
        """All places of whole tiles of heads, in whole waves."""
        tile = ROW_TILES.get(machine.hardware.generation, HOPPER_TILE)
        tiles = self.rows(call) * ceil_div(call.dims["heads"], tile.heads)
        at_once = max((machine.units or UNITS) // tile.units, 1)
        whole = ceil_div(tiles, at_once) * at_once
        return whole * self.places(call) * 2 * tile.heads * self._widths(call)

    def activation_bytes(self, call: KernelCall) -> Num:
        """Queries and results. Entries come from the last-level cache while those before them are multiplied: a wave
        takes 63 us on an H100 and 36 on a B200, with 2,048 cached tokens as with a million.
        """
        return 2 * 2 * self.rows(call) * call.dims["heads"] * call.dims["head_dim"]

    def operand_bytes(self, call: KernelCall) -> Num:
        """What a graph's call reads of the cache."""
        return call.dims.get("kv_bytes", 0)

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """Queries and results beyond the last-level cache."""
        own = 2 * self.rows(call) * call.dims["heads"] * self._widths(call)
        return maximum(own - machine.cache_bytes, 0)


class HcaAttn(DsaAttn):
    """Attention over all compressed entries, of 128 tokens each, and the window. Where sequences have several new
    tokens, kernels gather the entries of one sequence after another first, each in `sequence_us` at the least.
    """

    kernel_class: ClassVar[str] = "hca_attn"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "head_dim")
    constants: ClassVar[Mapping[str, Constant]] = {**SparseKernel.constants, "sequence_us": Constant(1.0, 0.01, 20.0)}
    optional: ClassVar[Mapping[str, float]] = {"warm": 0, "rotary": 0}
    tokens_per_entry: ClassVar[float] = 128

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Also the sequences that are gathered."""
        gathered = call.dims["batch"] * (call.dims["seq_q"] > 1)
        return super().formula(call, machine, constants) + gathered * constants["sequence_us"] * 1e-6

    def computed_flops(self, call: KernelCall, machine: DeviceRates) -> Num:
        """All places."""
        return self.rows(call) * self.places(call) * self._pair(call)

    def activation_bytes(self, call: KernelCall) -> Num:
        """Also the entries gathered for each row, but for those that are read from HBM."""
        gathered = self.rows(call) * self.places(call) * call.dims["head_dim"] * call.cache_bytes
        return super().activation_bytes(call) + maximum(gathered - self.operand_bytes(call), 0)

    def _pair(self, call: KernelCall) -> Num:
        """FLOP of one row and entry."""
        return 4 * call.dims["heads"] * call.dims["head_dim"]

    def selected(self, call: KernelCall) -> Num:
        """Whole entries, and the tokens of the window that exist."""
        if "pairs" in call.dims:
            return call.dims["pairs"]
        window = call.dims["batch"] * seen_entries(call.dims["seq_q"], call.dims["seq_kv"], 1, WINDOW)
        return maximum(self.scores(call) - self.rows(call), 0) + window

    def places(self, call: KernelCall) -> Num:
        """Places of one row: the window's, and the entries."""
        if "places" in call.dims:
            return call.dims["places"]
        return WINDOW + call.dims["seq_kv"] / self.tokens_per_entry
