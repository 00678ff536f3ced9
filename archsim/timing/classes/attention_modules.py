"""Whole attention blocks as engines run them (`*_module_prefill`, `*_module_decode`), composed of their parts.

A block is its projections, an indexer where it selects what it attends to, attention, and what moves activations
between them (norms, rotation, cache writes). Each part has its work and its share of a rate, so that rows of blocks
test the composition; a graph is priced by its own kernels instead. Few tokens take as long as the host needs to
launch the block, since these tables time it as the engine calls it.

Widths that tables do not state are those of the models, told apart by `hidden`: DeepSeek-V3 (arXiv:2412.19437) and
V3.2, GLM-5, DeepSeek-V4 Flash and MiniMax-M3 as transformers 5.23.0 configures them (models/deepseek_v32, glm_moe_dsa,
deepseek_v4, minimax_m3_vl). Of DeepSeek-V4 Pro it states heads and output groups; the rank of its queries, 1536, is
that of DeepSeek-V3 and stands in no source at hand.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from archsim.base.number import Num, log2, maximum, minimum, where
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.model import Constant, KernelModel, l2_hit_fraction, resident
from archsim.timing.classes.overlapped import exponent
from archsim.timing.classes.sparse_attention import SCORE, WINDOW, seen_entries
from archsim.timing.classes.surface import Axis
from archsim.timing.device import DeviceRates

LATENT, ROTARY = 512, 64
"""Widths of a cache entry of latent attention (arXiv:2405.04434, section 2.1)."""

SHARP = 4
"""Exponent of the smooth maximum of the host's time and the device's."""

BLOCK = 128
"""Tokens of a block that MiniMax-M3 keeps or drops as a whole."""

INDEX_WIDTH = 128
"""Width of an index head."""

DECODE_GRIDS = (
    (Axis("m", 0, 1, 11), Axis("length", 0, 2, 11)),
    (Axis("m", 0, 2, 6), Axis("heads", 0, 1.75, 5)),
    (Axis("heads", 0, 1.75, 5), Axis("length", 0, 4, 6)),
)

PREFILL_GRIDS = (
    (Axis("m", 0, 1, 18), Axis("heads", 0, 1.75, 5)),
    (Axis("m", 0, 2, 9), Axis("length", 0, 2, 11)),
    (Axis("seq", 0, 2, 8), Axis("past", 0, 2, 9)),
)


class Indexer(NamedTuple):
    """What finds the entries to attend to. flops: of scores in 8 bits. scores: of all rows. bytes: of keys."""

    flops: Num = 0
    scores: Num = 0
    bytes: Num = 0


class Attention(NamedTuple):
    """What attention does. flops: on 16-bit units. bytes: of the cache. least: FLOP that no kernel can do without.
    empty: FLOP of places that short contexts leave empty.
    """

    flops: Num
    bytes: Num
    least: Num
    empty: Num = 0


class AttentionModule(KernelModel):
    """t = |host, t0 + |projections|_2 + indexer + attention + moves|_4.

    linear, memory: shares of the peak and of the bandwidth that projections reach. matrix, cache: of attention; empty:
    share of the places without an entry that is multiplied. score, gather, select: of the indexer's products, its keys
    and the pass over its scores. stream: of the bandwidth, by what moves
    activations. ramp_us: launches one after another in a captured graph. launch_us: what the host needs to launch them.
    """

    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "hidden")
    optional: ClassVar[Mapping[str, float]] = {"warm": 0}
    constants: ClassVar[Mapping[str, Constant]] = {
        "linear": Constant(0.60, 0.05, 1.0),
        "memory": Constant(0.70, 0.1, 1.0),
        "matrix": Constant(0.40, 0.01, 1.0),
        "empty": Constant(0.1, 0.005, 1.0, start=0.3),
        "cache": Constant(0.50, 0.02, 1.0),
        "gather": Constant(0.30, 0.005, 1.0),
        "score": Constant(0.40, 0.01, 1.0),
        "select": Constant(0.40, 0.01, 1.0),
        "stream": Constant(0.30, 0.01, 1.0),
        "ramp_us": Constant(40.0, 2.0, 300.0),
        "launch_us": Constant(100.0, 2.0, 8000.0, start=1000.0),
    }
    families: ClassVar[tuple[str, ...]] = ("heads", "hidden")
    few: ClassVar[int] = 30
    shares: ClassVar[tuple[str, ...]] = ("linear", "matrix", "memory")

    def prepare(self, call: KernelCall) -> KernelCall:
        """A row of a table, which names its kernel, was timed over and over on the same weights."""
        if not call.kernel:
            return call
        one = call.dims["batch"] * 0 + 1.0
        skips = {"indexed": one * 0} if "skip_indexer" in call.kernel else {}
        return call._replace(dims={"warm": one, **skips, **call.dims})

    def variant(self, kernel: str) -> str:
        """The implementation; the model is told by its extents."""
        return kernel.partition("/")[0]

    @abstractmethod
    def weights(self, call: KernelCall) -> Num:
        """Elements of all projections of this rank."""

    @abstractmethod
    def attention(self, call: KernelCall) -> Attention:
        """The work of attention itself."""

    def indexer(self, call: KernelCall) -> Indexer:
        """The work of finding entries; none where all are attended to."""
        return Indexer()

    def new(self, call: KernelCall) -> Num:
        """New tokens of a sequence."""
        return call.dims["seq_q"]

    def tokens(self, call: KernelCall) -> Num:
        """New tokens of all sequences."""
        return call.dims["batch"] * self.new(call)

    def length(self, call: KernelCall) -> Num:
        """Tokens of a sequence, the new ones included."""
        return maximum(call.dims["seq_kv"], self.new(call))

    def pair_count(self, call: KernelCall, each: float = 1, most: Num | None = None) -> Num:
        """Entries that all new tokens see, at most so many each."""
        return call.dims["batch"] * seen_entries(self.new(call), self.length(call), each, most)

    def flops(self, call: KernelCall) -> Num:
        """Projections and attention."""
        return 2 * self.tokens(call) * self.weights(call)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The weights once."""
        return self.weights(call) * call.storage.weight

    def row_bytes(self, call: KernelCall, machine: DeviceRates) -> Num:
        """The weights beyond the last-level cache."""
        return maximum(self.operand_bytes(call) - machine.cache_bytes, 0)

    def bound(self, call: KernelCall, machine: DeviceRates) -> tuple[Num, Num, Num]:
        """Projections at their format's peak, then attention at the fastest one."""
        compute, memory, link = super().bound(call, machine)
        fastest = maximum(machine.matrix_flops("fp8"), machine.matrix_flops("bf16"))
        return compute + self.attention(call).least / fastest, memory, link

    def formula(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """The parts one after another, or the host where it takes longer."""
        work, found = self.attention(call), self.indexer(call)
        at = machine.bandwidth
        device = constants["ramp_us"] * 1e-6 + self._projections_s(call, machine, constants)
        multiplied = work.flops + constants["empty"] * work.empty
        device = device + multiplied / (machine.matrix_flops("bf16") * constants["matrix"])
        device = device + work.bytes / (at * constants["cache"])
        device = device + found.flops / (machine.matrix_flops("fp8") * constants["score"])
        device = device + found.bytes / (at * constants["gather"])
        device = device + found.scores * 2 * SCORE / (at * constants["select"])
        host = constants["launch_us"] * 1e-6
        return (host**SHARP + device**SHARP) ** (1 / SHARP)

    def _projections_s(self, call: KernelCall, machine: DeviceRates, constants: Mapping[str, float]) -> Num:
        """Seconds of products with weights, and of what moves activations between them. Of weights that are read in
        turn again and again, those beyond half of the last-level cache are gone when their turn comes.
        """
        stored, weights = call.storage, self.weights(call)
        compute = self.flops(call) / (machine.matrix_flops(stored.compute) * constants["linear"])
        read = weights * stored.weight * (1 - resident(call, 2 * weights * stored.weight, machine) / 2)
        memory = read / (machine.bandwidth * constants["memory"])
        moved = self.tokens(call) * (8 * call.dims["hidden"] + 4 * call.dims["heads"] * self.head_width(call))
        faster = 1 + l2_hit_fraction(moved, machine)
        moves = moved / (machine.bandwidth * constants["stream"] * faster)
        return (compute**2 + memory**2) ** 0.5 + moves

    def head_width(self, call: KernelCall) -> Num:
        """Elements of one head that elementwise kernels go over."""
        return LATENT

    def coordinates(self, call: KernelCall, machine: DeviceRates) -> Mapping[str, Num]:
        """log2 of tokens, length, heads, new tokens of a sequence, and how much longer it is."""
        new, length = self.new(call), self.length(call)
        return {
            "m": exponent(self.tokens(call)), "length": exponent(length), "heads": exponent(call.dims["heads"]),
            "seq": exponent(new), "past": log2(maximum(length / new, 1)),
        }  # fmt: skip


# ---------------------------------------------------------------------- latent attention
class Latent(NamedTuple):
    """Widths of a block of latent attention: of the query's latent, of a head without and of its value, index heads."""

    query: Num
    plain: Num
    value: Num
    index_heads: Num = 0


DEEPSEEK = Latent(1536, 128, 128, 64)
GLM = Latent(2048, 192, 256, 32)


class MlaModulePrefill(AttentionModule):
    """Latent attention over keys and values that are expanded from the latent."""

    kernel_class: ClassVar[str] = "mla_module_prefill"
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = PREFILL_GRIDS

    def shape(self, call: KernelCall) -> Latent:
        """Widths of the model."""
        return DEEPSEEK

    def weights(self, call: KernelCall) -> Num:
        """Down and up for queries, down and up for keys and values, and out."""
        width, heads, of = call.dims["hidden"], call.dims["heads"], self.shape(call)
        each = of.query * (of.plain + ROTARY) + LATENT * (of.plain + of.value) + of.value * width
        return width * (of.query + LATENT + ROTARY) + heads * each

    def head_width(self, call: KernelCall) -> Num:
        """Queries, keys and values of a head."""
        of = self.shape(call)
        return 2 * (of.plain + ROTARY) + 2 * of.value

    def attention(self, call: KernelCall) -> Attention:
        """Every pair; keys and values in 16 bits once."""
        of, heads = self.shape(call), call.dims["heads"]
        flops = 2 * heads * self.pair_count(call) * (of.plain + ROTARY + of.value)
        entries = call.dims["batch"] * self.length(call) * (LATENT + ROTARY) * call.cache_bytes
        return Attention(flops, entries, flops)


class MlaModuleDecode(MlaModulePrefill):
    """One new token of each sequence over the latent entries themselves."""

    kernel_class: ClassVar[str] = "mla_module_decode"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_kv", "heads", "hidden")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = DECODE_GRIDS

    def new(self, call: KernelCall) -> Num:
        """One."""
        return call.dims["seq_kv"] * 0 + 1

    def attention(self, call: KernelCall) -> Attention:
        """Scores over whole entries, sums over latents; every entry read once for all heads."""
        pairs = self.pair_count(call)
        flops = 2 * call.dims["heads"] * pairs * (2 * LATENT + ROTARY)
        return Attention(flops, pairs * (LATENT + ROTARY) * call.cache_bytes, flops)


class DsaModulePrefill(MlaModulePrefill):
    """The same with an indexer, which keeps `topk` entries for each query; attention over latents, gathered by row.

    indexed: 0 for layers that take the selection of a layer before.
    """

    kernel_class: ClassVar[str] = "dsa_module_prefill"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "hidden", "topk")
    optional: ClassVar[Mapping[str, float]] = {"warm": 0, "indexed": 1}

    def shape(self, call: KernelCall) -> Latent:
        """GLM-5 is narrower than DeepSeek-V3.2."""
        glm = call.dims["hidden"] < 7000
        return Latent(*(where(glm, a, b) for a, b in zip(GLM, DEEPSEEK, strict=True)))

    def weights(self, call: KernelCall) -> Num:
        """Also the indexer's queries, key and head weights."""
        of, width = self.shape(call), call.dims["hidden"]
        own = of.index_heads * INDEX_WIDTH * of.query + width * (INDEX_WIDTH + of.index_heads)
        return super().weights(call) + own * call.dims.get("indexed", 1)

    def indexer(self, call: KernelCall) -> Indexer:
        """Scores of all entries for every row."""
        pairs = self.pair_count(call) * call.dims.get("indexed", 1)
        keys = call.dims["batch"] * self.length(call) * (INDEX_WIDTH + SCORE) * call.dims.get("indexed", 1)
        return Indexer(2 * pairs * self.shape(call).index_heads * INDEX_WIDTH, pairs, keys)

    def attention(self, call: KernelCall) -> Attention:
        """The entries kept, in the absorbed form; short contexts may also be expanded, which is less."""
        heads, of = call.dims["heads"], self.shape(call)
        kept = self.pair_count(call, 1, call.dims["topk"])
        least = 2 * heads * kept * minimum(2 * LATENT + ROTARY, of.plain + ROTARY + of.value)
        pair, empty = 2 * heads * (2 * LATENT + ROTARY), self.tokens(call) * call.dims["topk"] - kept
        return Attention(pair * kept, kept * (LATENT + ROTARY) * call.cache_bytes, least, pair * empty)


