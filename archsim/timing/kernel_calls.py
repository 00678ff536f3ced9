"""How graph kernels map to the kernels that an engine really runs; no rule names a model.

1. Linear layers that read the same activation are one GEMM (QKV, gate and up), since engines store their weights side
   by side.
2. All expert GEMMs of a layer are one grouped GEMM, which also deals out the rows that the router has chosen, and
   applies the activation between its products.
3. Elementwise ops fuse into the preceding GEMM; norms, activations, RoPE and top-k are kernels of their own.
4. Products of one matrix per head (latent attention's absorption) are batched products; attention in which all tokens
   of a sequence see each other, without a cache, is an encoder's.
5. Causal convolutions of one mixer are one kernel over all their channels, which also activates its results.
6. The decodes of a step, with a few new tokens each (speculative verification), are one ragged attention kernel, and
   its prompts, or chunks of them, another. Decodes of several lengths are timed by their mean and the longest one;
   prompts by kind (`classes.call.Kind`).

Every extent of a call comes from the graph, and so do the bytes that it moves (`hbm_bytes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from types import MappingProxyType
from typing import Literal, NamedTuple

from archsim.base.number import Num, absent, everywhere, maximum, minimum, nearest
from archsim.counts.graph_counts import op_flops
from archsim.engines.overhead import COLLECTIVE_LIBRARY, ExpertExchange
from archsim.graph.collectives import COLLECTIVES
from archsim.graph.graph import Op
from archsim.graph.kernels import Kernel, Traffic, operand_of, product_of, weight_of
from archsim.graph.step import CAUSAL, Mask, Seqs, Step
from archsim.graph.tensor import Axes, Format, Tensor, Use, nbytes, numel
from archsim.timing.classes.call import STORED, KernelCall, Kind
from archsim.timing.device import DeviceRates
from archsim.timing.entry_calls import entry_attention_call, score_calls, stored_as
from archsim.timing.roofline import exchanged_bytes
from archsim.timing.stream_calls import STREAM_MAPS, stream_call

FREE = STREAM_MAPS | {
    "add", "scale", "clip", "mul", "gate", "softcap", "sigmoid", "dispatch", "combine", "concat", "tanh"
}  # fmt: skip
"""Maps that cost no launch of their own beside a product, a norm, the grouped kernel of experts or that of streams."""

VERIFIED = 16
"""New tokens of a sequence up to which they run in the decode kernel: drafts of speculative decoding are shorter."""

CONVOLUTION = "causal_conv"
"""The depthwise convolution along time that recurrent mixers begin with."""

SCANS = {"gated_delta": ("gdn_prefill", "gdn_decode")}
"""Scans with time models, by kind of kernel: of prompts, and of decodes."""

LARGEST = 512 * 512
"""Numbers of one head's matrix up to which heads run as a batched product; larger ones fill the device alone, as GEMMs
do.
"""


class FusedCall(NamedTuple):
    """Kernels of the graph (by position) that one implementation runs together, and the calls that it makes.

    main: calls that do the members' work between them; none where a class has no time model of its own (scans,
    convolutions). passes: elementwise kernels beside them, which perfect fusion would not launch.
    """

    members: list[int]
    main: list[KernelCall]
    passes: list[KernelCall]

    @property
    def calls(self) -> list[KernelCall]:
        """Everything that is launched."""
        return [*self.main, *self.passes]


class CallRules(NamedTuple):
    """What calls follow from beside the graph. step: of the rank's replica. fused_qkv, quantised_before, exchange,
    scans: of the engine's document.
    """

    step: Step
    machine: DeviceRates
    fused_qkv: bool = True
    quantised_before: Mapping[str, str] = MappingProxyType({})
    exchange: ExpertExchange = COLLECTIVE_LIBRARY
    scans: Literal["apart", "together"] = "apart"


def lower_to_calls(kernels: Sequence[Kernel], traffics: Sequence[Traffic], rules: CallRules) -> list[FusedCall]:
    """The calls of the kernels of a rank, each with its HBM traffic."""
    roles = roles_of(kernels)
    return [
        fused_call(members, [kernels[i] for i in members], [traffics[i] for i in members], rules, roles)
        for members in fused_members(kernels, rules.fused_qkv)
    ]


class Roles(NamedTuple):
    """Names of tensors whose neighbours decide what is launched. attended: what attention and scans write. normed:
    residual streams behind the norm that the kernel which mixes them does itself. experts: of rows that are dealt out
    or come back, the weight that multiplies them first or last. ranks: of rows that come from other ranks, how many
    ranks exchange them.
    """

    attended: set[str]
    normed: set[str]
    experts: Mapping[str, Tensor] = MappingProxyType({})
    ranks: Mapping[str, int] = MappingProxyType({})


def roles_of(kernels: Sequence[Kernel]) -> Roles:
    """The tensors of a rank's kernels that have a role."""
    attended = {use.tensor.name for kernel in kernels if kernel.kind for op in kernel.ops for use in op.writes}
    products = list(expert_products(kernels))
    experts = {op.writes[0].tensor.name: weight.tensor for op, weight in products}
    experts |= {operand_of(op).tensor.name: weight.tensor for op, weight in products}
    mixing = [kernel for kernel in kernels if any(op.fn == "hyper_collapse" for op in kernel.ops)]
    normed = {operand_of(p).tensor.name for k in mixing if (p := product_of(k)) is not None}
    ranks = {
        op.reads[0].tensor.name: op.attrs["group"] for kernel in kernels if (op := exchange_of(kernel)) is not None
    }
    return Roles(attended, normed, experts, ranks)


