"""What torch itself counts of the module: parameters, and FLOPs by the formulas of its own operators."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import prod
from typing import NamedTuple
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from archsim.backend.module import Encoded, Net, Rewrite, build
from archsim.backend.run import Cache
from archsim.graph.passes.checkpoint import recompute_of
from archsim.spec.model import Model

META = "meta"


def param_count(model: Model, parts: Collection[str] = ()) -> int:
    """Elements of all parameters, buffers left out."""
    return sum(p.numel() for p in build(model, META, parts=parts).parameters())


def flops_full(model: Model, batch: int, new: int, *, last: bool = True, parts: Collection[str] = ()) -> int:
    """FLOP of one forward pass over `batch` sequences of `new` tokens, counted operator by operator.

    Attention runs unfused, so every (query, key) pair counts. An encoder-decoder reads a source of
    `new` tokens as well.
    """
    return count_flops(build(model, META, parts=parts), batch, new, last=last)


def count_flops(net: Net, batch: int, new: int, cache: Cache | None = None, last: bool = True) -> int:
    """FLOP that torch counts while `net`, on the meta device, runs one step."""
    tokens = torch.zeros(batch, new, dtype=torch.long, device=META)
    fresh = cache is None or cache.length == 0
    source = net.source_of(tokens) if fresh else None
    with FlopCounterMode(display=False) as counter:
        net(tokens, cache=cache, source=source, last=last)
    return int(counter.get_total_flops())


def training_flops(
    model: Model, batch: int, new: int, trainable: Callable[[str], bool] = lambda _: True,
    parts: Collection[str] = (), rewrite: Rewrite | None = None,
) -> int:  # fmt: skip
    """FLOP that torch counts of one forward and backward pass over `batch` sequences of `new` tokens.

    trainable: whether a weight, by its name in the graph, is updated. The backward starts from given gradients of the
    outputs, as for a loss outside of the model. Of a convolution with groups, torch's own formula counts the backward
    as if every channel were connected with every other; here each gradient costs what the forward does.
    """
    net = build(model, META, parts=parts, rewrite=rewrite)
    for name, weight in net.weights().items():
        weight.requires_grad_(trainable(name) and isinstance(weight, nn.Parameter))
    ids = torch.zeros(batch, new, dtype=torch.long, device=META)
    formulas = {torch.ops.aten.convolution_backward: _convolution_backward}
    with torch.enable_grad(), FlopCounterMode(display=False, custom_mapping=formulas) as counter:
        output = net(ids, source=net.source_of(ids))
        if isinstance(output, Encoded):
            output = next(x for x in (output.logits, output.pooled, output.hidden) if x is not None)
        if output.requires_grad:
            output.sum().backward()
    return int(counter.get_total_flops())


def _convolution_backward(
    dy: Sequence[int], x: Sequence[int], w: Sequence[int], *arguments: object, **options: object
) -> int:
    """2 FLOP per output element and tap, for each of the gradients of input and weight that is asked for."""
    wanted = next(a for a in reversed(arguments) if isinstance(a, list) and len(a) == 3)
    return 2 * prod(dy) * prod(w[1:]) * sum(map(bool, wanted[:2]))


def saved_bytes(
    model: Model, dialect: str, batch: int, new: int, dtype: torch.dtype = torch.float32, parts: Collection[str] = ()
) -> dict[tuple[int, ...], int]:
    """Bytes that autograd keeps from the forward of a step with its loss to the backward, by the shapes kept.

    Every storage counts once; parameters and tables of positions do not count. What autograd has packed and dropped
    again before the forward ends (an indexer's scores, from which no gradient flows) does not count either.
    """
    net = build(model, "cpu", dtype, parts)
    net.dialect = dialect
    ids = torch.randint(model.vocab_size, (batch, new))
    packed: WeakSet[KeptTensor] = WeakSet()

    def pack(x: Tensor) -> KeptTensor:
        kept = KeptTensor(x)
        packed.add(kept)
        return kept

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept.x):
        output = net(ids, source=net.source_of(ids))
        logits = output.logits if isinstance(output, Encoded) else output
        assert logits is not None
        loss = functional.cross_entropy(logits.flatten(0, -2).float(), ids.flatten() * 1)
    del output, logits
    known = {_address(x) for x in (*net.weights().values(), *net.tables.values())}
    found: dict[int, tuple[tuple[int, ...], int]] = {}
    for kept in packed:
        if _address(kept.x) not in known:
            found[_address(kept.x)] = tuple(kept.x.shape), kept.x.untyped_storage().nbytes()
    sizes: dict[tuple[int, ...], int] = {}
    for shape, size in found.values():
        sizes[shape] = sizes.get(shape, 0) + size
    loss.backward()  # type: ignore[no-untyped-call]
    return sizes


class KeptTensor:
    """A tensor that autograd keeps."""

    def __init__(self, x: Tensor) -> None:
        self.x = x.detach()  # a result that its own gradient reads would keep itself alive


def _address(x: Tensor) -> int:
    return x.untyped_storage().data_ptr()


class StepBytes(NamedTuple):
    """Bytes alive behind the forward of a training step, and the most that are alive at once in it."""

    after_forward: int
    peak: int


def step_bytes(model: Model, dialect: str, batch: int, new: int, recompute: str = "none") -> StepBytes:
    """What PyTorch's MemTracker finds of a second AdamW step in fp32: parameters, gradients, both moments, what the
    backward needs and what it makes. Buffers, token ids, tables of positions, the loss and AdamW's step counts are left
    out. recompute: as `Net.recompute`.
    """
    from torch.distributed._tools.mem_tracker import MemTracker

    net = build(model, "cpu", stacked=False)
    net.dialect, net.recompute = dialect, recompute_of(recompute)
    ids = torch.randint(model.vocab_size, (batch, new))
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    tracker = MemTracker()
    tracker.track_external(net, optimizer, ids)

    def tracked(moment: str) -> int:
        return sum(int(found["Total"]) for found in tracker.get_tracker_snapshot(moment).values())

    after = peak = 0
    with torch.enable_grad(), tracker:
        for _ in range(2):
            tracker.reset_mod_stats()
            logits = net(ids)
            assert isinstance(logits, Tensor)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())
            del logits
            after = tracked("current")
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            peak = tracked("peak")
            optimizer.zero_grad()
    counts = 4 * len(list(net.parameters()))
    tables = sum(table.untyped_storage().nbytes() for table in net.tables.values())
    beside = counts + tables + sum(buffer.nbytes for buffer in net.buffers()) + ids.nbytes + loss.nbytes
    return StepBytes(after - beside, peak - beside)
