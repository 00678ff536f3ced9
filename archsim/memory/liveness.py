"""Peak activation memory by liveness: what is alive while each kernel runs."""

from __future__ import annotations

from archsim.base.number import Num, maximum
from archsim.graph.graph import Block
from archsim.graph.kernels import kernels_with_edges
from archsim.graph.tensor import Use, nbytes


def peak_activation_bytes(graph: Block) -> Num:
    """The largest sum of live activations over the kernels of one step.

    A tensor lives from the kernel that writes it to the last one that reads it; a loop is walked once, what it
    reads from outside living to its end. Not for polynomials: it compares sizes.
    """
    sequence = [kernel for kernel, _ in kernels_with_edges(graph)]
    crossing = [uses for _, uses in kernels_with_edges(graph)]
    last: dict[str, int] = {}
    loops: dict[str, int] = {k.loop: i for i, k in enumerate(sequence)}
    for i, uses in enumerate(crossing):
        for use in uses:
            end = loops[sequence[i].loop] if _enters(use.tensor.name, sequence[i].loop) else i
            last[use.tensor.name] = max(last.get(use.tensor.name, 0), end)
    return _scan(crossing, last)


def _enters(name: str, loop: str) -> bool:
    """Whether a tensor comes from outside the loop that reads it."""
    return bool(loop) and not name.startswith(loop + ".")


def _scan(crossing: list[list[Use]], last: dict[str, int]) -> Num:
    live: dict[str, Num] = {}
    peak: Num = 0
    for i, uses in enumerate(crossing):
        for use in uses:
            if use.tensor.kind == "act":
                live[use.tensor.name] = nbytes(use)
        peak = maximum(peak, sum(live.values()))
        for name in [n for n in live if last[n] <= i]:
            del live[name]
    return peak
