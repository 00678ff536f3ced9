"""The engine's own command line for what `fit` has checked."""

from __future__ import annotations

from shlex import quote

from archsim.base.errors import AnswerNo, UsageError
from archsim.counts.formats import choose_formats
from archsim.memory.check_fit import Fit
from archsim.spec.model import Model

UNFIT = "the same `archsim fit` without `--command` lists what would make it fit, cheapest first"


def serve_command(answer: Fit) -> str:
    """One line that starts the engine with the limits, plan and formats of the answer. Where the weights are in a
    format that neither the checkpoint has nor the engine makes, the model is a path to files in it, to be replaced.

    Raises UsageError for an engine whose command line is not known, or that cannot say a part of the plan; AnswerNo
    where it does not fit.
    """
    rules = answer.engine.rules
    if not rules.serve:
        raise UsageError(f"the command line of {rules.title} is not known")
    if not answer.fits:
        raise AnswerNo(f"{answer.model.name} does not fit, so there is no command that starts it", hints=(UNFIT,))
    facts = {name: value for name, value in _facts(answer).items() if value not in (None, False)}
    unsaid = [name for name in ("tp", "pp", "dp", "ep") if name in facts and name not in rules.serve]
    if unsaid:
        raise UsageError(f"{rules.title}'s command line has no flag for {', '.join(unsaid)} of this plan")
    parts = [text.format(**facts) for name, text in rules.serve.items() if name in facts]
    return " ".join(parts)


def _facts(answer: Fit) -> dict[str, object]:
    """What may stand in a command line; None or False where it is the engine's default."""
    plan, settings, formats = answer.plan, answer.settings, answer.formats
    cache = formats.kv.name
    share, draft, draft_form = answer.budget.share, settings.draft_model, settings.draft_weights
    return {
        "command": True, "model": quote(_model(answer)), "file": quote(f"{answer.model.name}-{formats.name}.gguf"),
        "tp": plan.tp if plan.tp * plan.dp > 1 else None, "pp": plan.pp if plan.pp > 1 else None,
        "dp": plan.dp if plan.dp > 1 else None, "ep": plan.ep if plan.ep > 1 else None, "devices": plan.tp * plan.dp,
        "length": answer.length, "seqs": answer.seqs, "context": answer.length * max(answer.seqs or 1, 1),
        "tokens": answer.batched_tokens, "share": f"{share:.3g}" if share else None, "eager": settings.enforce_eager,
        "cache": None if cache in PLAIN else answer.engine.rules.formats.cache_words.get(cache, cache),
        "weights": _online(answer),
        "layers": settings.n_gpu_layers, "cpu_moe": settings.cpu_moe, "n_cpu_moe": settings.n_cpu_moe or None,
        "encoders": quote(f"mmproj-{answer.model.name}-f16.gguf") if answer.towers else None, **_experts(answer),
        "cache_bytes": settings.kv_cache_memory_bytes, "weights_out": settings.cpu_offload_gb or None,
        "pages_out": settings.kv_offloading_size or None,
        "mode": settings.split_mode or "layer", "alone": settings.split_mode == "none",
        "parts": ",".join(f"{part:g}" for part in settings.tensor_split) or None,
        "draft": None if draft is None else quote(_checkpoint(draft, draft_form)),
        "draft_file": None if draft is None else quote(f"{draft.name}-{draft_form or 'f16'}.gguf"),
        "tensors_out": quote(",".join(settings.override_tensor)) if settings.override_tensor else None,
    }  # fmt: skip


def _experts(answer: Fit) -> dict[str, object]:
    """How many routed experts of each layer devices keep, and what runs the others; nothing where they keep all."""
    kept, offload = answer.settings.num_gpu_experts, answer.offload
    if kept is None or offload is None or not offload.experts:
        return {}
    kernels = answer.engine.rules.memory.host_experts.kernels
    folder = quote(f"./{answer.model.name}")
    return {"gpu_experts": str(kept), "host_kernels": kernels[offload.experts[0]], "folder": folder}


PLAIN = ("bf16", "fp16")
"""Formats of caches that engines choose by themselves."""


def _changed(answer: Fit) -> bool:
    """Whether the weights are in another format than the checkpoint's."""
    return answer.formats.name != choose_formats(answer.model, None, None).name


def _online(answer: Fit) -> str | None:
    """The format that the engine quantises the checkpoint to as it loads it."""
    online = answer.engine.rules.memory.online
    name = answer.formats.name
    return name if _changed(answer) and online is not None and name in online.formats else None


def _model(answer: Fit) -> str:
    """The checkpoint: its name on the Hub where there is one, or a path."""
    return _checkpoint(answer.model, answer.formats.name if _changed(answer) and _online(answer) is None else None)


def _checkpoint(model: Model, form: str | None) -> str:
    """A model's name on the Hub where there is one, or a path; form: a format that its checkpoint does not have."""
    if form is not None:
        return f"./{model.name}-{form}"
    return model.hf_ids[0] if model.hf_ids else f"./{model.name}"
