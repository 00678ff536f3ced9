"""Encoder-decoders that vary BART's and T5's layers, and decoders of that shape alone."""

from __future__ import annotations

from archsim.base.json_types import JsonObject
from archsim.importers.hf.config import Config
from archsim.importers.hf.families.registry import family
from archsim.importers.hf.families.seq2seq import BART, NORM, T5, bart, m2m_100, mbart, t5
from archsim.importers.hf.parts import (
    activation,
    attention,
    decoder,
    glu,
    head,
    heads,
    layernorm,
    mlp,
    moe,
    rmsnorm,
    rope,
    sliding,
)

Doc = JsonObject


# BlenderbotSmallConfig
@family("blenderbot-small", **{**BART, "max_position_embeddings": 512, "encoder_layers": 8, "encoder_ffn_dim": 2048,
        "decoder_layers": 8, "decoder_ffn_dim": 2048, "d_model": 512})  # fmt: skip
def blenderbot_small(c: Config) -> Doc:
    """Blenderbot Small: BART whose positions count from 0."""
    c.only("static_position_embeddings", False)
    c.skip("extra_layer_norm", "do_blenderbot_90_layernorm", "layernorm_variant", "normalize_embedding")
    return _positions_from_zero(bart(c))


def _positions_from_zero(doc: Doc) -> Doc:
    """The same with tables of positions without rows in front."""

    def plain(embedding: Doc) -> Doc:
        return embedding | {"positions": {k: v for k, v in embedding["positions"].items() if k != "offset"}}

    encoder = doc["encoder"] | {"embedding": plain(doc["encoder"]["embedding"])}
    return doc | {"embedding": plain(doc["embedding"]), "encoder": encoder}


# MvpConfig
@family("mvp", **{**BART, "vocab_size": 50267})
def mvp(c: Config) -> Doc:
    """MVP: BART; prompts that are learned for a task are not supported."""
    c.only("use_prompt", False)
    c.skip("prompt_length", "prompt_mid_dim")
    return bart(c)


# PLBartConfig
@family("plbart", **{**BART, "vocab_size": 50005, "encoder_layers": 6, "encoder_ffn_dim": 3072, "decoder_layers": 6,
        "decoder_ffn_dim": 3072, "encoder_attention_heads": 12, "decoder_attention_heads": 12, "d_model": 768,
        "scale_embedding": True})  # fmt: skip
def plbart(c: Config) -> Doc:
    """PLBART: BART over programs."""
    return bart(c)


# BigBirdPegasusConfig
@family("bigbird_pegasus", **{**BART, "vocab_size": 96103, "max_position_embeddings": 4096, "encoder_layers": 16,
        "decoder_layers": 16, "activation_function": "gelu_new", "scale_embedding": True})  # fmt: skip
def bigbird_pegasus(c: Config) -> Doc:
    """BigBird-Pegasus where it attends to everything: norms before the branches, no biases in the attention."""
    c.skip("attention_type", "block_size", "num_random_blocks", "num_hidden_layers")
    bias = bool(c.get("use_bias"))
    doc = _positions_from_zero(bart(c))

    def changed(layers: list[Doc]) -> list[Doc]:
        return [_pre_norm(layer, bias) for layer in layers]

    embedding = {k: v for k, v in doc["embedding"].items() if k != "norm"}
    encoder = doc["encoder"] | {"embedding": embedding, "final_norm": NORM, "layers": changed(doc["encoder"]["layers"])}
    return doc | {"embedding": embedding, "final_norm": NORM, "encoder": encoder, "layers": changed(doc["layers"])}


def _pre_norm(layer: Doc, bias: bool) -> Doc:
    found = {k: v for k, v in layer.items() if k != "placement"}
    for part in ("attention", "cross_attention"):
        if part in found:
            found[part] = found[part] | {"bias": bias}
    return found


