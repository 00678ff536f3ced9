"""Configs of a `model_type` that nobody here knows, whose fields say all the same that they are decoders of the kind
that LLaMA began: RMSNorm, rotary positions, gated feed-forward layers, experts or latent attention by their keys.
"""

from __future__ import annotations

import re

from archsim.base.diagnostics import quote
from archsim.base.json_types import JsonMapping, JsonObject
from archsim.importers.hf.class_keys import HARMLESS_NAMES, STRICT
from archsim.importers.hf.config import Config, quote_value
from archsim.importers.hf.families.deepseek import latent
from archsim.importers.hf.families.llama import biased, gated, layers, rotary
from archsim.importers.hf.families.moe import dense_then_experts
from archsim.importers.hf.parts import decoder, layer_types, rmsnorm, sliding
from archsim.importers.hf.pattern import Entry

NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "rms_norm_eps")
"""Keys without which a config does not say that it is such a decoder; no default stands in for one."""

HEADS = ("num_key_value_heads",)
LATENT = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts")
ROUTED = ("moe_intermediate_size",)
TOP_K = ("num_experts_per_tok", "moe_topk", "moe_top_k")
SHARED = ("n_shared_experts", "num_shared_experts")
SCALES = ("routed_scaling_factor", "router_scaling_factor")
SCORES = ("scoring_func", "score_function", "router_score_func")
SWITCHES = ("tie_word_embeddings", "attention_bias", "mlp_bias", "use_moe", "use_mla", "use_sliding_window")
POSITIONS = ("rope_theta", "rope_parameters", "rope_scaling")

DEFAULTS: JsonMapping = {
    "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "n_group": 1, "topk_group": 1,
    "routed_scaling_factor": 1.0, "first_k_dense_replace": 0, "num_nextn_predict_layers": 0, "norm_topk_prob": True,
}  # fmt: skip
"""Values that are no size, and those that switch something on which such a file lacks."""

DECODERS = re.compile(r"(ForCausalLM|ForConditionalGeneration|LMHeadModel)$")
"""Classes that predict the next token; others (`ForMaskedLM`) may see all tokens."""

GATED_ACTS = ("silu", "swish")
"""Activations of gated layers alone; GELU and the squares of ReLU are also those of layers of two matrices."""

TAKEN_FOR_GRANTED = re.compile(
    r"causal|glu|(^|_)gated_(mlp|ffn)|(mlp|ffn)_gated?$|decoder|^(use_)?(rope|rotary\w*|rms_?norm|pre_?norm|lm_head)$"
)
"""Keys of what the reading supposes, which a file may switch off."""

LENGTHS = re.compile(r"^(model_)?(max_)?(seq(uence)?|context|ctx)?_?(len|length)$|^n_ctx$|^(random_)?seed$")
"""Keys of the longest sequence that a model was trained for, and of training."""

TIED = 4
"""The last major version of transformers that left `tie_word_embeddings` out of a file where it is true."""


def read_fields(c: Config) -> JsonObject:
    """The document of such a decoder. Raises SpecError for a key that it lacks, or that it has and that could be read
    in several ways.
    """
    c = _tied(c)
    _architecture(c)
    _refuse_missing(c)
    _refuse_contradictions(c)
    c.skip("rope_interleave", "max_window_layers")
    c.only("decoder_sparse_step", 1)
    norm, kinds = rmsnorm(c), _windows(c)
    mixing = latent(c) if _is_latent(c) else rotary(_with_whole_heads(c))
    if not _is_routed(c):
        c.skip(*EXPERTS, *ROUTED, *TOP_K)
        ffn = gated(c, **biased(c, "mlp_bias", bias=True))
        return decoder(c, [(name, {"norm": norm, "attention": mixing | own, "ffn": ffn}) for name, own in kinds], norm)
    c.only("mlp_bias", False)
    router: JsonObject = {"score": _score(c)}
    if c.only("topk_method", "greedy", "group_limited_greedy", "noaux_tc") == "noaux_tc":
        router["selection_bias"] = True
    shared = c.count(*SHARED) if _states(c, SHARED) else c.first(*SHARED)
    changed = c.changed(
        num_experts_per_tok=c.count(*TOP_K), n_shared_experts=shared, routed_scaling_factor=c.first(*SCALES),
        **_dense_layers(c),
    )  # fmt: skip
    named = [("" if name == "layers" else f"_{name}", own) for name, own in kinds]
    return dense_then_experts(changed, norm, mixing, router, named)


def _score(c: Config) -> str:
    """What the router makes of its logits."""
    score = str(c.first(*SCORES) or "softmax")
    if score not in ("softmax", "sigmoid"):
        key = next(key for key in SCORES if c.data.get(key))
        raise c.error(key, f"{quote_value(score)} is not supported; known: 'softmax', 'sigmoid'")
    return score


def _dense_layers(c: Config) -> JsonObject:
    """The kind of each feed-forward layer, where a list names those without experts."""
    dense = c.get("mlp_only_layers")
    if not dense:
        return {}
    n = layers(c)
    if not isinstance(dense, list) or not all(isinstance(i, int) and 0 <= i < n for i in dense):
        raise c.error("mlp_only_layers", "not a list of layers")
    if c.data.get("mlp_layer_types") or c.data.get("first_k_dense_replace"):
        raise c.error("mlp_only_layers", "another key says which layers have no experts too")
    return {"mlp_layer_types": ["dense" if i in dense else "sparse" for i in range(n)]}


def _states(c: Config, keys: tuple[str, ...]) -> bool:
    """Whether a config gives one of these keys a value above nothing."""
    return any(c.data.get(key) not in (None, 0, False) for key in keys)