class DsaModuleDecode(DsaModulePrefill):
    """One new token of each sequence."""

    kernel_class: ClassVar[str] = "dsa_module_decode"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_kv", "heads", "hidden", "topk")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = DECODE_GRIDS

    def new(self, call: KernelCall) -> Num:
        """One."""
        return call.dims["seq_kv"] * 0 + 1


# ---------------------------------------------------------------------- compressed attention
FLASH_HIDDEN = 5000
"""Width that parts the two models of DeepSeek-V4."""

GROUP_HEADS, GROUP_RANK = 8, 1024
"""Heads that share one low-rank output projection, and its rank."""


class HcaModulePrefill(AttentionModule):
    """DeepSeek-V4's heavily compressed attention: one head of keys and values, entries of 128 tokens and a window."""

    kernel_class: ClassVar[str] = "hca_module_prefill"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "head_dim", "hidden")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = PREFILL_GRIDS
    each: ClassVar[float] = 128
    streams: ClassVar[float] = 2

    def query_rank(self, call: KernelCall) -> Num:
        """Width of the query's latent."""
        return where(call.dims["hidden"] < FLASH_HIDDEN, 1024, 1536)

    def weights(self, call: KernelCall) -> Num:
        """Queries by a latent, keys and values, their compression, and grouped low-rank outputs."""
        width, heads, d = call.dims["hidden"], call.dims["heads"], call.dims["head_dim"]
        groups = maximum(heads / GROUP_HEADS, 1)
        query = self.query_rank(call) * (width + heads * d)
        return query + width * d * (1 + self.streams) + heads * d * GROUP_RANK + groups * GROUP_RANK * width

    def flops(self, call: KernelCall) -> Num:
        """Of queries and outputs, which are sure; compression is left to the formula."""
        width, heads, d = call.dims["hidden"], call.dims["heads"], call.dims["head_dim"]
        return 2 * self.tokens(call) * self.query_rank(call) * (width + heads * d)

    def operand_bytes(self, call: KernelCall) -> Num:
        """The weights of queries once."""
        width, heads, d = call.dims["hidden"], call.dims["heads"], call.dims["head_dim"]
        return self.query_rank(call) * (width + heads * d) * minimum(call.storage.weight, 1)

    def head_width(self, call: KernelCall) -> Num:
        """Queries and results of a head."""
        return 2 * call.dims["head_dim"]

    def compressed(self, call: KernelCall) -> Num:
        """Compressed entries that all rows attend to."""
        return maximum(self.pair_count(call, self.each) - self.tokens(call), 0)

    def attention(self, call: KernelCall) -> Attention:
        """Compressed entries and the window; a query and entry are multiplied twice."""
        seen = self.compressed(call) + self.pair_count(call, 1, WINDOW)
        pair = 4 * call.dims["heads"] * call.dims["head_dim"]
        entries = minimum(seen, call.dims["batch"] * (self.length(call) / self.each + WINDOW))
        empty = pair * maximum(self.tokens(call) * self.places(call) - seen, 0)
        return Attention(pair * seen, entries * call.dims["head_dim"] * call.cache_bytes, pair * seen, empty)

    def places(self, call: KernelCall) -> Num:
        """Places of one row: the window's, and the entries'."""
        return WINDOW + self.length(call) / self.each