def exchange_of(kernel: Kernel) -> Op | None:
    """The collective that moves tokens to experts on other ranks or results back, where that is the kernel's work."""
    for op in kernel.ops:
        if op.kind == "collective" and "picks" in op.attrs:
            return op
    return None


def expert_products(kernels: Sequence[Kernel]) -> Iterator[tuple[Op, Use]]:
    """The products of routed experts, and their weights."""
    for product in filter(None, map(product_of, kernels)):
        weight = weight_of(product)
        if weight is not None and weight.tensor.role == "expert":
            yield product, weight


def fused_members(kernels: Sequence[Kernel], fused_qkv: bool = True) -> list[list[int]]:
    """Positions of the kernels that one implementation runs together."""
    gathered: dict[object, list[int]] = {}
    for position, kernel in enumerate(kernels):
        gathered.setdefault(fusion_key(kernel, fused_qkv) or position, []).append(position)
    return list(gathered.values())


def fused_call(
    members: list[int], together: list[Kernel], traffics: Sequence[Traffic], rules: CallRules, roles: Roles
) -> FusedCall:
    """The calls of kernels that run together."""
    moved = _sum(traffics)
    exchange = exchange_call(together[0], moved, rules, roles.experts)
    main = main_calls(together, moved, rules) if exchange is None else [exchange]
    passes = elementwise_calls(together, roles.normed)
    if not main and product_of(together[0]) is not None:  # no time model: a roofline of the whole, passes included
        passes = []
    elif passes and not main:  # the passes are all there is, and move at least what the kernel does
        passes = _with_traffic(passes, moved)
        main, passes = passes[:1], passes[1:]
    elif len(main) == 1 and main[0].kernel_class == "gemm":
        main = [_with_epilogue(main[0], together, moved, passes)]
    if main and together[0].product is not None:
        by = [_quantised_by(call, together, rules, roles.attended) for call in main]
        passes += [_rows_quantised(call) for call, how in zip(main, by, strict=True) if how == "rows"]
        main = [_with_quantising(call, how) for call, how in zip(main, by, strict=True)]
        main = [_after_exchange(call, together, rules.exchange, roles.ranks) for call in main]
    return FusedCall(members, main, passes)


def _sum(parts: Sequence[Traffic]) -> Traffic:
    """Traffic of several kernels."""
    if len(parts) == 1:
        return parts[0]
    return Traffic(*(sum(values) for values in zip(*parts, strict=True)))


def fusion_key(kernel: Kernel, fused_qkv: bool) -> object | None:
    """What kernels that run as one have in common; None for a kernel that runs alone."""
    product = product_of(kernel)
    if product is None or kernel.kind:
        return None
    weight = weight_of(product)
    if weight is None:
        return None
    if product.fn == CONVOLUTION:
        return (kernel.loop, CONVOLUTION, product.name.rpartition(".")[0])
    rows = _dispatched(kernel)
    if rows is not None or weight.tensor.role == "expert":
        return ("experts", (rows or weight).tensor.name.rsplit(".", 1)[0])
    if not fused_qkv or weight.tensor.role != "linear":
        return None
    return (kernel.loop, operand_of(product).tensor.name, weight.tensor.format.name, _summed(product, weight))


def _summed(op: Op, weight: Use) -> tuple[str, ...]:
    """Axes that a product sums over."""
    kept = op.writes[0].axes
    return tuple([axis for axis in weight.axes if axis not in kept and axis != "E"])


