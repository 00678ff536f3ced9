"""Modules that a quantised checkpoint leaves as they were or stores in another format, found among the weights of
its spec."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate as fnmatch_translate
from itertools import product

from archsim.base.diagnostics import quote
from archsim.base.errors import SpecError
from archsim.base.json_types import JsonMapping
from archsim.spec.load import model_from
from archsim.spec.stored_weights import Stored, stored_weights

PARTS: Mapping[str, tuple[str, ...]] = {
    "w_q": ("q_proj", "qkv_proj", "query", "in_proj_qkv", "in_proj_qkvz"),
    "w_k": ("k_proj", "qkv_proj", "key", "in_proj_qkv", "in_proj_qkvz"),
    "w_v": ("v_proj", "qkv_proj", "value", "in_proj_qkv", "in_proj_qkvz"),
    "w_z": ("in_proj_z", "in_proj_qkvz", "z_proj", "in_proj"),
    "w_beta": ("in_proj_b", "in_proj_ba", "beta_proj", "in_proj"),
    "w_decay": ("in_proj_a", "in_proj_ba", "decay_proj", "in_proj"),
    "w_latent_down": ("fc1_latent_proj",),
    "w_latent_up": ("fc2_latent_proj",),
    "w_o": ("o_proj", "out_proj", "dense"),
    "w_gate": ("gate_proj", "gate_up_proj", "w1"),
    "w_up": ("up_proj", "gate_up_proj", "w3", "fc1"),
    "w_down": ("down_proj", "w2", "fc2"),
    "w_q_down": ("q_a_proj",),
    "w_q_nope": ("q_b_proj",),
    "w_q_rope": ("q_b_proj",),
    "w_kv_down": ("kv_a_proj_with_mqa",),
    "w_k_rope": ("kv_a_proj_with_mqa",),
    "w_uk": ("kv_b_proj",),
    "w_uv": ("kv_b_proj",),
}
"""Name of a weight here to the names that its module has in checkpoints."""

ONLY_NAMED = "switch_mlp"
"""MLX's module of stacked experts: its checkpoints name modules, and patterns for `mlp` do not mean it."""

HOMES: Mapping[str, tuple[str, ...]] = {
    "attention": ("self_attn", "attn", "attention"),
    "mixer": ("linear_attn", "mamba", "mixer", "conv", "self_attn"),
    "ffn": ("mlp", "feed_forward", "mixer"),
    "moe": tuple(
        f"{home}.{experts}"
        for home in ("mlp", "block_sparse_moe", "feed_forward", "mixer")
        for experts in ("experts.0", ONLY_NAMED)
    ),
    "shared": (
        "mlp.shared_expert",
        "mlp.shared_experts",
        "feed_forward.shared_expert",
        "mixer.shared_experts",
        "block_sparse_moe.shared_experts",
    ),
    "dense": ("mlp",),
    "indexer": ("self_attn.indexer", "self_attn.index_"),
}
"""Name of a block here to the names that it has in checkpoints; `_` at the end: the first letters of its modules."""

OUTSIDE: Mapping[str, tuple[str, ...]] = {
    "embedding": ("model.embed_tokens", "embed_tokens"),
    "head": ("lm_head", "model.lm_head"),
}
"""Role of a tensor that is in no layer to the names of its module."""

ELSEWHERE = re.compile(
    r"head|embed|wte|router|\.gate\b|gate\$?$|vis(ion|ual)|audio|projector|connector|norm|mtp|eh_proj|conv1d"
    r"|\bbias\b|tower|shared_expert_gate"
)
"""Words in names of modules that are quantised nowhere, or are no part of the language model."""


NESTED = re.compile(r"[+*}]\)[+*{]|.{300}", re.S)
"""Repeated repetitions, whose matching can take for ever, and overlong patterns: not followed."""

ROLES = ("linear", "expert", "embedding", "head", "router")
"""Roles of tensors that a checkpoint may quantise; routers only where a rule names one."""

