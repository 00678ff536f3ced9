"""Calls that mix residual streams (hyper-connections) into a block's input."""

from __future__ import annotations

from archsim.counts.graph_counts import op_flops
from archsim.graph.kernels import Kernel, Traffic
from archsim.graph.tensor import numel
from archsim.timing.classes.call import KernelCall
from archsim.timing.classes.hyper_connections import MhcPre

STREAM_MAPS = frozenset({"hyper_collapse", "hyper_mixing", "hyper_expand"})
"""What these kernels do with streams beside their products; the matrix of a site is made where its input is."""


def stream_call(kernel: Kernel, moved: Traffic, dtype: str) -> KernelCall | None:
    """The call that makes a block's input of the streams at one site; None for other kernels. dtype: of its projection.

    What adds a block's result to the streams has no call: the graph's kernel also writes the streams behind the norm of
    the next site, which kernels of that class do not.
    """
    for op in kernel.ops:
        if op.fn == "hyper_collapse":
            streams, one = op.reads[0], op.writes[0]
            rows = one.axes["T"]
            flops = sum([op_flops(each) for each in kernel.ops if each.kind == "contract"])
            dims = {
                "m": rows, "k": numel(streams) / numel(one), "hidden": numel(one) / rows, "sites": 1, "flops": flops,
                "hbm_bytes": moved.total,
            }  # fmt: skip
            return KernelCall(MhcPre.kernel_class, dtype, dims=dims)
    return None