# ---------------------------------------------------------------------- the main call
def main_calls(kernels: list[Kernel], moved: Traffic, rules: CallRules) -> list[KernelCall]:
    """The calls of the kernels' own work; none where no time model fits."""
    first, step, machine = kernels[0], rules.step, rules.machine
    if first.kind == "attention":
        beside = _side_products(first, machine)
        held = sum(call.dims["hbm_bytes"] for call in beside)
        return [*_attention(first, moved._replace(weight=moved.weight - held), step), *beside]
    if first.kind in SCANS and not any(op.kind == "collective" for op in first.ops):
        return _delta_rule(first, moved, step, rules.scans)
    if first.kind:  # scans, with the sums over ranks inside them
        return []
    opening = next((op for op in first.ops if op.kind == "collective"), None)
    if opening is not None:
        return [_collective(opening, moved)]
    scored = score_calls(first, moved, step)
    if scored:
        return scored
    product = product_of(first)
    mixed = None if product is None else stream_call(first, moved, _product_dtype(product, machine))
    if mixed is not None:
        return [mixed]
    if product is not None and product.fn == CONVOLUTION:
        return _convolution(kernels, product, moved, step)
    if product is None or product.cls == "conv":
        return []
    weight = weight_of(product)
    if weight is None:
        return []
    if weight.tensor.role == "expert":
        return [_experts(kernels, product, weight, moved, machine)]
    rows = _dispatched(first)
    if rows is None or len(kernels) == 1:
        return [_gemm(kernels, product, weight, moved, machine)]
    return _routed_experts(kernels, moved, rules)


def _product_dtype(product: Op, machine: DeviceRates) -> str:
    """The kernel tables' name for what a product multiplies in."""
    weight = weight_of(product)
    return "bf16" if weight is None else table_dtype(weight.tensor.format, machine)


def _dispatched(kernel: Kernel) -> Use | None:
    """The rows that a router's kernel deals out to experts, one for each (token, expert) pair."""
    for op in kernel.ops:
        if op.fn == "dispatch":
            return op.writes[0]
    return None


def _routed_experts(kernels: list[Kernel], moved: Traffic, rules: CallRules) -> list[KernelCall]:
    """The router's GEMM, and the grouped kernel of the experts, which is the one that deals out the rows."""
    product = product_of(kernels[0])
    assert product is not None
    weight = weight_of(product)
    assert weight is not None
    own = Traffic(weight=nbytes(weight))
    rest = moved._replace(weight=moved.weight - own.weight)
    return [_gemm(kernels[:1], product, weight, own, rules.machine), *main_calls(kernels[1:], rest, rules)]


def _gemm(kernels: list[Kernel], product: Op, weight: Use, moved: Traffic, machine: DeviceRates) -> KernelCall:
    """Products side by side: their outputs add up. Axes that input, weight and output share are a batch."""
    read = operand_of(product)
    inner = _extent(weight.axes, _summed(product, weight))
    rows = prod([n for axis, n in read.axes.items() if axis not in weight.axes])
    outer = sum([numel(weight_of(product_of(k))) for k in kernels]) / inner  # type: ignore[arg-type]
    each, batched = moved.weight / (outer * inner), _batched(product, weight)
    heads = _extent(weight.axes, batched)
    width = outer / heads
    if batched and len(kernels) == 1 and everywhere(width * inner <= LARGEST):
        dims = {"m": rows, "n": width, "k": inner, "heads": heads, "hbm_bytes": moved.total}
        return _product_call("mla_bmm", weight.tensor.format, dims, each, machine)
    dims = {"m": rows, "n": outer, "k": inner, "hbm_bytes": moved.total}
    return _product_call("gemm", weight.tensor.format, dims, each, machine)


def _batched(op: Op, weight: Use) -> list[str]:
    """Axes that a product with weights keeps: every head has a matrix of its own for its own rows."""
    read, kept = operand_of(op).axes, op.writes[0].axes
    return [axis for axis in weight.axes if axis in read and axis in kept]


def _with_epilogue(call: KernelCall, kernels: list[Kernel], moved: Traffic, passes: list[KernelCall]) -> KernelCall:
    """A GEMM with the activations that its epilogue moves beside the product's own operand and results and those of the
    passes: residual streams, the routed experts' sum that shared experts are added to.
    """
    if absent(moved.act):
        return call
    products = [op for kernel in kernels if (op := product_of(kernel)) is not None]
    own = nbytes(operand_of(products[0])) + sum([nbytes(op.writes[0]) for op in products])
    own = own + sum([each.dims["read_bytes"] + each.dims["write_bytes"] for each in passes])
    return call._replace(dims={**call.dims, "epilogue_bytes": maximum(moved.act - own, 0)})


def _quantised_by(call: KernelCall, kernels: list[Kernel], rules: CallRules, attended: set[str]) -> str:
    """What writes the activations of a GEMM in the product's format: nothing, a `kernel` of its own, one that finds a
    scale for each of their `rows`, or what comes `before`. The engine's document says it of the weights' format, whose
    scheme decides it, or of all formats that tables have one word for. attended: what attention and scans write.
    """
    product = product_of(kernels[0])
    if call.kernel_class != "gemm" or product is None or not STORED[call.dtype].quantises:
        return ""
    weight, known = weight_of(product), rules.quantised_before
    by = known.get(call.dtype if weight is None else weight.tensor.format.name) or known.get(call.dtype, "kernel")
    if by == "passes":
        return "kernel" if operand_of(product).tensor.name in attended else "before"
    return "before" if by == "all" else by


