"""What a model's parts are, as short lines that can be drawn and compared."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from archsim.blocks.block import AttentionSpec, BlockSpec, FfnSpec
from archsim.blocks.dispatch import Spec
from archsim.blocks.layer import Layer, count_layers
from archsim.blocks.norm import Norm
from archsim.blocks.stage import LayersStage, NormStage, StageSpec, stage_names
from archsim.render.html.markup import name_of
from archsim.spec.model import Embedding, Model, Tower

WORDS = {
    "n_heads": "query heads", "n_kv_heads": "KV heads", "d_head": "head_dim", "d_head_v": "v_head_dim",
    "d_ff": "intermediate size", "q_rank": "q_lora_rank", "kv_rank": "kv_lora_rank", "d_nope": "qk_nope_head_dim",
    "d_rope": "qk_rope_head_dim", "d_v": "v_head_dim", "n_experts": "experts", "top_k": "experts per token",
    "qk_norm": "QK norm", "n_key_heads": "key heads", "n_value_heads": "value heads", "d_key": "key head_dim",
    "d_value": "value head_dim", "n_groups": "groups",
    "factor": "width", "d_inner": "inner width", "d_state": "state size", "d_conv": "convolution width",
}  # fmt: skip
"""Fields in the words of papers and of `config.json`; others are said with spaces for underscores."""

QUIET = ("kind", "eps")
"""Fields that no drawing needs."""

PARTS = ("attention", "mixer", "cross_attention", "ffn")
MOST_KINDS = 8
"""Different layers of one model that are drawn; the table has all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """One part of a drawing. keys: what title and lines are compared by. opens: a frame of repetitions begins."""

    role: str
    title: str
    lines: tuple[str, ...] = ()
    kind: str = "plain"
    depth: int = 0
    opens: bool = False

    @property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """(role, text) of the title and of every line."""
        return tuple((self.role, text) for text in (self.title, *self.lines))


def boxes(model: Model) -> list[Box]:
    """The parts of a model in the order of the computation."""
    found = [box for tower in model.towers for box in _stages(tower)]
    if model.encoder is not None:
        layers = list(_stack(model.encoder.layers, 0, "encoder "))
        inner = tuple(embedding_lines(model, model.encoder.embedding or Embedding()))
        found += [Box(role="encoder embedding", title="Encoder embedding", lines=inner, kind="end"), *layers]
    found += [
        Box(role="embedding", title="Embedding", lines=tuple(embedding_lines(model, model.embedding)), kind="end")
    ]
    found += _stack(model.layers, 0, "")
    if model.final_norm is not None:
        found.append(norm_box("final norm", model.final_norm, 0))
    found.append(Box(role="output", title=output_title(model), kind="end"))
    return found


def _stages(tower: Tower) -> Iterator[Box]:
    """The stages of a vision or audio encoder, and the layers of those that have some."""
    for name, stage in stage_names(tower.stages):
        if isinstance(stage, LayersStage):
            yield from _stack(stage.layers, 0, f"{tower.name} ")
        else:
            yield stage_box(tower, name, stage)


SIZES = {
    "size": "{0} × {0} pixels", "frames": "{} frames", "kernel": "kernel {}", "stride": "stride {}",
    "tokens": "{} become one", "n": "{} times", "d": "width {}",
}  # fmt: skip
"""Field of a stage -> how a box says it."""


def stage_box(tower: Tower, name: str, stage: StageSpec) -> Box:
    """A stage: its title, and its sizes in one line. name: its own among the stages of the encoder."""
    sizes = ((words, getattr(stage, field, None)) for field, words in SIZES.items())
    said = ", ".join(words.format(f"{size:,}") for words, size in sizes if isinstance(size, int) and size > 1)
    role = f"{tower.name} {name.replace('_', ' ')}"
    named = stage.norm if isinstance(stage, NormStage) else stage
    return Box(role=role, title=named.names(named.kind).title, lines=(said,) if said else (), kind="end")


def embedding_lines(model: Model, embedding: Embedding) -> Iterator[str]:
    """The input side of a stack."""
    yield f"{model.vocab_size:,} tokens × {embedding.factor or model.d_model:,}"
    if embedding.positions is not None:
        yield f"{embedding.positions.kind} positions"
    for name in ("norm", "scale", "factor", "token_types", "per_layer"):
        if getattr(embedding, name) is not None:
            yield _line(name, getattr(embedding, name))


def output_title(model: Model) -> str:
    """The output side."""
    if model.head is None:
        return "Pooler" if model.pooler else "Output: hidden states"
    return "Output head, tied" if model.head.tied else "Output head, untied"


def _stack(layers: Sequence[Layer], depth: int, side: str) -> Iterator[Box]:
    """Layers and groups of them; beyond the most that are drawn, one box for the rest."""
    for i, layer in enumerate(layers):
        if i == MOST_KINDS:
            rest = count_layers(tuple(layers[i:]))
            yield Box(role=f"{side}layers", title=f"and {rest:,} more layers of other kinds", depth=depth)
            return
        own = name_of(layer.name, 24) if layer.name else "group" if layer.layers else "layer"
        what = f"{layer.repeat:,} × {own}" if layer.repeat > 1 else own
        yield Box(role=f"{side}layers", title=f"{what}{wiring(layer)}", depth=depth, opens=True)
        if layer.layers is not None:
            yield from _stack(layer.layers, depth + 1, side)
        else:
            yield from _leaf(layer, depth + 1, side)


