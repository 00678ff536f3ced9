"""Gemma 1 to 3 and Gemma 3n."""

from __future__ import annotations

from collections.abc import Sequence

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.llama import d_head, layers
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.parts import attention, decoder, every, glu, head, layer_types, rmsnorm, rope, sliding

Doc = JsonObject
SCALED = {"scale": "sqrt_d_model"}


def gelu(c: Config, **more: object) -> Doc:
    """The gated feed-forward layer. Old files say "gelu" and mean its tanh approximation."""
    c.only("hidden_act", "gelu", "gelu_pytorch_tanh")
    c.only("hidden_activation", "gelu_pytorch_tanh")
    return glu("gelu_tanh", c.count("intermediate_size"), **more)


def causal(c: Config) -> None:
    """Gemma's bidirectional variants are other models."""
    c.only("use_bidirectional_attention", False)
    c.only("attention_bias", False)


# GemmaConfig
@family("gemma", vocab_size=256000, hidden_size=3072, intermediate_size=24576, num_hidden_layers=28,
        num_attention_heads=16, num_key_value_heads=16, head_dim=256, max_position_embeddings=8192,
        rms_norm_eps=1e-6, tie_word_embeddings=True)  # fmt: skip
def gemma(c: Config) -> Doc:
    """Gemma: wide heads, GeGLU, embedding scaled by the root of the width."""
    causal(c)
    norm = rmsnorm(c, offset=True)
    layer = {"norm": norm, "attention": attention(c, position=rope(c, d_head(c))), "ffn": gelu(c)}
    return decoder(c, [("layers", layer)] * layers(c), norm, embedding=SCALED)


# Gemma2Config
@family("gemma2", vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=8192,
        rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=4096, final_logit_softcapping=30.0,
        attn_logit_softcapping=50.0, tie_word_embeddings=True)  # fmt: skip
def gemma2(c: Config) -> Doc:
    """Gemma 2: every second layer local, norms on both sides of a branch, capped scores and logits."""
    c.skip("cache_implementation")
    position = rope(c, d_head(c))
    block = _scaled(c) | _capped(c, "attn_logit_softcapping") | {"position": position}
    types = layer_types(c, layers(c), every(layers(c), 2, "full_attention", "sliding_attention"))
    return _sandwich(c, {"full_attention": block, "sliding_attention": block | _near(c)}, types)


# Gemma3TextConfig
@family("gemma3_text", vocab_size=262208, hidden_size=2304, intermediate_size=9216, num_hidden_layers=26,
        num_attention_heads=8, num_key_value_heads=4, head_dim=256, max_position_embeddings=131072,
        rms_norm_eps=1e-6, query_pre_attn_scalar=256, sliding_window=4096, sliding_window_pattern=6,
        rope_local_base_freq=10000.0, rope_theta=1000000.0, tie_word_embeddings=True)  # fmt: skip
def gemma3(c: Config) -> Doc:
    """Gemma 3: five local layers to one global, each kind with rotary positions of its own."""
    c.skip("cache_implementation", "mm_tokens_per_image")
    block = _scaled(c) | {"qk_norm": rmsnorm(c, offset=True)} | _capped(c, "attn_logit_softcapping")
    near, far = local_and_global(c)
    step = c.count("sliding_window_pattern", "_sliding_window_pattern")
    types = layer_types(c, layers(c), every(layers(c), step, "full_attention", "sliding_attention"))
    blocks = {"full_attention": block | {"position": far}, "sliding_attention": block | _near(c) | {"position": near}}
    return _sandwich(c, blocks, types)


def local_and_global(c: Config) -> tuple[Doc, Doc]:
    """Rotary positions of local and global layers: nested by layer type, or two bases and one scaling."""
    nested = "full_attention" in (c.data.get("rope_parameters") or {})
    if nested:
        c.skip("rope_theta", "rope_local_base_freq")
        plain = Config({"rope_parameters": c.data["rope_parameters"]}, {})
        c.get("rope_parameters")
        return rope(plain, d_head(c), "sliding_attention"), rope(plain, d_head(c), "full_attention")
    theta = c.number("rope_local_base_freq")
    return {"kind": "rope", "theta": int(theta)}, rope(c, d_head(c))


def _scaled(c: Config) -> Doc:
    return attention(c) | {"scale": c.number("query_pre_attn_scalar") ** -0.5}


def _capped(c: Config, key: str) -> Doc:
    return {"softcap": c.number(key)} if c.get(key) is not None else {}


def _near(c: Config) -> Doc:
    return {"mask": sliding(c.count("sliding_window"))}


def _sandwich(c: Config, blocks: dict[str, Doc], types: Sequence[str]) -> Doc:
    causal(c)
    norm = rmsnorm(c, offset=True)
    base = {"norm": norm, "placement": "pre+post"}
    kinds = {t: base | {"attention": block, "ffn": gelu(c)} for t, block in blocks.items()}
    names = {"full_attention": "global", "sliding_attention": "local"}
    output = head(c) | _capped(c, "final_logit_softcapping")
    return decoder(c, [(names[t], kinds[t]) for t in types], norm, embedding=SCALED, output=output)