def _rows_quantised(call: KernelCall) -> KernelCall:
    """The pass that finds a scale for each row of a GEMM's activations and writes them with it."""
    return KernelCall("quantize", "fp8", dims={"m": call.dims["m"], "n": call.dims["k"]})


def _with_quantising(call: KernelCall, by: str) -> KernelCall:
    """A GEMM with the pass that writes its activations in the product's format, where tables time it with the GEMM. by:
    as of `_quantised_by`.
    """
    return call._replace(dims={**call.dims, "quantise": 1}) if by == "kernel" else call


def _experts(kernels: list[Kernel], product: Op, weight: Use, moved: Traffic, machine: DeviceRates) -> KernelCall:
    """The grouped kernel of a layer's experts; m: tokens over all ranks that share the experts out. hidden: the width
    that experts work in, the model's or a latent's.
    """
    axes = weight.tensor.axes
    total, top_k = product.attrs["n_experts"], product.attrs["top_k"]
    ep = total / axes["E"]
    rows, hits = product.writes[0].axes["M"], weight.axes["E"]
    hidden = next(extent for axis, extent in axes.items() if axis not in ("E", "F"))
    dims = {
        "m": rows * ep / top_k, "experts": total, "topk": top_k, "hidden": hidden, "inter": axes["F"],
        "tp": 1, "ep": ep, "gated": len(kernels) - 2, "hits": hits, "hbm_bytes": moved.total,
    }  # fmt: skip
    each = moved.weight / (hits * len(kernels) * hidden * axes["F"])
    return _product_call("moe", weight.tensor.format, dims, each, machine)


def _product_call(
    kernel_class: str, stored: Format, dims: dict[str, Num], weight_bytes: Num, machine: DeviceRates
) -> KernelCall:
    """A call of a product with weights. weight_bytes: of one element with scales, biases and all else that is read
    beside it; stated where it is not the table's.
    """
    dtype = table_dtype(stored, machine)
    if not isinstance(weight_bytes, (int, float)) or weight_bytes != STORED[dtype].weight:
        dims["weight_bytes"] = weight_bytes
    return KernelCall(kernel_class, dtype, dims=dims)


def _convolution(kernels: list[Kernel], product: Op, moved: Traffic, step: Step) -> list[KernelCall]:
    """Causal convolutions side by side, whose channels add up: one call for sequences that go on by few tokens and one
    for prompts. That of a weight's gradient writes what others read.
    """
    products = [op for each in kernels if (op := product_of(each)) is not None]
    weights = [weight_of(op) or op.writes[0] for op in products]
    taps, rows = weights[0].axes["W"], operand_of(product).axes["T"]
    channels = sum([numel(use) for use in weights]) / taps
    flops = sum([op_flops(op) for each in kernels for op in _products(each)])
    rest = moved.total - moved.weight - moved.state

    def call(name: str, part: tuple[Seqs, ...]) -> KernelCall:
        batch, new, _, _ = _lengths(part)
        tokens, held = batch * new / step.tokens, moved.weight + moved.state * (batch / step.n_seqs)
        dims = {
            "m": rows * tokens, "n": channels, "k": taps, "batch": batch * rows / step.tokens, "seq_q": new,
            "flops": flops * tokens, "hbm_bytes": held + rest * tokens, "held_bytes": held,
        }  # fmt: skip
        return KernelCall(name, dims=dims)

    under_way, prompts = (tuple(s for s in step.seqs if _continues(s) == few) for few in (True, False))
    calls = [call("conv1d_decode", under_way)] if under_way else []
    if prompts:
        calls.append(_by_kind(prompts, lambda part: call("conv1d_prefill", part)))
    return calls


def _continues(s: Seqs) -> bool:
    """Whether sequences are under way and go on by few tokens, however long their past: only the taps' is kept."""
    return everywhere(s.new <= 1) or (everywhere(s.new <= VERIFIED) and everywhere(s.past > 0))