def _is_latent(c: Config) -> bool:
    """Whether keys and values are latent. Raises SpecError where `use_mla` contradicts the ranks."""
    ranks = _states(c, LATENT[:1])
    if bool(c.get("use_mla", ranks)) != ranks:
        raise c.error("use_mla", "it does not go with `kv_lora_rank`")
    return ranks


def _is_routed(c: Config) -> bool:
    """Whether there are experts: their number says so, unless `use_moe` switches them off."""
    stated = _states(c, EXPERTS)
    if c.get("use_moe") and not stated:
        raise c.error("use_moe", "no key says how many experts there are")
    return stated and c.get("use_moe") is not False


def _architecture(c: Config) -> None:
    """Refuse classes that do not say by their names that they are language models."""
    named = c.data.get("architectures")
    if not (isinstance(named, list) and named and all(isinstance(n, str) and DECODERS.search(n) for n in named)):
        raise c.error("architectures", f"{quote_value(named)} does not name a language model that predicts tokens")


def _refuse_contradictions(c: Config) -> None:
    """Refuse switches that are no booleans, one quantity under two names with two values, and an activation that does
    not say that a feed-forward layer is gated.
    """
    for key in SWITCHES:
        if not isinstance(c.data.get(key), bool | None):
            raise c.error(key, f"{quote_value(c.data[key])} is neither true nor false")
    for keys in (EXPERTS, TOP_K, SHARED, SCALES, SCORES):
        stated = {key: c.data[key] for key in keys if c.data.get(key) is not None}
        other = next((key for key, value in stated.items() if value != next(iter(stated.values()))), None)
        if other is not None:
            raise c.error(other, f"{quote_value(stated[other])} is not what {quote(next(iter(stated)))} says")
    act = c.first("hidden_act", "hidden_activation")
    if act not in GATED_ACTS:
        raise c.error("hidden_act", f"{quote_value(act)} does not say whether feed-forward layers are gated")


def _with_whole_heads(c: Config) -> Config:
    """The config, whose width its heads divide where no key says how wide they are."""
    width, n = c.count("hidden_size"), c.count("num_attention_heads")
    if c.data.get("head_dim") is None and width % n:
        raise c.error(
            "num_attention_heads", f"the width {width:,} is not a multiple of {n:,}, and no `head_dim` is given"
        )
    return c


def _refuse_missing(c: Config) -> None:
    needed = [*NEEDED, *(LATENT if _states(c, LATENT[:1]) else HEADS)]
    routed = _is_routed(c)
    if routed:
        needed += ROUTED
    if not routed or any(c.data.get(key) for key in ("first_k_dense_replace", "mlp_layer_types", "mlp_only_layers")):
        needed.append("intermediate_size")
    missing = [key for key in needed if c.data.get(key) is None and not (key == "q_lora_rank" and key in c.data)]
    missing += [] if any(c.data.get(key) for key in POSITIONS) else [POSITIONS[0]]
    missing += ["tie_word_embeddings"] if c.data.get("tie_word_embeddings") is None else []
    if missing:
        raise c.error(missing[0], f"missing, and no class says what it is without ({', '.join(map(quote, missing))})")


def _tied(c: Config) -> Config:
    """The config with `tie_word_embeddings`: a file that transformers 4 wrote lacks it where it is true
    (`PretrainedConfig.to_diff_dict` leaves out what equals its own default).
    """
    version = str(c.data.get("transformers_version") or "").split(".")[0]
    if "tie_word_embeddings" in c.data or not version.isdecimal() or int(version) > TIED:
        return c
    return c.changed(tie_word_embeddings=True)


def _windows(c: Config) -> list[Entry]:
    """What each layer's kind is called, and its window where `layer_types` gives it one. Raises SpecError for a window
    that may be in any layer.
    """
    n = layers(c)
    kinds = layer_types(c, n, ["full_attention"] * n)
    used = c.get("use_sliding_window") is not False and c.get("sliding_window") is not None
    if used and c.data.get("layer_types") is None:
        raise c.error("sliding_window", "without `layer_types`, it may be in any layer")
    if "sliding_attention" not in kinds:
        return [("layers", {})] * n
    if c.get("use_sliding_window") is False:
        raise c.error("use_sliding_window", "false, but `layer_types` has layers with a window")
    local = ("local", {"mask": sliding(c.count("sliding_window"))})
    return [local if kind == "sliding_attention" else ("global", {}) for kind in kinds]


def what_it_is_read_as(model_type: str, document: JsonMapping) -> str:
    """The line of caution beside every figure of such a model."""
    whole = str(document.get("layers"))
    kind = "with latent attention" if "'mla'" in whole or "mla" in str(document.get("layer")) else "of the Llama kind"
    experts = " with experts" if "'moe'" in whole + str(document.get("layer")) else ""
    return (
        f"model_type {quote(model_type)} is not known: read as a decoder {kind}{experts} from its fields, without its "
        "code; biases, and norms of queries and keys, are in no field"
    )


def ignorable(key: str, value: object) -> bool:
    """Whether a key that was not read changes nothing: beside code that nobody knows, only one that switches off what
    was not supposed, or is known to be about lengths, tokens or training. A word that nobody knows may be any part.
    """
    *outer, name = key.split(".")
    if outer and outer[0] in STRICT:
        return False
    off = value in (None, False, "", []) and not (value is False and TAKEN_FOR_GRANTED.search(name))
    return off or bool(HARMLESS_NAMES.search(name) or LENGTHS.search(name))
