"""Encoders of images whose vectors are summed up by learned ones that attend to them: Q-Formers (BLIP-2,
InstructBLIP), perceivers (Idefics 2), KOSMOS-2; BLIP and GIT, whose language models take all vectors, and CLIP itself;
and the encoder of sound of Granite Speech, which has a Q-Former too.
"""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.parts import heads
from archsim.importers.hf.pattern import pattern
from archsim.importers.hf.towers.conformers import conformer
from archsim.importers.hf.towers.parts import (
    act,
    glu,
    layer,
    layernorm,
    layers,
    linear,
    mha,
    mlp,
    norm,
    patch_size,
    patches,
    rmsnorm,
    squares,
    two_layers,
)
from archsim.importers.hf.towers.pictures import CLIP, body, clip
from archsim.importers.hf.towers.registry import Around, encoder
from archsim.importers.hf.towers.variants import PLAIN, plain

Doc = JsonObject

EVA = {
    "hidden_size": 1408, "intermediate_size": 6144, "num_hidden_layers": 39, "num_attention_heads": 16,
    "image_size": 224, "patch_size": 14, "hidden_act": "gelu", "layer_norm_eps": 1e-6, "qkv_bias": True,
}  # fmt: skip
"""Blip2VisionConfig and InstructBlipVisionConfig."""

BLIP = {**EVA, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
        "image_size": 384, "patch_size": 16, "layer_norm_eps": 1e-5}  # fmt: skip
"""BlipVisionConfig."""

QFORMER = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
    "hidden_act": "gelu", "layer_norm_eps": 1e-12, "cross_attention_frequency": 2, "encoder_hidden_size": 1408,
    "vocab_size": 30522, "max_position_embeddings": 512, "use_qformer_text_input": False,
}  # fmt: skip
"""Blip2QFormerConfig and InstructBlipQFormerConfig."""


def part(around: Around, key: str, defaults: Doc) -> Config:
    """A mapping beside the encoder's."""
    return Config(around.parts.get(key) or {}, defaults, f"{key}.")


# BlipVisionConfig, whose `qkv` always has a bias
@encoder("vision", "blip", **BLIP)
def eva(c: Config, around: Around) -> list[Doc]:
    """A vision transformer with a class token that stays and one norm after the layers (BLIP, EVA)."""
    first, d = layernorm(c.number("layer_norm_eps")), c.count("hidden_size")
    attention = mha(c.count("num_attention_heads"), d, qkv_bias=bool(c.get("qkv_bias")), out_bias=True)
    return [
        patches(d, patch_size(c)),
        {"kind": "class_token"},
        {"kind": "positions", "rows": squares(c) + 1},
        layers(c.count("num_hidden_layers"),
               layer(first, attention, mlp(act(c, "hidden_act"), c.count("intermediate_size")))),
        norm(first),
    ]  # fmt: skip


def qformer(q: Config, n: int, encoder_width: int, **more: object) -> Doc:
    """A BERT of `n` learned queries, of whose layers every few also attend to the image (arXiv:2301.12597).
    encoder_width: of the vectors that they attend to.
    """
    q.only("encoder_hidden_size", encoder_width)
    first, d = layernorm(q.number("layer_norm_eps")), q.count("hidden_size")
    attention = mha(q.count("num_attention_heads"), d, bias=True)
    plain_layer = layer(first, attention, queries_network(q), placement="post")
    seeing = plain_layer | {"cross_attention": attention}
    every = q.count("cross_attention_frequency")
    entries = [("seeing", seeing) if i % every == 0 else ("plain", plain_layer)
               for i in range(q.count("num_hidden_layers"))]  # fmt: skip
    return {"kind": "latents", "n": n, "d": d, "norm": first, "layers": pattern(entries)} | more


def queries_network(q: Config) -> Doc:
    """The feed-forward network of a Q-Former."""
    return mlp(act(q, "hidden_act"), q.count("intermediate_size"))


def instruction(q: Config) -> Doc:
    """A Q-Former's second network of each layer, for words beside its queries."""
    once = [{"kind": "network", "ffn": queries_network(q)}, norm(layernorm(q.number("layer_norm_eps")))]
    repeated = {"kind": "residual", "repeat": q.count("num_hidden_layers"), "stages": once}
    return {"kind": "unused", "name": "instruction", "stages": [repeated]}


