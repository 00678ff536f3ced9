"""The number-format document: bytes per block, or a mixture of such formats, tensor by tensor."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

from archsim.base.diagnostics import quote
from archsim.base.errors import InvalidValue, UnknownName
from archsim.base.lazy_model import Field, LazyModel, model_validator
from archsim.graph.tensor import BF16, FP32, Format, mixed_format
from archsim.spec import loader
from archsim.spec.catalog import resolve
from archsim.spec.document_cache import DocumentCache

Count = Annotated[int, Field(strict=True, gt=0)]
BlockSide = Annotated[int, Field(strict=True, gt=0, le=65_536)]
Some = Annotated[int, Field(strict=True, ge=0)]

TensorClass = Literal[
    "token_embd", "output", "attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_up", "ffn_gate",
    "ffn_down", "expert", "other",
]  # fmt: skip
"""Classes of matrices, in llama.cpp's words; `expert` are all matrices of routed experts, whatever else they are."""

LAYERS = r"all|more_bits|inner|(first|middle) [0-9]{1,3}(/[0-9]{1,3})?"


class When(LazyModel):
    """What must hold of the model for a rule to apply. gqa: query heads per key/value head, of the first layer.
    experts: routed experts (exactly, or at least so many). size: 70b are 80 layers with grouped queries. divides:
    whether the block of the mixture's default divides the matrix' inner dimension. imatrix: importance matrix.
    """

    gqa_at_least: Count | None = None
    experts: Some | None = None
    experts_at_least: Count | None = None
    size: Literal["70b"] | None = None
    family: Literal["falcon"] | None = None
    divides: bool | None = None
    imatrix: bool | None = None


class Rule(LazyModel):
    """Matrices of some classes, in some layers, take the format `use`; of several rules that fit, the first.

    layers: `first 4`, `first 1/8` (of all layers), `middle 1/8` (all but the first and last eighth), `inner` (all but
    the first and the last) or `more_bits`, llama.cpp's choice: the first and last eighth, and every third between.
    """

    tensors: tuple[TensorClass, ...]
    layers: Annotated[str, Field(pattern=f"^({LAYERS})$")] = "all"
    when: When = When.model_construct()
    use: str


class Mixture(LazyModel):
    """A file type that stores matrices in several formats. default: where no rule fits. vectors: of norms, biases,
    routers and other small tensors. kept: of matrices that are never converted. keeps: formats that experts keep
    where a model is published in them. needs_imatrix: it cannot be made without an importance matrix.
    """

    default: str
    vectors: str
    kept: str = "fp16"
    keeps: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    needs_imatrix: bool = False


class FormatSpec(LazyModel):
    """A storage format. `bytes` hold `block[0]` elements along a weight's summed axis by `block[1]` across it,
    scales and zero points included (`scales` bytes of them, kept whole where a row ends inside a block, while the
    elements are not filled up; 0: blocks are filled up); per_output, per_input and per_matrix are bytes beside
    the blocks, per_vector beside each head of a token in a cache. compute: dtype that the products run in.
    applies_to: tensor classes that `--weights` converts to it ("all", or some of linear, expert, head, embedding); the
    rest keep the model's own default. kv: usable as a cache.
    fallback: format of rows that the block does not divide, where such rows are not padded. mixture: instead
    of bytes, which other format each tensor takes. engine: the one that files in this format are made for, by the name
    of its document; empty where any engine may have kernels for it. without_experts: of a format for experts alone, the
    one that holds all linear weights of a model without experts in such numbers. others: format of what is not
    converted, where it does not stay in the model's own.
    """

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    bytes: Count | None = None
    block: tuple[BlockSide, BlockSide] = (1, 1)
    scales: Some = 0
    per_output: Some = 0
    per_input: Some = 0
    per_matrix: Some = 0
    per_vector: Some = 0
    compute: Literal["fp32", "bf16", "fp16", "fp8", "int8", "int4", "fp4"]
    applies_to: Literal["all"] | tuple[str, ...] = "all"
    kv: bool = False
    fallback: str | None = None
    mixture: Mixture | None = None
    engine: str = ""
    without_experts: str = ""
    others: str = ""
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_of_two(self) -> FormatSpec:
        if (self.bytes is None) == (self.mixture is None):
            raise InvalidValue("a format has either `bytes` or a `mixture`", code="E104")
        return self

    @property
    def plain(self) -> bool:
        """Whether it holds numbers as they are, 16 or 32 bits of them."""
        return (
            self.mixture is None
            and self.block == (1, 1)
            and not self.per_vector
            and self.compute in ("fp32", "bf16", "fp16")
        )

    def format(self) -> Format:
        """The format as graphs hold it; of a mixture, its default."""
        if self.mixture is not None:
            return stored_format(self.mixture.default)
        if self.name == "bf16":
            return BF16
        if self.name == "fp32":
            return FP32
        assert self.bytes is not None
        beside = (self.per_output, self.per_input, self.per_matrix)
        return Format(name=self.name, bytes=self.bytes, block=self.block, scales=self.scales, compute=self.compute,
                      beside=beside if any(beside) else None, per_vector=self.per_vector)  # fmt: skip


