"""What torch itself counts of the module: parameters, and FLOPs by the formulas of its own operators."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch.utils.flop_counter import FlopCounterMode

from archsim.backend.module import Net, build
from archsim.backend.run import Cache
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
    source = tokens if net.model.encoder is not None and fresh else None
    with FlopCounterMode(display=False) as counter:
        net(tokens, cache=cache, source=source, last=last)
    return int(counter.get_total_flops())
