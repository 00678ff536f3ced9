"""Encoders of images of one size, or of tiles of it: CLIP, SigLIP, InternViT, Pixtral, Llama 4's, with the
projectors of the families that use them.
"""

from __future__ import annotations

from collections.abc import Callable

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.towers.parts import (
    ROTARY,
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
from archsim.importers.hf.towers.registry import Around, encoder

Doc = JsonObject


def clip(c: Config, around: Around) -> list[Doc]:
    """CLIP's: a class token, a norm before and one after the layers."""
    first, d = layernorm(c.number("layer_norm_eps")), c.count("hidden_size")
    ffn = mlp(act(c, "hidden_act"), c.count("intermediate_size"))
    one = layer(first, mha(c.count("num_attention_heads"), d, bias=True), ffn)
    keeps_class = around.config.get("vision_feature_select_strategy", "default") == "full"
    return [
        patches(d, patch_size(c), channels=c.count("num_channels"), bias=False),
        {"kind": "class_token"},
        {"kind": "positions", "rows": squares(c) + 1},
        norm(first),
        layers(c.count("num_hidden_layers"), one),
        norm(first, name="post_norm"),
        *([] if keeps_class else [{"kind": "drop_class"}]),
    ]


def siglip(c: Config, around: Around) -> list[Doc]:
    """SigLIP's, with the head that sums an image up where it has one."""
    last, d, n = layernorm(c.number("layer_norm_eps")), c.count("hidden_size"), c.count("num_attention_heads")
    act_name, d_ff = act(c, "hidden_act"), c.count("intermediate_size")
    one = layer(last, mha(n, d, bias=True), mlp(act_name, d_ff))
    summed = {"kind": "attention_pool", "n_heads": n, "norm": last, "ffn": mlp(act_name, d_ff)}
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        {"kind": "positions", "rows": squares(c)},
        layers(c.count("num_hidden_layers"), one),
        norm(last),
        *([{"kind": "branch", "name": "head", "stages": [summed]}] if c.get("vision_use_head") else []),
    ]


def pixtral(c: Config, around: Around) -> list[Doc]:
    """Pixtral's: any resolution, no biases, gates."""
    first, d = rmsnorm(1e-5), c.count("hidden_size")
    c.skip("head_dim")
    one = layer(
        first,
        mha(c.count("num_attention_heads"), d, position=ROTARY),
        glu(act(c, "hidden_act"), c.count("intermediate_size")),
    )
    return [
        patches(d, patch_size(c), channels=c.count("num_channels"), bias=False),
        norm(first),
        layers(c.count("num_hidden_layers"), one),
    ]


def internvit(c: Config, around: Around) -> list[Doc]:
    """InternViT: a learned factor on every branch."""
    kinds = {"layer_norm": layernorm, "rms_norm": rmsnorm}
    d, first = c.count("hidden_size"), kinds[c.get("norm_type")](c.number("layer_norm_eps"))
    c.only("use_mask_token", False)
    qk = {"qk_norm": {"kind": "rmsnorm", "over": "all"}} if c.get("use_qk_norm") else {}
    attention = mha(
        c.count("num_attention_heads"), d, qkv_bias=bool(c.get("attention_bias")), out_bias=True, **qk
    )  # fmt: skip
    one = layer(first, attention, mlp(act(c, "hidden_act"), c.count("intermediate_size")), layer_scale="channel")
    table = [{"kind": "positions", "rows": squares(c) + 1}] if c.get("use_absolute_position_embeddings") else []
    return [
        patches(d, patch_size(c), channels=c.count("num_channels")),
        {"kind": "class_token"},
        *table,
        layers(c.count("num_hidden_layers"), one),
        *([] if c.get("use_mean_pooling") else [norm(layernorm(c.number("layer_norm_eps")))]),
        {"kind": "drop_class"},
    ]


CLIP = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5,
}  # fmt: skip
SIGLIP = {**CLIP, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6, "vision_use_head": True}
PIXTRAL = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_channels": 3, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu",
}  # fmt: skip
INTERNVIT = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "attention_bias": False,
    "use_qk_norm": False, "intermediate_size": 4096, "hidden_act": "gelu", "norm_type": "layer_norm",
    "layer_norm_eps": 1e-6, "image_size": 448, "patch_size": 14, "num_channels": 3, "use_mask_token": False,
    "use_absolute_position_embeddings": True, "use_mean_pooling": True,
}  # fmt: skip

