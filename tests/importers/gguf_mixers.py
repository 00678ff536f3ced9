"""Layers of recurrent, hybrid and encoder models as llama.cpp's converter writes them."""

from __future__ import annotations

from .gguf_files import Q, Shapes

D, FF, VOCAB, HEADS, KV, HEAD = 512, 768, 1024, 8, 2, 64
Keys = dict[str, object]


def base(layers: int, **more: object) -> tuple[Keys, Shapes]:
    """Keys and tensors that every model has."""
    keys: Keys = {
        "block_count": layers, "context_length": 4096, "embedding_length": D, "feed_forward_length": FF,
        "attention.head_count": HEADS, "attention.head_count_kv": KV, "attention.layer_norm_rms_epsilon": 1e-5,
    }  # fmt: skip
    table: Shapes = {"token_embd.weight": ((D, VOCAB), Q.Q4_K), "output_norm.weight": ((D,), Q.F32)}
    return keys | {k.replace("__", "."): v for k, v in more.items()}, table


def norms(i: int, *names: str) -> Shapes:
    """Vectors of the width of the stream."""
    return {f"blk.{i}.{name}.weight": ((D,), Q.F32) for name in names}


def attention(i: int, gated: bool = False, norm: bool = False) -> Shapes:
    """Four projections; a gate is in the one to queries."""
    wide = HEADS * HEAD * (2 if gated else 1)
    t: Shapes = {
        f"blk.{i}.attn_q.weight": ((D, wide), Q.Q4_K), f"blk.{i}.attn_k.weight": ((D, KV * HEAD), Q.Q5_K),
        f"blk.{i}.attn_v.weight": ((D, KV * HEAD), Q.Q6_K), f"blk.{i}.attn_output.weight": ((HEADS * HEAD, D), Q.Q4_K),
    }  # fmt: skip
    return t | ({f"blk.{i}.attn_{x}_norm.weight": ((HEAD,), Q.F32) for x in "qk"} if norm else {})


def ffn(i: int, parts: tuple[str, ...] = ("gate", "up", "down"), end: str = "", experts: int = 0) -> Shapes:
    """A feed-forward layer, or experts."""
    last = (experts,) if experts else ()
    shapes = {"gate": (D, FF), "up": (D, FF), "down": (FF, D), "gate_up": (D, 2 * FF)}
    return {f"blk.{i}.ffn_{x}{end}.weight": ((*shapes[x], *last), Q.Q4_K) for x in parts}


def moe(i: int, n: int = 8, shared: bool = False, parts: tuple[str, ...] = ("gate", "up", "down")) -> Shapes:
    """Routed experts, and a shared one with a gate."""
    t = ffn(i, parts, "_exps", n) | {f"blk.{i}.ffn_gate_inp.weight": ((D, n), Q.F32)}
    gate: Shapes = {f"blk.{i}.ffn_gate_inp_shexp.weight": ((D,), Q.F32)}
    return t | (ffn(i, end="_shexp") | gate if shared else {})


def mamba(i: int, normed: bool = False) -> Shapes:
    """A Mamba mixer: 1,024 channels, 16 states, rank 32."""
    t: Shapes = {
        f"blk.{i}.ssm_in.weight": ((D, 2048), Q.Q4_K), f"blk.{i}.ssm_conv1d.weight": ((4, 1024), Q.F32),
        f"blk.{i}.ssm_conv1d.bias": ((1024,), Q.F32), f"blk.{i}.ssm_x.weight": ((1024, 32 + 2 * 16), Q.Q8_0),
        f"blk.{i}.ssm_dt.weight": ((32, 1024), Q.Q8_0), f"blk.{i}.ssm_dt.bias": ((1024,), Q.F32),
        f"blk.{i}.ssm_a": ((16, 1024), Q.F32), f"blk.{i}.ssm_d": ((1024,), Q.F32),
        f"blk.{i}.ssm_out.weight": ((1024, D), Q.Q5_K),
    }  # fmt: skip
    inner: Shapes = {f"blk.{i}.ssm_{x}_norm.weight": ((n,), Q.F32) for x, n in (("dt", 32), ("b", 16), ("c", 16))}
    return t | (inner if normed else {})


MAMBA2: Keys = {"ssm.inner_size": 1024, "ssm.time_step_rank": 16, "ssm.group_count": 2, "ssm.state_size": 64,
                "ssm.conv_kernel": 4}  # fmt: skip


