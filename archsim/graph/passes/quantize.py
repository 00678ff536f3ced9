"""Storage formats for weights, caches and activations, chosen by tensor class."""

from __future__ import annotations

from collections.abc import Mapping

from archsim.graph.graph import NOTHING, Block, map_tensors
from archsim.graph.tensor import BF16, FP32, Format, Tensor

DEFAULT = "default"
"""The class that every weight without an entry of its own takes."""


def weight_format(tensor: Tensor, weights: Mapping[str, Format], tensors: Mapping[str, Format] = NOTHING) -> Format:
    """The format that a weight is stored in. weights, tensors: see `quantize`."""
    return tensors.get(tensor.name) or weights.get(tensor.role, weights[DEFAULT])


def quantize(
    graph: Block,
    weights: Mapping[str, Format],
    kv: Format = BF16,
    activations: Format = BF16,
    tensors: Mapping[str, Format] = NOTHING,
) -> Block:
    """The graph with formats set.

    weights: format per tensor class (`Tensor.role`), with an entry "default"; vectors (norms, biases, scalars) only
    ever take a class entry of their own or the default. tensors: format per tensor name, before its class. kv: of
    caches that grow with tokens; recurrent states in fp32 stay so, other recurrent states take the activations' format.
    """

    if not tensors and all(f is BF16 for f in (*weights.values(), kv, activations)):
        return graph  # what a graph is built in

    def change(tensor: Tensor) -> Tensor:
        if tensor.kind == "weight":
            fmt = weight_format(tensor, weights, tensors)
        elif tensor.kind == "act":
            fmt = activations
        elif tensor.role == "recurrent":
            fmt = tensor.format if tensor.format is FP32 else activations
        else:
            fmt = kv
        return tensor if fmt is tensor.format else tensor.stored_as(fmt)

    return map_tensors(graph, change)