def _delta_rule(
    kernel: Kernel, moved: Traffic, step: Step, scans: Literal["apart", "together"] = "apart"
) -> list[KernelCall]:
    """One call for the decodes of a step and one for its prompts, which do the products of chunks. scans: of the
    engine's document. Decodes that run in the kernel of prompts are a chunk each there; their states are copied out of
    the cache before and back after. The last few tokens of a prompt are a prompt then, drafts that are verified run
    apart all the same.
    """
    uses = [use for op in kernel.ops for use in op.reads]
    state = next(use for use in uses if use.tensor.kind == "state")
    sequences, *heads, depth, width = state.axes
    keys = [_extent(u.axes, [a for a in heads if a in u.axes]) for u in uses if depth in u.axes and width not in u.axes]
    fixed = {
        "heads": _extent(state.axes, heads), "kv_heads": min(keys), "head_dim": state.axes[depth],
        "head_dim_v": state.axes[width],
    }  # fmt: skip
    share, flops = state.axes[sequences] / step.n_seqs, sum([op_flops(op) for op in _products(kernel)])

    def call(name: str, part: tuple[Seqs, ...]) -> KernelCall:
        batch, new, _, _ = _lengths(part)
        held, tokens = moved.state * (batch / step.n_seqs), batch * new / step.tokens
        dims = {
            **fixed, "batch": batch * share, "seq_q": new, "flops": flops * tokens, "state_bytes": held,
            "hbm_bytes": held + (moved.weight + moved.act) * tokens,
        }  # fmt: skip
        return KernelCall(name, dims=dims)

    decodes, prompts = _scanned(step, scans)
    for_prompts, for_decodes = SCANS[kernel.kind]
    calls = [call(for_decodes, decodes)] if decodes else []
    if decodes and prompts and scans == "together" and all(everywhere(s.new <= 1) for s in decodes):
        half = moved.state * (sum(s.batch for s in decodes) / step.n_seqs) / 2  # read, or written
        copy = KernelCall("elementwise", dims={"read_bytes": half, "write_bytes": half})
        calls = [call(for_prompts, decodes), copy, copy]
    if prompts:
        calls.append(_by_kind(prompts, lambda part: call(for_prompts, part)))
    return calls


def _scanned(step: Step, scans: Literal["apart", "together"]) -> tuple[tuple[Seqs, ...], tuple[Seqs, ...]]:
    """The sequences of a step whose scans go token by token, and those whose scans solve chunks."""
    together = scans == "together"
    one_by_one = [everywhere(s.new <= 1) or (s.absorbed if together else _decodes(s)) for s in step.seqs]
    by_way = list(zip(step.seqs, one_by_one, strict=True))
    return tuple(s for s, few in by_way if few), tuple(s for s, few in by_way if not few)


def _by_kind(prompts: tuple[Seqs, ...], call: Callable[[tuple[Seqs, ...]], KernelCall]) -> KernelCall:
    """The call of prompts, with those of their kinds where there are several. call: makes one of some sequences."""
    whole = call(prompts)
    if len(prompts) == 1:
        return whole
    batch = sum(s.batch for s in prompts)
    kinds = [Kind(s.batch / batch, call((s._replace(batch=batch),)), call((s,))) for s in prompts]
    return whole._replace(kinds=tuple(kinds))


def _collective(op: Op, moved: Traffic) -> KernelCall:
    """Tables state the bytes of the whole that is gathered, else of one rank's buffer."""
    ranks, read, kind = op.attrs["group"], op.reads[0], COLLECTIVES[op.fn]
    size = nbytes(read) * (ranks if kind.gathers else 1)
    dims = {"n_gpus": ranks, "bytes": size, "stride": op.attrs.get("stride", 1), "hbm_bytes": moved.total}
    return KernelCall(kind.kernel_class, read.tensor.format.name if read.tensor.format.bits < 12 else "bf16", dims=dims)


def exchange_call(kernel: Kernel, moved: Traffic, rules: CallRules, experts: Mapping[str, Tensor]) -> KernelCall | None:
    """How the engine moves tokens to experts on other ranks, or results back; None where the kernel does another thing,
    or where the engine leaves it to the all-to-all of the collective library. experts: as of `Roles`.
    """
    opening = exchange_of(kernel)
    if opening is None:
        return None
    ranks, stride, picks = (opening.attrs[name] for name in ("group", "stride", "picks"))
    rows, there = opening.reads[0], opening.attrs["exchange"] == "dispatch"
    tokens, hidden = rows.axes["M"] / picks, numel(rows) / rows.axes["M"]
    dims = {"n_gpus": ranks, "stride": stride, "hbm_bytes": moved.total}
    if ranks <= rules.exchange.gathered:
        whole = tokens * hidden * ranks * rows.tensor.format.bits / 8
        return KernelCall("nccl_all_gather" if there else "nccl_reduce_scatter", dims={**dims, "bytes": whole})
    if rules.exchange.kernels == "all_to_all":
        return None
    read = experts.get(rows.tensor.name)
    stored = STORED[table_dtype(read.format, rules.machine)] if there and read is not None else STORED["bf16"]
    dims |= {"m": tokens, "topk": picks, "hidden": hidden, "least_bytes": exchanged_bytes(opening)}
    if read is not None:
        dims["experts"] = read.axes["E"] * ranks
    return KernelCall("moe_dispatch" if there else "moe_combine", _sent_format(stored.read), dims=dims)


def _after_exchange(
    call: KernelCall, kernels: list[Kernel], exchange: ExpertExchange, ranks: Mapping[str, int]
) -> KernelCall:
    """Experts behind kernels that bring every rank the rows of its own experts alone: they need not look for them among
    the tokens of all ranks. ranks: as of `Roles`.
    """
    if call.kernel_class != "moe" or exchange.kernels == "all_to_all":
        return call
    rows = next((operand_of(op).tensor.name for op, _ in expert_products(kernels)), "")
    return call._replace(kernel_class="moe_wideep") if ranks.get(rows, 0) > exchange.gathered else call