def load_format(name: str) -> FormatSpec:
    """The format of a name, alias or path. Raises UnknownName, SpecError."""
    return _format_in(name, _working_folder())


def _working_folder() -> str:
    """The folder whose own `specs` come first; empty where it has been removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


@lru_cache(maxsize=128)
def _format_in(name: str, folder: str) -> FormatSpec:
    """The format that a name stands for in a working folder, whose own `specs` come first."""
    if found := _EXL.fullmatch(name.strip().lower()):
        return _exl(f"exl{found[1]}", found[2])
    path = resolve("formats", name).path
    return _DOCUMENTS.get(path, lambda reader: loader.validate(reader.read(path), FormatSpec, document="format"))


_DOCUMENTS: DocumentCache[FormatSpec] = DocumentCache("format")
"""Formats by path, each kept while its file stays the same."""


_EXL = re.compile(r"exl([23])[-_]?([0-9]{1,2}(?:\.[0-9]{1,3})?)[-_]?bpw")
_BITS = re.compile(r"([1-9][0-9]?)bit")
_LABEL = re.compile(r"(?=.*[=@])(?:([\w.-]{1,60})=)?([^=@]+)(?:@(fp32|bf16|fp16|fp8|int8|int4|fp4))?")
_PART = re.compile(r"([1-9][0-9]{0,14})\*([^*+]+)")


def _exl(family: str, bits: str) -> FormatSpec:
    """EXL2 or EXL3 of a named average: copies of whole bit widths in the shares that give it."""
    base = load_format(family)
    average, least = Fraction(bits), {"exl2": 2, "exl3": 1}[family]
    if not least <= average <= 8:
        raise UnknownName(f"{family.upper()} has {least} to 8 bits per weight, not {bits}")
    low, all_ = int(average), average.denominator
    high = average.numerator - low * all_
    parts = [f"{n}*{b}bit" for n, b in ((all_ - high, low), (high, low + 1)) if n]
    assert base.mixture is not None
    mixture: Any = base.mixture.model_copy(update={"default": "+".join(parts)})
    title = base.title.replace("4.0 bits", f"{bits} bits")
    return base.model_copy(update={"name": f"{family}_{bits}bpw", "title": title, "aliases": (), "mixture": mixture})


def stored_format(text: str) -> Format:
    """A format by name, by whole bits (`4bit`), or as copies of several (`3*q4_k+5*q6_k`).

    `name=...` in front names the result, `...@fp8` behind says what it computes in.
    """
    return _stored_in(text, _working_folder())


@lru_cache(maxsize=1024)
def _stored_in(text: str, folder: str) -> Format:
    """`stored_format` in a working folder."""
    if found := _LABEL.fullmatch(text):
        made = stored_format(found[2])
        return replace(made, name=found[1] or made.name, compute=found[3] or made.compute)
    if "*" in text:
        parts = [_PART.fullmatch(part.strip()) for part in text.split("+")]
        if not all(parts) or len(parts) > 64:
            raise UnknownName(f"no format named {quote(text, 100)}", hints=("such as `3*q4_k+5*q6_k`",))
        return mixed_format(tuple((int(part[1]), stored_format(part[2])) for part in parts if part))
    if found := _BITS.fullmatch(text):
        return Format(name=text, bytes=int(found[1]), block=(8, 1), compute="fp16")
    return load_format(text).format()