def mamba2(i: int, normed: bool = True) -> Shapes:
    """A Mamba-2 mixer: 16 heads of 64 in two groups, 64 states."""
    mixed = 1024 + 2 * 2 * 64
    t: Shapes = {
        f"blk.{i}.ssm_in.weight": ((D, 1024 + mixed + 16), Q.Q4_K), f"blk.{i}.ssm_conv1d.weight": ((4, mixed), Q.F32),
        f"blk.{i}.ssm_conv1d.bias": ((mixed,), Q.F32), f"blk.{i}.ssm_dt.bias": ((16,), Q.F32),
        f"blk.{i}.ssm_a": ((1, 16), Q.F32), f"blk.{i}.ssm_d": ((1, 16), Q.F32),
        f"blk.{i}.ssm_out.weight": ((1024, D), Q.Q5_K),
    }  # fmt: skip
    return t | ({f"blk.{i}.ssm_norm.weight": ((512, 2), Q.F32)} if normed else {})


DELTA: Keys = {"ssm.inner_size": 1024, "ssm.time_step_rank": 8, "ssm.group_count": 4, "ssm.state_size": 64,
               "ssm.conv_kernel": 4}  # fmt: skip


def delta(i: int, joined: bool = False, parted: bool = False) -> Shapes:
    """A gated delta net: 4 key heads of 64, 8 value heads of 128; one projection in older files, more in newer ones."""
    mixed = 1024 + 2 * 4 * 64
    first: Shapes = {f"blk.{i}.ssm_in.weight": ((D, mixed + 1024), Q.Q4_K)}
    split: Shapes = {f"blk.{i}.attn_qkv.weight": ((D, mixed), Q.Q5_K), f"blk.{i}.attn_gate.weight": ((D, 1024), Q.Q4_K)}
    both: Shapes = {f"blk.{i}.ssm_ba.weight": ((D, 16), Q.Q8_0)}
    each: Shapes = {f"blk.{i}.ssm_{x}.weight": ((D, 8), Q.F32) for x in ("alpha", "beta")}
    return (first if joined else split) | (each if parted else both) | {
        f"blk.{i}.ssm_conv1d.weight": ((4, mixed), Q.F32), f"blk.{i}.ssm_dt.bias": ((8,), Q.F32),
        f"blk.{i}.ssm_a": ((8,), Q.F32),
        f"blk.{i}.ssm_norm.weight": ((128,), Q.F32), f"blk.{i}.ssm_out.weight": ((1024, D), Q.Q6_K),
    }  # fmt: skip


def short_conv(i: int) -> Shapes:
    """LFM2's convolution of three taps."""
    return {
        f"blk.{i}.shortconv.conv.weight": ((3, D), Q.F32), f"blk.{i}.shortconv.in_proj.weight": ((D, 3 * D), Q.Q4_K),
        f"blk.{i}.shortconv.out_proj.weight": ((D, D), Q.Q6_K),
    }  # fmt: skip


def encoder(rotary: bool) -> tuple[Keys, Shapes]:
    """BERT; with rotary positions and gates Nomic's."""
    keys, t = base(3, attention__head_count_kv=HEADS)
    del t["output_norm.weight"]
    keys["attention.layer_norm_epsilon"] = 1e-12

    def normed(name: str) -> Shapes:
        return {f"{name}.{part}": ((D,), Q.F32) for part in ("weight", "bias")}

    t |= {"token_types.weight": ((D, 2), Q.F32)} | normed("token_embd_norm")
    t |= {} if rotary else {"position_embd.weight": ((D, 512), Q.F16)}
    for i in range(3):
        t |= normed(f"blk.{i}.attn_output_norm") | normed(f"blk.{i}.layer_output_norm")
        if rotary:
            t |= {f"blk.{i}.attn_qkv.weight": ((D, 3 * D), Q.Q4_K), f"blk.{i}.attn_output.weight": ((D, D), Q.Q4_K)}
            t |= ffn(i)
            continue
        t |= {f"blk.{i}.attn_{x}.weight": ((D, D), Q.Q4_K) for x in ("q", "k", "v", "output")}
        t |= {f"blk.{i}.attn_{x}.bias": ((D,), Q.F32) for x in ("q", "k", "v", "output")}
        t |= ffn(i, ("up", "down"))
        t |= {f"blk.{i}.ffn_up.bias": ((FF,), Q.F32), f"blk.{i}.ffn_down.bias": ((D,), Q.F32)}
    return keys, t