Rule = tuple[str, str | None]
"""Modules by name or pattern, and the format that they take; None: they stay in the default."""


class Pattern:
    """A rule for modules by pattern: a regular expression (`re:` in front), or text in which `*` is any text."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.glob = not rule[0].startswith("re:")
        self.text = text = _bare(rule[0]) if self.glob else rule[0]
        self._found = _compiled(text[3:]) if not self.glob else re.compile(fnmatch_translate(text)).match
        self._inside = re.compile(fnmatch_translate(text + ".*")).match if self.glob else _never

    @property
    def start(self) -> str:
        """What every name that a pattern with `*` means begins with."""
        return re.split(r"[*?[]", self.text, maxsplit=1)[0]

    def means(self, name: str) -> bool:
        """Whether it means a module, or what a module is part of."""
        return self._found(name) is not None or self._inside(name) is not None


class Rules:
    """Rules in the order they apply: what stays, then names, then patterns.

    A module is looked up by its name, and by the beginnings of its name among patterns: lists of hundreds of rules cost
    no more for each module than short ones.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.names: dict[str, Rule] = {}
        self.expressions: list[tuple[int, Pattern]] = []
        self.globs: dict[str, list[tuple[int, Pattern]]] = {}
        for place, rule in enumerate(sorted(rules, key=lambda rule: rule[1] is not None)):
            plain = not rule[0].startswith("re:") and "*" not in rule[0]
            if plain:
                self.names.setdefault(_bare(rule[0]), rule)
            else:
                pattern = Pattern(rule)
                held = self.globs.setdefault(pattern.start, []) if pattern.glob else self.expressions
                held.append((place, pattern))
        self.lengths = sorted({len(start) for start in self.globs})
        self.used: set[str] = set()

    def of(self, modules: Sequence[str]) -> Rule | None:
        """The first rule that speaks of a module under one of its names."""
        spans = (part for name in modules for part in _spans(name)) if self.names else ()
        named = [self.names[part] for part in spans if part in self.names]
        usual = [name for name in modules if ONLY_NAMED not in name]
        found = named + [rule for _, rule in sorted(set(self._meant(usual)))]
        self.used.update(rule[0] for rule in found)
        return min(found, key=lambda rule: rule[1] is not None) if found else None

    def _meant(self, names: Sequence[str]) -> Iterator[tuple[int, Rule]]:
        """Rules by pattern that mean one of the names, with their places."""
        for name in names:
            yield from ((place, pattern.rule) for place, pattern in self.expressions if pattern.means(name))
            for text, length in product((name, f"language_{name}"), self.lengths):
                held = self.globs.get(text[:length], ())
                yield from ((place, pattern.rule) for place, pattern in held if pattern.means(text))


def place_ignored(document: JsonMapping, rules: Sequence[Rule]) -> tuple[dict[str, str], list[str]]:
    """The `weights` of a document with those that a rule gives another format named one by one, and the entries of
    skip lists that name no module.

    Raises SpecError for a module with a format of its own that is found nowhere, and for a pattern that cannot be
    followed.
    """
    formats: dict[str, str] = dict(document["weights"])
    rules = of_one_expert(rules)
    every = [w for w in stored_weights(model_from(dict(document)))[1] if w.tensor.role in ROLES]
    last = max((i for w in every for i in w.layers), default=0)
    known, named = Rules(rules), dict[str, str]()
    for weight in every:
        usual = formats.get(weight.tensor.role, formats["default"])
        own = [_given(known.of(_modules(weight, i)), usual, formats["default"]) for i in weight.layers]
        if any(fmt != usual for fmt in own):
            named[weight.tensor.name] = _parts(own)
    lost = [rule for rule in rules if rule[0] not in known.used]
    lost = [rule for rule in lost if not ELSEWHERE.search(rule[0]) and not _beyond(rule[0], last)]
    for pattern, own_format in lost:
        if own_format is not None or _unusable(pattern):
            raise SpecError(
                f"config key `quantization_config`: {quote(pattern)} matches no weight matrix of the model", code="E102"
            )
    return _shortest(formats, named, every), [pattern for pattern, _ in lost]


