"""`--set path=value`: one field of a spec changed without editing its file."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from archsim.base.diagnostics import quote
from archsim.base.errors import UsageError
from archsim.spec import loader

TOP_LEVEL = (
    "embedding",
    "final_norm",
    "head",
    "encoder",
    "mtp",
    "mlm_head",
    "weights",
    "published",
    "lineage",
)
"""First words of a path that begin at the document; any other dotted path begins at every layer that has it."""


def apply(document: loader.Node, changes: Iterable[str]) -> loader.Node:
    """The document with each ``path=value`` assigned; values are read as YAML.

    ``d_model=4096`` and ``head.tied=true`` begin at the document, ``attention.n_kv_heads=4`` at every layer with
    an `attention`. Call after the shared `layer` has been merged. Raises UsageError for a path that fits nowhere.
    """
    for change in changes:
        path, separator, text = change.partition("=")
        keys = path.strip().split(".")
        if not separator or not all(keys):
            raise UsageError(
                f"`--set` wants FIELD=VALUE, not {quote(change)}", hints=("for example `--set d_model=4096`",)
            )
        given = loader.parse_text(f"{keys[-1]}: {text}", "--set")
        targets = [document] if len(keys) == 1 or keys[0] in TOP_LEVEL else _layers_with(document, keys[0])
        if not targets:
            raise UsageError(f"no layer has {quote(keys[0])}, so `--set {quote(path)}` changes nothing")
        for target in targets:
            _assign(target, keys, given, path)
    return document


def _layers_with(holder: Any, key: str) -> list[Any]:
    """Every layer below that has the field `key`, groups and the encoder's stack opened."""
    found: list[Any] = []
    for layer in holder.get("layers") or ():
        if isinstance(layer, dict):
            found += [layer] if key in layer else _layers_with(layer, key)
    encoder = holder.get("encoder")
    return found + (_layers_with(encoder, key) if isinstance(encoder, dict) else [])


def _assign(target: Any, keys: list[str], given: loader.Node, path: str) -> None:
    """Set the field, with the place of its value in the `--set`, so that an error points there."""
    for key in keys[:-1]:
        inner = target.get(key)
        if not isinstance(inner, dict):
            raise UsageError(f"`--set {quote(path)}`: {quote(key)} is not there to have a field")
        target = inner
    key = keys[-1]
    target.put(key, given[key], (given.key_mark(key), given.value_mark(key)))