BODIES: dict[str, tuple[Callable[[Config, Around], list[Doc]], dict[str, object]]] = {
    "clip_vision_model": (clip, CLIP), "siglip_vision_model": (siglip, SIGLIP), "pixtral": (pixtral, PIXTRAL),
    "internvl_vision": (internvit, INTERNVIT), "qianfan_ocr_vision": (internvit, INTERNVIT),
}  # fmt: skip
"""model_type of an encoder's config -> what reads it, and the defaults of its class."""


def body(c: Config, around: Around, usual: str = "clip_vision_model") -> list[Doc]:
    """The encoder that the config names, without a projector."""
    kind = c.get("model_type") or usual
    if kind not in BODIES:
        raise c.error("model_type", f"no encoder {kind!r} is known; known: {', '.join(BODIES)}")
    read, defaults = BODIES[kind]
    inside = Config(c.data, defaults, c.where)
    inside.read = c.read
    return read(inside, around)


def projector(around: Around, bias: bool = True) -> list[Doc]:
    """LLaVA's: two matrices."""
    name = act(around.config, "projector_hidden_act") if around.config.get("projector_hidden_act") else "gelu"
    given = around.config.get("multimodal_projector_bias")
    return two_layers(around.width, name, bias if given is None else bool(given))


@encoder("vision", "llava")
def llava(c: Config, around: Around) -> list[Doc]:
    """LLaVA: any encoder, two matrices."""
    if isinstance(around.config.get("vision_feature_layer"), list):
        raise around.config.error("vision_feature_layer", "concatenated features of several layers are not supported")
    return [*body(c, around), *projector(around)]


@encoder("vision", "llava_next", "llava_next_video")
def llava_next(c: Config, around: Around) -> list[Doc]:
    """LLaVA-NeXT and OneVision: tiles, whose rows end in a learned vector."""
    return [*llava(c, around), {"kind": "vectors"}]


@encoder("vision", "llava_onevision")
def llava_onevision(c: Config, around: Around) -> list[Doc]:
    """LLaVA-OneVision: the same with SigLIP."""
    return [*body(c, around, "siglip_vision_model"), *projector(around), {"kind": "vectors"}]


@encoder("vision", "mistral3", "lighton_ocr")
def mistral3(c: Config, around: Around) -> list[Doc]:
    """Mistral 3: Pixtral's encoder, neighbours merged into the width of one."""
    d, side = c.count("hidden_size", default=1024), around.config.count("spatial_merge_size", default=2)
    return [
        *body(c, around, "pixtral"),
        norm(rmsnorm(1e-5), name="projector_norm"),
        {"kind": "merge", "tokens": side**2},
        linear(d, bias=False),
        *projector(around, bias=False),
    ]


LARGE = {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 30, "num_attention_heads": 16,
         "patch_size": 14, "image_size": 1540, "hidden_act": "silu"}  # fmt: skip
"""What MistralLarge4Config gives its encoder where the config does not."""


@encoder("vision", "mistral_large4", **LARGE)
def mistral_large4(c: Config, around: Around) -> list[Doc]:
    """Mistral Large 4: Mistral 3's, larger."""
    return mistral3(c.changed(**{key: value for key, value in LARGE.items() if key not in c.data}), around)


@encoder("vision", "internvl", "qianfan_ocr", image_size=[448, 448])
def internvl(c: Config, around: Around) -> list[Doc]:
    """InternVL: a pixel shuffle, a norm, two matrices."""
    ratio = around.config.get("downsample_ratio", 0.5)
    return [
        *body(c, around, "internvl_vision"),
        {"kind": "merge", "tokens": round(1 / ratio) ** 2},
        norm(layernorm(1e-5), name="projector_norm"),
        *projector(around),
    ]


# InternVisionConfig in SGLang, of checkpoints that bring their own class
@encoder("vision", "internvl_chat", hidden_size=3200, intermediate_size=12800, num_hidden_layers=48,
         num_attention_heads=25, num_channels=3, image_size=224, patch_size=14, hidden_act="gelu", layer_norm_eps=1e-6,
         norm_type="rms_norm", qkv_bias=False, qk_normalization=True)  # fmt: skip