def _sent_format(read: float) -> str:
    """The format in which tokens travel to products that read an element in so many bytes."""
    return "bf16" if read > 1.5 else "fp8" if read >= 1 else "nvfp4"


# ---------------------------------------------------------------------- attention
class AttentionSpec(NamedTuple):
    """What an attention kernel's products say, whatever sequences it runs on.

    heads, kv_heads: on this rank. score_dim, value_dim: elements that one query-key pair multiplies for its score, of
    all score products together, and for its value. latent: values are part of what keys are read from. shared_key: one
    part of the key is common to all heads, as in MLA with its latents expanded. pairs: query-key pairs of one head.
    entries: which entries of several tokens each are seen beside tokens. cache: what keys come from, where it is not
    their own tensor but joined from several.
    """

    query: Use
    key: Use
    mask: Mask | None
    heads: Num
    kv_heads: Num
    score_dim: Num
    value_dim: Num
    latent: bool
    shared_key: bool
    pairs: Num
    entries: Mask | None = None
    cache: Use | None = None

    @classmethod
    def of(cls, kernel: Kernel) -> AttentionSpec:
        """Read off the kernel's contractions: those over pairs give scores, the last one the values."""
        products = _products(kernel)
        scores, mixed = [op for op in products if "P" in op.writes[0].axes], products[-1]
        pair = scores[0].writes[0].axes
        (query, key), heads = scores[0].reads, [a for a in scores[0].reads[0].axes if a in pair]
        per_head = {tuple(a for a in op.reads[1].axes if a in pair) for op in scores}
        count = _extent(query.axes, heads)
        joined = [op.reads[0] for op in kernel.ops if op.fn == "join" and op.writes[0].tensor.name == key.tensor.name]
        depth = sum(prod(n for a, n in op.reads[0].axes.items() if a not in pair and a != "T") for op in scores)
        return cls(
            query=query, key=key, mask=next((op.attrs["mask"] for op in kernel.ops if "mask" in op.attrs), None),
            heads=count, kv_heads=_extent(key.axes, [a for a in key.axes if a in pair]),
            score_dim=depth,
            value_dim=prod(n for a, n in mixed.writes[0].axes.items() if a not in pair and a != "T"),
            latent=mixed.reads[1].tensor.name == key.tensor.name, shared_key=len(per_head) > 1, pairs=pair["P"],
            entries=next((op.attrs["entries"] for op in kernel.ops if "entries" in op.attrs), None),
            cache=joined[0] if joined else None,
        )  # fmt: skip

    @property
    def stored(self) -> Tensor:
        """The cache that keys come from, or the keys themselves."""
        return (self.cache or self.key).tensor

    @property
    def whole(self) -> bool:
        """Whether an entry that all heads share is key and value as it is, without a part that is only a key."""
        return (
            self.latent
            and not self.shared_key
            and everywhere(self.kv_heads == 1)
            and everywhere(self.score_dim == self.value_dim)
        )

    @property
    def at_once(self) -> bool:
        """Whether decodes and prompts of one form run in the same kernel: over latents, and over latents expanded."""
        return self.shared_key or (self.latent and not self.whole)

    def pairs_of(self, step: Step) -> Num:
        """Query-key pairs of a step."""
        near = step.pairs(self.mask or CAUSAL)
        return near if self.entries is None else near + step.pairs(self.entries)

    def read_of(self, step: Step) -> Num:
        """Tokens and entries that a step reads."""
        near = step.read(self.mask or CAUSAL)
        return near if self.entries is None else near + step.read(self.entries)

    @property
    def encodes(self) -> bool:
        """Whether all queries of a sequence see all its keys, and nothing is cached."""
        mask = self.mask
        open_to_all = mask is not None and not (mask.causal or mask.window or mask.top_k)
        return open_to_all and self.key.tensor.kind == "act" and not self.shared_key


def _products(kernel: Kernel) -> list[Op]:
    return [op for op in kernel.ops if op.kind == "contract"]


def _side_products(kernel: Kernel, machine: DeviceRates) -> list[KernelCall]:
    """Products inside attention that are not over pairs: scores with, and projections of, relative positions. They are
    GEMMs of their own, batched over the axes that both operands and the result share. A weight that several read (the
    table of positions) comes from HBM once.
    """
    calls, read = [], set[str]()
    for op in _products(kernel)[:-1]:
        if "P" in op.writes[0].axes:
            continue
        left, right = op.reads
        inner = _extent(left.axes, [a for a in left.axes if a in right.axes and a not in op.writes[0].axes])
        rows = _extent(left.axes, [a for a in left.axes if a not in right.axes])
        dtype = _product_dtype(op, machine)
        first = [use for use in op.reads if use.tensor.kind == "weight" and use.tensor.name not in read]
        read |= {use.tensor.name for use in first}
        dims = {
            "m": rows, "n": op_flops(op) / (2 * rows * inner), "k": inner, "hbm_bytes": sum(map(nbytes, first))
        }  # fmt: skip
        calls.append(KernelCall("gemm", dtype, dims=dims))
    return calls


