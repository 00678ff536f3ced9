"""Linear layers in int8 on a processor, with activations quantised in each product (PyTorch's dynamic quantisation)."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import torch
from torch import Tensor

from archsim.backend.module import Net
from archsim.backend.packed import Linear, Packed, Product

HIGHEST = 127
"""Largest magnitude of a weight in steps of its output's scale."""
PER_OUTPUT = 8
"""Bytes of an output beside its weights: the scale, and their sum, which takes the activations' zero point off."""


class Int8Packed(Packed):
    """Weights of linear layers in int8, one scale an output; heads, experts and all else as they are."""

    def __init__(self, net: Net, release: bool = False) -> None:
        super().__init__(net, release)
        self._products: dict[tuple[tuple[str, ...], tuple[int, ...]], Product] = {}

    def product(self, group: Sequence[Linear], index: Mapping[str, int]) -> Product:
        """The product with one repetition; quantised where it is one of linear layers."""
        if any(part.op.reads[1].tensor.role != "linear" for part in group):
            return super().product(group, index)
        names = tuple(part.weight for part in group)
        key = names, tuple(index[loop] for loop in self.loops(names[0]))
        if key not in self._products:
            weight, bias = self.matrix(group, index), self.bias(group, index)
            self.saved_bytes += weight.nbytes - weight.numel() - PER_OUTPUT * weight.shape[0]
            self._products[key] = partial(_dynamic, _prepacked(weight, bias))
            self._drop_when_whole(names)
        return self._products[key]

    def _drop_when_whole(self, names: tuple[str, ...]) -> None:
        """The weights in fp32 go once each repetition has been quantised."""
        whole = self._whole[names]
        copies = prod(whole.shape[:-2])
        if self.release and sum(key[0] == names for key in self._products) == copies:
            del self._whole[names]
            for name in names:
                self._empty(name)


def _dynamic(weight: object, x: Tensor) -> Tensor:
    y: Tensor = torch.ops.quantized.linear_dynamic(x, weight)
    return y


def _prepacked(weight: Tensor, bias: Tensor | None) -> object:
    """A weight (outputs, inputs) in the layout of the library that multiplies. Raises RuntimeError where torch has none
    for this processor.
    """
    scales = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / HIGHEST
    origin = torch.zeros(len(scales), dtype=torch.long)  # of floats they would be zero points of another scheme
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch 2.13 has nothing else for products of this kind
        quantised = torch.quantize_per_channel(weight, scales, origin, 0, torch.qint8)
    return torch.ops.quantized.linear_prepack(quantised, bias)