def internvl_chat(c: Config, around: Around) -> list[Doc]:
    """InternVL's own config: the same encoder under other names. The image is as large as `force_image_size` says."""
    c.skip("use_flash_attn", "drop_path_rate", "model_type", "num_experts")
    image = around.config.get("force_image_size") or c.get("image_size")
    own = c.changed(
        attention_bias=bool(c.get("qkv_bias")), use_qk_norm=bool(c.get("qk_normalization")), image_size=image,
        model_type="internvl_vision", use_mean_pooling=True, use_absolute_position_embeddings=True,
        use_mask_token=False,
    )  # fmt: skip
    return internvl(own, around)


# MllamaVisionConfig
@encoder("vision", "mllama", hidden_size=1280, hidden_act="gelu", num_hidden_layers=32, num_global_layers=8,
         attention_heads=16, num_channels=3, intermediate_size=5120, vision_output_dim=7680, image_size=448,
         patch_size=14, norm_eps=1e-5, max_num_tiles=4, intermediate_layers_indices=[3, 7, 15, 23, 30])  # fmt: skip
def mllama(c: Config, around: Around) -> list[Doc]:
    """Llama 3.2 Vision: layers that see all tiles of an image at once, tables for the place of a tile, more layers
    whose branches have a learned factor, and what some layers gave beside each other. Its vectors are attended to and
    take no place among the tokens.
    """
    d, n, tiles = c.count("hidden_size"), c.count("attention_heads"), c.count("max_num_tiles")
    first, rows, taps = layernorm(c.number("norm_eps")), squares(c) + 1, c.get("intermediate_layers_indices")
    if d * (len(taps) + 1) != c.count("vision_output_dim"):
        raise c.error("vision_output_dim", "not the width of the concatenated layers")
    shapes = 1 + len(c.get("supported_aspect_ratios") or _tilings(tiles))
    one = layer(first, mha(n, d), mlp(act(c, "hidden_act"), c.count("intermediate_size")))
    place = {"kind": "positions", "rows": shapes * tiles, "gated": True}
    return [
        patches(d, patch_size(c), channels=c.count("num_channels"), bias=False),
        place,
        {"kind": "class_token"},
        {"kind": "positions", "rows": rows, "gated": True},
        {"kind": "positions", "rows": shapes * tiles * rows},
        norm(layernorm(1e-5)),
        {
            "kind": "together",
            "n": tiles,
            "multiple": 8,
            "stages": [
                layers(c.count("num_hidden_layers"), one),
                norm(layernorm(1e-5), name="post_norm"),
                place,
                layers(c.count("num_global_layers"), one | {"layer_scale": "one"}),
            ],
        },
        {"kind": "taps", "n": len(taps)},
        linear(around.width),
    ]


def _tilings(most: int) -> list[tuple[int, int]]:
    """Rows and columns of at most so many tiles."""
    return [(r, k) for r in range(1, most + 1) for k in range(1, most + 1) if r * k <= most]


