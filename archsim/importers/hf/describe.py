"""Hugging Face config.json to a spec document."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence

from archsim.base.diagnostics import quote
from archsim.base.errors import ArchsimError, SpecError
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.base.plugins import import_plugins
from archsim.importers.hf import inferred
from archsim.importers.hf.class_keys import (
    drafters,
    has_classes,
    is_foreign,
    is_known_elsewhere,
    runs_its_class,
    runs_own_code,
    same_size,
    under_own_names,
    without_effect,
)
from archsim.importers.hf.config import Config
from archsim.importers.hf.families import (
    bart,
    bert,
    deepseek,
    deepseek_v4,
    delta,
    dense,
    encoder,
    gemma,
    glm_next,
    gpt,
    hybrid,
    inkling,
    llama,
    moe,
    recent,
    recurrent,
    remote,
    remote_dense,
    remote_moe,
    seq2seq,
    states,
)
from archsim.importers.hf.families.registry import DEFAULTS, READERS, REFUSED
from archsim.importers.hf.ignored import Rule, place_ignored
from archsim.importers.hf.parts import every_layer
from archsim.importers.hf.towers import (
    audio,
    conformers,
    folding,
    grids,
    mobile,
    named,
    pictures,
    projectors,
    qwen,
    resamplers,
    variants,
    waveforms,
)
from archsim.importers.hf.towers.registry import stages
from archsim.importers.hf.weights import stated_cache, weights

MODULES = (
    bart,
    bert,
    deepseek,
    deepseek_v4,
    delta,
    dense,
    encoder,
    gemma,
    glm_next,
    gpt,
    hybrid,
    inkling,
    llama,
    moe,
    recent,
    recurrent,
    remote,
    remote_dense,
    remote_moe,
    seq2seq,
    states,
)
ENCODERS = (
    audio, conformers, folding, grids, mobile, named, pictures, projectors, qwen, resamplers, variants, waveforms,
)  # fmt: skip
"""Importing these registers their families."""

TEXT = {
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text", "gemma4_unified_assistant": "gemma4_unified_text",
    "deepseek_ocr2": "deepseek_ocr2_text", "llama4": "llama4_text",
    "mistral3": "mistral", "qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2", "qwen2_vl_text": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text", "qwen3_vl_moe": "qwen3_vl_moe_text", "kimi_k25": "kimi_k2", "kimi_vl": "deepseek_v3",
    "deepseek_vl_v2": "deepseek_v2", "kimi_k3": "kimi_linear",
    "inkling_mm_model": "inkling_text", "mllama": "mllama_text_model", "llava": "llama", "qwen2_5_omni_text": "qwen2",
    "qwen3_omni_moe_text": "qwen3_moe", "glm4v": "glm4v_text", "glm46v": "glm4v_text", "glmga": "glm4v_text",
    "glm4v_moe": "glm4v_moe_text", "glm_ocr": "glm_ocr_text", "ernie4_5_vl_moe": "ernie4_5_vl_moe_text",
    "ernie4_5_moe_vl": "ernie4_5_vl_moe_text",
    "phi4mm": "phi4_multimodal",
    "paddleocr_vl": "paddleocr_vl_text", "granite_docling_text": "granite",
    "granite4_vision_text": "granite", "hunyuan_vl_text": "hunyuan_v1_dense", "iquestcoder": "llama",
    "emu3_text_model": "llama", "molmo2": "molmo2_text", "cosmos3_edge": "cosmos3_edge_text",
    "kosmos-2": "kosmos_2_text_model", "kosmos-2.5": "kosmos_2_5_text_model", "ultravbert": "ultrabert",
    "blip": "blip_text_model", "glm5_next": "glm5_next_text",
    "mistral_large4": "mistral_large4_text",
    "muse_glimmer": "muse_glimmer_text", "step3p7": "step3p5", "minimax_m3_vl": "minimax_m3_vl_text",
    "mimo_v2": "mimo_v2_flash", "qwen2_5_omni": "qwen2", "qwen3_omni_moe": "qwen3_moe",
    "dots_ocr": "qwen2", "qwen3_asr": "qwen3", "qwen3_asr_thinker": "qwen3", "qwen3_asr_text": "qwen3",
    "minimax_m3_text": "minimax_m3_vl_text",
}  # fmt: skip
"""Type of the language model inside a multimodal config, where its `text_config` does not say."""

INNER = ("text_config", "llm_config", "language_config")
"""Keys under which multimodal configs hold their language model."""

OUTER = ("quantization_config", "quantization", "torch_dtype", "dtype", "tie_word_embeddings")
"""Keys that a multimodal config may have beside its `text_config` and that the language model obeys."""

OVERRIDDEN = {"encoder_hidden_size": ("vision_config", "hidden_size")}
"""Keys of a `text_config` in whose place the outer class puts what a key of another part says."""

OTHER_PARTS = ("vision_config", "audio_config", "image_token_id", "video_token_id", "vision_start_token_id",
               "vision_end_token_id", "vision_token_id")  # fmt: skip
"""Keys of other parts in multimodal configs that do not nest their language model."""

ADAPTER = "mm_"
"""How LLaVA's first files, and those that follow them, begin the keys of their encoder and its adapter."""

MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What values of the wrong kind cause in the code that reads them."""


def from_config(config: JsonMapping, name: str | None = None) -> JsonObject:
    """The document of a config.json, in the shape of a spec file.

    A multimodal config gives its language model. Raises SpecError for an unknown `model_type`, a missing or
    impossible value, and a key that could change the cost and is not understood.
    """
    if not isinstance(config, Mapping):
        raise SpecError("a config.json is a mapping", code="E109")
    text, model_type = language_model(config)
    if model_type not in READERS:
        import_plugins("archsim.importers")
    if model_type not in READERS and (not model_type or model_type in REFUSED or is_known_elsewhere(model_type)):
        raise _unknown_type(model_type)
    try:
        if model_type in READERS:
            document = _document(text, model_type, runs_its_class(config))
        else:
            document = _from_fields({"architectures": config.get("architectures")} | text, model_type)
    except ArchsimError:
        raise
    except MISFITS as error:
        message = f"the values of this {quote(model_type)} config do not fit together: {error}"
        raise SpecError(message[:300], code="E102") from None
    own = str(config.get("_name_or_path") or "").rstrip("/").rsplit("/", 1)[-1]
    document = {"name": name or own or model_type, **document, **towers(config, document["d_model"])}
    rules = document.pop("rules")
    return _with_rules(document, rules) if rules else document


def _with_rules(document: JsonObject, rules: Sequence[Rule]) -> JsonObject:
    """The document with the formats that rules give to modules, and entries of skip lists that name none."""
    formats, unmatched = place_ignored(document, rules)
    unused = [*document.get("unused", ()), *(f"quantization_config: {name}" for name in unmatched)]
    return document | {"weights": formats} | ({"unused": unused} if unused else {})


TOWERS = {"vision": "vision_config", "audio": "audio_config"}
"""Tower -> the key that describes it."""

NAMED_OTHERWISE = {
    ("audio", "granite_speech"): "encoder_config", ("audio", "granite_speech_plus"): "encoder_config",
    ("audio", "vibevoice_asr"): "acoustic_tokenizer_encoder_config",
    ("audio", "kyutai_speech_to_text"): "codec_config",
}  # fmt: skip
"""(tower, model_type) -> the key, where a family has another one."""


def towers(config: JsonMapping, width: int) -> JsonObject:
    """The towers beside the language model of this width; no key where there are none."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        config = {"model_type": config.get("model_type"), **{k: v for k, v in thinker.items() if k != "model_type"}}
    keys = {name: NAMED_OTHERWISE.get((name, _type(config)), key) for name, key in TOWERS.items()}
    held = {name: config[key] for name, key in keys.items() if isinstance(config.get(key), Mapping)}
    if not held and isinstance(config.get("mm_vision_tower"), str):  # another checkpoint's, by name alone
        name = quote(config["mm_vision_tower"])
        return {"towers": [{"name": "vision", "note": f"`mm_vision_tower` names {name}, whose sizes are not in it"}]}
    return {"towers": [stages(name, own, config, _type(config), width) for name, own in held.items()]} if held else {}


def _document(text: JsonMapping, model_type: str, its_class: bool) -> JsonObject:
    """The document without its name; its_class: whether a class of transformers is known to run the config. Raises
    SpecError for keys that were not understood.
    """
    text, renamed = under_own_names(text, model_type)
    c = Config(text, DEFAULTS[model_type])
    document = READERS[model_type](c)
    if c.data.get("is_causal") is False:
        document = _encoder(c, document)
    _uniform(c)
    c.skip("is_encoder_decoder", "tie_word_embeddings", "tie_encoder_decoder")
    c.skip(*(key for pair in renamed.items() if c.read & set(pair) for key in pair))
    _whole_heads(c, document)
    stored = _stored(c)
    _refuse_unknown(c, model_type, its_class)
    return {**document, **stored}


