"""Sizes of a tiny model: the same blocks, small enough to run anywhere (see `archsim.spec.tiny`)."""

WIDTH = 64
HEADS = 4
D_HEAD = 16
EXPERTS = 8
CONTEXT = 64
WINDOW = 8

LIMITS = {
    "n_heads": HEADS, "d_head": D_HEAD, "d_head_v": D_HEAD, "d_key": D_HEAD, "d_value": D_HEAD, "d_nope": D_HEAD,
    "d_v": D_HEAD, "d_rope": 8, "q_rank": 32, "kv_rank": 24, "d_ff": 64, "d_inner": 2 * WIDTH, "d_state": 8,
    "dt_rank": 4, "rank": 8, "d": 16, "chunk": 4, "buckets": 8, "span": 8, "factor": 32, "window": WINDOW,
    "prefix": 4, "vertical": 4, "block": 4, "global_tokens": 1, "repeat": 2, "vocab_size": 128, "rows": 128,
    "max_context": CONTEXT, "params": 1000,
}  # fmt: skip
"""The largest value of a field of this name, in whatever spec it stands; a class's `limits` stand above these."""