def wiring(layer: Layer) -> str:
    """How the blocks of a layer are joined to the stream, in brackets; empty for the usual way."""
    words = {"post": "post-norm", "post_inside": "post-norm inside the residual", "pre+post": "pre- and post-norm",
             "residual_after_norm": "residual taken after the norm"}  # fmt: skip
    found = words.get(layer.placement, "")
    if layer.parallel:
        found = "attention and feed-forward in parallel"
    return f" ({found})" if found else ""


def _leaf(layer: Layer, depth: int, side: str) -> Iterator[Box]:
    """One layer: norms, blocks, and where they join the stream."""
    norm = None if layer.norm is None else norm_box(f"{side}norm", layer.norm, depth)
    before, behind = layer.placement in ("pre", "pre+post", "residual_after_norm"), layer.placement == "post"
    if layer.parallel and norm is not None:
        yield norm
    for part in PARTS:
        block = getattr(layer, part)
        if block is None:
            continue
        bare = part == "attention" and layer.attention_norm is False
        if norm is not None and before and not layer.parallel and not bare:
            yield norm
        yield part_box(f"{side}{part.replace('_', ' ')}", block, depth)
        if norm is not None and layer.placement in ("post_inside", "pre+post") and not layer.parallel:
            yield norm
        if not layer.parallel:
            yield Box(role="join", title="", kind="join", depth=depth)
        if norm is not None and behind and not layer.parallel:
            yield norm
    if layer.parallel:
        yield Box(role="join", title="both added", kind="join", depth=depth)


def norm_box(role: str, norm: Norm, depth: int) -> Box:
    """A norm."""
    title = norm.names(norm.kind).title + ("" if norm.affine else ", no weights")
    return Box(role=role, title=title, kind="norm", depth=depth)


def part_box(role: str, block: BlockSpec, depth: int) -> Box:
    """A block of a layer: its title, and a line for each field that the spec sets."""
    return Box(role=role, title=block.names(block.kind).title, lines=tuple(lines_of(block)),
               kind=role.rsplit(" ", 1)[-1], depth=depth)  # fmt: skip


def lines_of(block: Spec) -> list[str]:
    """One line for each field that the spec sets."""
    found = []
    for key in sorted(block.model_fields_set - set(QUIET), key=list(block.all_fields).index):
        value = getattr(block, key)
        if value is not None and value is not False:
            line = _line(key, value, _words(block, key))
            found += [line] if not line.endswith(": ") else []
    return found


def _words(block: Spec, key: str) -> str:
    """What a field is called in a block; empty where it is called the same in all."""
    if key == "n_heads" and not isinstance(block, AttentionSpec):
        return "heads"
    return "keys per query" if key == "top_k" and not isinstance(block, FfnSpec) else ""


def _line(key: str, value: object, words: str = "") -> str:
    words = words or WORDS.get(key, key.replace("_", " "))
    if value is True:
        return words
    if isinstance(value, Spec):
        inner = [str(getattr(value, "kind", ""))] if getattr(value, "kind", "") else []
        return name_of(f"{words}: {', '.join([*inner, *lines_of(value)])}", 240)
    if isinstance(value, float) and value == int(value) and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, float):
        return f"{words} {value:.4g}"
    if value == 1 and isinstance(value, int):
        words = words.replace("experts per", "expert per").removesuffix("s")
        return f"1 {words}" if words != WORDS.get(key, key.replace("_", " ")) else f"{words} 1"
    if isinstance(value, int):
        return f"{value:,} {words}" if words.split()[-1].endswith(("s", "token", "query")) else f"{words} {value:,}"
    return name_of(f"{words} {value}", 120)


def facets(model: Model) -> dict[str, tuple[str, ...]]:
    """What a model is, by role: for a table, and to compare."""
    found: dict[str, list[str]] = {"layers": [f"{model.n_layers:,} in all"]}
    for tower in model.towers:
        depth = sum(count_layers(stage.layers) for stage in tower.stages if isinstance(stage, LayersStage))
        found |= {f"{tower.name} layers": [f"{depth:,} in all"]} if depth else {}
    for box in boxes(model):
        if box.kind != "join":
            lines = found.setdefault(box.role, [])
            lines += [text for text in (box.title, *box.lines) if text not in lines]
    return {role: tuple(lines) for role, lines in found.items()}


def differing(models: Sequence[Model]) -> set[tuple[str, str]]:
    """(role, line) pairs that not all models have."""
    found = [_lines(model) for model in models]
    every = found[0].union(*found[1:])
    return every - found[0].intersection(*found[1:])


def news(before: Model, model: Model) -> set[tuple[str, str]]:
    """(role, line) pairs of a model that another does not have."""
    return _lines(model) - _lines(before)


def _lines(model: Model) -> set[tuple[str, str]]:
    return {(role, line) for role, lines in facets(model).items() for line in lines}


def marks_of(models: Sequence[Model]) -> list[set[tuple[str, str]]]:
    """The (role, line) pairs that are marked in each drawing: of two, what the other does not have, on both sides; of
    more, what the drawing before does not have."""
    if len(models) < 3:
        return [differing(models)] * len(models) if models else []
    return [news(models[i - 1], model) if i else set() for i, model in enumerate(models)]