@encoder("vision", "gemma3", "shieldgemma2")
def gemma3(c: Config, around: Around) -> list[Doc]:
    """Gemma 3: SigLIP, its patches averaged to so many tokens an image."""
    found, per_image = body(c, around, "siglip_vision_model"), around.config.count("mm_tokens_per_image", default=256)
    tokens = squares(Config(c.data, SIGLIP))
    return [
        *found,
        {"kind": "pool", "tokens": max(1, tokens // per_image)},
        norm(rmsnorm(), name="projector_norm"),
        linear(around.width, bias=False),
    ]


@encoder("vision", "paligemma")
def paligemma(c: Config, around: Around) -> list[Doc]:
    """PaliGemma: SigLIP and one matrix."""
    return [*body(c, around, "siglip_vision_model"), linear(c.count("projection_dim", default=around.width))]


@encoder("vision", "deepseek_vl")
def deepseek_vl(c: Config, around: Around) -> list[Doc]:
    """DeepSeek-VL: SigLIP and two matrices."""
    return [*body(c, around, "siglip_vision_model"), *two_layers(around.width, "gelu")]


# Gemma4VisionConfig
@encoder("vision", "gemma4", hidden_size=768, intermediate_size=3072, num_hidden_layers=16, num_attention_heads=12,
         num_key_value_heads=12, head_dim=64, hidden_activation="gelu_pytorch_tanh", rms_norm_eps=1e-6,
         attention_bias=False, pooling_kernel_size=3, patch_size=16, position_embedding_size=10240,
         use_clipped_linears=False, standardize=False)  # fmt: skip
def gemma4(c: Config, around: Around) -> list[Doc]:
    """Gemma 4: any resolution, Gemma's layers, patches averaged three by three."""
    d, n, first = c.count("hidden_size"), c.count("num_attention_heads"), rmsnorm(c.number("rms_norm_eps"))
    c.only("num_key_value_heads", n)
    c.skip("standardize", "use_clipped_linears")  # by buffers
    c.skip("global_head_dim", "image_seq_length", "video_seq_length")  # the class reads none of them
    bias = {"bias": True} if c.get("attention_bias") else {}
    qk = {"kind": "rmsnorm", "value": True}
    attention = {"kind": "mha", "n_heads": n, "d_head": c.count("head_dim"), "qk_norm": qk, "position": ROTARY, **bias}
    ffn = glu(act(c, "hidden_activation"), c.count("intermediate_size"))
    pooled = [{"kind": "pool", "tokens": c.count("pooling_kernel_size") ** 2}]
    return [
        patches(d, c.count("patch_size"), bias=False),
        {"kind": "positions", "rows": 2 * c.count("position_embedding_size")},
        layers(c.count("num_hidden_layers"), layer(first, attention, ffn, placement="pre+post")),
        *pooled,
        norm(first | {"affine": False}),
        linear(around.width, bias=False),
    ]


# Llama4VisionConfig
@encoder("vision", "llama4", hidden_size=768, hidden_act="gelu", num_hidden_layers=34, num_attention_heads=16,
         num_channels=3, intermediate_size=5632, vision_output_dim=7680, image_size=448, patch_size=14, norm_eps=1e-5,
         pixel_shuffle_ratio=0.5, projector_input_dim=4096, projector_output_dim=4096,
         multi_modal_projector_bias=False)  # fmt: skip
def llama4(c: Config, around: Around) -> list[Doc]:
    """Llama 4: a pixel shuffle, two matrices, and the projector."""
    d, first = c.count("hidden_size"), layernorm(c.number("norm_eps"))
    tokens = round(1 / c.number("pixel_shuffle_ratio")) ** 2
    ends = {c.count(key) for key in ("vision_output_dim", "projector_output_dim", "projector_input_dim")}
    if d * tokens != c.count("intermediate_size") or len(ends) > 1:
        raise c.error("intermediate_size", "the widths of the projector do not fit together")
    one = layer(first, mha(c.count("num_attention_heads"), d, bias=True, position=ROTARY),
                mlp(act(c, "hidden_act"), c.count("intermediate_size")))  # fmt: skip
    bias = bool(c.get("multi_modal_projector_bias"))
    return [
        patches(d, patch_size(c), channels=c.count("num_channels"), bias=False),
        {"kind": "class_token"},
        {"kind": "positions", "rows": squares(c) + 1},
        norm(first),
        layers(c.count("num_hidden_layers"), one),
        norm(first, name="post_norm"),
        {"kind": "drop_class"},
        {"kind": "merge", "tokens": tokens},
        linear(max(ends), bias=False, activation="gelu"),
        linear(max(ends), bias=False, activation="gelu"),
        linear(around.width, bias=bias),
    ]


# Gemma4UnifiedVisionConfig
@encoder("vision", "gemma4_unified", patch_size=16, pooling_kernel_size=3, mm_embed_dim=3840, mm_posemb_size=1120)
def gemma4_unified(c: Config, around: Around) -> list[Doc]:
    """Gemma 4 12B: no layers, patches of 48 pixels under norms, and two matrices."""
    c.skip("rms_norm_eps", "output_proj_dims", "num_soft_tokens")
    side = c.count("patch_size") * c.count("pooling_kernel_size")
    c.only("model_patch_size", side)
    return [
        patches(c.count("mm_embed_dim"), side) | {"norm": layernorm(1e-5)},
        norm(layernorm(1e-5)),
        {"kind": "positions", "rows": 2 * c.count("mm_posemb_size")},
        norm(layernorm(1e-5)),
        norm(rmsnorm() | {"affine": False}),
        linear(around.width, bias=False),
    ]
