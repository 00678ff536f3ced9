"""The layers of a GGUF file, one by one, from their tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonObject
from archsim.importers.gguf.reader import Keys, TensorInfo
from archsim.importers.hf.families.gemma import segments
from archsim.importers.hf.parts import heads
from archsim.importers.hf.pattern import Entry, difference, shared, stack

Doc = JsonObject

WINDOWS = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2, "cohere2": 4, "phi3": 0}
"""Architectures with windows -> every so many layers one without (0: none), where no key says (llama-model.cpp)."""
GELU = ("gemma", "gemma2", "gemma3", "gemma4", "grok")
PLAIN = {"nemotron": "relu2", "nemotron_h": "relu2", "nemotron_h_moe": "relu2", "arcee": "relu2"}
"""Architectures -> activation of their feed-forward layers of two matrices, where it is not gelu."""
ENCODERS = ("bert", "nomic-bert")
"""Architectures whose tokens see each other, with norms behind every branch."""
GEMMA4 = "gemma4"
"""The architecture whose layers have norms, embeddings and shared caches that no tensor of others tells."""
CHUNK = 256
"""Tokens of a chunk in prefill, which no key states: the default of every Mamba-2 model in transformers."""


class Layers:
    """What every layer is. Sizes are taken from tensors; keys only say what no shape tells."""

    def __init__(self, keys: Keys, tensors: Mapping[str, TensorInfo], d_model: int) -> None:
        self.keys, self.tensors, self.d_model = keys, tensors, d_model

    def entry(self, i: int) -> tuple[str, Doc]:
        """One layer, and what to call it in a pattern."""
        window = self.window(i)
        layer: Doc = self.wiring(i)
        attends = self.has(i, "attn_output")
        if attends:
            layer["attention"] = self.latent(i) if self.has(i, "attn_kv_a_mqa") else self.attention(i, window)
        mixes = mixer(self, i)
        if mixes is not None:
            layer["mixer"] = mixes
        moe = self.has(i, "ffn_gate_inp")
        if moe or self.feeds(i) or not (attends or mixes):
            layer["ffn"] = self.experts(i) if moe else self.dense(i)
        kind = "mixer" if mixes and not attends else "local" if window else ""
        made = "_".join(filter(None, (kind, "moe" if moe else ""))) or "layers", layer
        return gemma4_layer(self, i, made) if self.keys.architecture == GEMMA4 else made

    def has(self, i: int, name: str, part: str = "weight") -> bool:
        """Whether a layer has a tensor."""
        return f"blk.{i}.{name}.{part}" in self.tensors

    def feeds(self, i: int) -> bool:
        """Whether a layer has a feed-forward layer, or experts."""
        return self.has(i, "ffn_down") or self.has(i, "ffn_down_exps")

    def shape(self, i: int, name: str) -> tuple[int, ...]:
        """Extents of a layer's tensor, at least two, the row first."""
        found = self.tensors.get(f"blk.{i}.{name}.weight")
        if found is None or len(found.shape) < 2:
            raise SpecError(f"layer {i} has no tensor {quote(name)}", code="E109")
        return found.shape

    # ------------------------------------------------------------------ norms
    def norm(self, name: str) -> Doc | None:
        """A norm by its tensors: a bias makes it a LayerNorm."""
        if f"{name}.weight" not in self.tensors:
            return None
        layer = "layer_norm" if self.keys.get("attention.layer_norm_epsilon") is not None else "rms"
        if f"{name}.bias" in self.tensors:
            return {"kind": "layernorm", "eps": self.keys.real("attention.layer_norm_epsilon", 1e-5)}
        if layer == "layer_norm":
            eps = self.keys.real("attention.layer_norm_epsilon", 1e-5)
            return {"kind": "layernorm", "eps": eps, "bias": False}
        return {"kind": "rmsnorm", "eps": self.keys.real("attention.layer_norm_rms_epsilon", 1e-5)}

    def wiring(self, i: int) -> Doc:
        """Norms and where they stand."""
        before, after = self.norm(f"blk.{i}.attn_norm"), self.norm(f"blk.{i}.post_attention_norm")
        second = self.norm(f"blk.{i}.ffn_norm") or self.norm(f"blk.{i}.attn_norm_2")
        behind = self.norm(f"blk.{i}.post_ffw_norm") or self.norm(f"blk.{i}.layer_output_norm")
        if before is None and self.keys.architecture in ENCODERS:
            return {"norm": self.norm(f"blk.{i}.attn_output_norm"), "placement": "post"}
        if before is None and after is not None:
            return {"norm": after, "placement": "post_inside"}
        if before is None:
            return {"norm": {"kind": "layernorm", "affine": False}}
        if after is not None and behind is not None:
            return {"norm": before, "placement": "pre+post"}
        both = self.has(i, "attn_output") and self.feeds(i)
        if second is None and after is None and both:
            return {"norm": before, "parallel": "one_norm"}
        two = self.keys.get("use_parallel_residual") or self.has(i, "attn_norm_2")
        return {"norm": before} | ({"parallel": "two_norms"} if two else {})

    # ------------------------------------------------------------------ attention
    def attention(self, i: int, window: int) -> Doc:
        """Softmax attention, its heads from the shapes of its projections."""
        n = self.keys.count("attention.head_count", i)
        kv = self.keys.number("attention.head_count_kv", i) or n
        q, k, v = self.projections(i, n, kv)
        gated = q * kv == 2 * k * n  # a gate as wide as the queries, in one matrix with them
        q = q // 2 if gated else q
        if q % n or k % kv or v % kv or q // n != k // kv or n % kv:
            widths = f"widths {q}, {k} and {v} of queries, keys and values"
            raise SpecError(f"layer {i}: {widths} do not fit {n} and {kv} heads", code="E110")
        d, d_v = k // kv, v // kv
        block: Doc = heads(n, kv, d, position=self.rope(i, d, bool(window)))
        if self.has(i, "attn_k") and not self.has(i, "attn_v"):
            block["keys_as_values"] = True
        if d_v != d:
            block["d_head_v"] = d_v
        fused = self.has(i, "attn_qkv", "bias")
        biases = {x: fused or self.has(i, f"attn_{x}", "bias") for x in "qkv"}
        if any(biases.values()):
            block["qkv_bias"] = True if all(biases.values()) else biases
        if self.has(i, "attn_output", "bias"):
            block["out_bias"] = True
        if self.has(i, "attn_q_norm"):
            block["qk_norm"] = self.head_norm(i, n, d)
        if self.has(i, "attn_sinks"):
            block["sinks"] = True
        if gated:
            block["gate"] = {"per": "element"}
        if window:
            block["mask"] = {"kind": "sliding", "window": window}
        if self.keys.architecture in ENCODERS:
            block["mask"] = {"kind": "bidirectional"}
        return block

    def projections(self, i: int, n: int, kv: int) -> tuple[int, int, int]:
        """Outputs of the projections to queries, keys and values, in one matrix or three."""
        if self.has(i, "attn_qkv"):
            width = self.shape(i, "attn_qkv")[1]
            d = width // (n + 2 * kv)
            return n * d, kv * d, width - (n + kv) * d
        q = self.shape(i, "attn_q")[1]
        if not self.has(i, "attn_k"):  # a layer that reads the cache of another
            return q, q // n * kv, q // n * kv
        k = self.shape(i, "attn_k")[1]
        same = self.keys.architecture == GEMMA4 and not self.has(i, "attn_v")
        return q, k, k if same else self.shape(i, "attn_v")[1]

    def head_norm(self, i: int, n: int, d: int) -> Doc:
        """Norms of queries and keys: of each head, of each with its own weights, or of all."""
        shape = self.tensors[f"blk.{i}.attn_q_norm.weight"].shape
        over = "heads" if len(shape) > 1 else "head" if shape[0] == d else "all"
        return (self.norm(f"blk.{i}.attn_q_norm") or {}) | ({} if over == "head" else {"over": over})

    def rope(self, i: int, d: int, near: bool = False) -> Doc | None:
        """Rotary positions, unless the model has others; windowed layers may have a base and dimensions of theirs."""
        if "position_embd.weight" in self.tensors:
            return None
        usual = self.keys.real("rope.freq_base", 10000.0)
        theta = self.keys.real("rope.freq_base_swa", usual) if near else usual
        own = self.keys.number("rope.dimension_count_swa") if near else None
        dim = own or self.keys.number("rope.dimension_count") or d
        partial = {"dim": dim} if 0 < dim < d and dim % 2 == 0 else {}
        return {"kind": "rope", "theta": theta} | partial

    def latent(self, i: int) -> Doc:
        """Multi-head latent attention; files since 2025 state the heads' own sizes under `_mla` keys."""
        n, rank = self.keys.count("attention.head_count", i), self.keys.count("attention.kv_lora_rank")
        d_rope = self.shape(i, "attn_kv_a_mqa")[1] - rank
        query = "attn_q_b" if self.has(i, "attn_q_a") else "attn_q"
        d_nope = self.shape(i, query)[1] // n - d_rope
        d_v = self.shape(i, "attn_output")[0] // n
        if min(d_rope, d_nope, d_v) < 1:
            raise SpecError(f"layer {i}: {n} heads do not match its latent attention", code="E110")
        block: Doc = {"kind": "mla", "n_heads": n, "kv_rank": rank, "d_nope": d_nope, "d_rope": d_rope, "d_v": d_v}
        if query == "attn_q_b":
            block["q_rank"] = self.shape(i, "attn_q_a")[1]
        return block

    def window(self, i: int) -> int:
        """Tokens of a layer's sliding window; 0 without one."""
        size = self.keys.number("attention.sliding_window")
        pattern = self.keys.get("attention.sliding_window_pattern")
        if not size or (pattern is None and self.keys.architecture not in WINDOWS):
            return 0
        if isinstance(pattern, list):
            return size if i < len(pattern) and pattern[i] else 0
        period = pattern if isinstance(pattern, int) else WINDOWS.get(str(self.keys.architecture), 0)
        return size if period == 0 or i % period < period - 1 else 0

    # ------------------------------------------------------------------ feed-forward
    def dense(self, i: int, suffix: str = "") -> Doc:
        """A feed-forward layer; one whose up-projection is twice as wide holds the gate in it."""
        d_ff = self.shape(i, "ffn_down" + suffix)[0]
        joined = self.has(i, "ffn_gate_up" + suffix)
        fused = joined or self.shape(i, "ffn_up" + suffix)[1] == 2 * d_ff
        gated = fused or self.has(i, "ffn_gate" + suffix)
        act = {"activation": "gelu_tanh"} if self.keys.architecture in GELU else {}
        bias = {"bias": True} if self.has(i, "ffn_down" + suffix, "bias") else {}
        if not gated:
            plain = PLAIN.get(str(self.keys.architecture))
            return {"kind": "mlp", **({"activation": plain} if plain else {}), "d_ff": d_ff} | bias
        return {"kind": "geglu" if act else "swiglu", **act, "d_ff": d_ff} | bias

    def experts(self, i: int) -> Doc:
        """Routed experts, and the shared one beside them."""
        n = self.shape(i, "ffn_gate_inp")[1]
        used = self.keys.count("expert_used_count")
        router: Doc = {"bias": True} if self.has(i, "ffn_gate_inp", "bias") else {}
        if self.has(i, "exp_probs_b", "bias") or f"blk.{i}.exp_probs_b" in self.tensors:
            router |= {"selection_bias": True, "score": "sigmoid"}
        block: Doc = {"kind": "moe", "n_experts": n, "top_k": used, "expert": self.dense(i, "_exps")}
        if self.has(i, "ffn_down_shexp"):
            gate = {"gate": True} if self.has(i, "ffn_gate_inp_shexp") else {}
            block["shared"] = self.dense(i, "_shexp") | gate
        return block | ({"router": router} if router else {})