# Blip2VisionConfig and Blip2QFormerConfig
@encoder("vision", "blip-2", **EVA)
def blip2(c: Config, around: Around) -> list[Doc]:
    """BLIP-2: a Q-Former and one matrix."""
    q = part(around, "qformer_config", QFORMER)
    found = [*eva(c, around), qformer(q, around.config.count("num_query_tokens", default=32), c.count("hidden_size"))]
    return [*found, *([instruction(q)] if q.get("use_qformer_text_input") else []), linear(around.width)]


# InstructBlipVisionConfig and InstructBlipQFormerConfig
@encoder("vision", "instructblip", "instructblipvideo", **EVA)
def instructblip(c: Config, around: Around) -> list[Doc]:
    """InstructBLIP: the Q-Former also reads the instruction, whose tables and networks are held; its work depends on
    the instruction's length and is not in that of an image.
    """
    q = part(around, "qformer_config", QFORMER)
    words: Doc = {"kind": "vectors", "name": "words", "n": q.count("vocab_size")}
    places: Doc = {"kind": "vectors", "name": "places", "n": q.count("max_position_embeddings")}
    queries = qformer(q, around.config.count("num_query_tokens", default=32), c.count("hidden_size"))
    return [*eva(c, around), queries, words, places, instruction(q), linear(around.width)]


MISTRAL = {"hidden_act": "silu", "intermediate_size": 14336}
"""Of MistralConfig, what Idefics 2's projector takes from it."""

PERCEIVER = {
    "hidden_act": "silu", "rms_norm_eps": 1e-6, "resampler_n_latents": 64, "resampler_depth": 3,
    "resampler_n_heads": 16, "resampler_head_dim": 96, "num_key_value_heads": 4,
}  # fmt: skip
"""Idefics2PerceiverConfig."""


# Idefics2VisionConfig and Idefics2PerceiverConfig
@encoder("vision", "idefics2", **{**PLAIN, "patch_size": 32})
def idefics2(c: Config, around: Around) -> list[Doc]:
    """Idefics 2: SigLIP, a gated network to the width of the language model, a perceiver of 64 latents."""
    text, p = part(around, "text_config", MISTRAL), part(around, "perceiver_config", PERCEIVER)
    first, depth, width = rmsnorm(p.number("rms_norm_eps")), p.count("resampler_depth"), around.width
    attention = heads(p.count("resampler_n_heads"), p.count("num_key_value_heads"), p.count("resampler_head_dim"))
    one: Doc = {"norm": first, "cross_attention": attention, "ffn": glu(act(p, "hidden_act"), 4 * width),
                "repeat": depth}  # fmt: skip
    held: Doc = {"kind": "unused", "name": "context_norms", "stages": [norm(first)] * depth}
    return [
        *plain(c, squares(c)),
        linear(text.count("intermediate_size"), False, act(text, "hidden_act")) | {"gated": True},
        linear(width, bias=False),
        {"kind": "latents", "n": p.count("resampler_n_latents"), "joined": True, "layers": [one]},
        held,
        norm(first),
    ]


def queried(around: Around, n: int, n_heads: int) -> list[Doc]:
    """KOSMOS-2's way into the language model: one matrix, and one attention of latents."""
    attention = mha(n_heads, around.width, bias=True)
    return [linear(around.width), {"kind": "latents", "n": n, "joined": True, "attention": attention}]


# Kosmos2VisionConfig and Kosmos2Config
@encoder("vision", "kosmos-2", **{**CLIP, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24,
         "num_attention_heads": 16, "patch_size": 14})  # fmt: skip
def kosmos2(c: Config, around: Around) -> list[Doc]:
    """KOSMOS-2: CLIP whose class token stays, and 64 latents."""
    found = [stage for stage in clip(c, around) if stage["kind"] != "drop_class"]
    text = part(around, "text_config", {"attention_heads": 32})
    n = around.config.count("latent_query_num", default=64)
    return [*found, *queried(around, n, text.count("attention_heads"))]


