"""The number-format document: bytes per block, what it applies to, and what it computes in."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from archsim.graph.tensor import BF16, FP32, Format

Count = Annotated[int, Field(strict=True, gt=0)]


class FormatSpec(BaseModel):
    """A storage format. `bytes` hold `block[0]` elements along a weight's summed axis by `block[1]` across it,
    scales and zero points included. compute: dtype that the products run in. applies_to: tensor classes that
    `--weights` converts to it ("all", or some of linear, expert, head, embedding); the rest keep the model's
    own default. kv: usable as cache format.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    bytes: Count
    block: tuple[Count, Count] = (1, 1)
    compute: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"]
    applies_to: Literal["all"] | tuple[str, ...] = "all"
    kv: bool = False
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    def format(self) -> Format:
        """The format as graphs hold it."""
        if self.name == "bf16":
            return BF16
        if self.name == "fp32":
            return FP32
        return Format(name=self.name, bytes=self.bytes, block=self.block, compute=self.compute)


@lru_cache(maxsize=64)
def load_format(name: str) -> FormatSpec:
    """The format of a name, alias or path. Raises UnknownName, SpecError."""
    from archsim.spec import loader
    from archsim.spec.catalog import resolve

    document = loader.read(resolve("formats", name).path)
    return loader.validate(document, FormatSpec, document="format")