# ---------------------------------------------------------------------- recurrent mixers
def mixer(layers: Layers, i: int) -> Doc | None:
    """The mixer of a layer, told by the tensors that only this kind has; None without one."""
    found = next((read for sign, read in KINDS if _has(layers, i, sign)), None)
    return None if found is None else found(layers, i)


def _has(layers: Layers, i: int, sign: str) -> bool:
    return f"blk.{i}.{sign}" in layers.tensors


def _mamba(layers: Layers, i: int) -> Doc:
    """Mamba: dt, B and C from one projection."""
    taps, inner = layers.shape(i, "ssm_conv1d")
    rank = layers.shape(i, "ssm_dt")[0]
    state = (layers.shape(i, "ssm_x")[1] - rank) // 2
    block: Doc = {"kind": "mamba", "d_inner": inner, "d_state": state, "d_conv": taps, "dt_rank": rank}
    if norm := layers.norm(f"blk.{i}.ssm_dt_norm"):
        block["inner_norm"] = norm
    elif layers.keys.get("ssm.dt_b_c_rms"):
        block["inner_norm"] = {"kind": "rmsnorm", "affine": False}
    return block | _conv_bias(layers, i)


def _mamba2(layers: Layers, i: int) -> Doc:
    """Mamba-2: heads, groups and states from the keys; they have to fit the projection."""
    taps, mixed = layers.shape(i, "ssm_conv1d")
    keys = layers.keys
    inner, heads = keys.count("ssm.inner_size"), keys.count("ssm.time_step_rank")
    groups, state = keys.count("ssm.group_count"), keys.count("ssm.state_size")
    if inner % heads or mixed != inner + 2 * groups * state:
        raise _misfit(i, f"{heads} heads, {groups} groups and {state} states")
    block: Doc = {
        "kind": "mamba2", "n_heads": heads, "d_head": inner // heads, "d_state": state, "n_groups": groups,
        "d_conv": taps, "chunk": CHUNK,
    }  # fmt: skip
    if norm := layers.norm(f"blk.{i}.ssm_norm"):
        block["norm"] = norm
    return block | _conv_bias(layers, i)