def of_one_expert(rules: Sequence[Rule]) -> list[Rule]:
    """The rules, those for each expert of a layer as one. Raises SpecError for experts in different formats."""
    found: dict[str, Rule] = {}
    for name, own in rules:
        first = EXPERT.sub(".experts.0.", name)
        if found.setdefault(first, (first, own))[1] != own:
            raise SpecError(
                f"config key `quantization_config`: {quote(name)} has another format than other experts of its layer",
                code="E102",
            )
    return list(found.values())


EXPERT = re.compile(r"\.experts\.\d+\.")
"""One of the experts in the name of a module."""


def _given(rule: Rule | None, usual: str, default: str) -> str:
    return usual if rule is None else rule[1] or default


def _shortest(formats: dict[str, str], named: dict[str, str], every: Sequence[Stored]) -> dict[str, str]:
    """The same formats by class where all weights of a class agree."""
    for role in {w.tensor.role for w in every} & formats.keys():
        own = [w.tensor.name for w in every if w.tensor.role == role]
        if all(named.get(name) == formats["default"] for name in own):
            del formats[role]
            named = {name: fmt for name, fmt in named.items() if name not in own}
    return formats | named


def _beyond(pattern: str, last: int) -> bool:
    """Whether a name is of a layer behind the last: a prediction module."""
    numbers = re.findall(r"layers\.(\d{1,9})\b", pattern)
    return bool(numbers) and all(int(n) > last for n in numbers)


def _modules(weight: Stored, layer: int) -> list[str]:
    """Names that the module of a weight may have in a checkpoint."""
    *path, name = weight.tensor.name.split(".")
    if weight.tensor.role in OUTSIDE:
        return [*OUTSIDE[weight.tensor.role]]
    home = next((HOMES[part] for part in reversed(path) if part in HOMES), ("",))
    if weight.tensor.role == "router":
        return [f"model.layers.{layer}.{block}.{leaf}" for block in HOMES["ffn"] for leaf in ("gate", "router")]
    leaves = PARTS.get(name, (name.removeprefix("w_") + "_proj", "in_proj"))
    homes = [block if block.endswith("_") else f"{block}." for block in home]
    return [f"model.layers.{layer}.{block}{leaf}" for block in homes for leaf in leaves]


def _bare(pattern: str) -> str:
    """A name without what only multimodal checkpoints put in front."""
    for outer, inner in (("model.language_model.", "model."), ("language_model.model.", "model.")):
        pattern = pattern.replace(outer, inner)
    return pattern.replace("language_model.", "")


def _spans(name: str) -> Iterator[str]:
    """Every run of parts of a dotted name: what a bare name may be of it."""
    parts = name.split(".")
    for start in range(len(parts)):
        for end in range(start + 1, len(parts) + 1):
            yield ".".join(parts[start:end])


def _compiled(text: str) -> Callable[[str], object]:
    """What matches a regular expression of a checkpoint; nothing for one that is none, or is not followed."""
    if NESTED.search("re:" + text):
        return _never
    try:
        return re.compile(text).match
    except (re.error, OverflowError, RecursionError):
        return _never


def _unusable(text: str) -> bool:
    """Whether an entry is no name and no pattern that can be followed."""
    return len(text) > 300 or (text.startswith("re:") and _compiled(text[3:]) is _never)


def _never(name: str) -> None:
    """A pattern that means no module."""


def _parts(formats: Sequence[str]) -> str:
    """One format, or how many copies have which."""
    counts = Counter(formats)
    if len(counts) == 1:
        return formats[0]
    return "+".join(f"{n}*{fmt}" for fmt, n in counts.items())