# Kosmos2_5VisionConfig and Kosmos2_5Config
@encoder("vision", "kosmos-2.5", hidden_size=1536, patch_embed_hidden_size=768, intermediate_size=3968, head_dim=64,
         num_hidden_layers=18, num_attention_heads=24, dense_act_fn="gelu_new", layer_norm_eps=1e-6,
         max_num_patches=4096)  # fmt: skip
def kosmos2_5(c: Config, around: Around) -> list[Doc]:
    """KOSMOS-2.5: Pix2Struct's encoder, tables for rows and for columns, and 2,048 latents."""
    d, n, first = c.count("hidden_size"), c.count("num_attention_heads"), rmsnorm(c.number("layer_norm_eps"))
    side = round((c.count("patch_embed_hidden_size") / 3) ** 0.5)
    c.only("patch_embed_hidden_size", 3 * side**2)
    attention: Doc = {"kind": "mha", "n_heads": n, "d_head": c.count("head_dim")}
    one = layer(first, attention, glu(act(c, "dense_act_fn"), c.count("intermediate_size")))
    text = part(around, "text_config", {"attention_heads": 16})
    return [
        patches(d, side),
        {"kind": "positions", "rows": 2 * c.count("max_num_patches")},
        layers(c.count("num_hidden_layers"), one),
        norm(first),
        *queried(around, around.config.count("latent_query_num", default=2048), text.count("attention_heads")),
    ]


# GitVisionConfig
@encoder("vision", "git", **{**CLIP, "patch_size": 16})
def git(c: Config, around: Around) -> list[Doc]:
    """GIT: CLIP whose class token stays, one matrix and a norm; a vector for the place of each frame of a video."""
    found = [stage for stage in clip(c, around) if stage["kind"] != "drop_class"]
    frames = around.config.get("num_image_with_embedding")
    places = [{"kind": "vectors", "name": "frames", "n": frames}] if frames else []
    eps = c.number("layer_norm_eps")
    return [*found, *places, linear(around.width), norm(layernorm(eps), name="projector_norm")]


# GraniteDoclingVisionConfig
@encoder("vision", "granite_docling", **{**PLAIN, "image_size": 512, "patch_size": 16}, out_hidden_size=1024,
         scale_factor=4, deepstack_visual_indexes=[3, 7, 10], use_fine_route=True)  # fmt: skip