def _delta_net(layers: Layers, i: int) -> Doc:
    """Gated delta net: key heads are groups, value heads the time steps' rank."""
    keys = layers.keys
    value, heads = keys.count("ssm.inner_size"), keys.count("ssm.time_step_rank")
    groups, d_key = keys.count("ssm.group_count"), keys.count("ssm.state_size")
    taps, mixed = layers.shape(i, "ssm_conv1d")
    if value % heads or heads % groups or mixed != value + 2 * groups * d_key:
        raise _misfit(i, f"{groups} and {heads} heads of {d_key}")
    return {
        "kind": "gated_delta_net", "n_key_heads": groups, "n_value_heads": heads, "d_key": d_key,
        "d_value": value // heads, "d_conv": taps,
    }  # fmt: skip


def _short_conv(layers: Layers, i: int) -> Doc:
    """LFM2's gated convolution."""
    taps, width = layers.shape(i, "shortconv.conv")
    bias = {"bias": True} if layers.has(i, "shortconv.in_proj", "bias") else {}
    return {"kind": "short_conv", "d_inner": width, "d_conv": taps} | bias


def _conv_bias(layers: Layers, i: int) -> Doc:
    return {} if layers.has(i, "ssm_conv1d", "bias") else {"conv_bias": False}


def _misfit(i: int, what: str) -> SpecError:
    return SpecError(f"layer {i}: {what} do not match the shape of {quote('ssm_conv1d')}", code="E110")