def _stored(c: Config) -> JsonObject:
    """Formats of weights and cache, what gives tensors others, and the keys that nobody read."""
    stored, rules = weights(c)
    cache, unread = stated_cache(c), c.unread()
    caches = {"kv_cache": cache} if cache is not None else {}
    return {"weights": stored, **caches, **({"unused": list(unread)} if unread else {}), "rules": rules}


def _from_fields(text: JsonMapping, model_type: str) -> JsonObject:
    """The document of a type that nobody knows, read from its fields. Raises SpecError where they do not say enough."""
    c = Config(text, inferred.DEFAULTS)
    try:
        document = inferred.read_fields(c)
    except SpecError as error:
        raise _unknown_type(model_type, f", and its fields do not say enough: {error.message}") from None
    c.skip("tie_word_embeddings")
    stored = _stored(c)
    unknown = [key for key, value in c.unread().items() if not inferred.ignorable(key, value)]
    if unknown:
        listed = ", ".join(quote(key) for key in unknown)
        raise _unknown_type(model_type, f", and its config has keys that could be parts of their own: {listed}")
    return {**document, **stored, "read_as": inferred.what_it_is_read_as(model_type, document)}


def _refuse_unknown(c: Config, model_type: str, its_class: bool) -> None:
    """Raise SpecError for keys that nobody read and that may change the cost."""
    unread, drafting = c.unread(), drafters(c.data)
    own_code = runs_own_code(c.data, model_type) or bool(drafting)
    unknown = [key for key, value in unread.items() if not without_effect(key, value, model_type, own_code, its_class)]
    unknown += [key for key in unread if key == "text_config"]
    unknown += [key for key in c.data if (key in unread or key in c.skipped) and _stands_for_a_default(c, key)]
    if unknown:
        listed = ", ".join(quote(key) for key in unknown)
        of = f"{quote(drafting[0])}, which drafts for another model," if drafting else f"model_type {quote(model_type)}"
        raise SpecError(
            f"{of} has config keys that are not understood: {listed}",
            code="E103",
            hints=["it could change the cost; remove it if it does not, or write a spec by hand"],
        )


def _stands_for_a_default(c: Config, key: str) -> bool:
    """Whether a key that nobody read, or that is passed over, is another name of a size that the file does not state:
    the default of the class would be counted in the place of what the file says.
    """
    read = c.read - c.skipped
    return any(name in read and name not in c.data and name in c.defaults for name in same_size().get(key, ()))


def _encoder(c: Config, document: JsonObject) -> JsonObject:
    """The decoder as an encoder, without an output table: `is_causal: false` makes it look both ways."""

    def both_ways(layer: JsonObject) -> JsonObject:
        if "mixer" in layer or layer.get("attention", {}).get("mask") is not None:
            raise c.error("is_causal", "only layers of plain attention can look both ways")
        attention = layer.get("attention")
        return layer | ({} if attention is None else {"attention": {**attention, "mask": {"kind": "bidirectional"}}})

    c.skip("is_causal")
    if document.get("architecture", "decoder") != "decoder":
        return document
    kept = {key: value for key, value in every_layer(document, both_ways).items() if key not in ("head", "mtp")}
    return {"architecture": "encoder", **kept}


def _whole_heads(c: Config, document: JsonObject) -> None:
    """Refuse heads that do not divide the model's width where the class projects to the whole width all the same, or
    norms it: families that never have a `head_dim`, and norms over all heads. Others have heads of the rounded width.
    """
    width = document["d_model"]
    for block in _attentions(document):
        whole = "head_dim" not in c.read or "inner_norm" in block or block.get("qk_norm", {}).get("over") == "all"
        n = block["n_heads"]
        if whole and width % n and block["d_head"] == width // n and not c.data.get("head_dim"):
            raise SpecError(f"the width {width:,} is not a multiple of the {n:,} attention heads", code="E102")


def _attentions(part: object) -> Iterator[JsonObject]:
    """Every attention in a document that states the number and the width of its heads."""
    if isinstance(part, Mapping):
        if isinstance(part.get("n_heads"), int) and isinstance(part.get("d_head"), int):
            yield dict(part)
        part = list(part.values())
    if isinstance(part, list | tuple):
        for inside in part:
            yield from _attentions(inside)