# SeamlessM4TConfig and SeamlessM4Tv2Config
@family("seamless_m4t", "seamless_m4t_v2", **{**BART, "vocab_size": 256102, "encoder_layers": 24,
        "encoder_ffn_dim": 8192, "decoder_layers": 24, "decoder_ffn_dim": 8192, "activation_function": "relu",
        "scale_embedding": True, "hidden_size": 1024})  # fmt: skip
def seamless_m4t(c: Config) -> Doc:
    """SeamlessM4T from text to text: M2M-100's layers. Its speech encoder, unit decoder and vocoder are left out."""
    c.skip(*(key for key in c.data if key.startswith(SPEECH)))
    return m2m_100(c.changed(d_model=c.count("hidden_size"), is_decoder=False))


SPEECH = ("adaptor_", "add_adapter", "conv_depthwise", "feature_projection", "lang_embed", "leaky", "max_source",
          "max_new_tokens", "num_adapter", "num_conv", "position_embeddings_type", "resblock", "rotary_embedding",
          "sampling", "speech_encoder", "spkr_", "t2u_", "unit_", "upsample", "variance", "vocoder", "left_max",
          "right_max", "char_", "layer_norm_eps", "num_hidden_layers", "chunk", "d_model", "var_pred",
          "hidden_act")  # fmt: skip
"""Beginnings of keys of the parts for speech."""


# NllbMoeConfig
@family("nllb-moe", **{**BART, "vocab_size": 128112, "activation_function": "relu", "scale_embedding": True},
        encoder_sparse_step=4, decoder_sparse_step=4, num_experts=128, expert_capacity=64)  # fmt: skip