class HcaModuleDecode(HcaModulePrefill):
    """One new token of each sequence."""

    kernel_class: ClassVar[str] = "hca_module_decode"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_kv", "heads", "head_dim", "hidden")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = DECODE_GRIDS

    def new(self, call: KernelCall) -> Num:
        """One."""
        return call.dims["seq_kv"] * 0 + 1


class CsaModulePrefill(HcaModulePrefill):
    """DeepSeek-V4's compressed sparse attention: entries of four tokens, of which an indexer keeps `topk`."""

    kernel_class: ClassVar[str] = "csa_module_prefill"
    dims: ClassVar[tuple[str, ...]] = (*HcaModulePrefill.dims, "topk")
    each: ClassVar[float] = 4
    streams: ClassVar[float] = 4
    index_heads: ClassVar[int] = 64

    def weights(self, call: KernelCall) -> Num:
        """Also the indexer's queries, keys and head weights."""
        own = self.index_heads * INDEX_WIDTH * self.query_rank(call)
        return super().weights(call) + own + call.dims["hidden"] * (4 * INDEX_WIDTH + self.index_heads)

    def indexer(self, call: KernelCall) -> Indexer:
        """Scores of all entries for every row."""
        pairs = self.pair_count(call, self.each)
        keys = call.dims["batch"] * self.length(call) / self.each * (INDEX_WIDTH + SCORE)
        return Indexer(2 * pairs * self.index_heads * INDEX_WIDTH, pairs, keys)

    def places(self, call: KernelCall) -> Num:
        """Places of one row: the window's, and those for the entries kept."""
        return WINDOW + call.dims["topk"]

    def compressed(self, call: KernelCall) -> Num:
        """Entries that are kept."""
        return maximum(self.pair_count(call, self.each, call.dims["topk"]) - self.tokens(call), 0)