def _uniform(c: Config) -> None:
    """Refuse `layer_types` that a family without kinds of layers does not have."""
    if "layer_types" in c.read or not isinstance(c.data.get("layer_types"), list | None):
        return
    kinds = {str(t) for t in c.get("layer_types") or ()}
    window = {"sliding_attention"} if c.data.get("sliding_window") else {"full_attention"}
    if not (kinds <= {"full_attention"} or kinds <= window):
        raise c.error("layer_types", "this family has one kind of layer")


def language_model(config: JsonMapping) -> tuple[JsonObject, str]:
    """The part of a config that describes the language model, and its type."""
    outer = _type(config)
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):  # beside it, the parts that speak
        around = {key: config[key] for key in (*OUTER, "transformers_version") if config.get(key) is not None}
        return language_model(around | {key: value for key, value in thinker.items() if value is not None})
    inner = next((config[key] for key in INNER if isinstance(config.get(key), Mapping)), None)
    if inner is None:
        if outer in TEXT:
            return {k: v for k, v in config.items() if k not in OTHER_PARTS and not k.startswith(ADAPTER)}, TEXT[outer]
        given = config.get("model_type")  # whose config class reads the file, where its class is another family's
        tied = DEFAULTS.get(given, {}).get("tie_word_embeddings") if isinstance(given, str) and given != outer else None
        return ({} if tied is None else {"tie_word_embeddings": tied}) | dict(config), outer
    text = dict(inner)
    for key in OUTER:
        if config.get(key) is not None:
            text.setdefault(key, config[key])
    for key, (part, size) in OVERRIDDEN.items():
        if key in text and isinstance(config.get(part), Mapping) and size in config[part]:
            text[key] = config[part][size]
    if isinstance(config.get("tie_word_embeddings"), bool) and _ties_outside(config):
        text["tie_word_embeddings"] = config["tie_word_embeddings"]
    own = TEXT.get(_type(inner), _type(inner))
    return text, own if own in READERS or own in REFUSED else TEXT.get(outer, outer)


def _ties_outside(config: JsonMapping) -> bool:
    """Whether the outer config says if the tables are tied: since transformers 5, which the file names; before, the
    language model's own did.
    """
    major = str(config.get("transformers_version") or "").split(".")[0]
    return major.isdecimal() and int(major) >= TIES_OUTSIDE


TIES_OUTSIDE = 5
"""The major version of transformers in which the outer config began to decide."""


def _type(config: JsonMapping) -> str:
    """The `model_type`; of a file without one, or with that of a family to which its class does not belong (Grok 2's
    says `git`), the family that the class is called by, unless transformers has that family: it goes by the type.
    """
    given, named = config.get("model_type"), config.get("architectures")
    found = given if isinstance(given, str) else ""
    if (given is not None and not found) or not (isinstance(named, list) and named and isinstance(named[0], str)):
        return found
    if found and not is_foreign(named[0], found):
        return found
    own = re.sub(r"For[A-Z]\w+$|(LMHead)?Model$", "", named[0][:100])
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", own).lower()
    return snake if snake in READERS and not (found and has_classes(snake)) else found


def says_what_it_is(config: JsonMapping) -> bool:
    """Whether a config names its family, or the language model inside of it."""
    return "model_type" in config or "text_config" in config or bool(_type(config))


def _unknown_type(model_type: str, why: str = "") -> SpecError:
    if model_type in REFUSED:
        reason = f"model_type {quote(model_type)} cannot be imported: {REFUSED[model_type]}"
        return SpecError(reason, code="E112", hints=["describe the part that matters in a spec of your own"])
    listed = ", ".join(sorted(READERS))
    if not model_type:
        hint = "add the one whose layers the checkpoint has, or write a spec"
        message = "a config without a `model_type` does not say which architecture it is"
        return SpecError(message, code="E112", hints=[hint, f"known: {listed}"])
    close = difflib.get_close_matches(model_type[:100], READERS, n=3)
    hints = [f"did you mean {' or '.join(quote(name) for name in close)}?"] if close else []
    if is_known_elsewhere(model_type):
        hints = ["transformers has it: `--via transformers` counts what its own class computes", *hints]
    message = f"unknown model_type {quote(model_type)}{why}"
    return SpecError(message, code="E112", hints=[*hints, f"known: {listed}"])