def _attention(kernel: Kernel, moved: Traffic, step: Step) -> list[KernelCall]:
    """One ragged call for the decodes in the step and one for the prompts: they run in different kernels."""
    spec = AttentionSpec.of(kernel)
    if spec.encodes and not step.source:
        return [_attention_call(spec, (_own_sequences(spec),), {"pairs": spec.pairs, "hbm_bytes": moved.total})]
    parts = _ragged_parts(spec, step)
    whole = Step(seqs=tuple(s for part in parts for s in part), masked=step.masked)

    def call(part: tuple[Seqs, ...]) -> KernelCall:
        pairs, read, tokens = 1.0, 1.0, 1.0
        if part is not parts[0] or len(parts) > 1:
            own = replace(whole, seqs=part)
            pairs, read = spec.pairs_of(own) / spec.pairs_of(whole), spec.read_of(own) / spec.read_of(whole)
            tokens = own.tokens / whole.tokens
        dims = {
            "pairs": spec.pairs * pairs,
            "hbm_bytes": (moved.state + moved.weight) * read + moved.act * tokens,
            **({"kv_bytes": moved.state * read} if spec.stored.kind == "state" or spec.shared_key else {}),
        }
        return _attention_call(spec, part, dims)

    by_mean = [spec.latent or (_decodes(part[0]) and not spec.shared_key) for part in parts]
    return [call(part) if mean else _by_kind(part, call) for part, mean in zip(parts, by_mean, strict=True)]


def _attention_call(spec: AttentionSpec, part: tuple[Seqs, ...], counted: dict[str, Num]) -> KernelCall:
    """The call for sequences of one kind, by their mean lengths, and the longest one of decodes."""
    batch, new, length, longest = _lengths(part)
    mask, cache = spec.mask, stored_as(spec.stored)
    window = (mask.window or mask.chunk or mask.top_k) if mask is not None and not spec.encodes else 0
    counted = {"batch": batch, "heads": spec.heads, **counted}
    ragged = {} if longest is None else {"longest": longest}
    if spec.whole:
        masks = mask or CAUSAL, spec.entries
        return entry_attention_call(counted, (new, length), masks, spec.value_dim, cache)
    if spec.latent:
        seen = minimum(length, window * maximum(new, 1)) if window else length
        own = {"seq_kv": seen, "queries": new, "score_dim": spec.score_dim, "value_dim": spec.value_dim}
        return KernelCall("mla_decode", "bf16", cache, dims={**counted, **own, **ragged})
    if spec.shared_key:
        own = {"seq_q": new, "context": length, "score_dim": spec.score_dim, "value_dim": spec.value_dim}
        return KernelCall("mla_prefill", "bf16", cache, dims={**counted, **own})
    own = {
        "seq_q": new, "seq_kv": length, "kv_heads": spec.kv_heads, "head_dim": spec.score_dim,
        "head_dim_v": spec.value_dim, "causal": int(mask is not None and mask.causal), "window": window,
    }  # fmt: skip
    if spec.encodes:
        return KernelCall("attn_encoder", "bf16", cache, dims={**counted, **own})
    if _decodes(part[0]):
        return KernelCall("attn_decode", "bf16", cache, dims={**counted, **own, **ragged})
    return KernelCall("attn_prefill", "bf16", cache, dims={**counted, **own})


def _own_sequences(spec: AttentionSpec) -> Seqs:
    """The sequences of an encoder's attention by the kernel's own extents, as equal ones: convolutions, merges and
    class tokens before it change their lengths, and windows are sequences of their own.
    """
    length = spec.pairs / spec.query.axes["T"]
    count = spec.key.axes["C"] / length
    return Seqs(count, spec.query.axes["T"] / count, length - spec.query.axes["T"] / count)


def _lengths(part: tuple[Seqs, ...]) -> tuple[Num, Num, Num, Num | None]:
    """Sequences, their mean new tokens and mean length, and the longest length where they differ."""
    first = part[0]
    if len(part) == 1:
        return first.batch, first.new, first.past + first.new, None
    batch = sum(s.batch for s in part)
    longest = first.past + first.new
    for s in part[1:]:
        longest = maximum(longest, s.past + s.new)
    new, length = sum(s.batch * s.new for s in part), sum(s.batch * (s.past + s.new) for s in part)
    return batch, new / batch, length / batch, longest