def granite_docling(c: Config, around: Around) -> list[Doc]:
    """Granite Docling 2: SigLIP, neighbours side by side between norms, and the same of some layers (DeepStack); a
    second way with four times as many vectors, taken on request.
    """
    around.config.only("density_router_hidden_size", None)
    side, out, taps = c.count("scale_factor"), c.count("out_hidden_size"), len(c.get("deepstack_visual_indexes") or ())
    found, last = plain(c, squares(c)), norm(layernorm(1e-5), name="projector_norm")

    def deep(scale: int) -> list[Doc]:
        stages = [{"kind": "merge", "tokens": scale**2}, norm(layernorm(1e-5)), *two_layers(out, "gelu")]
        return [{"kind": "branch", "name": "deepstack", "n": taps, "stages": stages}] if taps else []

    fine = [*deep(side // 2), {"kind": "merge", "tokens": (side // 2) ** 2}, linear(out, bias=False)]
    return [
        *found[:-1],
        *([{"kind": "unused", "name": "fine", "stages": fine}] if c.get("use_fine_route") else []),
        *deep(side),
        found[-1],
        last,
        {"kind": "merge", "tokens": side**2},
        linear(out, bias=False),
        norm(layernorm(1e-5), name="inner_norm", activation="gelu"),
        linear(out, bias=False),
        norm(layernorm(1e-5), name="last_norm"),
    ]


WINDOWED = {**QFORMER, "num_hidden_layers": 1, "cross_attention_frequency": 1}
"""Granite4VisionConfig's Q-Former."""

OFFSETS = 4
"""Projectors that each begin with one corner of every square of 2 x 2 patches."""


# Granite4VisionConfig
@encoder("vision", "granite4_vision", **CLIP)
def granite4_vision(c: Config, around: Around) -> list[Doc]:
    """Granite 4 Vision: Q-Formers over square windows, one for each layer that the language model takes vectors of, and
    four for corners of squares; tiles, whose rows end in a learned vector.
    """
    found, d = body(c, around), c.count("hidden_size")
    rate = str(around.config.get("downsample_rate")).split("/")
    if len(rate) != 2 or not all(side.isdigit() for side in rate):
        raise around.config.error("downsample_rate", "not a fraction such as 4/8")
    side, window = map(int, rate)
    ways = len(around.config.get("deepstack_layer_map") or ()) + OFFSETS
    own = part(around, "qformer_config", WINDOWED).changed(
        hidden_size=d, num_attention_heads=d // 64, encoder_hidden_size=d
    )
    one = [
        norm(layernorm(), name="projector_norm"),
        {"kind": "positions", "rows": window**2},
        qformer(own, side**2, d, window=window**2),
        linear(around.width),
    ]
    return [*found, {"kind": "branch", "name": "deepstack", "n": ways - 1, "stages": one}, *one, {"kind": "vectors"}]


# CLIPConfig and CLIPVisionConfig
@encoder("vision", "clip", **CLIP)
def whole_clip(c: Config, around: Around) -> list[Doc]:
    """CLIP: what the class token has become, under a norm and through one matrix, to compare with that of a text."""
    found = [stage for stage in clip(c, around) if stage.get("name") != "post_norm" and stage["kind"] != "drop_class"]
    last = norm(layernorm(c.number("layer_norm_eps")), name="post_norm")
    width = around.config.count("projection_dim", default=512)
    return [*found, {"kind": "pool", "tokens": squares(c) + 1, "first": True}, last, linear(width, bias=False)]


# GraniteSpeechEncoderConfig, GraniteSpeechPlusEncoderConfig and GraniteSpeechConfig
@encoder("audio", "granite_speech", "granite_speech_plus", input_dim=160, num_layers=10, hidden_dim=1024,
         feedforward_mult=4, num_heads=8, output_dim=42, context_size=200, max_pos_emb=512, conv_kernel_size=15,
         conv_expansion_factor=2)  # fmt: skip
def granite_speech(c: Config, around: Around) -> list[Doc]:
    """Granite Speech: a conformer whose attention is within blocks and has keys for distances; characters guessed in
    the middle go back into the stream; a Q-Former over windows. Granite Speech Plus also takes what some layers gave.
    """
    d, n, span = c.count("hidden_dim"), c.count("num_heads"), c.count("context_size")
    attention: Doc = {
        "kind": "mha", "n_heads": n, "d_head": c.count("dim_head", default=d // n), "qkv_bias": False, "out_bias": True,
        "mask": {"kind": "blocked", "window": span, "context": span},
        "position": {"kind": "shaw", "rows": 2 * c.count("max_pos_emb") + 1, "span": span},
    }  # fmt: skip
    mixer: Doc = {"kind": "conv_module", "d_inner": d * c.count("conv_expansion_factor"), "bias": True,
                  "d_conv": c.count("conv_kernel_size"), "norm": layernorm(1e-5)}  # fmt: skip
    first, ffn, depth = layernorm(1e-5), mlp("silu", d * c.count("feedforward_mult")), c.count("num_layers")
    guessed: Doc = {"kind": "residual", "name": "guessed", "stages": [linear(c.count("output_dim")), linear(d)]}
    window, fewer = (around.config.count(key, default=usual) for key, usual in WINDOWS)
    taps = len(c.get("cat_hidden_layers") or ())
    queries = qformer(part(around, "projector_config", QFORMER), window // fewer, d * (taps + 1), window=window)
    return [
        {"kind": "conv", "d": d, "channels": c.count("input_dim"), "kernel": 1, "activation": None},
        conformer(depth // 2, first, attention, mixer, ffn),
        guessed,
        conformer(depth - depth // 2, first, attention, mixer, ffn),
        *([{"kind": "taps", "n": taps}] if taps else []),
        queries,
        linear(around.width),
    ]


WINDOWS = (("window_size", 15), ("downsample_rate", 5))
"""GraniteSpeechConfig: vectors of a window, and how many of them become one."""
