"""What a kernel is asked to do, in the terms that measurements of kernels are tabulated in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from archsim.base.number import Num


class Storage(NamedTuple):
    """How a kernel's operands are stored and multiplied.

    weight: bytes of one element with its scales. read: bytes of an activation as the kernel's product reads it.
    compute: the dtype whose peak it runs at. quantises: the kernel first writes its activations in `read` bytes.
    """

    weight: float
    read: float
    compute: str
    quantises: bool = False


STORED: Mapping[str, Storage] = {
    "fp32": Storage(4, 4, "fp32"),
    "bf16": Storage(2, 2, "bf16"),
    "fp16": Storage(2, 2, "bf16"),
    "fp8": Storage(1, 1, "fp8", quantises=True),
    "fp8_block": Storage(1 + 4 / 128**2, 1 + 4 / 128, "fp8", quantises=True),
    "w8a8_sq": Storage(1, 1, "int8", quantises=True),
    "int8_block": Storage(1, 1, "int8", quantises=True),
    "int8_wo": Storage(1, 2, "bf16"),
    "int4_wo": Storage(0.5 + 2 / 128, 2, "bf16"),
    "w4a16_mxfp4": Storage(0.5 + 1 / 32, 2, "bf16"),
    "mxfp4": Storage(0.5 + 1 / 32, 0.5 + 1 / 32, "fp4", quantises=True),
    "w4a8_mxfp4_mxfp8": Storage(0.5 + 1 / 32, 1 + 1 / 32, "fp8", quantises=True),
    "nvfp4": Storage(0.5 + 1 / 16, 0.5 + 1 / 16, "fp4", quantises=True),
    "nvfp4_wo": Storage(0.5 + 1 / 16, 2, "bf16"),
    "int8": Storage(1, 1, "int8"),
}
"""The number formats of kernel tables, by the name they go by there."""

BYTES: Mapping[str, float] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "": 2}
"""Bytes of one element of a cache or of a collective's payload."""


class KernelCall(NamedTuple):
    """One kernel call, or a table of them: extents are numbers or arrays of one length.

    kernel_class: as in kernel tables. dtype, kv_dtype: of weights and products, and of the cache. kernel: the
    implementation where it is known, else empty. dims: extents by the names of the table's columns. kinds: of one
    kernel over prompts of several lengths, whose dims are sums and means.
    """

    kernel_class: str
    dtype: str = "bf16"
    kv_dtype: str = ""
    kernel: str = ""
    dims: Mapping[str, Num] = {}
    kinds: tuple[Kind, ...] = ()

    @property
    def storage(self) -> Storage:
        """Operands of a matrix product; `weight_bytes` among the extents overrides the format's own."""
        known = STORED.get(self.dtype, STORED["bf16"])
        return known._replace(weight=self.dims["weight_bytes"]) if "weight_bytes" in self.dims else known

    @property
    def cache_bytes(self) -> float:
        """Bytes of one element of the KV cache."""
        return BYTES.get(self.kv_dtype or "bf16", 2)


class Kind(NamedTuple):
    """Equal prompts among those of one kernel. share: of its sequences. alike: the call if all of these were of this
    kind. alone: the call of this kind by itself.
    """

    share: Num
    alike: KernelCall
    alone: KernelCall
