"""A config.json that knows which of its keys were understood."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonMapping

_HARMLESS = """
_name_or_path architectures auto_map model_type transformers_version use_cache name_or_path bos_token_id
eos_token_id pad_token_id sep_token_id unk_token_id mask_token_id cls_token_id bos_token eos_token
decoder_start_token_id forced_bos_token_id forced_eos_token_id vocab_type gen_step_size initializer_range
initializer_factor init_std init_device init_config gradient_checkpointing return_dict output_attentions
output_hidden_states output_past output_scores return_dict_in_generate id2label label2id num_labels
_num_labels problem_type chunk_size_feed_forward torchscript use_bfloat16 tf_legacy_loss max_length
min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k top_p
typical_p repetition_penalty length_penalty no_repeat_ngram_size bad_words_ids
encoder_no_repeat_ngram_size num_return_sequences remove_invalid_values suppress_tokens
begin_suppress_tokens exponential_decay_length_penalty task_specific_params prefix tokenizer_class
finetuning_task pretraining_tp _attn_implementation attn_implementation _flash_attn_2_enabled
attention_dropout hidden_dropout hidden_dropout_prob attention_probs_dropout_prob resid_pdrop embd_pdrop
attn_pdrop emb_pdrop dropout dropout_rate activation_dropout classifier_dropout layerdrop
encoder_layerdrop decoder_layerdrop qa_dropout seq_classif_dropout pooler_dropout residual_dropout
embedding_dropout ffn_dropout ffdropout resid_dropout attn_dropout attention_dropout_prob classif_dropout
router_aux_loss_coef router_z_loss_coef router_jitter_noise output_router_logits aux_loss_alpha seq_aux
summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout
add_bos_token add_final_layer_norm classifier_activation normalize_before normalize_embedding
masked_softmax_fusion bias_dropout_fusion attention_softmax_in_fp32 unk_index skip_bias_add
skip_bias_add_qkv offset_alibi seq_length ep_size train_dtype verbose unsloth_fixed unsloth_version
tokenizer_name save_step add_bias_logits force_bos_token_to_be_generated _attn_implementation_autoset
use_flash_attn use_flash_attention use_flash_attention_2
is_decoder residual_in_fp32 output_router_logits rescale_layer
generation_config sentence_transformers transformers.js_config neuron base_model tp_plan ep_plan pp_plan
tensor_parallel_size tensor_parallel_rank pipeline_parallel_size flash_attention use_liger_kernel use_fused_rope
use_fused_rms_norm use_fused_head_and_loss_fn fuse_attention_qkv fuse_attention_ffn fuse_sequence_parallel_allreduce
is_composition is_llama_config perceiver_config pixel_shuffle_factor classifier_from_token
moe_impl moe_implementation experts_implementation ignore_keys_at_rope_validation
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Keys that no cost depends on, whatever their value."""


NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (None, False),
    "cross_attention_hidden_size": (None,),
    "pruned_heads": (None, {}, []),
    "is_causal": (None, True),
}
"""Keys that no cost depends on at these values."""

LAYERS = ("num_hidden_layers", "num_layers", "n_layer", "n_layers", "num_decoder_layers", "encoder_layers",
          "decoder_layers", "depth")  # fmt: skip
"""Keys that count layers."""

MAX_LAYERS = 2_000
MAX_COUNT = 2**48


def quote_value(value: object) -> str:
    """A value as a message quotes it, cut where it is long."""
    text = repr(value) if not isinstance(value, int) or abs(value) < 10**30 else "a number of many digits"
    return text if len(text) <= 60 else text[:57] + "..."


class Config:
    """The keys of a config.json, with the defaults of its family, and a record of those that were read.

    A key that nobody read, and that is not known to be harmless, is an error: it could change the cost.
    """

    def __init__(self, data: JsonMapping, defaults: JsonMapping, where: str = "") -> None:
        self.data, self.defaults, self.where = data, defaults, where
        self.read: set[str] = set()
        self.skipped: set[str] = set()
        self.children: list[Config] = []

    def changed(self, **values: object) -> Config:
        """The same with some values replaced; what is read there counts as read here."""
        other = Config({**self.data, **values}, self.defaults, self.where)
        other.read, other.skipped, other.children = self.read, self.skipped, self.children
        return other

    def get(self, key: str, default: object = None) -> Any:
        """The value as written (null stays None), else the family's default, else `default`."""
        self.read.add(key)
        self.skipped.discard(key)
        return self.data[key] if key in self.data else self.defaults.get(key, default)

    def first(self, *keys: str) -> Any:
        """The value of the first key that is there and not null: a field that has had several names."""
        self.read.update(keys)
        self.skipped.difference_update(keys)
        given = [self.data[k] for k in keys if self.data.get(k) is not None]
        return given[0] if given else next((self.defaults[k] for k in keys if k in self.defaults), None)

    def count(self, *keys: str, default: int | None = None) -> int:
        """A positive whole number; `default` stands in for a missing one, and for a null in the file."""
        value, key = self.first(*keys), next((k for k in keys if self.data.get(k) is not None), keys[0])
        nulled = key in self.data and self.data[key] is None
        value = default if value is None or nulled else value
        if value is None:
            raise self.error(key, "missing")
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise self.error(key, f"{quote_value(value)} is not a positive whole number")
        limit = MAX_LAYERS if key in LAYERS else MAX_COUNT
        if value > limit:
            raise self.error(key, f"{quote_value(value)} is more than {limit:,}")
        return value

    def number(self, key: str) -> float:
        """A number that has to be there."""
        value = self.get(key)
        if value is None:
            raise self.error(key, "missing")
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < math.inf:
            raise self.error(key, f"{quote_value(value)} is not a number")
        return value

    def positive(self, key: str) -> float:
        """A number above zero that has to be there."""
        value = self.number(key)
        if value <= 0:
            raise self.error(key, f"{quote_value(value)} is not a positive number")
        return value

    def listed(self, key: str, length: int) -> list[Any] | None:
        """A list with one entry per layer, or None."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != length:
            raise self.error(key, f"not a list of {length} entries, one per layer")
        return value

    def skip(self, *keys: str) -> None:
        """Keys that have no influence in this family, or not beside the others."""
        self.skipped.update(key for key in keys if key not in self.read)
        self.read.update(keys)

    def only(self, key: str, *allowed: object) -> Any:
        """A key of which only these values can be expressed."""
        value = self.get(key)
        if value is not None and value not in allowed:
            raise self.error(key, f"{quote_value(value)} is not supported; known: {', '.join(map(repr, allowed))}")
        return value

    def child(self, key: str) -> Config | None:
        """A nested mapping, its keys tracked as well."""
        value = self.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(key, "not a mapping")
        inherited = self.defaults.get(key)
        defaults = inherited if isinstance(inherited, Mapping) else {}
        self.children.append(Config(value, defaults, f"{self.where}{key}."))
        return self.children[-1]

    def error(self, key: str, reason: str) -> SpecError:
        """An error about one key."""
        return SpecError(f"config key {quote(self.where + key)}: {reason}", code="E102")

    def unread(self) -> dict[str, object]:
        """Keys that were not understood, and their values; those of nested mappings with dots."""
        own = [key for key in self.data if key not in self.read and key not in HARMLESS]
        own = [key for key in own if key not in NEUTRAL or self.data[key] not in NEUTRAL[key]]
        found = {self.where + key: self.data[key] for key in own}
        for child in self.children:
            found |= child.unread()
        return found
