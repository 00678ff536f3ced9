"""One row of a list of training runs as a typed question: model, device, layout, recipe, and what is asked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from archsim.accuracy.question import device_of, model_of, real, text, whole
from archsim.accuracy.trained_models import described_model
from archsim.base.errors import InvalidPlan, UsageError
from archsim.base.json_types import JsonMapping
from archsim.counts.count import count
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import Plan, check_degrees, expert_counts
from archsim.spec.stack import TrainingStack, load_stack, stack_of_run
from archsim.training.layout import Layout

RECIPES: Mapping[str, str] = {
    "fp8-te": "fp8-delayed", "fp8-cs": "fp8-current", "fp8-torchao": "fp8-current", "fp8": "fp8-current",
    "mxfp8": "mxfp8", "nvfp4": "nvfp4", "bf16-pure": "pure-bf16",
}  # fmt: skip
"""Precisions as lists of runs call them -> recipes; of bf16 and fp16 the stack's own."""

USUAL = 256
"""Devices of a pre-training run that states none; more of them are as fast each."""

LARGE = 20e9
"""Parameters from which on layers are usually cut over the devices of a node."""

BATCH_TOKENS = 4e6
"""Tokens of a step of usual pre-training runs (Llama 1 to 3)."""

MOST_MICRO_BATCHES = 16_384
"""Of one step on one rank; training has tens to hundreds."""

SOME_LAYERS = ("every:8", "every:4", "every:3", "every:2", "full")
"""Shares of the layers that are recomputed whole, where a run does not say which."""

NODE = 8
"""Devices of a sharding group under HSDP, where none is stated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """What was run. recomputes: the least first, where that is open. tokens: of the whole
    training, where GPU hours are asked. assumed: what the row does not say."""

    model: Model
    hardware: Hardware
    layout: Layout
    stack: TrainingStack
    recipe: str
    optimizer: str = "adamw"
    recomputes: tuple[str, ...] = ("none",)
    dialect: str = "fused"
    loss: str = "eager"
    method: str = "full"
    tokens: float | None = None
    assumed: tuple[str, ...] = ()


def training_run(row: JsonMapping, models: JsonMapping) -> TrainingRun:
    """The question of a row. models: dimensions by name, of models that the file describes.

    Raises UsageError for what cannot be a run, UnknownName and SpecError.
    """
    stack = load_stack(stack_of_run(row))
    seq_len = whole(row, "seq_len")
    if not seq_len:
        raise UsageError("no seq_len is stated")
    name = str(row.get("model") or "")
    dims = models.get(name)
    model = described_model(name, dims, seq_len) if isinstance(dims, Mapping) else model_of(name)[0]
    hardware = device_of(re.sub(r"\s*\(.*\)$", "", str(row.get("device") or "")))
    notes = (text(row, "notes") or "").lower()
    recomputes, guessed = _recompute(row, stack)
    layout, assumed = _layout(_with_layout(row, model, seq_len), model, stack, seq_len)
    if not whole(row, "n_devices") and not whole(row, "dp"):
        assumed = (*assumed, f"layout of {layout.devices} devices, tp {layout.tp}, ZeRO {layout.zero}")
    eager = "no torch.compile" in notes or "eager" in notes
    return TrainingRun(
        model=model, hardware=hardware, layout=layout, stack=stack, recipe=_recipe(row, stack, notes),
        optimizer="adamw-8bit" if "8-bit adam" in notes else "adamw", recomputes=recomputes,
        dialect="eager" if eager else stack.dialect, loss="eager" if eager else stack.loss, method=_method(notes),
        tokens=real(row, "tokens_trained"), assumed=(*assumed, *guessed),
    )  # fmt: skip


def _with_layout(row: JsonMapping, model: Model, seq_len: int) -> JsonMapping:
    """A row with the layout of a usual pre-training run where it states hours alone: weights sharded over `USUAL`
    devices, tensor-parallel in a node from 20 billion parameters on, and a batch of 4 million tokens.
    """
    if row.get("metric") != "gpu_hours":
        return row
    known = dict(row)
    if not whole(row, "n_devices") and not whole(row, "dp"):
        tp = widest_tensor_parallel(model) if count(model).total >= LARGE else 1
        known = {"n_devices": USUAL, "tp": tp, "zero_stage": 3, "micro_batch": max(8192 // seq_len, 1), **row}
    tp, pp = (whole(known, name) or 1 for name in ("tp", "pp"))
    dp = whole(known, "dp") or (whole(known, "n_devices") or 1) // (tp * pp)
    ranks = dp * (whole(known, "micro_batch") or 1)
    return {"global_batch": max(round(BATCH_TOKENS / seq_len / ranks), 1) * ranks, **known}


def widest_tensor_parallel(model: Model) -> int:
    """The largest degree within a node that the model's heads and widths allow."""
    for tp in (8, 4, 2):
        try:
            check_degrees(model, Plan(tp=tp))
        except InvalidPlan:
            continue
        return tp
    return 1