class CsaModuleDecode(CsaModulePrefill):
    """One new token of each sequence."""

    kernel_class: ClassVar[str] = "csa_module_decode"
    dims: ClassVar[tuple[str, ...]] = (*HcaModuleDecode.dims, "topk")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = DECODE_GRIDS

    def new(self, call: KernelCall) -> Num:
        """One."""
        return call.dims["seq_kv"] * 0 + 1


# ---------------------------------------------------------------------- block-sparse attention
SHARING = 16
"""Query heads of one KV head of MiniMax-M3."""


class MsaModulePrefill(AttentionModule):
    """MiniMax-M3: grouped heads over blocks of 128 tokens, of which an index head for each KV head keeps as many as
    make up `topk` tokens.
    """

    kernel_class: ClassVar[str] = "msa_module_prefill"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_q", "seq_kv", "heads", "head_dim", "hidden", "topk")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = PREFILL_GRIDS

    def kv_heads(self, call: KernelCall) -> Num:
        """KV heads of this rank, at least one."""
        return maximum(call.dims["heads"] / SHARING, 1)

    def weights(self, call: KernelCall) -> Num:
        """Queries, keys, values and outputs; the index heads' own, 4 % of these, are left to the constants."""
        return 2 * call.dims["hidden"] * call.dims["head_dim"] * (call.dims["heads"] + self.kv_heads(call))

    def flops(self, call: KernelCall) -> Num:
        """Of queries and outputs, which are sure."""
        return 4 * self.tokens(call) * call.dims["hidden"] * call.dims["head_dim"] * call.dims["heads"]

    def head_width(self, call: KernelCall) -> Num:
        """Queries and results of a head."""
        return 2 * call.dims["head_dim"]

    def indexer(self, call: KernelCall) -> Indexer:
        """Scores of all tokens for every row and KV head, and their largest of each block. Keys are counted for each KV
        head of the rank, though all share one: with one KV head on a rank they are the same.
        """
        pairs, kv = self.pair_count(call), self.kv_heads(call)
        keys = call.dims["batch"] * self.length(call) * call.dims["head_dim"] * kv * call.cache_bytes
        return Indexer(2 * pairs * kv * call.dims["head_dim"], pairs * kv / BLOCK, keys)

    def attention(self, call: KernelCall) -> Attention:
        """The tokens of the blocks kept."""
        kept = self.pair_count(call, 1, call.dims["topk"])
        flops = 4 * call.dims["heads"] * call.dims["head_dim"] * kept
        entries = minimum(kept, call.dims["batch"] * self.length(call))
        held = 2 * entries * self.kv_heads(call) * call.dims["head_dim"] * call.cache_bytes
        each = 4 * call.dims["heads"] * call.dims["head_dim"]
        return Attention(flops, held, flops, each * (self.tokens(call) * call.dims["topk"] - kept))


class MsaModuleDecode(MsaModulePrefill):
    """One new token of each sequence."""

    kernel_class: ClassVar[str] = "msa_module_decode"
    dims: ClassVar[tuple[str, ...]] = ("batch", "seq_kv", "heads", "head_dim", "hidden", "topk")
    grids: ClassVar[tuple[tuple[Axis, ...], ...]] = DECODE_GRIDS

    def new(self, call: KernelCall) -> Num:
        """One."""
        return call.dims["seq_kv"] * 0 + 1
