"""The layers of a stack by kind: what is drawn once for all layers that are the same, and the order in which they
come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from archsim.blocks.layer import Layer, layer_name
from archsim.graph.graph import Block, Node
from archsim.render.drawing.tally import Tally, Twins, same_shape

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(slots=True)
class LayerKind:
    """Layers that are the same but for their place: the first of them, how many there are, their blocks."""

    layer: Layer
    blocks: list[Block] = field(default_factory=list)
    count: int = 0
    letter: str = ""

    def twins(self, tally: Tally) -> Twins:
        """Amounts over all of them."""
        return Twins(tally, self.blocks)


def layer_kinds(layers: Sequence[Layer], graph: Mapping[str, Block], prefix: str) -> list[LayerKind]:
    """The kinds of a stack in the order in which they first come."""
    found: list[LayerKind] = []
    known: dict[str, list[LayerKind]] = {}
    for layer, path, times in _leaves(tuple(layers), prefix, 1):
        bare = layer.model_copy(update={"name": None, "repeat": 1})
        block = graph[path]
        alike = known.setdefault(bare.model_dump_json(), [])
        kind = next((k for k in alike if same_shape(k.blocks[0], block)), None)
        if kind is None:
            kind = LayerKind(bare, letter=_letter(len(found)))
            found.append(kind)
            alike.append(kind)
        kind.blocks.append(block)
        kind.count += times
    return found


def pattern(layers: Sequence[Layer], kinds: Sequence[LayerKind], graph: Mapping[str, Block], prefix: str) -> str:
    """The order of the kinds in words: `3 A, then 58 B`, or `10 × (5 A, 1 B), then 2 A`."""
    letters = {block.name: kind.letter for kind in kinds for block in kind.blocks}
    return ", then ".join(_in_words(tuple(layers), letters, graph, prefix))


def sequence(
    layers: Sequence[Layer], kinds: Sequence[LayerKind], prefix: str, most: int
) -> list[str]:  # fmt: skip
    """The letter of each layer from the first to the last; of more than `most` the first ones."""
    letters = {block.name: kind.letter for kind in kinds for block in kind.blocks}
    found: list[str] = []
    for letter in _unrolled(tuple(layers), letters, prefix):
        if len(found) == most:
            break
        found.append(letter)
    return found


def _letter(i: int) -> str:
    return LETTERS[i] if i < len(LETTERS) else f"{LETTERS[i % 26]}{i // 26}"


def _leaves(layers: tuple[Layer, ...], prefix: str, times: int) -> Iterator[tuple[Layer, str, int]]:
    """Every distinct layer with its path in the graph and how often it runs."""
    for i, layer in enumerate(layers):
        path = f"{prefix}{layer_name(layers, i)}"
        if layer.layers is not None:
            yield from _leaves(layer.layers, path + ".", times * layer.repeat)
        else:
            yield layer, path, times * layer.repeat


def round_ends(layers: Sequence[Layer], graph: Mapping[str, Block], prefix: str) -> list[Node]:
    """What groups of layers compute behind their layers in each round: a norm, a score by which to leave."""
    found: list[Node] = []
    for i, layer in enumerate(layers):
        path = f"{prefix}{layer_name(tuple(layers), i)}"
        if layer.layers is not None:
            inside = {f"{path}.{layer_name(layer.layers, j)}" for j in range(len(layer.layers))}
            found += round_ends(layer.layers, graph, path + ".")
            found += [node for node in graph[path].body if node.name not in inside]
    return found


def _unrolled(layers: tuple[Layer, ...], letters: Mapping[str, str], prefix: str) -> Iterator[str]:
    for i, layer in enumerate(layers):
        path = f"{prefix}{layer_name(layers, i)}"
        for _ in range(layer.repeat):
            if layer.layers is not None:
                yield from _unrolled(layer.layers, letters, path + ".")
            else:
                yield letters[path]


def _in_words(
    layers: tuple[Layer, ...], letters: Mapping[str, str], graph: Mapping[str, Block], prefix: str
) -> list[str]:  # fmt: skip
    runs: list[tuple[int, str]] = []
    for i, layer in enumerate(layers):
        path = f"{prefix}{layer_name(layers, i)}"
        if layer.layers is None:
            runs.append((layer.repeat, letters[path]))
            continue
        inner = ", ".join(_in_words(layer.layers, letters, graph, path + "."))
        runs.append((layer.repeat, f"({inner})"))
    words = []
    for what, same in groupby(runs, key=lambda run: run[1]):
        times = sum(n for n, _ in same)
        words.append(what.strip("()") if times == 1 and what[0] == "(" else
                     f"{times:,} × {what}" if what[0] == "(" else f"{times:,} {what}")  # fmt: skip
    return words