def _layout(row: JsonMapping, model: Model, stack: TrainingStack, seq_len: int) -> tuple[Layout, tuple[str, ...]]:
    """Degrees and batches. Raises UsageError where devices and degrees disagree or no batch is stated."""
    assumed = []
    tp, pp, cp = (whole(row, name) or 1 for name in ("tp", "pp", "cp"))
    devices, dp = whole(row, "n_devices"), whole(row, "dp")
    if devices is None and dp is None:
        raise UsageError("neither n_devices nor dp is stated")
    dp = dp or (devices or 0) // (tp * pp * cp)
    if devices is not None and dp * tp * pp * cp != devices:
        raise UsageError(f"tp x pp x cp x dp = {tp} x {pp} x {cp} x {dp} is not {devices} devices")
    batch = whole(row, "global_batch")
    if batch and whole(row, "cp") is None and dp > batch:
        dp, cp = batch, cp * dp // batch  # more ranks than sequences: the rest cut sequences
    vpp = whole(row, "vpp") or (2 if pp > 1 and "interleaved" in (text(row, "notes") or "").lower() else 1)
    micro = whole(row, "micro_batch")
    if micro is None:
        micro = stack.micro_batch
        assumed.append(f"micro-batch {micro}")
    batch = batch or _batch(row, micro, dp)
    if pp > 1 and batch // (micro * dp) < pp:  # what a rank is given at once, which a pipeline cuts
        micro = stack.micro_batch
        if stack.pipeline_cut == "stages":
            micro = max(batch // (dp * pp * vpp), 1)
        assumed.append(f"micro-batch {micro} in a pipeline")
    while batch % (micro * dp) and micro > 1:
        micro -= 1
    if batch > MOST_MICRO_BATCHES * micro * dp:
        raise UsageError(f"more than {MOST_MICRO_BATCHES:,} micro-batches a step on one rank")
    zero = whole(row, "zero_stage")
    if zero is not None and zero > 3:
        raise UsageError(f"{zero} is not a ZeRO stage (0 to 3)")
    fsdp = (text(row, "fsdp") or "").upper()
    zero = 2 if "SHARD_GRAD" in fsdp else stack.zero if zero is None else zero
    stated = text(row, "sequence_parallel")
    ep = (whole(row, "ep") or 1) if expert_counts(model) else 1
    layout = Layout(
        tp=tp, pp=pp, cp=cp, dp=dp, ep=ep, etp=tp if ep > 1 and ep % tp else 1, vpp=vpp,
        sp=tp > 1 and (stack.sp if stated is None else stated.lower() == "true"), zero=zero,
        hsdp=NODE if "HSDP" in fsdp and zero == 3 and dp * cp % NODE == 0 else 0,
        schedule="interleaved" if vpp > 1 and pp > 1 else "1f1b", micro_batch=micro, global_batch=batch,
        seq_len=seq_len,
    )  # fmt: skip
    return layout, tuple(assumed)


def _batch(row: JsonMapping, micro: int, dp: int) -> int:
    """The global batch of a row that states gradient accumulation instead. Raises UsageError without either."""
    steps = whole(row, "grad_accum") or whole(row, "num_microbatches")
    if not steps:
        raise UsageError("neither global_batch nor grad_accum is stated")
    return micro * dp * steps


def _recipe(row: JsonMapping, stack: TrainingStack, notes: str) -> str:
    if "qlora" in notes:
        return "qlora-nf4"
    if "lora" in notes:
        return "lora"
    return RECIPES.get(str(row.get("precision") or "").lower(), stack.recipe)


def _method(notes: str) -> str:
    return "qlora" if "qlora" in notes else "lora" if "lora" in notes else "full"


def _recompute(row: JsonMapping, stack: TrainingStack) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What may be recomputed, the least first, and that it is assumed where the row does not say.

    A run that was measured fitted its devices: where a row leaves open what it recomputed, it is the least that fits.
    """
    stated = str(row.get("activation_checkpointing") or "").strip().lower()
    if stated.startswith("none") or stated == "false":
        return ("none",), ()
    if stated.startswith("full"):
        return ("full",), ()
    if "every other layer" in stated:
        return ("every:2",), ()
    if stated.startswith("minimal") or (stated.startswith("selective") and "op" in stated):
        return ("selective:op",), ()
    selective = SOME_LAYERS if stack.selective == "layers" else (f"selective:{stack.selective}",)
    if stated.startswith("selective"):
        return selective, ()
    order = ("none", *selective, "full")
    return order[order.index(stack.recompute) :] if stack.recompute in order else order[1:], ("recompute not stated",)