def split_experts(keys: Keys, tensors: Shapes) -> tuple[Keys, Shapes]:
    """Mixtral as it was before 2024: every expert a matrix of its own."""
    result: Shapes = {}
    for name, (shape, kind) in tensors.items():
        if "_exps" not in name:
            result[name] = (shape, kind)
            continue
        for e in range(shape[-1]):
            result[name.replace("_exps", "").replace(".weight", f".{e}.weight")] = (shape[:-1], kind)
    return keys, result


def gemma4(readers: int = 0, per_layer: bool = True, alike: bool = False) -> tuple[Keys, Shapes]:
    """Five windowed layers of small heads and a global one of larger; `alike`: its keys are its values. Files with
    `readers` have no keys and values in their last layers."""
    n = 6 + readers
    windows = [(i + 1) % 6 != 0 for i in range(6)] + [i + 1 < readers for i in range(readers)]
    keys, t = base(n, attention__sliding_window=512, attention__shared_kv_layers=readers)
    keys |= {"attention.sliding_window_pattern": windows, "rope.freq_base_swa": 10000.0, "rope.freq_base": 1e6}
    keys["attention.head_count_kv"] = [2 if near else 1 for near in windows]
    t["rope_freqs.weight"] = ((64,), Q.F32)
    if per_layer:
        t |= {
            "per_layer_token_embd.weight": ((256 * n, 800), Q.Q5_K), "per_layer_proj_norm.weight": ((256,), Q.F32),
            "per_layer_model_proj.weight": ((D, 256 * n), Q.BF16),
        }  # fmt: skip
    for i, near in enumerate(windows):
        head, kv = (64, 2) if near else (128, 1)
        t |= norms(i, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        t |= {f"blk.{i}.attn_q.weight": ((D, HEADS * head), Q.Q4_K), f"blk.{i}.attn_q_norm.weight": ((head,), Q.F32)}
        t[f"blk.{i}.attn_output.weight"] = ((HEADS * head, D), Q.Q4_K)
        if i < 6:
            names = "k" if alike and not near else "kv"
            t |= {f"blk.{i}.attn_{x}.weight": ((D, kv * head), Q.Q6_K) for x in names}
            t[f"blk.{i}.attn_k_norm.weight"] = ((head,), Q.F32)
        t |= ffn(i) | {f"blk.{i}.layer_output_scale.weight": ((1,), Q.F32)}
        if per_layer:
            t |= {f"blk.{i}.inp_gate.weight": ((D, 256), Q.Q4_K), f"blk.{i}.proj.weight": ((256, D), Q.Q4_K)}
            t |= norms(i, "post_norm")
    return keys, t


def t5(sides: str = "enc dec", tied: bool = True, gated: bool = True) -> tuple[Keys, Shapes]:
    """An encoder of three layers and a decoder of two, or the encoder alone."""
    keys: Keys = {
        "block_count": 3, "decoder_block_count": 2, "embedding_length": D, "attention.head_count": HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6, "attention.relative_buckets_count": 32,
    }  # fmt: skip
    t: Shapes = {"token_embd.weight": ((D, VOCAB), Q.Q8_0)}
    t |= {} if tied else {"output.weight": ((D, VOCAB), Q.Q6_K)}
    for side, n in (("enc", 3), ("dec", 2)):
        if side not in sides:
            continue
        t[f"{side}.output_norm.weight"] = ((D,), Q.F32)
        t[f"{side}.blk.0.attn_rel_b.weight"] = ((HEADS, 32), Q.F16)
        for i in range(n):
            own = f"{side}.blk.{i}"
            parts = ["attn", "cross_attn"] if side == "dec" else ["attn"]
            for part in parts:
                t |= {f"{own}.{part}_{x}.weight": ((D, D), Q.Q4_K) for x in "qkvo"}
                t[f"{own}.{part}_norm.weight"] = ((D,), Q.F32)
            names = ("gate", "up", "down") if gated else ("up", "down")
            t |= {name.replace("blk.0", own): shape for name, shape in ffn(0, names).items()}
            t[f"{own}.ffn_norm.weight"] = ((D,), Q.F32)
    return keys, t
