"""Parameters of the classes of transformers, built on the `meta` device."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass, field, replace

from archsim.base.json_types import JsonMapping, JsonObject

MAPS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "MULTIMODAL_LM", "TEXT_ENCODING",
        "SPEECH_SEQ_2_SEQ")  # fmt: skip
"""transformers' maps from types to classes that read or write text."""

OTHERS = ("vision", "visual", "image", "audio", "speech", "multi_modal", "merger", "connector", "projector",
          "resampler", "language_projection", "query_tokens", "talker", "token2wav", "code2wav", "codec_model", "vit",
          "encoder_tower", "video", "qformer", "aligner")  # fmt: skip
"""Words in names of modules that are no part of the language model."""

SINUSOIDS = {"marian": "embed_positions", "pegasus": "embed_positions", "roformer": "embed_positions"}
"""Tables of sinusoids, which never change, that a class holds as parameters."""


@dataclass(frozen=True)
class Classes:
    """Parameters of every class of a config. totals: all. texts: without vision and sound. languages: of modules that
    are called language model, and of the output table. heads: of an output table
    that a base class lacks. fixed: of tables that never change.
    """

    totals: dict[str, int] = field(default_factory=dict)
    texts: dict[str, int] = field(default_factory=dict)
    languages: dict[str, int] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)
    error: str = ""

    def has(self, n: int) -> bool:
        """Whether a class has so many parameters, of the whole or of its language model."""
        return any(
            n + self.fixed[name] in (held, held + self.heads[name])
            for held_by in (self.totals, self.texts, self.languages)
            for name, held in held_by.items()
        )


def model_types() -> list[str]:
    """Types that read or write text."""
    from transformers.models.auto import modeling_auto

    found = {name for key in MAPS for name in getattr(modeling_auto, f"MODEL_FOR_{key}_MAPPING_NAMES")}
    return sorted(found)


def default_config(model_type: str) -> tuple[JsonObject | None, str]:
    """The default config of a type as a config.json has it, or why there is none."""
    from transformers import CONFIG_MAPPING

    try:
        return json.loads(CONFIG_MAPPING[model_type]().to_json_string(use_diff=False)), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"[:150].replace("\n", " ")


def classes(config: JsonMapping, default: bool = False) -> Classes:
    """Parameters of the classes that read a config, of the auto maps. default: it is the one that its class makes,
    whose tuples JSON does not have.
    """
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto

    found, model_type = Classes(), str(config.get("model_type"))
    keys = (*(f"MODEL_FOR_{key}_MAPPING_NAMES" for key in (*MAPS, "PRETRAINING")), "MODEL_MAPPING_NAMES")
    errors = []
    names = [getattr(modeling_auto, key).get(model_type) for key in keys]
    for name in dict.fromkeys(n for entry in names for n in (entry if isinstance(entry, (list, tuple)) else [entry])):
        if name is None:
            continue
        try:
            made = CONFIG_MAPPING[model_type]
            add_class(found, name, made() if default else made.from_dict(dict(config)))
        except Exception as error:
            errors.append(f"{name}: {error}"[:150].replace("\n", " "))
    return replace(found, error=errors[0] if errors else "")


def add_class(found: Classes, name: str, config: object) -> None:
    """Build one class, and add its parameters."""
    import torch
    import transformers

    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        net = getattr(transformers, name)(config)
        net.tie_weights()
    sizes = {key: p.numel() for key, p in net.named_parameters()}
    others = sum(n for key, n in sizes.items() if any(word in key for word in OTHERS))
    text = config.get_text_config()  # type: ignore[attr-defined]
    table = SINUSOIDS.get(config.model_type, " ")  # type: ignore[attr-defined]
    found.totals[name] = sum(sizes.values())
    found.texts[name] = found.totals[name] - others
    found.languages[name] = sum(n for key, n in sizes.items() if "language_model" in key or key.startswith("lm_head"))
    headless = not any("lm_head" in key for key in sizes) and not getattr(text, "tie_word_embeddings", False)
    found.heads[name] = text.vocab_size * text.hidden_size if headless and has_sizes(text) else 0
    found.fixed[name] = sum(n for key, n in sizes.items() if table in key)


def has_sizes(config: object) -> bool:
    """Whether a config names its vocabulary and its width."""
    return all(isinstance(getattr(config, key, None), int) for key in ("vocab_size", "hidden_size"))
