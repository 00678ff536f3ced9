"""`archsim fit`: whether an engine starts with a model on a device, and how many tokens its cache holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from archsim.base.errors import InvalidPlan
from archsim.base.positive import check_positive
from archsim.counts.count import checked_parts
from archsim.counts.towers import checked_towers
from archsim.engines.names import DEFAULT_ENGINE
from archsim.memory.check_fit import Fit, FitRequest, check_fit
from archsim.memory.engine_memory import Settings
from archsim.memory.split_mode import checked_mode, proportions
from archsim.memory.suggestions import Trials, inverse, suggestions
from archsim.spec.hardware import Hardware
from archsim.spec.model import Model
from archsim.spec.parallelism import expert_counts


def fit(
    model: Model,
    hardware: Hardware,
    *,
    devices: int | str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    ep: int | None = None,
    dp: int | None = None,
    batch: int = 1,
    input_len: int = 2048,
    output_len: int = 256,
    source_len: int | None = None,
    weights: str | None = None,
    kv_cache_dtype: str | None = None,
    engine: str = DEFAULT_ENGINE,
    max_model_len: int | None = None,
    max_num_seqs: int | None = None,
    max_num_batched_tokens: int | None = None,
    gpu_memory_utilization: float | None = None,
    mem_fraction_static: float | None = None,
    block_size: int | None = None,
    enforce_eager: bool = False,
    parts: Collection[str] = (),
    without: str | Collection[str] = (),
    max_loras: int = 0,
    max_lora_rank: int = 16,
    visible_memory: int | None = None,
    n_gpu_layers: int | None = None,
    cpu_moe: bool = False,
    n_cpu_moe: int = 0,
    num_gpu_experts: int | None = None,
    kv_cache_memory_bytes: int | None = None,
    cpu_offload_gb: float = 0.0,
    kv_offloading_size: float = 0.0,
    override_tensor: str | Sequence[str] = (),
    cache_type_k: str | None = None,
    cache_type_v: str | None = None,
    enable_dp_attention: bool = False,
    host_bandwidth: float | None = None,
    split_mode: str | None = None,
    tensor_split: str | Sequence[float] | None = None,
    draft_model: Model | None = None,
    draft_weights: str | None = None,
    suggest: bool = True,
) -> Fit:
    """Whether the engine starts and holds one request of `max_model_len`, and what would change that.

    devices: one, or what the degrees make; "auto" for the fewest. enable_dp_attention: SGLang's meaning of tp and dp:
    of tp devices in all, which share the experts, groups of tp/dp share the attention of one replica. source_len:
    tokens of each source of an encoder-decoder, as long as the request unless given. suggest:
    whether to look for changes that would make it fit, or fit more. The rest: see `Settings`. Raises InvalidPlan for
    degrees that do not divide the model; AnswerNo for "auto" when no number of devices is enough.
    """
    check_positive(batch=batch, input_len=input_len, output_len=output_len)
    degrees = {"tp": tp, "pp": pp, "ep": ep, "dp": dp}
    check_positive(**{name: n for name, n in degrees.items() if n is not None})
    settings = Settings(
        max_model_len=max_model_len, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens,
        block_size=block_size, gpu_memory_utilization=gpu_memory_utilization, mem_fraction_static=mem_fraction_static,
        enforce_eager=enforce_eager, parts=checked_parts(parts), without=checked_towers(without),
        max_loras=max_loras, max_lora_rank=max_lora_rank, visible_memory=visible_memory,
        n_gpu_layers=n_gpu_layers, cpu_moe=cpu_moe, n_cpu_moe=n_cpu_moe, num_gpu_experts=num_gpu_experts,
        kv_cache_memory_bytes=kv_cache_memory_bytes,
        cpu_offload_gb=cpu_offload_gb, kv_offloading_size=kv_offloading_size,
        override_tensor=(override_tensor,) if isinstance(override_tensor, str) else tuple(override_tensor or ()),
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v, host_bandwidth=host_bandwidth, split_mode=checked_mode(split_mode),
        tensor_split=proportions(tensor_split), draft_model=draft_model, draft_weights=draft_weights,
    )  # fmt: skip
    if cache_type_k == cache_type_v and cache_type_k is not None:
        kv_cache_dtype, settings = cache_type_k, replace(settings, cache_type_k=None, cache_type_v=None)
    if enable_dp_attention:
        tp, dp, ep = _replicas(model, tp, dp, ep)
    request = FitRequest(
        devices=devices, tp=tp, pp=pp, ep=ep, dp=dp, batch=batch, input_len=input_len, output_len=output_len,
        source_len=source_len,
        weights=weights, kv_cache_dtype=kv_cache_dtype, engine=engine, settings=settings,
    )  # fmt: skip
    answer = check_fit(model, hardware, request)
    if not suggest:
        return answer
    trials = Trials(model, hardware)
    changes = tuple(suggestions(request, answer, trials))
    return replace(answer, suggestions=changes, inverse=inverse(request, answer, trials))


def _replicas(model: Model, tp: int | None, dp: int | None, ep: int | None) -> tuple[int, int, int]:
    """Degrees in which `tp` devices hold `dp` replicas of the attention and share the experts."""
    group = tp or dp or 1
    replicas = dp or group
    if group % replicas:
        hint = "tp counts all devices here, dp the replicas among them"
        raise InvalidPlan(f"tp {group} is not a multiple of dp {replicas}", hints=(hint,))
    if not expert_counts(model):
        raise InvalidPlan(f"`--enable-dp-attention` is for models with experts; {model.name} has none")
    return group // replicas, replicas, ep or group
