"""The training-stack document: what sets a framework apart from others in kernels, overlap, defaults, and how it counts
FLOP.

A stack says in words what it does (`specs/stacks/*.yaml`); what each word costs is fitted once for all stacks
(`hardware/calibration/training.yaml`), so that a stack without measured runs has times too.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Literal, NamedTuple

from archsim.base.lazy_model import Field, LazyModel
from archsim.spec import loader
from archsim.spec.catalog import data_roots, names, resolve
from archsim.spec.document_cache import DocumentCache

DEFAULT_STACK = "generic"

Factor = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=4)]

AttentionKernels = Literal["current", "flash-2", "unfused"]
"""Attention kernels: those of the calibrations; FlashAttention-2, which Hopper's units outrun; or products and a
softmax of their own, with the scores in memory."""

Elementwise = Literal["fused", "eager"]
Overlap = Literal["none", "some", "hidden"]
Communication = Literal["tp", "cp", "ep", "pp", "dp", "fsdp", "host"]


class _Part(LazyModel):
    """A frozen part of the document."""


class FlopConvention(_Part):
    """How a framework counts the FLOP that it prints. attention: the pairs that count. weights: whether 6N is over the
    matrices that multiply a token, or over all parameters, tables included. recomputed: whether what is computed twice
    counts twice (HFU)."""

    attention: Literal["full", "causal", "none"] = "full"
    weights: Literal["matrices", "all"] = "matrices"
    recomputed: bool = False


class RunSource(_Part):
    """Runs of a measured file that a stack made: rows of a source, of one ZeRO stage or device where it states one, or
    whose `fsdp` has a word."""

    source: str
    zero: int | None = None
    device: str | None = None
    fsdp: str | None = None

    def matches(self, row: Mapping[str, object]) -> int:
        """How much of a row is as stated: 0 where anything is not."""
        stated = {"source": self.source, "zero_stage": self.zero, "device": self.device}
        asked = {name: value for name, value in stated.items() if value is not None}
        if any(row.get(name) != value for name, value in asked.items()):
            return 0
        if self.fsdp is not None and self.fsdp.lower() not in str(row.get("fsdp") or "").lower():
            return 0
        return len(asked) + (self.fsdp is not None)


class TrainingStack(_Part):
    """One framework. overlap: how much of each kind of communication runs behind kernels. network: `rails`, rings along
    the NICs of a node; `flat`, gathers that use one at a time. dialect, loss, recipe, micro_batch, zero, sp and
    recompute: what a run has that does not say. selective: what selective recomputation runs once more, where a run
    says no more than that: attention, all but every second product (`op`), or some of the layers whole.
    gradient_sums: the format in which gradients are added up and sent, where it is not the recipe's. copies_alone:
    recipes of which it stores matrices in the format of their products alone. gathers: what ZeRO 3 has whole at
    once. gradients: whether they lie in buffers from the start, or are made by the first backward of each step and
    dropped by the update (`zero_grad` of PyTorch). pipeline_cut: into what a pipeline cuts the sequences of a data rank
    where a run does not say: micro-batches of `micro_batch`, or as many as it has stages. prints_memory: which peak of
    PyTorch's allocator it prints. engine: whose operators it runs on a processor.
    """

    schema_: Literal["archsim.stack/1"] = Field(alias="schema")
    name: str
    title: str
    aliases: tuple[str, ...] = ()
    engine: str = "generic"
    attention: AttentionKernels = "current"
    elementwise: Elementwise = "fused"
    overlap: Mapping[Communication, Overlap] = Field(default_factory=dict)
    network: Literal["rails", "flat"] = "rails"
    dialect: str = "fused"
    loss: Literal["eager", "chunked", "vocab_parallel", "compiled"] = "eager"
    gradients: Literal["buffers", "made"] = "buffers"
    recipe: str = "bf16"
    micro_batch: Annotated[int, Field(gt=0)] = 1
    pipeline_cut: Literal["micro_batch", "stages"] = "micro_batch"
    zero: Annotated[int, Field(ge=0, le=3)] = 0
    sp: bool = False
    recompute: Literal["none", "full", "selective"] = "none"
    selective: Literal["attention", "op", "layers"] = "attention"
    gradient_sums: str | None = None
    copies_alone: tuple[str, ...] = ()
    gathers: Literal["layers", "matrices"] = "layers"
    prints_memory: Literal["allocated", "reserved"] = "reserved"
    convention: FlopConvention = FlopConvention.model_construct()
    runs: tuple[RunSource, ...] = ()
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def factors(self, device: str, family: str, fits: StackFits | None = None, experts: bool = False) -> StackFactors:
        """What its words cost on a device (its catalog name) of an architecture. fits: by default those that archsim
        comes with. experts: whether the model has any, of which intervals are wider."""
        fits = fits or load_stack_fits()
        flat = fits.flat_network if self.network == "flat" else 1.0
        return StackFactors(
            attention=_of_family(fits.attention[self.attention], family), attention_backward=fits.attention_backward,
            elementwise=fits.elementwise[self.elementwise], grouped=_of_family(fits.experts, family),
            products=fits.sustained.get(device, fits.sustained["any"]),
            exposed={kind: shares[self.overlap.get(kind, "none")] for kind, shares in fits.exposed.items()},
            flat_network=flat, interval=fits.width("known" if self.runs else "any", experts),
            memory=fits.interval.get("memory", StackFactors().memory),
        )  # fmt: skip


def _of_family(factors: Mapping[str, float], family: str) -> float:
    """The factor of an architecture, of what it is a kind of (`Blackwell Ultra`), or of any."""
    return factors.get(family, factors.get(family.split(" ")[0], factors["any"]))


class StackFactors(NamedTuple):
    """What a stack adds on one device. Factors on times of calibrated kernels: attention on the forward kernel,
    attention_backward of the backward over that forward, elementwise on passes of their own, grouped on products of
    experts, products on those of matrices. exposed: the share of each kind of communication that is not hidden.
    flat_network: on gathers of weights between nodes. interval: log of the factor from the middle to an end of the 80 %
    interval of times; memory: of bytes.
    """

    attention: float = 1.0
    attention_backward: float = 3.6
    elementwise: float = 1.0
    grouped: float = 1.0
    products: float = 1.0
    exposed: Mapping[Communication, float] = {}
    flat_network: float = 1.0
    interval: float = 0.25
    memory: float = 0.1


class RunErrors(_Part):
    """Mean and median error of the runs of a source: in sample, with the model left out of its source, and with the
    source left out of the fit.
    """

    source: str
    runs: int
    inside: tuple[float, float]
    model_left_out: tuple[float, float]
    source_left_out: tuple[float, float]


class StackFits(_Part):
    """What the words of stacks cost, fitted on measured runs.

    attention: time of a kernel over the calibrated one, by kernel and architecture of the device. attention_backward:
    of the backward kernel over the forward one. elementwise: time over that of the fused graph's traffic. exposed: the
    share of communication that kernels do not hide. flat_network: time of a gather over the ring's. sustained: products
    at the power limit for hours over those of a benchmark, by device. experts: grouped products of training over those
    of a benchmark, by architecture. interval: log of the error that eight of ten runs stay within which the fit had not
    seen: a model left out of a `known` stack's runs, and `any` source left out; `memory`: of bytes. `any` stands for
    what is not listed.
    errors: by source.
    """

    attention: Mapping[AttentionKernels, Mapping[str, Factor]]
    attention_backward: Factor
    elementwise: Mapping[Elementwise, Factor]
    exposed: Mapping[Communication, Mapping[Overlap, Share]]
    flat_network: Factor
    sustained: Mapping[str, Factor]
    experts: Mapping[str, Factor]
    interval: Mapping[str, Factor]
    errors: tuple[RunErrors, ...] = ()

    def width(self, known: str, experts: bool) -> float:
        """The interval of `known` or `any` stacks, of models with experts where those have one."""
        return self.interval.get(f"{known} with experts", self.interval[known]) if experts else self.interval[known]


def load_stack(name: str) -> TrainingStack:
    """The stack of a name, alias or path. Raises UnknownName, SpecError."""
    path = resolve("stacks", name).path
    return _DOCUMENTS.get(path, lambda reader: loader.validate(reader.read(path), TrainingStack, document="stack"))


_DOCUMENTS: DocumentCache[TrainingStack] = DocumentCache("stack")
"""Stacks by path, each kept while its file stays the same."""


def stack_of_run(row: Mapping[str, object]) -> str:
    """The stack that made a measured run: the row's `stack`, else the one whose sources fit it best."""
    if row.get("stack"):
        return load_stack(str(row["stack"])).name
    stacks = [load_stack(entry.name) for entry in names("stacks")]
    closeness = {one.name: max((run.matches(row) for run in one.runs), default=0) for one in stacks}
    best = max(closeness, key=lambda name: closeness[name])
    return best if closeness[best] else DEFAULT_STACK


@cache
def load_stack_fits() -> StackFits:
    """The fitted numbers."""
    path = data_roots("hardware")[-1] / "calibration" / "training.yaml"
    return loader.validate(loader.read(path), StackFits)
