"""The words that archsim uses, each defined once."""

from __future__ import annotations

TERMS: dict[str, str] = {
    "activation memory": (
        "Tensors that live only within one forward pass. Their peak, found by liveness over the kernels of a "
        "prefill of at most 8,192 tokens, is part of the memory budget."
    ),
    "active parameters": (
        "Parameters that one token uses: all but the routed experts that it is not sent to; both embedding "
        "tables count."
    ),
    "all-reduce": (
        "Every device ends up with the sum of all devices' tensors. A ring moves 2(n-1)/n times the tensor "
        "over each device's link; a switch that adds moves it once."
    ),
    "arithmetic intensity": (
        "FLOP per byte of memory traffic. Below the ridge a kernel is limited by memory, above it by arithmetic."
    ),
    "bound": ("What limits a kernel's speed of light: compute, memory or communication, whichever takes longest."),
    "context": (
        "Tokens that a step attends over. Decode figures are for the mean context, the prompt and half the answer."
    ),
    "decode": (
        "Generating one token for every sequence of the batch. Every weight in use is read once a step, so "
        "small batches are limited by memory bandwidth."
    ),
    "dp": (
        "Attention-data parallelism: replicas of attention with their own sequences and caches; experts "
        "are cut over ep."
    ),
    "e2e": "End to end: TTFT plus a TPOT for every further token, without queueing.",
    "ep": ("Expert parallelism: the routed experts are spread over ep devices, and tokens travel by all-to-all."),
    "evidence": (
        "What an expected time rests on: measured (this very point), calibrated (fitted on this device), "
        "transferred (fitted on its family), datasheet (usual efficiencies, nothing fitted)."
    ),
    "expected": (
        "Time with the efficiencies that the evidence supports, beside the speed of light. The interval "
        "holds 80 % of cases."
    ),
    "flop": "One floating-point operation; a multiply-add counts as two. FLOP is work, FLOP/s is a rate.",
    "full": (
        "FLOPs over the whole square of query-key pairs, as implementations without block skipping and "
        "torch's FlopCounterMode count them. See masked."
    ),
    "gb": "10^9 bytes, always. 2^30 bytes are a GiB.",
    "gqa": ("Grouped-query attention: K key/value heads serve N query heads, G = N/K each. The cache shrinks by G."),
    "hbm": "The device memory that weights and caches are read from.",
    "kv cache": "Keys and values of all tokens so far, kept so that each decode step computes only its own.",
    "masked": (
        "FLOPs of only those query-key pairs that the mask allows: half of the square for causal attention, "
        "less with windows. See full."
    ),
    "mfu": ("Model FLOPs utilisation: FLOPs that the model needs, over what the devices could have done in the time."),
    "mla": ("Multi-head latent attention: only a latent of kv_rank and a rotated key of d_rope are cached per token."),
    "moe": "Mixture of experts: a router sends each token to k of E feed-forward networks.",
    "peak": (
        "A device's dense rate for a number format with fp32 accumulation, from its datasheet. Sparse "
        "figures are twice that and not used."
    ),
    "pp": ("Pipeline parallelism: runs of layers on different devices. A single batch passes them one after another."),
    "prefill": "The forward pass over the prompts, which fills the caches. Usually limited by arithmetic.",
    "ridge": "Peak FLOP/s over memory bandwidth: the intensity at which both take equally long.",
    "roofline": ("A kernel takes at least the larger of FLOP / peak and bytes / bandwidth (Williams et al. 2009)."),
    "speed of light": (
        "The time below which no implementation can get on that device: every kernel at its roofline, every "
        "tensor moved once, nothing else."
    ),
    "tp": (
        "Tensor parallelism: every matrix is cut over tp devices, with an all-reduce after attention and "
        "after the feed-forward network."
    ),
    "tpot": (
        "Time per output token: the time of one decode step. Its inverse is tokens per second and user. "
        "Excludes the first token."
    ),
    "ttft": "Time to first token: the prefill of the whole batch, without queueing.",
    "usable memory": ("The share of the memory that a serving process plans with, 90 % unless told otherwise."),
    "window": ("Sliding-window attention: a token sees only the last W keys, so the cache stops growing at W."),
}
"""Term in lower case to its definition."""

SYNONYMS = {
    "itl": "tpot",
    "kv_cache": "kv cache",
    "kv": "kv cache",
    "sol": "speed of light",
    "ideal": "speed of light",
    "flops": "flop",
    "mac": "flop",
    "tensor parallel": "tp",
    "pipeline parallel": "pp",
    "expert parallel": "ep",
    "intensity": "arithmetic intensity",
    "active": "active parameters",
    "gib": "gb",
    "sliding window": "window",
}
"""Other words for a term."""