def _decodes(s: Seqs) -> bool:
    """Whether sequences run in the decode kernel: one new token each, or a few after a past."""
    return everywhere(s.new <= 1) or (everywhere(s.new <= VERIFIED) and everywhere(s.past > s.new))


def _ragged_parts(spec: AttentionSpec, step: Step) -> list[tuple[Seqs, ...]]:
    """The sequences that the kernel runs on this rank, decodes and prompts apart. Where source and target differ, equal
    ones of the kernel's own extents; an encoder beside a shorter target has no share to go by.
    """
    if step.source:
        share = spec.query.axes["T"] / step.tokens
        count = maximum(1, nearest(step.n_seqs * minimum(share, 1)))
        new, length = spec.query.axes["T"] / count, spec.key.axes["C"] / count
        return [(Seqs(count, new, length - new),)]
    seqs = step.seqs
    if len({s.absorbed for s in seqs}) > 1 and spec.at_once:
        seqs = tuple(s for s in seqs if s.absorbed == spec.latent)
    share = spec.query.axes["T"] / sum(s.batch * s.new for s in seqs)
    local = [s._replace(batch=s.batch * share) for s in seqs]
    if spec.at_once:
        return [tuple(local)]
    parts = tuple(s for s in local if _decodes(s)), tuple(s for s in local if not _decodes(s))
    return [part for part in parts if part]


def _extent(axes: Axes, names: Iterable[str]) -> Num:
    return prod([axes[name] for name in names])


# ---------------------------------------------------------------------- elementwise kernels beside it
def elementwise_calls(kernels: list[Kernel], normed: Set[str] = frozenset()) -> list[KernelCall]:
    """Elementwise kernels of their own: one for each function that does not ride along. normed: as of `Roles`."""
    product = product_of(kernels[0])
    if kernels[0].kind or (product is not None and product.fn == CONVOLUTION):  # which activates what it writes
        return []
    alone = [
        op
        for kernel in kernels
        if not _of_experts(kernel)
        for op in kernel.ops
        if _runs_alone(op) and op.writes[0].tensor.name not in normed
    ]
    if not alone or any("keeps" in op.attrs for op in kernels[0].ops):  # scores, weighted and summed as they are made
        return []
    seen: dict[str, set[str]] = {}
    sides: dict[str, list[Num]] = {}
    for op in alone:
        names, sizes = seen.setdefault(op.fn or op.kind, set()), sides.setdefault(op.fn or op.kind, [0, 0])
        for side, uses in enumerate((op.reads, op.writes)):
            for use in uses:
                if use.tensor.kind == "act" and use.tensor.name not in names:
                    names.add(use.tensor.name)
                    sizes[side] = sizes[side] + nbytes(use)
    return [KernelCall("elementwise", dims={"read_bytes": r, "write_bytes": w}) for r, w in sides.values()]


def _of_experts(kernel: Kernel) -> bool:
    """Whether a kernel is part of the grouped one of experts, whose tables hold the activation between its products."""
    product = product_of(kernel)
    weight = None if product is None else weight_of(product)
    return weight is not None and weight.tensor.role == "expert"


def _runs_alone(op: Op) -> bool:
    """Whether an op is an elementwise kernel of its own: a lookup, or a map that does not ride along."""
    return op.kind == "gather" or (op.kind == "map" and op.fn not in FREE)


def _with_traffic(passes: list[KernelCall], moved: Traffic) -> list[KernelCall]:
    """The passes of a kernel without a product. The first also reads what none of them has counted (rows of a table,
    residual streams that ride along), and does the kernel's least work.
    """
    counted = sum(call.dims["read_bytes"] + call.dims["write_bytes"] for call in passes)
    first = dict(passes[0].dims)
    first["read_bytes"] = first["read_bytes"] + maximum(moved.total - counted, 0)
    return [passes[0]._replace(dims={**first, "hbm_bytes": moved.total}), *passes[1:]]


# ---------------------------------------------------------------------- formats
def table_dtype(stored: Format, machine: DeviceRates) -> str:
    """The kernel tables' name for a weight format as this device computes it."""
    computed = machine.computes(stored.compute)
    if computed in ("fp32", "tf32", "fp64"):
        return "fp32"
    if computed in ("bf16", "fp16"):
        return "bf16" if stored.bits > 12 else "int8_wo" if stored.bits > 6.5 else _four_bits(stored)
    if computed == "int8":
        return "int8_block" if max(stored.block) > 1 else "w8a8_sq"
    if computed == "fp8":
        eight = "fp8_block" if min(stored.block) > 1 else "fp8"
        return eight if stored.bits > 6.5 else _four_bits(stored, "w4a8_mxfp4_mxfp8")
    return "nvfp4" if stored.block[0] == 16 else "mxfp4"  # which the device may also multiply in wider formats


def _four_bits(stored: Format, activations: str = "w4a16_mxfp4") -> str:
    return activations if stored.block[0] == 32 and stored.scales == 1 else "int4_wo"