KINDS: tuple[tuple[str, Callable[[Layers, int], Doc]], ...] = (
    ("shortconv.conv.weight", _short_conv), ("ssm_x.weight", _mamba), ("ssm_ba.weight", _delta_net),
    ("ssm_beta.weight", _delta_net), ("ssm_in.weight", _mamba2),
)  # fmt: skip
"""A tensor that only one kind of mixer has -> its reader."""


# ---------------------------------------------------------------------- Gemma 4
def gemma4_layer(layers: Layers, i: int, made: Entry) -> Entry:
    """A layer with norms of heads and values, and its embedding of the token."""
    name, layer = ("local" if made[0] == "local" else "global"), dict(made[1])
    norm = layers.norm(f"blk.{i}.attn_q_norm")
    if norm is None or "attention" not in layer:
        raise SpecError(f"layer {i} has no attention with QK norm", code="E109")
    layer["attention"] = layer["attention"] | {"scale": 1.0, "qk_norm": norm | {"value": True}}
    if layers.has(i, "inp_gate"):
        added = layers.norm(f"blk.{i}.post_norm")
        layer["per_layer_input"] = {"d": layers.shape(i, "inp_gate")[1], "norm": added}
    return name, layer


def gemma4_layers(entries: Sequence[Entry], readers: int) -> Doc:
    """The layers; the last `readers` of them have no keys and values, but read those of the last that has."""
    if not readers:
        return stack(entries)
    own = len(entries) - readers
    if own < 1 or not {name for name, _ in entries[own:]} <= {name for name, _ in entries[:own]}:
        raise SpecError(f"{readers:,} layers reuse keys and values of a kind that no earlier layer has", code="E110")
    base = shared([layer for _, layer in entries])
    return {"layer": base, "layers": segments([(n, difference(layer, base)) for n, layer in entries], own)}


def check_gemma4(tensors: Mapping[str, TensorInfo]) -> None:
    """Refuses the variant with experts."""
    if any(name.endswith("ffn_gate_inp.weight") for name in tensors):
        reason = "experts with norms of their own next to a dense layer cannot be expressed"
        raise SpecError(f"GGUF architecture `{GEMMA4}`: {reason}", code="E112")


def gemma4_embedding(layers: Layers, tensors: Mapping[str, TensorInfo]) -> Doc:
    """The embedding: scaled, and with a small one for every layer where the file has it."""
    found: Doc = {"scale": "sqrt_d_model"}
    rows = tensors.get("per_layer_token_embd.weight")
    norm = layers.norm("per_layer_proj_norm")
    gates = [name for name in tensors if name.endswith(".inp_gate.weight")]
    if rows is None and norm is None and not gates:
        return found
    if rows is None or norm is None or "per_layer_model_proj.weight" not in tensors:
        raise SpecError("the file has per-layer embeddings for some layers only", code="E109")
    return found | {"per_layer": {"d": layers.shape(0, "inp_gate")[1], "vocab_size": rows.shape[-1], "norm": norm}}
