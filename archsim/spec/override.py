"""`--set path=value`: one field of a spec changed without editing its file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.spec import loader

TOP_LEVEL = ("embedding", "final_norm", "head", "encoder", "mtp", "mlm_head", "weights", "published", "lineage")
"""First words of a path that begin at the document; any other dotted path begins at every layer that has it."""


SAME = {
    "n_layers": "layers.repeat", "num_layers": "layers.repeat", "num_hidden_layers": "layers.repeat",
    "depth": "layers.repeat", "hidden_size": "d_model", "num_attention_heads": "attention.n_heads",
    "num_key_value_heads": "attention.n_kv_heads", "head_dim": "attention.d_head", "intermediate_size": "ffn.d_ff",
    "max_position_embeddings": "max_context", "tie_word_embeddings": "head.tied",
}  # fmt: skip
"""What a field is called elsewhere -> its path in a spec."""

SETTLED = {
    "extends": "for another model pass its name, or a spec of your own with `extends`",
    "layer": "what layers share is merged into them before; `--set attention.n_kv_heads=4` changes every layer",
}
"""Fields that have done their work before changes are made, and what does what was meant."""


def apply(document: loader.Node, changes: Iterable[str]) -> loader.Node:
    """The document with each ``path=value`` assigned; values are read as YAML.

    ``d_model=4096`` and ``head.tied=true`` begin at the document, ``attention.n_kv_heads=4`` at every layer with
    an `attention`, ``layers.placement=post`` at every layer; ``layers.repeat=40`` is the depth of a model with one
    group of layers, and so are `n_layers` and other usual names (`SAME`). A mapping on the way that no layer has is
    made: ``attention.mask.kind=sliding`` gives a mask to attention that has none. Call after the shared `layer` has
    been merged. Raises UsageError for a path that fits nowhere.
    """
    for change in changes:
        path, separator, text = change.partition("=")
        path = SAME.get(path.strip(), path.strip())
        keys = path.split(".")
        if not separator or not all(keys):
            raise UsageError(
                f"`--set` wants FIELD=VALUE, not {quote(change)}", hints=("for example `--set d_model=4096`",)
            )
        if path.strip() in SETTLED:
            raise UsageError(f"`--set {path.strip()}` changes nothing: {SETTLED[path.strip()]}")
        given = loader.parse_text(f"{keys[-1]}: {text}", "--set")
        targets, inner = _targets(document, keys, path)
        found = [holder for target in targets if (holder := _holder(target, inner)) is not None]
        found = found or [holder for target in targets if (holder := _holder(target, inner, given)) is not None]
        if not found:
            raise UsageError(
                f"`--set` {quote(path)}: {quote(keys[-2])} is not a mapping, so it has no fields",
                hints=(f"`--set '{'.'.join(keys[:-1])}={{kind: ...}}'` puts one in its place",),
            )
        for holder in found:
            _assign(holder, keys[-1], given)
    return document


def _targets(document: loader.Node, keys: list[str], path: str) -> tuple[list[Any], list[str]]:
    """Where the path begins, and what is left of it."""
    if len(keys) == 1 or keys[0] in TOP_LEVEL:
        return [document], keys
    if keys == ["layers", "repeat"]:
        return [_only_group(document)], keys[1:]
    inner = keys[1:] if keys[0] == "layers" else keys
    targets = _layers_with(document, inner[0] if len(inner) > 1 else None)
    if not targets:
        raise UsageError(f"no layer has {quote(inner[0])}, so `--set` {quote(path)} changes nothing")
    return targets, inner


def _only_group(document: loader.Node) -> Any:
    groups: list[Any] = list(document.get("layers") or ())
    if len(groups) != 1 or not isinstance(groups[0], dict):
        raise UsageError(
            f"`--set layers.repeat`: the model has {len(groups)} groups of layers, so say which",
            hints=("copy the spec and change its `repeat`s; `archsim show MODEL` names the file",),
        )
    return groups[0]


def _layers_with(holder: Any, key: str | None) -> list[Any]:
    """Every layer below that has the field `key` (None: every layer), groups and the encoder's stack opened."""
    found: list[Any] = []
    for layer in holder.get("layers") or ():
        if isinstance(layer, dict):
            group = isinstance(layer.get("layers"), list)
            found += [layer] if (key in layer if key else not group) else _layers_with(layer, key)
    encoder = holder.get("encoder")
    return found + (_layers_with(encoder, key) if isinstance(encoder, dict) else [])


def _holder(target: Any, keys: list[str], given: loader.Node | None = None) -> Any:
    """The mapping that the path's last field belongs to; None where there is none on the way. given: the assignment
    for which mappings that are missing are made.
    """
    for key in keys[:-1]:
        if given is not None and target.get(key) is None:
            mark = given.key_mark(keys[-1])
            target.put(key, loader.Node(mark), (mark, mark))
        target = target.get(key)
        if not isinstance(target, dict):
            return None
    return target


def _assign(holder: Any, key: str, given: loader.Node) -> None:
    """Set the field, with the place of its value in the `--set`, so that an error points there."""
    holder.put(key, given[key], (given.key_mark(key), given.value_mark(key)))