def nllb_moe(c: Config) -> Doc:
    """NLLB-MoE: M2M-100 with two of many experts in every so many layers."""
    c.skip("expert_capacity", "moe_eval_capacity_token_fraction", "normalize_router_prob_before_dropping",
           "batch_prioritized_routing", "router_dtype", "router_ignore_padding_tokens", "second_expert_policy",
           "moe_token_dropout", "num_hidden_layers", "decoder_num_attention_heads", "add_router_probs",
           "router_type")  # fmt: skip
    c.only("router_bias", False)
    doc = m2m_100(c)
    width = activation(c, "activation_function")
    for side, stack in (("encoder", doc["encoder"]), ("decoder", doc)):
        (layer,) = stack["layers"]
        n, step = c.count(f"{side}_layers"), c.count(f"{side}_sparse_step")
        expert = mlp(width, c.count(f"{side}_ffn_dim"), True)
        own = {k: v for k, v in layer.items() if k != "repeat"}
        experts = own | {"name": "moe", "ffn": moe(c.count("num_experts"), 2, expert)}
        group = [own | {"name": "dense", "repeat": step - 1}] * (step > 1) + [experts]
        if n % step:
            raise c.error(f"{side}_sparse_step", f"{n} layers are not a multiple of {step}")
        stack["layers"] = [{"repeat": n // step, "layers": group}]
    return doc


# LongT5Config
@family("longt5", **T5, local_radius=127, encoder_attention_type="local")
def longt5(c: Config) -> Doc:
    """LongT5 with local attention: T5 whose encoder looks so many tokens to each side."""
    c.only("encoder_attention_type", "local")
    c.skip("global_block_size")
    doc = t5(c)
    near = {"kind": "sliding", "window": c.count("local_radius") + 1, "bidirectional": True}
    for layer in doc["encoder"]["layers"]:
        layer["attention"] = layer["attention"] | {"mask": near}
    return doc


# LEDConfig
@family("led", **{k: v for k, v in BART.items() if k != "max_position_embeddings"}, attention_window=512,
        max_encoder_position_embeddings=16384, max_decoder_position_embeddings=1024)  # fmt: skip
def led(c: Config) -> Doc:
    """LED: BART whose encoder has Longformer's band, with projections for global tokens."""
    c.skip("attention_dilation")
    encoder, behind = (c.count(f"max_{side}_position_embeddings") for side in ("encoder", "decoder"))
    doc = _positions_from_zero(bart(c.changed(max_position_embeddings=encoder)))
    windows = c.get("attention_window")
    windows = windows if isinstance(windows, list) else [windows]
    if len(set(windows)) != 1:
        raise c.error("attention_window", "only one window for all layers is supported")
    mask = {"kind": "sliding", "window": windows[0] // 2, "bidirectional": True}
    for layer in doc["encoder"]["layers"]:
        layer["attention"] = layer["attention"] | {"mask": mask, "global_projections": True}
    positions = doc["embedding"]["positions"] | {"max": behind}
    return doc | {"embedding": doc["embedding"] | {"positions": positions}}


WINDOW: Doc = {"longest": 30}
"""Whisper hears windows of 30 s, filled up with silence (WhisperFeatureExtractor)."""


# WhisperConfig
@family("whisper", vocab_size=51865, num_mel_bins=80, encoder_layers=4, encoder_attention_heads=6, decoder_layers=4,
        decoder_attention_heads=6, decoder_ffn_dim=1536, encoder_ffn_dim=1536, activation_function="gelu", d_model=384,
        max_source_positions=1500, max_target_positions=448, tie_word_embeddings=True)  # fmt: skip
def whisper(c: Config) -> Doc:
    """Whisper: BART's layers with norms before the branches, keys without a bias; the source is sound, two frames of
    10 ms to a vector.
    """
    c.skip("num_hidden_layers", "median_filter_length", *(key for key in c.data if key.startswith("mask_")),
           "apply_spec_augment", "classifier_proj_size", "use_weighted_layer_sum")  # fmt: skip
    c.only("scale_embedding", False)
    positions = c.count("max_target_positions")
    doc = mbart(c.changed(max_position_embeddings=positions, decoder_start_token_id=None))
    conv: Doc = {"kind": "conv", "d": c.count("d_model")}
    front = [
        conv | {"channels": c.count("num_mel_bins")},
        conv | {"stride": 2},
        {"kind": "positions", "rows": c.count("max_source_positions")},
    ]
    encoder = {k: v for k, v in doc["encoder"].items() if k != "embedding"} | {"front": front, "sounds": WINDOW}
    return _unbiased_keys(doc | {"embedding": {"positions": {"kind": "learned", "max": positions}}, "encoder": encoder})


def _unbiased_keys(doc: Doc) -> Doc:
    """The same with biases on queries and values alone."""

    def changed(layers: list[Doc]) -> list[Doc]:
        own = ("attention", "cross_attention")
        some = {"qkv_bias": {"q": True, "v": True}}
        return [layer | {part: layer[part] | some for part in own if part in layer} for layer in layers]

    return doc | {"layers": changed(doc["layers"]), "encoder": doc["encoder"] | {
        "layers": changed(doc["encoder"]["layers"])
    }}  # fmt: skip


# Pop2PianoConfig
@family("pop2piano", **{**T5, "vocab_size": 2400, "feed_forward_proj": "gated-gelu"}, composer_vocab_size=21)
def pop2piano(c: Config) -> Doc:
    """Pop2Piano: T5 over the spectrum of a song, behind a vector of its arranger."""
    c.skip("dense_act_fn", "is_gated_act", "scale_decoder_outputs")
    doc = t5(c)
    encoder = doc["encoder"]
    embedding = {**encoder.get("embedding", {}), "tables": [c.count("composer_vocab_size")]}
    return doc | {"encoder": encoder | {"embedding": embedding}, "head": doc["head"] | {"tied": False}}


WHOLE: Doc = {"piece": None, "padded": False}
"""A sound as it is, in frames of 10 ms (Speech2TextFeatureExtractor)."""


# Speech2TextConfig
@family("speech_to_text", **{**BART, "vocab_size": 10000, "encoder_layers": 12, "encoder_ffn_dim": 2048,
        "encoder_attention_heads": 4, "decoder_layers": 6, "decoder_ffn_dim": 2048, "decoder_attention_heads": 4,
        "activation_function": "relu", "d_model": 256, "scale_embedding": True, "max_target_positions": 1024},
        conv_kernel_sizes=(5, 5), conv_channels=1024, input_feat_per_channel=80, input_channels=1)  # fmt: skip
def speech_to_text(c: Config) -> Doc:
    """Speech2Text: gated convolutions over the sound, then M2M-100's layers."""
    c.skip("num_hidden_layers", "max_source_positions", "num_conv_layers")
    kernels, channels = c.get("conv_kernel_sizes"), c.count("input_feat_per_channel") * c.count("input_channels")
    doc = m2m_100(c.changed(max_position_embeddings=c.count("max_target_positions")))
    front: list[Doc] = []
    for i, kernel in enumerate(kernels):
        width = c.count("d_model") if i == len(kernels) - 1 else c.count("conv_channels") // 2
        front.append({"kind": "conv", "d": width, "kernel": kernel, "stride": 2, "activation": None, "gated": True})
    front[0]["channels"] = channels
    encoder = {k: v for k, v in doc["encoder"].items() if k != "embedding"} | {"front": front, "sounds": WHOLE}
    return doc | {"encoder": encoder}


# ---------------------------------------------------------------------- decoders alone
# CpmAntConfig
@family("cpmant", vocab_size=30720, hidden_size=4096, num_attention_heads=32, dim_head=128, dim_ff=10240,
        num_hidden_layers=48, eps=1e-6, position_bias_num_buckets=512, position_bias_max_distance=2048, prompt_types=32,
        prompt_length=32, segment_types=32)  # fmt: skip
def cpmant(c: Config) -> Doc:
    """CPM-Ant: T5's layer in a decoder, whose biases also tell pairs of segments apart; an output matrix of its own."""
    c.skip("tie_word_embeddings")
    n, norm = c.count("num_attention_heads"), {"kind": "rmsnorm", "eps": c.number("eps")}
    buckets = c.count("position_bias_num_buckets") + c.count("segment_types") ** 2
    position = {"kind": "t5", "buckets": buckets, "max_distance": c.count("position_bias_max_distance")}
    layer = {
        "norm": norm,
        "attention": heads(n, n, c.count("dim_head"), position=position),
        "ffn": glu("gelu", c.count("dim_ff")),
    }
    rows = c.count("vocab_size") + c.count("prompt_types") * c.count("prompt_length")
    embedding = {"input_rows": rows, "tables": [c.count("segment_types")]}
    layers = [("layers", layer)] * c.count("num_hidden_layers")
    return decoder(c, layers, norm, output={"tied": False}, embedding=embedding)


def _beside_images(attention: Doc, ffn: Doc, norm: Doc, n: int) -> list[tuple[str, Doc]]:
    """Post-norm layers of three branches, of which the middle one attends to images: alone, the decoder passes it."""
    post = {"norm": norm, "placement": "post"}
    looking = post | {"attention": attention, "for_images": True}
    return [("self", post | {"attention": attention}), ("images", looking), ("ffn", post | {"ffn": ffn})] * n


# TrOCRConfig
@family("trocr", vocab_size=50265, d_model=1024, decoder_layers=12, decoder_attention_heads=16, decoder_ffn_dim=4096,
        activation_function="gelu", max_position_embeddings=512, layernorm_embedding=True,
        use_learned_position_embeddings=True, tie_word_embeddings=True)  # fmt: skip
def trocr(c: Config) -> Doc:
    """TrOCR's decoder: BART's, over an image whose encoder is a model of its own."""
    n, scale = c.count("decoder_attention_heads"), {"scale": "sqrt_d_model"} if c.get("scale_embedding") else {}
    c.only("cross_attention_hidden_size", c.count("d_model"), None)
    learned = {"kind": "learned", "max": c.count("max_position_embeddings"), "offset": 2}
    positions = learned if c.get("use_learned_position_embeddings") else {"kind": "sinusoidal"}
    embedding = {"positions": positions} | ({"norm": NORM} if c.get("layernorm_embedding") else {}) | scale
    ffn = mlp(activation(c, "activation_function"), c.count("decoder_ffn_dim"), True)
    block = heads(n, n, c.count("d_model") // n, bias=True)
    entries = _beside_images(block, ffn, NORM, c.count("decoder_layers"))
    return decoder(c, entries, None, embedding=embedding, width="d_model")


# BlipTextConfig
@family("blip_text_model", vocab_size=30524, hidden_size=768, intermediate_size=3072, num_hidden_layers=12,
        num_attention_heads=8, hidden_act="gelu", max_position_embeddings=512, layer_norm_eps=1e-12,
        encoder_hidden_size=768, tie_word_embeddings=True)  # fmt: skip
def blip(c: Config) -> Doc:
    """BLIP's text decoder: BERT's layer with attention to an image between."""
    c.skip("projection_dim", "label_smoothing", "is_decoder")
    c.only("encoder_hidden_size", c.count("hidden_size"))
    n, norm, act = c.count("num_attention_heads"), layernorm(c), activation(c, "hidden_act")
    embedding = {"norm": norm, "positions": {"kind": "learned", "max": c.count("max_position_embeddings")}}
    ffn, block = mlp(act, c.count("intermediate_size"), True), heads(n, n, c.count("hidden_size") // n, bias=True)
    output = head(c, bias=True, dense={"activation": act, "bias": True, "norm": norm})
    entries = _beside_images(block, ffn, norm, c.count("num_hidden_layers"))
    return decoder(c, entries, None, output=output, embedding=embedding)


WAVEFORM: Doc = {"frames_per_second": 16000, "piece": None, "padded": False}
"""The samples of a sound (Wav2Vec2FeatureExtractor at 16 kHz)."""


# MoonshineConfig
@family("moonshine", vocab_size=32768, hidden_size=288, intermediate_size=1152, encoder_num_hidden_layers=6,
        decoder_num_hidden_layers=6, encoder_num_attention_heads=8, decoder_num_attention_heads=8,
        encoder_hidden_act="gelu", decoder_hidden_act="silu", max_position_embeddings=512, tie_word_embeddings=True,
        rope_parameters={"rope_theta": 10000.0, "partial_rotary_factor": 0.9})  # fmt: skip
def moonshine(c: Config) -> Doc:
    """Moonshine: three convolutions over the waveform, rotary positions on both sides, a gated decoder."""
    d, norm, bias = c.count("hidden_size"), NORM | {"bias": False}, bool(c.get("attention_bias"))
    c.skip("pad_head_dim_to_multiple_of", "partial_rotary_factor", "rope_theta", "head_dim")
    halves: dict[str, list[Doc]] = {}
    for side in ("encoder", "decoder"):
        n = c.count(f"{side}_num_attention_heads")
        kv = c.count(f"{side}_num_key_value_heads", default=n)
        crossed = heads(n, kv, d // n, qkv_bias=bias, out_bias=False)
        block, act = crossed | {"position": rope(c, d // n, interleaved=True)}, activation(c, f"{side}_hidden_act")
        if side == "encoder":
            ffn = mlp(act, c.count("intermediate_size"), True)
            layer: Doc = {"norm": norm, "attention": block | {"mask": {"kind": "bidirectional"}}, "ffn": ffn}
        else:
            ffn = glu(act, c.count("intermediate_size"), bias=True)
            layer = {"norm": norm, "attention": block, "cross_attention": crossed, "ffn": ffn}
        halves[side] = [{"repeat": c.count(f"{side}_num_hidden_layers"), **layer}]
    conv: Doc = {"kind": "conv", "d": d}
    front = [
        conv | {"channels": 1, "kernel": 127, "stride": 64, "bias": False, "activation": "tanh"},
        {"kind": "norm", "norm": NORM},
        conv | {"d": 2 * d, "kernel": 7, "stride": 3},
        conv | {"stride": 2},
    ]
    return {
        "architecture": "encoder-decoder", "d_model": d, "vocab_size": c.count("vocab_size"),
        "max_context": c.count("max_position_embeddings"),
        "encoder": {"front": front, "sounds": WAVEFORM, "final_norm": norm, "layers": halves["encoder"]},
        "layers": halves["decoder"], "final_norm": norm, "head": head(c),
    }  # fmt: skip


# Kosmos2TextConfig and Kosmos2_5TextConfig
@family("kosmos_2_text_model", vocab_size=65037, embed_dim=2048, layers=24, ffn_dim=8192, attention_heads=32,
        activation_function="gelu", max_position_embeddings=2048, layer_norm_eps=1e-5, scale_embedding=True,
        tie_word_embeddings=True)  # fmt: skip
def kosmos2(c: Config) -> Doc:
    """Kosmos-2: sinusoids, and norms inside attention and feed-forward network as well (Magneto)."""
    norm = layernorm(c)
    return _kosmos(c, {"inner_norm": norm}, {})


@family("kosmos_2_5_text_model", vocab_size=108481, embed_dim=1536, layers=24, ffn_dim=6144, attention_heads=16,
        activation_function="gelu", max_position_embeddings=4096, layer_norm_eps=1e-5, scale_embedding=True,
        tie_word_embeddings=True)  # fmt: skip
def kosmos25(c: Config) -> Doc:
    """Kosmos-2.5: a norm inside the network alone, and vectors that tell texts from images."""
    return _kosmos(c, {}, {"token_types": 2})


def _kosmos(c: Config, inner: Doc, embedding: Doc) -> Doc:
    c.only("add_cross_attention", False)
    n, norm = c.count("attention_heads"), layernorm(c)
    ffn = mlp(activation(c, "activation_function"), c.count("ffn_dim"), True) | {"inner_norm": norm}
    layer = {"norm": norm, "attention": heads(n, n, c.count("embed_dim") // n, bias=True) | inner, "ffn": ffn}
    scale = {"scale": "sqrt_d_model"} if c.get("scale_embedding") else {}
    c.skip("layerdrop")
    embedding = {"positions": {"kind": "sinusoidal"}} | scale | embedding
    return decoder(c, [("layers", layer)] * c.count("layers"), norm, embedding=embedding, width="embed_dim")


# BioGptConfig
@family("biogpt", vocab_size=42384, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16,
        intermediate_size=4096, hidden_act="gelu", max_position_embeddings=1024, layer_norm_eps=1e-12,
        scale_embedding=True, tie_word_embeddings=True)  # fmt: skip
def biogpt(c: Config) -> Doc:
    """BioGPT: OPT's layer, over biomedical texts."""
    n, norm = c.count("num_attention_heads"), layernorm(c)
    positions = {"kind": "learned", "max": c.count("max_position_embeddings"), "offset": 2}
    layer = {
        "norm": norm,
        "attention": heads(n, n, c.count("hidden_size") // n, bias=True),
        "ffn": mlp(activation(c, "hidden_act"), c.count("intermediate_size"), True),
    }
    scale = {"scale": "sqrt_d_model"} if c.get("scale_embedding") else {}
    return decoder(
        c, [("layers", layer)] * c.count("num_hidden_layers"), norm, embedding={"positions": positions} | scale
    )


# XGLMConfig
@family("xglm", vocab_size=256008, d_model=1024, ffn_dim=4096, num_layers=24, attention_heads=16,
        activation_function="gelu", max_position_embeddings=2048, scale_embedding=True,
        tie_word_embeddings=True)  # fmt: skip
def xglm(c: Config) -> Doc:
    """XGLM: a multilingual decoder with sinusoids."""
    n = c.count("attention_heads")
    layer = {
        "norm": NORM,
        "attention": heads(n, n, c.count("d_model") // n, bias=True),
        "ffn": mlp(activation(c, "activation_function"), c.count("ffn_dim"), True),
    }
    scale = {"scale": "sqrt_d_model"} if c.get("scale_embedding") else {}
    embedding = {"positions": {"kind": "sinusoidal"}} | scale
    return decoder(c, [("layers", layer)] * c.count("num_layers"), NORM, embedding=embedding, width="d_model")


# CTRLConfig
@family("ctrl", vocab_size=246534, n_positions=256, n_embd=1280, dff=8192, n_layer=48, n_head=16,
        layer_norm_epsilon=1e-6, tie_word_embeddings=True)  # fmt: skip
def ctrl(c: Config) -> Doc:
    """CTRL: sinusoids, norms before the branches, a bias in the head."""
    n, norm = c.count("n_head"), layernorm(c, "layer_norm_epsilon")
    layer = {
        "norm": norm,
        "attention": heads(n, n, c.count("n_embd") // n, bias=True),
        "ffn": mlp("relu", c.count("dff"), True),
    }
    embedding = {"scale": "sqrt_d_model", "positions": {"kind": "sinusoidal"}}
    return decoder(c, [("layers", layer)] * c.count("n_layer"), norm, output=head(c, bias=True), embedding=embedding,
                   context="n_positions", width="n_embd")  # fmt: skip


# GitConfig
@family("git", vocab_size=30522, hidden_size=768, num_hidden_layers=6, num_attention_heads=12,
        intermediate_size=3072, hidden_act="gelu", max_position_embeddings=1024, layer_norm_eps=1e-12,
        tie_word_embeddings=False)  # fmt: skip
def git(c: Config) -> Doc:
    """GIT's text decoder: BERT's layer behind a causal mask."""
    c.skip("vision_config", "num_image_with_embedding")
    n, norm = c.count("num_attention_heads"), layernorm(c)
    layer = {
        "norm": norm,
        "placement": "post",
        "attention": heads(n, n, c.count("hidden_size") // n, bias=True),
        "ffn": mlp(activation(c, "hidden_act"), c.count("intermediate_size"), True),
    }
    embedding = {"norm": norm, "positions": {"kind": "learned", "max": c.count("max_position_embeddings")}}
    layers = [("layers", layer)] * c.count("num_hidden_layers")
    return decoder(c, layers, None, output=head(c, bias=True), embedding=embedding)


# MoshiConfig and KyutaiSpeechToTextConfig
@family("moshi", vocab_size=32000, hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
        hidden_act="silu", max_position_embeddings=3000, rms_norm_eps=1e-8, ffn_dim=22528, sliding_window=3000,
        tie_word_embeddings=False)  # fmt: skip
def moshi(c: Config) -> Doc:
    """Moshi's language model: gated by halves of one matrix. Its codec and its decoder over codebooks are left out."""
    c.skip("audio_encoder_config", "depth_decoder_config", "audio_vocab_size", "num_codebooks")
    return _kyutai(c, c.count("vocab_size") + 1)


@family("kyutai_speech_to_text", vocab_size=4001, hidden_size=2048, num_hidden_layers=48, num_attention_heads=32,
        hidden_act="silu", max_position_embeddings=750, rms_norm_eps=1e-8, ffn_dim=11264, sliding_window=375,
        codebook_vocab_size=2049, num_codebooks=32, head_dim=64, tie_word_embeddings=False)  # fmt: skip
def kyutai(c: Config) -> Doc:
    """Kyutai's speech to text: Moshi's layer; the input table has rows for every codebook."""
    c.skip("codec_config", "frame_size", "audio_bos_token_id", "audio_pad_token_id")
    rows = c.count("vocab_size") + c.count("num_codebooks") * c.count("codebook_vocab_size") + 1
    return _kyutai(c, rows)


def _kyutai(c: Config, rows: int) -> Doc:
    norm, n = rmsnorm(c), c.count("num_attention_heads")
    size = c.count("head_dim", default=c.count("hidden_size") // n)
    width = c.count("ffn_dim")
    window = {"mask": sliding(c.count("sliding_window"))} if c.get("sliding_window") else {}
    layer = {
        "norm": norm,
        "attention": attention(c, position=rope(c, size)) | window,
        "ffn": glu(activation(c, "hidden_act"), width // 2),
    }
    return decoder(c, [("layers", layer)] * c.count("num_hidden_layers"), norm, embedding={"input_rows": rows})
