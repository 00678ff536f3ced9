"""A model with letters in place of its numbers, so that counting it prints the formula of the count.

The letters are those of the field: L layers, D d_model, V vocabulary, K key/value heads, G query heads per
key/value head (N heads where every head has its own), H head size, F feed-forward width, E experts, k experts
per token, W window. Where a letter has several values in one model they are numbered: F1, F2.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from archsim.base.poly import Poly
from archsim.blocks.dispatch import Spec
from archsim.spec.model import Model

MEANING = {
    "L": "layers",
    "D": "width of the model",
    "V": "vocabulary",
    "N": "heads",
    "K": "key/value heads",
    "G": "query heads per key/value head",
    "H": "head size",
    "Hv": "value head size",
    "F": "feed-forward width",
    "E": "experts",
    "k": "experts per token",
    "W": "window",
    "Qr": "query latent",
    "R": "key/value latent",
    "Hn": "head size without position",
    "Hr": "head size with position",
    "X": "learned positions",
    "Z": "width of the embedding",
    "Vp": "rows of the embedding",
    "I": "inner width",
    "S": "state size",
    "Rd": "rank of the time step",
    "Nv": "value heads",
    "Fs": "width of the shared expert",
    "Fd": "width of the dense network",
}
"""What each letter stands for."""

FIELDS: dict[str, dict[str, str]] = {
    "Model": {"d_model": "D", "vocab_size": "V"},
    "Embedding": {"rows": "Vp", "factor": "Z"},
    "Positions": {"max": "X"},
    "Layer": {"repeat": "L"},
    "Attention": {"n_heads": "N", "d_head": "H", "d_head_v": "Hv"},
    "MaskSpec": {"window": "W"},
    "Mla": {"n_heads": "N", "q_rank": "Qr", "kv_rank": "R", "d_nope": "Hn", "d_rope": "Hr", "d_v": "Hv"},
    "Ffn": {"d_ff": "F"},
    "Shared": {"d_ff": "Fs"},
    "Moe": {"n_experts": "E", "top_k": "k"},
    "Mamba": {"d_inner": "I", "d_state": "S", "dt_rank": "Rd"},
    "Mamba2": {"n_heads": "N", "d_head": "H", "d_state": "S"},
    "Lightning": {"n_heads": "N", "d_head": "H"},
    "GatedDeltaNet": {"n_key_heads": "N", "d_key": "H", "d_value": "Hv"},
    "RgLru": {"d_inner": "I"},
}
"""Class of a spec -> its fields that become letters; every other number stays a number."""


def symbolic(model: Model, keep: Collection[str] = ()) -> tuple[Model, dict[str, int]]:
    """The model with `Poly` letters for its numbers, and the value of every letter; letters in `keep` stay
    numbers.

    `cost.count.params(lower(symbolic_model, Step.of(1, 1, 0)))` is then the polynomial of the count. The
    model is a copy that skipped validation: use it for lowering only.
    """
    letters = _Letters(frozenset(keep))
    letters.collect(model)
    return letters.applied(model), letters.values()


class _Letters:
    """Which letter each number of one model gets: found in a first walk, put in place in a second."""

    def __init__(self, keep: frozenset[str]) -> None:
        self.keep = keep
        self.seen: dict[str, list[Any]] = {}
        self.turn: dict[str, int] = {}

    def numbers(self, spec: Any) -> list[tuple[str, int, bool]]:
        """What becomes a letter in one spec."""
        return [item for item in _numbers(spec) if item[0] not in self.keep]

    def collect(self, spec: Spec) -> None:
        for letter, value, own in self.numbers(spec):
            known = self.seen.setdefault(letter, [])
            if own or value not in known:
                known.append(value)
        for _, inner in _children(spec):
            self.collect(inner)

    def values(self) -> dict[str, int]:
        """Every letter with its number."""
        return {
            self._name(letter, i): value
            for letter, known in self.seen.items()
            for i, value in enumerate(known)
        }

    def applied(self, spec: Any) -> Any:
        """A copy of the spec with letters; repetitions take theirs in the order of the first walk."""
        self.turn.clear()
        return self._applied(spec)

    def _applied(self, spec: Any) -> Any:
        update: dict[str, Any] = dict(_fixed(spec))
        for letter, value, own in self.numbers(spec):
            update[_field(spec, letter)] = Poly.symbol(self._own(letter) if own else self._of(letter, value))
        update |= self._heads(spec, update)
        for name, inner in _children(spec):
            if name in update:
                continue
            held = getattr(spec, name)
            update[name] = (
                tuple(map(self._applied, held)) if isinstance(held, tuple) else self._applied(inner)
            )
        return spec.model_copy(update=update)

    def _heads(self, spec: Any, update: dict[str, Any]) -> dict[str, Any]:
        """Grouped heads: K·G of them in place of N, or a multiple of N."""
        if type(spec).__name__ == "GatedDeltaNet":
            return {"n_value_heads": update["n_key_heads"] * (spec.n_value_heads // spec.n_key_heads)}
        if type(spec).__name__ != "Attention" or spec.kind != "gqa":
            return {}
        k, g = (Poly.symbol(self._of(x, n)) for x, n in (("K", spec.kv_heads), ("G", spec.groups)))
        return {"n_heads": k * g, "n_kv_heads": k}

    def _own(self, letter: str) -> str:
        turn = self.turn.get(letter, 0)
        self.turn[letter] = turn + 1
        return self._name(letter, turn)

    def _of(self, letter: str, value: Any) -> str:
        return self._name(letter, self.seen[letter].index(value))

    def _name(self, letter: str, index: int) -> str:
        return letter if len(self.seen[letter]) == 1 else f"{letter}{index + 1}"


def _numbers(spec: Any) -> list[tuple[str, int, bool]]:
    """(letter, value, whether this place has a letter of its own) of one spec."""
    kind = type(spec).__name__
    found = []
    for name, letter in FIELDS.get(kind, {}).items():
        value = getattr(spec, name)
        if isinstance(value, int) and not (letter == "L" and value == 1):
            found.append((letter, value, letter == "L"))
    if kind == "MaskSpec" and spec.kind == "chunked":
        return []  # cutting into chunks rounds, which a polynomial cannot
    if kind == "Attention" and spec.kind == "gqa":
        found = [item for item in found if item[0] != "N"]
        found += [("K", spec.kv_heads, False), ("G", spec.groups, False)]
    return found


def _field(spec: Any, letter: str) -> str:
    fields = {mark: name for name, mark in FIELDS[type(spec).__name__].items()}
    return fields.get(letter, "n_kv_heads" if letter == "K" else "n_heads")


def _fixed(spec: Any) -> dict[str, Any]:
    """Fields that would do arithmetic that polynomials cannot, and that no count depends on."""
    return {"scale": None} if type(spec).__name__ == "Embedding" else {}


def _children(spec: Any) -> list[tuple[str, Spec]]:
    """Specs inside a spec, with the field each is in; the items of a tuple one by one."""
    found = []
    for name in type(spec).model_fields:
        held = getattr(spec, name)
        for inner in held if isinstance(held, tuple) else (held,):
            if isinstance(inner, Spec):
                found.append((name, inner))
    return found
